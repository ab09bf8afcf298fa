"""Numbers that were float32 before they became Python floats. Knows nothing of documents."""

import struct
from array import array
from collections.abc import Sequence

_DIGITS = (7, 8, 9)  # seven may be too few, nine tell any two float32 numbers apart
_TAG = b"\xca"


def shortest(values: Sequence[float]) -> list[float]:
    """Replace float32 numbers by the shortest decimals that give them back; others stay."""
    found = list(values)
    exact = array("f", found)
    left = [index for index, value in enumerate(found) if exact[index] == value]
    for digits in _DIGITS:
        tries = [float(f"{found[index]:.{digits}g}") for index in left]
        again = array("f", tries)
        fits = [again[place] == exact[index] for place, index in enumerate(left)]
        for index, decimal, is_same in zip(left, tries, fits, strict=True):
            if is_same:
                found[index] = decimal
        left = [index for index, is_same in zip(left, fits, strict=True) if not is_same]
    return found


def pack(value: float) -> bytes | None:
    """MessagePack's float 32 of a number; None if it is not a float32 number."""
    (stored,) = array("f", (value,))
    return _TAG + struct.pack(">f", stored) if stored == value else None
