"""Whether two answers to one request agree. Knows nothing of routes: it goes by their form.

Vectors by their cosine, other numbers by their difference, lists of labelled or indexed entries
entry by entry, everything else exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import TypeGuard

from infinity_v3.artifacts.typed_json import Location, show

_NAMED_BY = ("index", "label")
"""Entries with one of these keys are ranked: of near ties either may stand first."""
_OF_THE_REPLY = frozenset({"id", "created"})
"""Keys of a reply as a whole that name it and its time: no two replies share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What still agrees: those of half precision, by default.

    Attributes:
        cosine_distance: most that the cosine of two vectors may lack to 1.
        difference: most that two numbers may differ by.
    """

    cosine_distance: float = 1e-3
    difference: float = 2e-2


def tolerance_of(value: float | None) -> Tolerance:
    """The tolerance of one request; a value of its own stands for both."""
    return Tolerance() if value is None else Tolerance(cosine_distance=value, difference=value)


def disagreement(found: object, expected: object, tolerance: Tolerance) -> str | None:
    """The first difference in one sentence, None where the answers agree.

    Args:
        found: decoded JSON.
        expected: likewise.
        tolerance: of vectors and numbers.
    """
    sides = _content(found), _content(expected)
    return next(_differences(*sides, tolerance, Location("")), None)


def _content(answer: object) -> object:
    if not isinstance(answer, dict):
        return answer
    return {key: value for key, value in answer.items() if key not in _OF_THE_REPLY}


def _differences(
    found: object, expected: object, tolerance: Tolerance, at: Location
) -> Iterator[str]:
    if _is_vector(found) and _is_vector(expected):
        yield from _vector_differences(found, expected, tolerance, at)
    elif _is_number(found) and _is_number(expected):
        yield from _number_differences(found, expected, tolerance, at)
    elif isinstance(found, dict) and isinstance(expected, dict):
        yield from _object_differences(found, expected, tolerance, at)
    elif isinstance(found, list) and isinstance(expected, list):
        yield from _list_differences(found, expected, tolerance, at)
    elif type(found) is not type(expected) or found != expected:
        yield _sentence(at, show(found), show(expected))


def _vector_differences(
    found: list[float], expected: list[float], tolerance: Tolerance, at: Location
) -> Iterator[str]:
    if len(found) != len(expected):
        yield _sentence(at, f"{len(found)} numbers", str(len(expected)))
        return
    cosine = _cosine(found, expected)
    if not 1.0 - cosine <= tolerance.cosine_distance:
        yield _sentence(at, f"cosine {cosine:.6f}", f">= {1.0 - tolerance.cosine_distance:g}")


def _number_differences(
    found: float, expected: float, tolerance: Tolerance, at: Location
) -> Iterator[str]:
    if isinstance(found, int) and isinstance(expected, int):
        if found != expected:
            yield _sentence(at, show(found), show(expected))
    elif not abs(found - expected) <= tolerance.difference:
        yield _sentence(at, f"{found:g}", f"{expected:g} +- {tolerance.difference:g}")


def _object_differences(
    found: dict[str, object], expected: dict[str, object], tolerance: Tolerance, at: Location
) -> Iterator[str]:
    if found.keys() != expected.keys():
        yield _sentence(at, f"keys {', '.join(sorted(found))}", ", ".join(sorted(expected)))
        return
    for key, value in expected.items():
        yield from _differences(found[key], value, tolerance, at.key(key))


def _list_differences(
    found: list[object], expected: list[object], tolerance: Tolerance, at: Location
) -> Iterator[str]:
    if len(found) != len(expected):
        yield _sentence(at, f"{len(found)} items", str(len(expected)))
        return
    for index, (left, right) in enumerate(zip(_ranked(found), _ranked(expected), strict=True)):
        yield from _differences(left, right, tolerance, at.item(index))


def _ranked(items: list[object]) -> Sequence[object]:
    """Entries in the order of what names them; as they are where nothing does."""
    for key in _NAMED_BY:
        names = [item.get(key) if isinstance(item, dict) else None for item in items]
        is_named = all(isinstance(name, (int, str)) for name in names)
        if is_named and len({type(name) for name in names}) == 1 and len(set(names)) == len(names):
            pairs = sorted(zip(names, items, strict=True), key=lambda pair: pair[0])  # type: ignore[arg-type, return-value]  # of one type that has an order
            return [item for _, item in pairs]
    return items


def _is_vector(value: object) -> TypeGuard[list[float]]:
    """Tell whether it is a list of numbers with a fraction; lists of ids are compared exactly."""
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(_is_number(item) for item in value)
        and any(isinstance(item, float) for item in value)
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cosine(left: list[float], right: list[float]) -> float:
    """Two vectors of zeros agree; one of them alone agrees with nothing."""
    squares = [fsum(x * x for x in vector) for vector in (left, right)]
    if not any(squares):
        return 1.0
    if not all(squares):
        return 0.0
    product = fsum(x * y for x, y in zip(left, right, strict=True))
    return product / (sqrt(squares[0]) * sqrt(squares[1]))


def _sentence(at: Location, found: str, expected: str) -> str:
    place = f"{at.path}: " if at.path else ""
    return f"{place}expected {expected}, found {found}"
