"""Values that are credentials whatever their name: how they start, and what follows.

The starts and lengths are facts that their services publish; most are collected in the rules of gitleaks
(https://github.com/gitleaks/gitleaks). Lengths here are lower bounds, because services make them longer. What
has no start of its own (the hexadecimal key of a service, say) is found by its name only.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, NamedTuple

from tb_gpudiag.frozen import dataclass

_WORD: Final = rb"[A-Za-z0-9_-]"
_ALNUM: Final = rb"[A-Za-z0-9]"
_HEX: Final = rb"[0-9a-fA-F]"
_BASE64: Final = rb"[A-Za-z0-9+/]"
_URL_CODED: Final = rb"[A-Za-z0-9%+/=_-]"
_SLASH: Final = rb"\\?/"
_PATH: Final = rb"(?:[A-Za-z0-9@+_-]|\\?/)"
# Not `xoxo-gossip-girl.jpg`.
_SLACK: Final = rb"(?=[A-Za-z0-9.-]{0,40}[0-9]{5})[A-Za-z0-9.-]{10,}"
# A form is matched within this many bytes: a JSON web token has a thousand.
_LONGEST: Final = 2 << 10
# A word before a value ends with one of these: a character, an escaped one, or one that is coded in a URL.
BOUNDARY: Final = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-F]{2})|(?<=\\u00[0-9a-fA-F]{2}))"


@dataclass(frozen=True)
class _Form:
    """A form of values. rest: what follows one of the starts; its group, if it has one, is the credential."""

    name: str
    starts: tuple[bytes, ...]
    rest: bytes
    inside: bool = False  # it may start within a word

    @cached_property
    def expression(self) -> re.Pattern[bytes]:
        """Matches values of this form. Most forms are in no trace, and are never compiled."""
        starts = b"|".join(map(re.escape, self.starts))
        return re.compile(b"%s(?:%s)(?:%s)" % (b"" if self.inside else BOUNDARY, starts, self.rest))


def _form(name: str, starts: str, rest: bytes, *, inside: bool = False) -> _Form:
    return _Form(name, tuple(starts.encode("ascii").split()), rest, inside)


# A user id of Discord starts with 1 to 9, in base64.
_DISCORD_STARTS: Final = " ".join(
    a + b for a in ("MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT") for b in "AEIMQUYcgk"
)

_FORMS: Final = (
    # of machine learning
    _form(
        "Hugging Face token", "hf_", rb"(?:[A-Za-z]{0,40}[0-9][A-Za-z0-9]{15,}|[A-Za-z]{34}(?![A-Za-z0-9_]))"
    ),
    _form("Hugging Face token", "api_org_", _ALNUM + rb"{30,}"),
    _form("API key", "sk-", rb"(?:[A-Za-z_-]{0,40}[0-9][A-Za-z0-9_-]{15,}|[A-Za-z0-9]{40,})"),
    _form("API key", "sk_", _HEX + rb"{40,}"),
    _form("Groq key", "gsk_", _ALNUM + rb"{20,}"),
    _form("NVIDIA key", "nvapi-", _WORD + rb"{20,}"),
    _form("Replicate token", "r8_", _ALNUM + rb"{30,}"),
    _form("xAI key", "xai-", _ALNUM + rb"{40,}"),
    _form("Perplexity key", "pplx-", _ALNUM + rb"{32,}"),
    _form("Pinecone key", "pcsk_", _ALNUM + rb"{4,}_[A-Za-z0-9]{20,}"),
    _form("LangSmith key", "lsv2_pt_ lsv2_sk_", _HEX + rb"{32}_[0-9a-fA-F]{8,}"),
    _form("Weights & Biases key", "wandb_v1_", _WORD + rb"{20,}"),
    _form("Neptune token", "eyJhcGlf", _BASE64 + rb"{40,}"),
    _form("Databricks token", "dapi", rb"[0-9a-f]{32}"),
    _form("Fireworks key", "fw_", _ALNUM + rb"{20,}"),
    _form("Cerebras key", "csk-", _ALNUM + rb"{40,}"),
    _form("Jina key", "jina_", _WORD + rb"{40,}"),
    _form("Tavily key", "tvly-", _WORD + rb"{20,}"),
    _form("Voyage key", "pa-", _WORD + rb"{40,}"),
    _form("RunPod key", "rpa_", _ALNUM + rb"{40,}"),
    _form("Anyscale secret", "esecret_", _ALNUM + rb"{20,}"),
    _form("Prefect key", "pnu_ pnb_", _ALNUM + rb"{36}"),
    # of code, packages and builds
    _form("GitHub token", "gho_ ghp_ ghs_ ghu_ ghr_", _ALNUM + rb"{16,}"),
    _form("GitHub token", "github_pat_", rb"[A-Za-z0-9_]{20,}"),
    _form(
        "GitLab token",
        "glpat- glptt- gldt- glrt- glcbt- glffct- glft- glimt- glagent- gloas- glsoat- GR1348941",
        rb"[A-Za-z0-9_.-]{16,}",
    ),
    _form("GitLab session", "_gitlab_session=", rb"([0-9a-z]{32})", inside=True),
    _form("package registry token", "npm_", _ALNUM + rb"{30,}"),
    _form("package registry token", "pypi- dckr_pat_ dckr_oat_", _WORD + rb"{20,}"),
    _form("package registry token", "rubygems_", _HEX + rb"{40,}"),
    _form("package registry token", "CLOJARS_ clojars_", _ALNUM + rb"{50,}"),
    _form("Artifactory token", "AKCp", _ALNUM + rb"{60,}"),
    _form("Artifactory token", "cmVmd", _ALNUM + rb"{50,}"),
    _form("CircleCI token", "CCIPAT_ CCIPRJ_", rb"[A-Za-z0-9_]{20,}"),
    _form("Buildkite token", "bkua_", _HEX + rb"{40}"),
    _form("Octopus Deploy key", "API-", rb"[A-Z0-9]{25,26}(?![A-Z0-9])"),
    _form("Sourcegraph token", "sgp_", rb"(?:[0-9a-fA-F]{16}_|local_)?[0-9a-fA-F]{40}"),
    _form("SonarQube token", "squ_ sqp_ sqa_", _WORD + rb"{40}"),
    _form("Sentry token", "sntrys_ sntryu_", rb"[A-Za-z0-9+/=_]{40,}"),
    _form("Atlassian token", "ATATT3 ATCTT3 ATBB", rb"[A-Za-z0-9_=-]{24,}"),
    _form("Linear token", "lin_api_ lin_oauth_", _ALNUM + rb"{40,}"),
    _form("Postman key", "PMAK-", _HEX + rb"{24}-[0-9a-fA-F]{34}"),
    _form("Readme key", "rdme_", rb"[a-z0-9]{60,}"),
    # of clouds
    _form("AWS access key", "AKIA ASIA ABIA ACCA", rb"[0-9A-Z]{16}(?![0-9A-Za-z])"),
    _form("AWS Bedrock key", "ABSK bedrock-api-key-", rb"[A-Za-z0-9+/=]{28,}"),
    _form("Google API key", "AIza", _WORD + rb"{35}"),
    _form("Google OAuth token", "ya29.", _WORD + rb"{20,}"),
    _form("Google OAuth token", "1//0", _WORD + rb"{30,}"),
    _form("Google OAuth secret", "GOCSPX-", _WORD + rb"{20,}"),
    _form("Azure account key", "AccountKey= SharedAccessKey=", rb"([A-Za-z0-9+/]{30,}={0,2})"),
    _form("Azure signature", "sig=", b"(" + _URL_CODED + rb"{30,})"),
    _form(
        "Azure client secret", " ".join(f"{i}Q~" for i in range(10)), rb"[A-Za-z0-9_~.-]{31,}", inside=True
    ),
    _form("signature of a URL", "X-Amz-Signature= X-Goog-Signature=", rb"([0-9a-f]{40,})"),
    _form("signature of a URL", "Signature=", b"(" + _URL_CODED + rb"{20,})"),
    _form("Alibaba key", "LTAI", _ALNUM + rb"{12,30}"),
    _form("Yandex token", "AQVN", _WORD + rb"{35,}"),
    _form("Yandex token", "t1.", rb"[A-Za-z0-9_-]{1,300}={0,2}\.[A-Za-z0-9_-]{86}"),
    _form("DigitalOcean token", "doo_v1_ dop_v1_ dor_v1_", _HEX + rb"{64}"),
    _form("Heroku key", "HRKU-", _WORD + rb"{30,}"),
    _form("Fly.io token", "fo1_ fm1a_ fm1r_ fm2_", rb"[A-Za-z0-9+/_-]{40,}"),
    _form("Cloudflare key", "v1.0-", rb"[a-f0-9]{24}-[a-f0-9]{146}"),
    _form("Netlify token", "nfp_", _ALNUM + rb"{30,}"),
    _form("Scalingo token", "tk-us-", _WORD + rb"{40,}"),
    _form("OpenShift token", "sha256~", _WORD + rb"{40,}"),
    _form("Pulumi token", "pul-", _HEX + rb"{40}"),
    _form("Terraform token", ".atlasv1.", rb"([A-Za-z0-9_=-]{60,})", inside=True),
    _form("Vault token", "hvs. hvb. hvr.", _WORD + rb"{24,}"),
    _form("Doppler token", "dp.pt. dp.st. dp.sa. dp.ct.", rb"[A-Za-z0-9._-]{40,}"),
    _form("PlanetScale token", "pscale_tkn_ pscale_oauth_ pscale_pw_", rb"[A-Za-z0-9_=.-]{32,}"),
    _form("Supabase token", "sbp_ sb_secret_", rb"[A-Za-z0-9_-]{30,}"),
    _form("Tailscale key", "tskey-", _WORD + rb"{20,}"),
    _form("1Password token", "ops_eyJ", _BASE64 + rb"{100,}"),
    _form("1Password key", "A3-", rb"[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}(?:-[A-Z0-9]{5}){3}"),
    _form("age key", "AGE-SECRET-KEY-1", rb"[A-Z0-9]{40,}"),
    # of watching and reporting
    _form("Grafana token", "glc_ glsa_ eyJrIjoi", rb"[A-Za-z0-9+/_]{32,}"),
    _form("New Relic key", "NRAK- NRII- NRJS- NRRA-", rb"[A-Za-z0-9-]{19,}"),
    _form("Dynatrace token", "dt0c01.", _ALNUM + rb"{24}\.[A-Za-z0-9]{64}"),
    # of messages, payments and shops
    _form("Slack token", "xoxa- xoxb- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-", _SLACK),
    _form("Slack webhook", "hooks.slack", rb"\.com\\?/[a-z]+\\?/" + _PATH + rb"{20,}"),
    _form(
        "Discord webhook",
        "discord.com discordapp.com",
        _SLASH + b"api" + _SLASH + b"webhooks" + _SLASH + b"[0-9]{15,22}" + _SLASH + b"[A-Za-z0-9_-]{40,}",
    ),
    _form("Discord token", _DISCORD_STARTS, rb"[A-Za-z0-9]{20,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    _form("Telegram token", ":AA", rb"(?<=[0-9]{8}:AA)[A-Za-z0-9_-]{32,}", inside=True),
    _form("Teams webhook", "webhook.office.com", _SLASH + rb"webhookb2" + _SLASH + _PATH + rb"{60,}"),
    _form("Zapier webhook", "hooks.zapier.com", _SLASH + rb"hooks" + _SLASH + _PATH + rb"{12,}"),
    _form("SendGrid key", "SG.", _WORD + rb"{16,}\.[A-Za-z0-9_-]{16,}|[A-Za-z0-9=_.-]{66}"),
    _form("Brevo key", "xkeysib- xsmtpsib-", _HEX + rb"{64}-[A-Za-z0-9]{16}"),
    _form("Mailgun key", "key- pubkey-", rb"[a-f0-9]{32}"),
    _form("Twilio key", " ".join(f"SK{digit}" for digit in "0123456789abcdefABCDEF"), _HEX + rb"{31}"),
    _form("Facebook token", "EAAM EAAC", _ALNUM + rb"{100,}"),
    _form("Stripe key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", _ALNUM + rb"{10,}"),
    _form("Stripe webhook", "whsec_", _ALNUM + rb"{24,}"),
    _form("Square token", "EAAA sq0atp- sq0csp-", _WORD + rb"{22,}"),
    _form("Plaid token", "access-sandbox- access-production- access-development-", rb"[0-9a-f-]{36}"),
    _form("Flutterwave key", "FLWSECK_TEST- FLWSECK- FLWPUBK_TEST-", _ALNUM + rb"{12,}"),
    _form("EasyPost key", "EZAK EZTK", _ALNUM + rb"{54}(?![A-Za-z0-9])"),
    _form("Duffel token", "duffel_test_ duffel_live_", rb"[A-Za-z0-9_=-]{40,}"),
    _form("Shippo token", "shippo_live_ shippo_test_", _HEX + rb"{40}"),
    _form("Shopify token", "shpat_ shpca_ shppa_ shpss_", _HEX + rb"{32}"),
    # of documents and maps
    _form("Adobe secret", "p8e-", _ALNUM + rb"{32}"),
    _form("Notion token", "ntn_ secret_", _ALNUM + rb"{43,}"),
    _form("Figma token", "figd_ figo_", _WORD + rb"{30,}"),
    _form("Frame.io token", "fio-u-", rb"[A-Za-z0-9_=-]{60,}"),
    _form("Typeform token", "tfp_", rb"[A-Za-z0-9_.=-]{50,}"),
    _form("Mapbox token", "pk. sk.", rb"[A-Za-z0-9]{60}\.[A-Za-z0-9_-]{22}"),
    _form("Dropbox token", "sl.", rb"[A-Za-z0-9_=-]{130,}"),
    _form("SettleMint token", "sm_aat_ sm_pat_ sm_sat_", _ALNUM + rb"{16}"),
    _form("42 secret", "s-s4t2ud- s-s4t2af-", _HEX + rb"{64}"),
    # of any
    _form("JSON web token", "eyJ", _WORD + rb"{8,}\.eyJ" + _PATH + rb"{8,}\." + _PATH + rb"{8,}={0,2}"),
    _form("JSON web token", "eyJ eyA", _WORD + rb"{15,}\.ey" + _PATH + rb"{17,}\."),
    _form("JSON web token", "ZXlK", _BASE64 + rb"{100,}={0,2}"),
    _Form("authorization header", (b"Bearer ", b"bearer "), rb"([A-Za-z0-9_.~+/-]{16,}={0,2})"),
    _form("private key", "-----BEGIN", rb"[A-Z0-9_ -]{0,60}PRIVATE KEY(?: BLOCK)?-----", inside=True),
    _Form(
        "password of a command",
        (b"-u ", b"--user ", b"--user="),
        rb"\\{0,4}[\"']?[A-Za-z0-9_.@\\-]{0,64}:[\"']?(?![0-9]+(?![^\s\"'\\]))([^\s\"'\\]{3,200})",
    ),
)

IN_VALUES: Final = tuple(dict.fromkeys(start for form in _FORMS for start in form.starts if not form.inside))
"""How such values start at the start of a word."""
IN_WORDS: Final = tuple(start for form in _FORMS for start in form.starts if form.inside)
"""How such values start anywhere."""


class FoundForm(NamedTuple):
    """The credential of a known form at a place."""

    start: int
    end: int
    name: str


def _by_start() -> dict[bytes, list[_Form]]:
    found: dict[bytes, list[_Form]] = {}
    for form in _FORMS:
        for start in {start[:3] for start in form.starts}:
            found.setdefault(start, []).append(form)
    return found


_BY_START: Final = _by_start()


def form_at(text: bytes, place: int) -> FoundForm | None:
    """Return the value of a known form that starts here. It may go on after the end that is returned."""
    for form in _BY_START.get(text[place : place + 3], ()):
        match = form.expression.match(text, place, place + _LONGEST)
        if match is not None:
            return FoundForm(*match.span(match.lastindex or 0), form.name)
    return None
