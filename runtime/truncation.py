"""Which tokens of a too long input stay: exact for tokenizers that add their special tokens last.

Knows nothing of the tokenizers library's own truncation, whose settings are shared between threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from infinity_v3.runtime.requests import TruncationSide


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """What happens to an input of more than `max_tokens` tokens: cut at `side`, or refused."""

    max_tokens: int
    is_allowed: bool = True
    side: TruncationSide = TruncationSide.RIGHT


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

    def cut(self, values: Sequence[int], truncation: Truncation) -> list[int]:
        """Shorten per-token values of one input to `max_tokens`, special tokens kept.

        Where the limit is below the number of special tokens, only those of the kept side stay.
        """
        end = len(values) - self.num_trailing
        leading, trailing = list(values[: self.num_leading]), list(values[end:])
        content, room = values[self.num_leading : end], self.room(truncation)
        is_right = truncation.side is TruncationSide.RIGHT
        if room <= 0:
            frame = leading + trailing
            limit = truncation.max_tokens
            return frame[:limit] if is_right else frame[-limit:]
        return leading + list(content[:room] if is_right else content[-room:]) + trailing


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
