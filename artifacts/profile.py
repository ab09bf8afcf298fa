"""Measured facts of an artifact's targets, kept in profile.json outside the identity.

Owns the format of that file. Knows nothing of how anything is measured.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import PROFILE_FILE
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.rules import check_name
from infinity_v3.artifacts.typed_json import (
    Location,
    canonical_bytes,
    check_object,
    from_json,
    parse,
    show,
    to_json,
)

FORMAT = "infinity-profile"
FORMAT_VERSION = 1
_REMEDY = f"remove {PROFILE_FILE} to serve with the built-in defaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetProfile:
    """Facts of one target on the host that measured them; None = not measured."""

    fill_tokens: int | None = None
    """Tokens up to which waiting inputs are gathered into one batch."""
    num_threads: int | None = None
    """OpenMP team of one engine call."""
    num_replicas: int | None = field(default=None, metadata={"is_optional": True})
    """Engine calls at the same time, each with such a team. Profiles of older releases lack it."""
    spin_count: int | None = None
    """How often an idle thread of that team looks for work before it sleeps."""
    tokens_per_s: float | None = None
    startup_s: float | None = None
    """Process start to first embedding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The whole of profile.json; `targets` is keyed by target name."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    targets: Mapping[str, TargetProfile] = field(default_factory=dict)

    def of(self, target_name: str) -> TargetProfile:
        """Return the facts of one target, all None when it was never measured."""
        return self.targets.get(target_name, TargetProfile())


def profile_to_json(profile: Profile) -> Mapping[str, object]:
    """Return the JSON object of a profile, as `ArtifactWriter.commit` takes it."""
    return cast(Mapping[str, object], to_json(profile))


def encode_profile(profile: Profile) -> bytes:
    """Serialise a profile.

    Raises:
        RefusedError: a value is out of range.
    """
    data = canonical_bytes(to_json(profile), Location(PROFILE_FILE))
    decode_profile(data)
    return data


def decode_profile(data: bytes) -> Profile:
    """Read a profile strictly; spacing and key order are free, because people may edit the file.

    Raises:
        RefusedError: names the key at fault.
    """
    at = Location(PROFILE_FILE)
    document = check_object(parse(data, at), at)
    for key, expected in (("format", FORMAT), ("format_version", FORMAT_VERSION)):
        found = document.get(key, expected)
        if type(found) is not type(expected) or found != expected:
            raise at.key(key).refuse(f"expected {show(expected)}, found {show(found)}; {_REMEDY}")
    profile = from_json(document, Profile, at)
    for name, facts in profile.targets.items():
        check_name(name, at.key("targets").key(name))
        _check_positive(facts, at.key("targets").key(name))
    return profile


def read_profile(root: Path) -> Profile:
    """Read the profile of an artifact directory; an absent file is an empty profile.

    Raises:
        RefusedError: the file breaks the format; names the directory and the key.
        RunFailedError: it cannot be read.
    """
    path = root / PROFILE_FILE
    with os_errors_as_run_failed("read", path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return Profile()
    try:
        return decode_profile(data)
    except RefusedError as error:
        raise RefusedError(f"{root}: {error}") from error


def write_profile(root: Path, profile: Profile) -> None:
    """Replace the profile of an artifact directory in one step.

    Raises:
        RefusedError: a value is out of range.
        RunFailedError: the file cannot be written; the old one is still there.
    """
    data = encode_profile(profile)
    # A reader refuses unlisted files, so the temporary one lies beside the artifact.
    temporary = root.parent / f".{root.name}.{PROFILE_FILE}.{secrets.token_hex(8)}"
    with os_errors_as_run_failed("write", root / PROFILE_FILE):
        try:
            temporary.write_bytes(data)
            temporary.replace(root / PROFILE_FILE)
        finally:
            temporary.unlink(missing_ok=True)


def _check_positive(facts: TargetProfile, at: Location) -> None:
    for key in (
        "fill_tokens",
        "num_threads",
        "num_replicas",
        "spin_count",
        "tokens_per_s",
        "startup_s",
    ):
        value = getattr(facts, key)
        if value is not None and value <= 0:
            raise at.key(key).refuse(f"expected a positive number, found {show(value)}; {_REMEDY}")
