"""profile.json is read strictly, whatever its spacing, and replaced in one step."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.profile import (
    Profile,
    TargetProfile,
    decode_profile,
    encode_profile,
    read_profile,
    write_profile,
)
from infinity_v3.artifacts.store import open_artifact

FACTS = TargetProfile(
    fill_tokens=4096, num_threads=2, spin_count=10_000, tokens_per_s=12345.5, startup_s=0.5
)
PROFILE = Profile(targets={"cpu-x86_64-avx2-f32": FACTS})


def test_round_trip() -> None:
    assert decode_profile(encode_profile(PROFILE)) == PROFILE
    assert decode_profile(encode_profile(Profile())) == Profile()


def test_profiles_of_older_releases_say_nothing_of_replicas() -> None:
    assert b"num_replicas" not in encode_profile(PROFILE)
    more = Profile(targets={"cpu-x86_64-avx2-f32": replace(FACTS, num_replicas=2)})
    assert b'"num_replicas":2' in encode_profile(more)
    assert decode_profile(encode_profile(more)) == more


def test_facts_of_a_target() -> None:
    assert PROFILE.of("cpu-x86_64-avx2-f32") == FACTS
    assert PROFILE.of("never-measured") == TargetProfile()


def test_spacing_is_free() -> None:
    pretty = json.dumps(json.loads(encode_profile(PROFILE)), indent=2).encode()

    assert decode_profile(pretty) == PROFILE


def test_absent_file_is_an_empty_profile(tmp_path: Path) -> None:
    assert read_profile(tmp_path) == Profile()


def test_rewriting_keeps_the_artifact_and_its_id(artifact_dir: Path) -> None:
    before = open_artifact(artifact_dir)
    write_profile(artifact_dir, PROFILE)
    write_profile(artifact_dir, PROFILE)

    assert read_profile(artifact_dir) == PROFILE
    assert open_artifact(artifact_dir).artifact_id == before.artifact_id
    assert [path.name for path in artifact_dir.parent.iterdir() if path.name[0] == "."] == []


def test_unwritable_profile_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"cannot write .*profile\.json"):
        write_profile(tmp_path / "absent" / "artifact", PROFILE)


TARGET = "targets.cpu-x86_64-avx2-f32"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"format":"infinity-profile"', '"format":"x"', "format: expected 'infinity-profile'"),
        ('"format_version":1', '"format_version":2', "format_version: expected 1, found 2; remove"),
        ('"format_version":1', '"format_version":true', "format_version: expected 1, found true"),
        ('"format_version":1,', "", "format_version: missing key"),
        ('"num_threads":2', '"num_threads":2,"x":1', f"{TARGET}.x: unknown key"),
        ('"num_threads":2', '"num_threads":2,"num_threads":2', "num_threads: duplicate key"),
        ('"num_threads":2,', "", f"{TARGET}.num_threads: missing key"),
        (
            '"num_threads":2',
            '"num_threads":2,"num_replicas":0',
            f"{TARGET}.num_replicas: expected a positive",
        ),
        ('"num_threads":2', '"num_threads":0', f"{TARGET}.num_threads: expected a positive"),
        ('"num_threads":2', '"num_threads":2.0', f"{TARGET}.num_threads: expected an integer"),
        ('"fill_tokens":4096', '"fill_tokens":-1', f"{TARGET}.fill_tokens: expected a positive"),
        ('"startup_s":0.5', '"startup_s":NaN', "expected finite numbers, found NaN"),
        ('"startup_s":0.5', '"startup_s":"fast"', f"{TARGET}.startup_s: expected a number"),
        ('"cpu-x86_64-avx2-f32"', '"../x"', "targets['../x']: expected a name"),
    ],
)
def test_bad_profile_is_refused_by_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = encode_profile(PROFILE).decode()
    assert old in text
    (tmp_path / "profile.json").write_text(text.replace(old, new))

    with pytest.raises(RefusedError) as caught:
        read_profile(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: profile.json: ")
    assert message in str(caught.value)
    assert caught.value.exit_code == 3


@given(st.binary(max_size=100))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        decode_profile(data)
