"""Values of policy.toml: type and range, refused by name. Knows no key."""

import math
import re
from collections.abc import Callable, Mapping
from typing import cast

from infinity_v3.artifacts.names import NAME_RULE, is_name, path_problem
from infinity_v3.artifacts.typed_json import Location, show

UNVERIFIED = "unverified:"
_KEY_ID = re.compile(r"[0-9a-f]{16}")


def number(
    least: float, most: float | None, *, is_open: bool = False, meaning: str = ""
) -> Callable[[object, Location], float]:
    """Make the reader of a number within a range; `is_open` leaves `least` itself out."""
    lower = f"above {least:g}" if is_open else f"from {least:g}"
    upper = "" if most is None else f" to {most:g}"
    expected = f"a number {lower}{upper}" + (f" ({meaning})" if meaning else "")

    def read(value: object, at: Location) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise at.refuse(f"expected {expected}, found {describe(value)}")
        found = _as_float(value)
        is_low = found <= least if is_open else found < least
        if not math.isfinite(found) or is_low or (most is not None and found > most):
            raise at.refuse(f"expected {expected}, found {found:g}")
        return found

    return read


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf


def table(value: object, at: Location) -> Mapping[str, object]:
    """A table as it is."""
    if not isinstance(value, dict):
        raise at.refuse(f"expected a table, found {describe(value)}")
    return cast(Mapping[str, object], value)


def items(value: object, at: Location, read: Callable[[object, Location], str]) -> tuple[str, ...]:
    """An array with at least one item and none twice."""
    if not isinstance(value, list):
        raise at.refuse(f"expected an array, found {describe(value)}")
    found = tuple(read(item, at.item(index)) for index, item in enumerate(value))
    if not found:
        raise at.refuse("expected at least one item, found none; leave the key out to ask nothing")
    for index, item in enumerate(found):
        if item in found[:index]:
            raise at.item(index).refuse(f"{show(item)} stands here twice")
    return found


def name(value: object, at: Location) -> str:
    """A name of an artifact, target or channel."""
    if not isinstance(value, str) or not is_name(value):
        raise at.refuse(f"expected a name, {NAME_RULE}, found {describe(value)}")
    return value


def file(value: object, at: Location) -> str:
    """A path: relative = in the registry, absolute = on this host."""
    if not isinstance(value, str):
        raise at.refuse(f"expected a path, found {describe(value)}")
    problem = path_problem(value[1:] if value.startswith("/") else value)
    if problem is not None:
        raise at.refuse(
            f"expected a path in the registry, or an absolute one on this host, found {problem}"
        )
    return value


def actor(value: object, at: Location) -> str:
    """Who may promote."""
    if isinstance(value, str):
        user = value.removeprefix(UNVERIFIED)
        if _KEY_ID.fullmatch(value) or (user != value and user and user.isprintable()):
            return value
    raise at.refuse(
        f"expected the id of a key (16 hex digits) or 'unverified:<user>', found {describe(value)}"
    )


def describe(value: object) -> str:
    """What was found, in words of TOML."""
    if isinstance(value, (str, bool, int)):
        return show(value)
    if isinstance(value, float):
        return str(value)
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "an array"
    return "a date or time"
