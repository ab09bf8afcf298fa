"""Reads the values that only a build file has: versions, digests, bounds.

Knows where a value stood and nothing of what it is for.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import PurePosixPath

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.names import NAME_RULE, is_name, is_sha256
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.builds.entry import KEY_FIELD, SHOWN_KEY_DIGITS, GateBounds
from infinity_v3.compiler.config_sources import type_name

POLICY_ONLY = (
    "require-signature",
    "max-p50-slowdown",
    "min-throughput-ratio",
    "golden-requests",
    "min-golden-agreement",
    "actors",
)
"""Gates of a channel that need what a build has not: a registry's history, or a server."""


def read_text(value: object, where: str) -> str:
    """Read a string with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{where}: expected a string, found {_found(value)}")
    return value


def read_count(value: object, where: str) -> int:
    """Read a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{where}: expected a whole number from 1, found {_found(value)}")
    return value


def read_table(value: object, where: str) -> Mapping[str, object]:
    """Read a table."""
    if not isinstance(value, dict):
        raise UsageError(f"{where}: expected a table, found {type_name(value)}")
    return value


def read_name(value: object, where: str) -> str:
    """Read a name as the registry knows them."""
    if not isinstance(value, str) or not is_name(value):
        raise UsageError(f"{where}: expected {NAME_RULE}; found {_found(value)}")
    return value


def read_version(value: object, where: str) -> str:
    """Read a version, or a template that becomes one."""
    text = read_text(value, where)
    if not is_name(text.replace(KEY_FIELD, "0" * SHOWN_KEY_DIGITS)):
        raise UsageError(
            f"{where}: expected {NAME_RULE}, in which {KEY_FIELD} stands for "
            f"{SHOWN_KEY_DIGITS} digits of the build key; found {text!a}"
        )
    return text


def read_artifact_id(value: object, where: str) -> str:
    """Read `sha256:<64 hex digits>`."""
    if not isinstance(value, str) or not _is_artifact_id(value):
        raise UsageError(
            f"{where}: expected an artifact id, sha256:<64 hex digits>; found {_found(value)}"
        )
    return value


def read_digests(value: object, where: str) -> dict[str, str]:
    """Read a table of sha256 digests by file."""
    digests: dict[str, str] = {}
    for file, digest in read_table(value, where).items():
        if not _is_inside(file):
            raise UsageError(
                f"{where}: {file!a}: expected the path of a file inside the checkpoint, such as "
                '"model.safetensors"'
            )
        if not isinstance(digest, str) or not is_sha256(digest):
            raise UsageError(
                f"{where}: {file}: expected a sha256 of 64 lower-case hex digits, "
                f"found {_found(digest)}"
            )
        digests[file] = digest
    return digests


def read_bounds(value: object, where: str) -> GateBounds:
    """Read the table of gates."""
    table = read_table(value, where)
    known = [field.name.replace("_", "-") for field in fields(GateBounds)]
    for key in table:
        if key in POLICY_ONLY:
            raise UsageError(
                f"{where}: {key}: is a gate of a channel, which `registry promote` checks; put it "
                f"into the registry's policy.toml. A build checks {', '.join(known)}"
            )
        check_known(key, known, where)
    readers: Mapping[str, Callable[[object, str], object]] = {
        "min-cosine": _read_cosine,
        "max-abs": _read_bound,
        "required-targets": _read_names,
        "max-size-mb": read_count,
    }
    found = {key: readers[key](item, f"{where}: {key}") for key, item in table.items()}
    return GateBounds(**{key.replace("-", "_"): item for key, item in found.items()})  # type: ignore[arg-type]  # fields by name


def check_known(key: str, known: "list[str] | tuple[str, ...]", where: str) -> None:
    """Refuse a key that is not among the known ones.

    Raises:
        UsageError: with the nearest known key, or all of them.
    """
    if key not in known:
        hint = nearest(key, known) or f"; known here: {', '.join(known)}"
        raise UsageError(f"{where}: {key}: unknown key{hint}")


def _is_artifact_id(text: str) -> bool:
    return text.startswith("sha256:") and is_sha256(text.removeprefix("sha256:"))


def _is_inside(file: str) -> bool:
    path = PurePosixPath(file)
    return bool(path.parts) and str(path) == file and not {"/", ".."} & set(path.parts)


def _read_cosine(value: object, where: str) -> float:
    number = _read_bound(value, where)
    if number > 1:
        raise UsageError(f"{where}: expected a cosine from 0 to 1, found {number:g}")
    return number


def _read_bound(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{where}: expected a number from 0, found {_found(value)}")
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{where}: expected a number from 0, found {value}")
    return float(value)


def _read_names(value: object, where: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise UsageError(f"{where}: expected an array of names, found {_found(value)}")
    return tuple(read_name(name, where) for name in names)


def _found(value: object) -> str:
    return ascii(value) if isinstance(value, (str, int, float)) else type_name(value)
