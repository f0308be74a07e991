"""Credentials in a trace: which are found, where, and that no value gets any further."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.trace.credentials.removing import CredentialFilter
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.vocabulary.credential_forms import MARK, Name, is_credential, kind_of_name
from tb_gpudiag.vocabulary.recorded import Credential
from tests.trace.support import document, read_bytes, span
from tests.with_each import with_each

HUGGING_FACE = "hf_" + "a1B2" * 8
GITHUB = "ghp_" + "0aZ9" * 9
WANDB = "0a" * 20
PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA PRIVATE KEY-----\n"
SPELLINGS: tuple[dict[str, Any], ...] = ({}, {"indent": 1}, {"separators": (",", ":")})


def scrubbed(text: bytes, block: int | None = None) -> tuple[bytes, Counter[Credential]]:
    found = CredentialFilter()
    step = block or len(text) or 1
    pieces = [found.feed(text[i : i + step]) for i in range(0, len(text), step)]
    return b"".join([*pieces, found.end()]), found.found


def found_in(value: object) -> dict[str, str]:
    """Names and forms found in a value written as JSON, after checks that hold for every value."""
    names: set[tuple[str, str]] = set()
    for spelling in SPELLINGS:
        text = json.dumps(value, **spelling).encode()
        clean, found = scrubbed(text)
        json.loads(clean)
        assert bool(found) == (clean != text)
        assert scrubbed(clean) == (clean, Counter()), "a cleaned text is clean"
        for block in (1, 3, 50):
            assert scrubbed(text, block) == (clean, found), "blocks make no difference"
        names |= {(name, form) for name, form in found}
    return dict(sorted(names))


@with_each(
    ("value", "expected"),
    [
        ({"env": {"HF_TOKEN": HUGGING_FACE, "HOME": "/root"}}, {"HF_TOKEN": "Hugging Face token"}),
        ({"env": ["WANDB_API_KEY=" + WANDB, "HOME=/root"]}, {"WANDB_API_KEY": ""}),
        ({"env": f"A=1\nSTORAGE_KEY={WANDB}\nB=2"}, {"STORAGE_KEY": ""}),
        ({"env": [{"name": "WANDB_API_KEY", "value": WANDB}]}, {"WANDB_API_KEY": ""}),
        ({"cmd": f"python train.py --api-key {WANDB} --lr 1"}, {"api-key": ""}),
        ({"cmd": f"python train.py --hub_token={HUGGING_FACE}"}, {"hub_token": "Hugging Face token"}),
        ({"argv": ["train.py", "--db-password", "hunter2", "--lr", "1"]}, {"db-password": ""}),
        ({"config": json.dumps({"db": {"password": "hunter2"}})}, {"password": ""}),
        ({"config": json.dumps({"deep": json.dumps({"password": "hunter2", "n": 1})})}, {"password": ""}),
        ({"accessToken": "abcdefgh", "n": [1]}, {"accessToken": ""}),
        (
            {"credentials": {"user": "somebody", "private_key": PRIVATE_KEY}},
            {"credentials": "", "private_key": "private key"},
        ),
        ({"secrets": ["a", [{"x": "long enough"}, {"y": "longenough"}]]}, {"secrets": ""}),
        ({"text": "see " + PRIVATE_KEY}, {"text": "private key"}),
        ({"headers": {"x": "Bearer abcdef1234567890ab"}}, {"x": "authorization header"}),
        ({"store": "redis://user:hunter2@cache:6379/0"}, {"store": "password in a URL"}),
        ({"name": "login " + GITHUB}, {"name": "GitHub token"}),
        ([[GITHUB]], {"": "GitHub token"}),
        ({"x": "AKIA" + "ABCD" * 4, "y": "sk-" + "aB1" * 10}, {"x": "AWS access key", "y": "API key"}),
    ],
)
def test_a_credential_wherever_it_is(value: object, expected: dict[str, str]) -> None:
    assert found_in(value) == expected


@with_each(
    "value",
    [
        {"TOKENIZERS_PARALLELISM": "false", "GPG_KEY": "A035C8C19219BA821ECEA86B64E628F8D684696D"},
        {"PWD": "/root/project", "OLDPWD": "/root", "SSH_AUTH_SOCK": "/tmp/ssh-abcdef/agent.1"},
        {"pad_token": "<|endoftext|>", "eos_token": "</s>", "next_token": "hello", "token": "Hello"},
        {
            "max_tokens": "128",
            "token_ids": "1 2 3",
            "num_tokens": 100,
            "token": 15,
            "token_count": "12345678",
        },
        {"HF_TOKEN": "", "A_SECRET": "${VAULT_SECRET}", "API_KEY": "<your key>", "DB_PASSWORD": "****"},
        {"environment": "WANDB_API_KEY=\nTRAIN_MODEL_ID=Wan-AI/Wan2.1"},
        {"HF_TOKEN_PATH": "/root/.cache/token", "GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json"},
        {"cache_key": "abcdefgh12345678abcdef", "sort_key": "a" * 20, "key": "0a" * 20},
        {"url": "https://github.com/a/b.git", "ssh": "git@github.com:a/b.git", "t": "10:20@30"},
        ["HF_TOKEN", "WANDB_API_KEY", "HOME"],
        {"name": "sampler.py(61): _sync_token_ids", "cat": "python_function", "ph": "X"},
        {"name": "GET_TOKEN", "baseTimeNanoseconds": "12345678901234567"},
        {"name": "void task-sk-kernel<hf_device_map>(AKIA)", "kernel": "triton_poi_fused_key_token_0"},
        {"credentials": {"n": 1, "empty": "", "path": "/etc/some/file"}},
        {"packages": ["PyJWT==2.10.1.post1", "azure-keyvault-secrets==4.8.0b12345", "tiktoken==0.9.0"]},
        {"path": "/src/sk-learn_contrib-examples_of_pipelines/train.py"},
    ],
)
def test_what_only_sounds_like_a_credential(value: object) -> None:
    assert found_in(value) == {}


def test_escapes_in_names() -> None:
    text = rb'{"HF_TOK\u0045N": "abcdefgh", "\u0070assword": "hunter2", "a\"b token": "x"}'
    clean, found = scrubbed(text)
    assert clean == rb'{"HF_TOK\u0045N": "[removed]", "\u0070assword": "[removed]", "a\"b token": "x"}'
    assert {name for name, _ in found} == {"HF_TOKEN", "password"}


def test_escapes_in_values() -> None:
    text = rb'{"password": "a\"b\\", "env": "TOKEN_A=ab\/cd1234\nB=1", "next": "a\\\"b"}'
    assert (
        scrubbed(text)[0] == rb'{"password": "[removed]", "env": "TOKEN_A=ab\/cd1234\nB=1", "next": "a\\\"b"}'
    )
    assert scrubbed(rb'{"env": "A_TOKEN=ab\/cd1234\nB=1"}')[0] == rb'{"env": "A_TOKEN=[removed]\nB=1"}'


def test_a_name_that_occurs_twice() -> None:
    assert scrubbed(b'{"password": "first", "password": "second"}') == (
        b'{"password": "[removed]", "password": "[removed]"}',
        Counter({Credential("password", ""): 2}),
    )


def test_a_name_that_is_itself_a_credential() -> None:
    _, found = scrubbed(json.dumps({f"token {GITHUB}": "a1b2c3d4e5f6a7b8c9"}).encode())
    assert all(GITHUB not in name for name, _ in found)


@pytest.mark.slow
def test_brackets_that_never_close_do_not_take_the_file_with_them() -> None:
    events = b'{"name": "aten::addmm_out", "ph": "X"}, ' * 60_000
    clean, _ = scrubbed(b'{"credentials": {"a": "b", "traceEvents": [' + events)
    assert clean.endswith(events[-1_000_000:])


HOSTILE = (
    *(b"sk-a-", b"--keykey", b"--token ", b"key=", b"token=", b"bearer ", b"hf_", b"hf_1", b"eyJ", b"AKIA"),
    *(
        b"://a:b",
        b'"token": {',
        b'\\"key\\":\\"',
        b'"password":',
        b"-----BEGIN ",
        b"secret: ",
        b"\\",
        b'"key" ',
    ),
    *(b"password='", b"\\u0070", b"://", b"Authorization: "),
)


@pytest.mark.slow
@pytest.mark.parametrize("unit", HOSTILE)
def test_the_time_is_in_proportion_to_the_text(unit: bytes) -> None:
    def cpu_s(size: int) -> float:
        text = b'{"a": "' + unit * (size // len(unit)) + b'"}'
        began_s = time.process_time()
        scrubbed(text)
        return time.process_time() - began_s

    assert cpu_s(400_000) < 8 * cpu_s(100_000) + 0.1  # quadratic: 16 times


def test_a_file_that_ends_inside_a_credential() -> None:
    assert scrubbed(b'{"HF_TOKEN": "abcdefghij')[0] == b'{"HF_TOKEN": "[removed]'


_TEXT = st.text(st.sampled_from("abA1 _-=\"\\/:,{}[]\n@é'`;&<>.%"), max_size=30) | st.lists(
    st.sampled_from(
        [
            *("password", "HF_TOKEN", HUGGING_FACE, GITHUB, MARK, "hunter22", "=", ": ", "'", '"', "\\", "`"),
            *(
                "Authorization: ",
                "https://",
                "u:",
                "@host",
                "value",
                "name",
                PRIVATE_KEY[:31],
                "eyJ",
                "\\u0022",
            ),
            *("hooks.slack.com/services/", "a/b/" * 6, "--token ", ",", ";", "&b=", "\n", "é"),
        ]
    ),
    max_size=8,
).map("".join)
_JSON = st.recursive(
    _TEXT | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(_JSON, st.integers(1, 40))
def test_any_json_stays_json_of_the_same_shape(value: object, block: int) -> None:
    text = json.dumps(value).encode()
    clean, found = scrubbed(text, block)
    assert _shape(clean) == _shape(text)
    assert (clean == text) == (not found)


def _shape(text: bytes) -> object:
    """JSON with every text replaced by one and the same."""
    return _same_texts(json.loads(text, object_pairs_hook=lambda pairs: [value for _, value in pairs]))


def _same_texts(value: object) -> object:
    if isinstance(value, list):
        return [_same_texts(inner) for inner in value]
    return "" if isinstance(value, str) else value


SECRETS = (
    b'"HF_TOKEN": "hunter2hunter2"',
    b'["--db-password", "hunter2"]',
    b'"STORAGE_KEY", "' + WANDB.encode() + b'"',
    b"\\nAPI_TOKEN=hunter2hunter2 ",
    b"https://me:hunter2@host ",
    GITHUB.encode(),
    PRIVATE_KEY.encode(),
)


@with_each(
    ("name", "kind"),
    [
        ("HF_TOKEN", Name.CLEAR),
        ("hubToken", Name.CLEAR),
        ("apikey", Name.CLEAR),
        ("APIKey", Name.CLEAR),
        ("AWS_SECRET_ACCESS_KEY", Name.CLEAR),
        ("AWS_ACCESS_KEY_ID", Name.NOT),
        ("MYSQL_PWD", Name.PASSWORD),
        ("SMTP_PASS", Name.PASSWORD),
        ("forward_pass", Name.NOT),
        ("token", Name.HINT),
        ("eos_token", Name.NOT),
        ("secret_name", Name.NOT),
    ],
)
def test_names(name: str, kind: Name) -> None:
    assert kind_of_name(name) is kind


def test_the_clearer_the_name_the_less_the_value_has_to_say() -> None:
    assert is_credential("hunter2", Name.PASSWORD)
    assert not is_credential("hunter2", Name.CLEAR)
    assert is_credential("plainword", Name.CLEAR)
    assert not is_credential("plainwordplainword", Name.HINT)
    assert is_credential("plainwordplainword1", Name.HINT)


def test_a_trace_tells_what_it_contains_and_no_value() -> None:
    trace = read_bytes(
        document(
            span(f"login {GITHUB}", args={"Call stack": f"a.py(1): {HUGGING_FACE}"}),
            {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": f"main {GITHUB}"}},
            env={"HF_TOKEN": HUGGING_FACE},
            deviceProperties=[{"id": 0, "name": HUGGING_FACE}],
        )
    )
    assert trace.credentials[Credential("HF_TOKEN", "Hugging Face token")] == 1
    assert trace.events.names == [f"login {MARK}"]
    assert trace.events.threads[0].name == f"main {MARK}"
    assert trace.metadata.device_properties[0]["name"] == MARK
    assert HUGGING_FACE not in repr(trace)
    assert GITHUB not in repr(trace)


def test_a_credential_across_two_chunks_of_a_file() -> None:
    text = document(*(span(f"op {GITHUB}", i) for i in range(100)))
    trace = read_bytes(text, limits=Limits(chunk_bytes=1_000))
    assert trace.credentials == {Credential("name", "GitHub token"): 100}


def test_many_small_blocks_cost_time_in_proportion() -> None:
    """An annotated copy has a block for each event."""
    looks = 0

    class Block(bytes):
        def __len__(self) -> int:
            nonlocal looks
            looks += 1
            return super().__len__()

    found = CredentialFilter()
    block, number = Block(b'{"name": "x"},\n'), 3_000
    assert b"".join([*(found.feed(block) for _ in range(number)), found.end()]) == bytes(block) * number
    assert looks <= 4 * number
