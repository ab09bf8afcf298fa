"""How much of a long text is looked at, so that cutting it does not cost tokenising all of it.

Knows nothing of tokenizers.
"""

from infinity_v3.runtime.requests import TruncationSide
from infinity_v3.runtime.truncation import Truncation

MAX_CHARACTERS_PER_TOKEN = 250
"""Times the longest input of the model: no more of a text is ever looked at.

A text of few, endless words would otherwise be encoded whole, however long it is.
"""

MAX_CLIPPED_CHARACTERS = 1_000_000
"""Nor more of a document that is cut to a number of tokens of its own, however large that is."""

WINDOW_CHARACTERS_PER_TOKEN = 16
MIN_WINDOW_CHARACTERS = 1024
WINDOW_GROWTH = 4


def first_width(truncation: Truncation) -> int:
    """Characters to begin with; where they are too few, WINDOW_GROWTH times as many come next."""
    return max(WINDOW_CHARACTERS_PER_TOKEN * truncation.max_tokens, MIN_WINDOW_CHARACTERS)


def window(text: str, width: int, side: TruncationSide) -> str:
    """The part of about `width` characters that cutting at `side` leaves for last."""
    if len(text) <= width:
        return text
    if side is TruncationSide.RIGHT:
        return text[:width]
    start = len(text) - width
    # Starting at a space keeps the grouping of digits and repeated characters in phase.
    space = text.rfind(" ", max(start - MIN_WINDOW_CHARACTERS, 0), start + 1)
    return text[start if space < 0 else space :]


def is_safe(span: tuple[int, int], width: int, side: TruncationSide) -> bool:
    """Whether text beyond a window cannot matter to a token: it lies in the half off the cut.

    Args:
        span: characters of the token in the window.
        width: characters of the window.
        side: where the text is cut.
    """
    return span[1] <= width // 2 if side is TruncationSide.RIGHT else span[0] >= width // 2
