"""Runs tokenizer work where it disturbs least: small requests at once, large ones on a few threads.

Knows nothing of queues or engines.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Protocol, TypeVar

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.decisions.protocol import DecisionFormat, EncodedDecisions
from infinity_v3.runtime.decisions.question import DecideRequest
from infinity_v3.runtime.late_interaction import Side
from infinity_v3.runtime.requests import ClassifyInput, Conversation, TextInput, TextPair
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.tokens import TokenPiece
from infinity_v3.runtime.truncation import Truncation
from infinity_v3.runtime.wanted import IsWanted, always
from infinity_v3.runtime.words import TokenizedText

INLINE_CHARACTERS = 1024
INLINE_ITEMS = 16
"""Up to both, tokenising costs a fraction of a millisecond, about as much as a hand-over.

A conversation is never small: its template is a program of the checkpoint's.
"""

Result = TypeVar("Result")
Made = TypeVar("Made", covariant=True)


class _Encoding(Protocol[Made]):
    """Work that ends early when it is no longer wanted."""

    def __call__(self, *, is_wanted: IsWanted) -> Made: ...


class TextPool:
    """Tokenizer calls that do not block the event loop, and end when their caller is cancelled."""

    def __init__(self, tokenizer: TextTokenizer, *, num_workers: int) -> None:
        self._tokenizer = tokenizer
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="infinity-tokenizer")

    async def encode(
        self, items: Sequence[ClassifyInput], truncation: Truncation, prompt: str
    ) -> list[EncodedText]:
        """As `TextTokenizer.encode`."""
        work = partial(self._tokenizer.encode, items, truncation, prompt=prompt)
        return await self._encode(work, is_small=_is_small(items, prompt))

    async def encode_side(
        self, items: Sequence[TextInput], truncation: Truncation, side: Side, prompt: str
    ) -> list[EncodedText]:
        """As `TextTokenizer.encode_side`."""
        work = partial(self._tokenizer.encode_side, items, truncation, side, prompt=prompt)
        return await self._encode(work, is_small=_is_small(items, prompt))

    async def encode_words(
        self, texts: Sequence[str], truncation: Truncation, prompt: str
    ) -> list[TokenizedText]:
        """As `TextTokenizer.encode_words`."""
        work = partial(self._tokenizer.encode_words, texts, truncation, prompt=prompt)
        return await self._encode(work, is_small=_is_small(texts, prompt))

    async def encode_decisions(
        self, decisions: DecisionFormat, request: DecideRequest
    ) -> EncodedDecisions:
        """As `DecisionFormat.encode`; never at once, as a few questions can have many texts."""
        return await self._encode(partial(decisions.encode, request), is_small=False)

    async def pieces(
        self, texts: Sequence[str], *, add_special_tokens: bool
    ) -> list[tuple[TokenPiece, ...]]:
        """As `TextTokenizer.pieces`."""
        work = partial(self._tokenizer.pieces, texts, add_special_tokens=add_special_tokens)
        return await self._encode(work, is_small=_is_small(texts, ""))

    async def decode(
        self, id_lists: Sequence[tuple[int, ...]], *, skip_special_tokens: bool
    ) -> list[str]:
        """As `TextTokenizer.decode`."""
        work = partial(self._tokenizer.decode, id_lists, skip_special_tokens=skip_special_tokens)
        return await self.call(work, is_small=_is_small(id_lists, ""))

    async def call(self, work: Callable[[], Result], *, is_small: bool) -> Result:
        """Do work on texts: at once when it is small, else on one of the threads."""
        if is_small:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _encode(self, work: _Encoding[Result], *, is_small: bool) -> Result:
        if is_small:
            return work(is_wanted=always)
        has_ended = Event()
        try:
            return await self.call(
                lambda: work(is_wanted=lambda: not has_ended.is_set()), is_small=False
            )
        finally:
            has_ended.set()

    def close(self) -> None:
        """Take no more work; what was handed in still gets its answer."""
        self._pool.shutdown(wait=False)


def _is_small(items: Sequence[ClassifyInput], prompt: str) -> bool:
    if len(items) > INLINE_ITEMS:
        return False
    return sum(map(_size, items)) + len(items) * len(prompt) <= INLINE_CHARACTERS


def _size(item: ClassifyInput) -> int:
    if isinstance(item, Conversation):
        return INLINE_CHARACTERS + 1
    return len(item.query) + len(item.document) if isinstance(item, TextPair) else len(item)
