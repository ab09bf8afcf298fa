"""Which tokens of a too long input stay: exact for tokenizers that add their special tokens last.

Knows nothing of the tokenizers library's own truncation, whose settings are shared between threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from infinity_v3.runtime.requests import TruncationSide

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """What happens to an input of more than `max_tokens` tokens: cut at `side`, or refused.

    `max_document_tokens`: before that, the document of a pair is cut to so many tokens, on its
    right; None = it is not.
    """

    max_tokens: int
    is_allowed: bool = True
    side: TruncationSide = TruncationSide.RIGHT
    max_document_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Special tokens that the tokenizer put around a text: how many in front and behind."""

    num_leading: int
    num_trailing: int

    @classmethod
    def from_mask(cls, special_tokens_mask: Sequence[int]) -> "Frame":
        """Read the frame off a mask that is 1 for added tokens and 0 for tokens of the text."""
        if 0 not in special_tokens_mask:
            return cls(num_leading=len(special_tokens_mask), num_trailing=0)
        backwards = special_tokens_mask[::-1]
        return cls(num_leading=special_tokens_mask.index(0), num_trailing=backwards.index(0))

    def room(self, truncation: Truncation) -> int:
        """Tokens of the text that fit beside the special ones; negative when not even those fit."""
        return truncation.max_tokens - self.num_leading - self.num_trailing

    def cut(self, values: Sequence[Value], truncation: Truncation) -> list[Value]:
        """Shorten per-token values of one input to `max_tokens`, special tokens kept.

        Where the limit is below the number of special tokens, only those of the kept side stay.
        """
        end = len(values) - self.num_trailing
        leading, trailing = list(values[: self.num_leading]), list(values[end:])
        content, room = values[self.num_leading : end], self.room(truncation)
        if room <= 0:
            return keep_end(leading + trailing, truncation.max_tokens, truncation.side)
        return leading + keep_end(content, room, truncation.side) + trailing


def keep_end(values: Sequence[Value], count: int, side: TruncationSide) -> list[Value]:
    """Shorten values to `count` of them at the most, cut at `side`."""
    if side is TruncationSide.RIGHT:
        return list(values[:count])
    return list(values[max(len(values) - count, 0) :])


def share_room(first: int, second: int, room: int) -> tuple[int, int]:
    """Tokens that two texts keep of a common room: the longer one gives tokens up first.

    Both end up equally long when both must give some up; of an odd room, the longer one gets the
    extra token, and the second one where they are equal.
    """
    if first + second <= room:
        return first, second
    less = min(first, second, max(room, 0) // 2)
    more = max(room, 0) - less
    return (less, more) if first <= second else (more, less)


def clip_ids(ids: Sequence[int], truncation: Truncation, special_ids: frozenset[int]) -> list[int]:
    """Shorten ids that a client made itself.

    Cutting at the right keeps a final special token as last id; cutting at the left keeps a leading
    one as first.
    """
    limit = truncation.max_tokens
    if len(ids) <= limit:
        return list(ids)
    if truncation.side is TruncationSide.RIGHT:
        last = [ids[-1]] if ids[-1] in special_ids else []
        return [*ids[: limit - len(last)], *last]
    first = [ids[0]] if ids[0] in special_ids else []
    return [*first, *ids[len(ids) - limit + len(first) :]]
