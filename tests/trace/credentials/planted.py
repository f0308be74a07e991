"""Credentials as they get into traces, each with where it is. All values are made up."""

from __future__ import annotations

import json
from typing import Final

HEX: Final = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
ALNUM: Final = "aB3dE5gH7jK9mN1pQ4sT6vW8xY0zA2cD4fG6hJ8kL0nP2rS"
PASSWORD: Final = "tr0ub4dor"

# A name and a value in the text of a string: a command, an environment, a configuration, a log.
_NAMED: Final = (
    "PGPASSWORD={s} psql",
    "SSHPASS={s} sshpass -e",
    "KRB5PASS={s}",
    "PASS={s}",
    "db_pass={s}",
    "pwd={s}",
    "MYSQL_PWD={s}",
    "master_key={s}",
    "mysqldump --db-pass {s} jobs",
    "train.py --password {s} --lr 1",
    "train.py --redis-password={s} --lr 1",
    "java -Dspring.datasource.password={s} -jar x.jar",
    "db:\n  user: me\n  password: {s}\n  port: 1",
    "password: '{s}'",
    'password: "{s}"',
    "{'password': '{s}', 'user': 'me'}",
    "{'db': {'api_key': '{s}'}}",
    "connect(user='me', password='{s}')",
    'connect(user="me", password="{s}")',
    "password = {s}",
    "password = '{s}'",
    'client_secret = "{s}"',
    "api_key   =   {s}",
    "secret_key := {s}",
    "os.environ['DB_PASSWORD'] = '{s}'",
    'os.environ["WANDB_API_KEY"] = "{s}"',
    "export WANDB_API_KEY={s}; python train.py",
    "set MLFLOW_TRACKING_PASSWORD={s}&& python train.py",
    "env A=1,SERVICE_TOKEN={s},B=2",
    "[('X-Api-Key', '{s}')]",
    "['--api-key', '{s}', '--lr', '1']",
    "curl -H 'X-Api-Key: {s}' https://host",
    'curl -H "Authorization: Basic {s}" https://host',
    "Authorization: Bearer {s}",
    "Authorization: Token {s}",
    "authorization: {s}",
    "Cookie: session={s}; theme=dark",
    "Proxy-Authorization: Basic {s}",
    "curl -u me:{s} https://host",
    "curl --user 'me:{s}' https://host",
    "Server=db;User=me;Password={s};Encrypt=yes",
    "host=db user=me password={s} dbname=jobs",
    "https://host/x?access_token={s}&a=1",
    "https://host/x?a=1&api_key={s}",
    "<password>{s}</password>",
    "<apiToken>\n  {s}\n</apiToken>",
    '{"password":"{s}"}',
    '{\\"password\\": \\"{s}\\"}',
    "\\u0022password\\u0022:\\u0022{s}\\u0022",
    "a=1\\u0026access_token\\u003d{s}\\u0026b=2",
    "https%3A%2F%2Fhost%2Fx%3Faccess_token%3D{s}%26b%3D1",
    "&quot;password&quot;: &quot;{s}&quot;",
    "[name=HF_TOKEN, value=1] HF_TOKEN: {s}",
    "const apiToken: string = '{s}'",
    "var apiToken string = `{s}`",
    '"auth": "{s}"',
    "AccountName=a;AccountKey={s};EndpointSuffix=x",
    "aws_secret_access_key = {s}",
    "AWS_SESSION_TOKEN={s}",
    "dbPassword={s}",
    "ENCRYPTION_KEY={s}",
    "ssh_key_passphrase={s}",
    "redis://:{s}@cache:6379/0",
    "postgres://me:{s}@db.host:5432/jobs",
    "git+https://{s}@github.com/a/b.git@main",
    "https://oauth2:{s}@gitlab.com/a/b.git",
    "mongodb+srv://me:{s}@cluster0.mongodb.net/?retryWrites=true",
    "http:\\/\\/me:{s}@proxy:3128",
)
# Values that must go as a whole.
_WHOLE: Final = (
    ("DB_PASSWORD='{s}'", "two words, and more"),
    ('DB_PASSWORD="{s}"', "two words; and more"),
    ("password: '{s}'", "with: colon & more"),
    ("{'password': '{s}'}", "with, comma"),
    ("db:\n  password: {s}\n  port: 1", "correct horse battery staple"),
    ("DB_PASSWORD={s}", "aa,bb"),
    ("DB_PASSWORD={s} next", "aa;bb"),
    ("DB_PASSWORD={s} next", "aa&bb"),
    ("--password {s} --lr 1", "a,b;c&d"),
    ("postgres://me:{s}@db.host:5432/jobs", "p@ss"),
    ("postgres://me:{s}@db.host:5432/jobs", "pa/ss"),
    ("postgres://me:{s}@db.host:5432/jobs", "p@s/s@x"),
    ("postgres://me:{s}@db/jobs", "pa:ss@word"),
    ("Authorization: Basic {s}", "dXNlcjpwYXNz+/=="),
    ("Authorization: Digest {s}", "dXNlcjpwYXNz, response=0a1b2c3d"),
)
# Forms that are known whatever their name.
_FORMS: Final = (
    *("hf_" + ALNUM[:34], "sk-proj-" + ALNUM + "T3BlbkFJ" + ALNUM, "sk-ant-api03-" + ALNUM, "gsk_" + ALNUM),
    *("xai-" + ALNUM * 2, "pplx-" + ALNUM, "pcsk_" + ALNUM[:5] + "_" + ALNUM, "nvapi-" + ALNUM),
    *("lsv2_pt_" + HEX + "_0a1b2c3d4e", "lsv2_sk_" + HEX + "_0a1b2c3d4e", "r8_" + ALNUM[:37]),
    *("ya29." + ALNUM, "GOCSPX-" + ALNUM[:28], "1//0" + ALNUM, "AIza" + ALNUM[:35]),
    *("SG." + ALNUM[:22] + "." + ALNUM[:43], "dop_v1_" + HEX * 2, "doo_v1_" + HEX * 2, "dor_v1_" + HEX * 2),
    *("shpat_" + HEX, "shpss_" + HEX, "shpca_" + HEX, "shppa_" + HEX),
    *("hvs." + ALNUM * 2, "hvb." + ALNUM * 3, "NRAK-" + ALNUM[:27].upper(), "NRII-" + ALNUM[:32]),
    *("tskey-auth-" + ALNUM[:11] + "-" + ALNUM[:32], "xapp-1-A0B1C2D3-1234567890-" + HEX * 2),
    *("xoxb-123456789012-123456789012-" + ALNUM[:24], "xoxp-123456789012-123456789012-1234567890-" + HEX),
    *("hooks.slack.com/services/T0A1B2C3D/B0A1B2C3D/" + ALNUM[:24], "glpat-" + ALNUM[:20]),
    *("glsa_" + ALNUM[:32] + "_0a1b2c3d", "glc_" + ALNUM, "ghp_" + ALNUM[:36]),
    "github_pat_" + ALNUM + ALNUM[:35],
    *("npm_" + ALNUM[:36], "pypi-AgEIcHlwaS5vcmc" + ALNUM * 2, "dckr_pat_" + ALNUM[:27]),
    *("AKIA" + "ABCDEFGH23456723", "ASIA" + "ABCDEFGH23456723"),
    *("sk_live_" + ALNUM[:24], "rk_live_" + ALNUM[:24], "whsec_" + ALNUM[:32]),
    "MTIzNDU2Nzg5MDEyMzQ1Njc4.GaBcDe." + ALNUM[:38],
    "discord.com/api/webhooks/123456789012345678/" + ALNUM + ALNUM[:21],
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + ALNUM,
    "-----BEGIN OPENSSH PRIVATE KEY-----\n" + ALNUM + "\n" + ALNUM + "\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v1 (GNU/Linux)\n\n"
    + ALNUM
    + "\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----",
    "dapi" + HEX,
    "abc8Q~" + ALNUM[:34],
    "ATATT3" + ALNUM * 3,
    "figd_" + ALNUM,
)
_SIGNED: Final = (
    ("https://a.blob.core.windows.net/c/x.json?sv=2022-11-02&sig={s}&se=2030", ALNUM[:42] + "%3D"),
    ("https://b.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature={s}", HEX * 2),
    ("https://b.s3.amazonaws.com/x?AWSAccessKeyId=x&Signature={s}&Expires=1", ALNUM[:27] + "%3D"),
    ("https://storage.googleapis.com/b/x?X-Goog-Signature={s}", HEX * 4),
    ("https://api.telegram.org/bot123456789:{s}/getMe", "AA" + ALNUM[:33]),
    ("SharedAccessKey={s};EntityPath=x", ALNUM[:43] + "="),
)

TEXTS: Final = (
    *((text, ALNUM) for text in _NAMED),
    *((text, PASSWORD) for text in _NAMED if "ass" in text.lower() or "pwd" in text.lower()),
    *_WHOLE,
    *(("seen {s} here", form) for form in _FORMS),
    *_SIGNED,
)
"""A text, and the credential that goes in place of {s}."""

_OBJECTS: Final = (
    {"PGPASSWORD": "{s}"},
    {"PASS": "{s}"},
    {"master_key": "{s}"},
    {"env": [{"name": "db_password", "value": "{s}"}]},
    {"env": [{"value": "{s}", "name": "WANDB_API_KEY"}]},
    {"env": [{"key": "api_key", "value": "{s}"}]},
    {"env": [{"Name": "API_TOKEN", "Value": "{s}"}]},
    {"headers": [["X-Api-Key", "{s}"], ["authorization", "{s}"]]},
    {"headers": {"X-Api-Key": "{s}"}},
    {"argv": ["x.py", "--db-pass", "{s}"]},
    {"auths": {"https://registry": {"auth": "{s}"}}},
    {"credentials": {"user": "me", "anything": "{s}"}},
    {"secrets": ["{s}"]},
    {"config": json.dumps({"db": {"password": "{s}"}})},
    {"config": json.dumps({"cmd": json.dumps({"env": "DB_PASSWORD={s}"})})},
)


def planted() -> list[tuple[str, str]]:
    """Return JSON with one credential in it, and the credential, once for each place."""
    found = [(json.dumps({"name": text.replace("{s}", value)}), value) for text, value in TEXTS]
    found += [(json.dumps(value).replace("{s}", ALNUM), ALNUM) for value in _OBJECTS]
    return found
