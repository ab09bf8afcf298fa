"""Rules of single values, which refuse with the path of the key at fault. Knows no document."""

from collections.abc import Iterable

from infinity_v3.artifacts.typed_json import Location, show


def check_at_least(minimum: int, value: int, at: Location) -> None:
    """Refuse a number below `minimum`."""
    if value < minimum:
        raise at.refuse(f"expected at least {minimum}, found {show(value)}")


def check_choice(value: str, choices: tuple[str, ...], at: Location) -> None:
    """Refuse a word that is not among `choices`."""
    if value not in choices:
        raise at.refuse(f"expected one of {', '.join(choices)}; found {show(value)}")


def check_unique(values: Iterable[str], what: str, at: Location, key: str) -> None:
    """Refuse a value that stands twice under `key` of the array at `at`."""
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            raise at.item(index).key(key).refuse(f"duplicate {what} {show(value)}")
        seen.add(value)
