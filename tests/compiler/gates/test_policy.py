"""policy.toml is read strictly, and every refusal names the key."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.compiler.gates.policy import (
    ChannelPolicy,
    Policy,
    SignatureRule,
    read_policy,
)

FULL = b"""
[channels.prod]
min-cosine = 0.9995
max-abs = 1
required-targets = ["cpu-x86_64-avx2-f32"]
require-signature = ["keys/release.pem", "/etc/infinity/second.pem"]
max-p50-slowdown = 1.1
min-throughput-ratio = 0.9
golden-requests = "golden/{name}.jsonl"
min-golden-agreement = 0.95
actors = ["0123456789abcdef", "unverified:alice"]

[channels.staging]
"""


def test_every_key_is_read() -> None:
    assert read_policy(FULL) == Policy(
        channels={
            "prod": ChannelPolicy(
                min_cosine=0.9995,
                max_abs=1.0,
                required_targets=("cpu-x86_64-avx2-f32",),
                require_signature=SignatureRule(
                    is_required=True, key_files=("keys/release.pem", "/etc/infinity/second.pem")
                ),
                max_p50_slowdown=1.1,
                min_throughput_ratio=0.9,
                golden_requests="golden/{name}.jsonl",
                min_golden_agreement=0.95,
                actors=("0123456789abcdef", "unverified:alice"),
            ),
            "staging": ChannelPolicy(),
        },
        sha256=hashlib.sha256(FULL).hexdigest(),
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("true", SignatureRule(is_required=True)),
        ("false", SignatureRule()),
        ('"a.pem"', SignatureRule(is_required=True, key_files=("a.pem",))),
    ],
)
def test_forms_of_require_signature(text: str, rule: SignatureRule) -> None:
    policy = read_policy(f"[channels.prod]\nrequire-signature = {text}".encode())
    assert policy.of("prod").require_signature == rule


@pytest.mark.parametrize("data", [None, b"", b"[channels]"])
def test_a_channel_without_a_section_is_refused(data: bytes | None) -> None:
    with pytest.raises(RefusedError) as raised:
        read_policy(data).of("prod")
    assert str(raised.value) == (
        "policy.toml: expected a section [channels.prod], found sections for: none; add one, or "
        "promote with --no-gates, which the log records"
    )


def test_a_misspelt_channel_is_told_the_nearest() -> None:
    with pytest.raises(RefusedError, match=r"found sections for: prod, staging; did you mean prod"):
        read_policy(FULL).of("prd")


SLOWDOWN = "a number from 1 (candidate / current, e.g. 1.1 = at most 10 % slower)"
RATIO = "a number above 0 (candidate / current, e.g. 0.9)"
NAME = "expected a name, 1 to 100 of A-Z a-z 0-9 . _ + -, the first one a letter or a digit"
KEYS = "expected true, false, a file of a public key or an array of them"
ACTOR = "expected the id of a key (16 hex digits) or 'unverified:<user>'"
PATH = "expected a path in the registry, or an absolute one on this host"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("min-cosine = 1.5", "min-cosine: expected a number from -1 to 1, found 1.5"),
        ("min-cosine = true", "min-cosine: expected a number from -1 to 1, found true"),
        ("min-cosine = '1'", "min-cosine: expected a number from -1 to 1, found '1'"),
        ("min-cosine = nan", "min-cosine: expected a number from -1 to 1, found nan"),
        ("max-abs = -1e-9", "max-abs: expected a number from 0, found -1e-09"),
        ("max-abs = inf", "max-abs: expected a number from 0, found inf"),
        (f"max-abs = 1{'0' * 400}", "max-abs: expected a number from 0, found inf"),
        ("max-abs = 2026-01-01", "max-abs: expected a number from 0, found a date or time"),
        ("required-targets = 'a'", "required-targets: expected an array, found 'a'"),
        (
            "required-targets = []",
            "required-targets: expected at least one item, found none; leave the key out to ask "
            "nothing",
        ),
        ("required-targets = ['a', '..']", f"required-targets[1]: {NAME}, found '..'"),
        ("required-targets = ['a', 'a']", "required-targets[1]: 'a' stands here twice"),
        ("require-signature = 1", f"require-signature: {KEYS}, found 1"),
        ("require-signature = {a = 1}", f"require-signature: {KEYS}, found a table"),
        ("require-signature = '../k'", f"require-signature: {PATH}, found a '..' part"),
        ("max-p50-slowdown = 0.1", f"max-p50-slowdown: expected {SLOWDOWN}, found 0.1"),
        ("min-throughput-ratio = 0", f"min-throughput-ratio: expected {RATIO}, found 0"),
        ("golden-requests = ''", f"golden-requests: {PATH}, found an empty path"),
        ("golden-requests = 3", "golden-requests: expected a path, found 3"),
        (
            "min-golden-agreement = 0.5",
            "min-golden-agreement: expected golden-requests beside it, found none; name the file "
            "of requests",
        ),
        ("actors = ['bob']", f"actors[0]: {ACTOR}, found 'bob'"),
        ("actors = ['unverified:']", f"actors[0]: {ACTOR}, found 'unverified:'"),
        (
            "min-cosin = 0.9",
            "min-cosin: unknown key; did you mean min-cosine?; known here: min-cosine, max-abs, "
            "required-targets, require-signature, max-p50-slowdown, min-throughput-ratio, "
            "golden-requests, min-golden-agreement, actors",
        ),
    ],
)
def test_values_are_refused_by_name(line: str, sentence: str) -> None:
    with pytest.raises(RefusedError) as raised:
        read_policy(f"[channels.prod]\n{line}\n".encode())
    assert str(raised.value) == f"policy.toml: channels.prod.{sentence}"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"[chanels.prod]", "chanels: unknown key; known here: channels; did you mean channels?"),
        (b"channels = 1", "channels: expected a table, found 1"),
        (b"channels.prod = 'a'", "channels.prod: expected a table, found 'a'"),
        (b"\xff", "expected UTF-8, found an invalid byte at 0"),
        (b"[channels.prod]\nmin-cosine = 1\nmin-cosine = 1", "expected TOML, found: Cannot "),
        (b"a = " + b"[" * 100_000, "expected a few levels, found deeply nested TOML"),
        (b"a = 1" + b"0" * 5000, "expected TOML, found: "),
        (b" " * ((1 << 20) + 1), "expected at most 1048576 bytes, found 1048577"),
        (
            b"[channels.'../prod']",
            "channels['../prod']: expected the name of a channel, 1 to 100 of A-Z a-z 0-9 . _ + -, "
            "the first one a letter or a digit, found '../prod'",
        ),
    ],
)
def test_documents_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(f"policy.toml: {sentence}")):
        read_policy(data)


@given(st.binary(max_size=300))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        policy = read_policy(data)
    except RefusedError as error:
        refusal = str(error)
    else:
        refusal = "policy.toml: none"
        assert policy.sha256 == hashlib.sha256(data).hexdigest()
    assert refusal.startswith("policy.toml: ")


VALUES = st.sampled_from(
    ["1", "0.5", "-3", "inf", "true", "'x'", "['a']", "[]", "{}", "2026-01-01", "[[1]]", "'/a'"]
)
KEYS_OF_A_CHANNEL = st.sampled_from(
    [
        *("min-cosine", "max-abs", "required-targets", "require-signature", "max-p50-slowdown"),
        *("min-throughput-ratio", "golden-requests", "min-golden-agreement", "actors", "other"),
    ]
)


@given(st.dictionaries(KEYS_OF_A_CHANNEL, VALUES))
def test_any_value_of_any_key_is_read_or_refused_by_its_name(values: dict[str, str]) -> None:
    text = "[channels.prod]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
    try:
        read_policy(text.encode()).of("prod")
    except RefusedError as error:
        named = re.match(r"policy\.toml: channels\.prod\.([a-z0-9-]+)", str(error))
    else:
        return
    assert named is not None
    assert named[1] in values
