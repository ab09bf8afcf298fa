"""Runs tokenizer work where it disturbs least: small requests at once, large ones on a few threads.

Knows nothing of queues or engines.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.requests import TextInput
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.tokens import TokenPiece
from infinity_v3.runtime.truncation import Truncation

INLINE_CHARACTERS = 1024
INLINE_ITEMS = 16
"""Up to both, tokenising costs a fraction of a millisecond, about as much as a hand-over."""

Result = TypeVar("Result")


class TextPool:
    """Tokenizer calls that do not block the event loop."""

    def __init__(self, tokenizer: TextTokenizer, *, num_workers: int) -> None:
        self._tokenizer = tokenizer
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="infinity-tokenizer")

    async def encode(
        self, items: Sequence[TextInput], truncation: Truncation, prompt: str
    ) -> list[EncodedText]:
        """As `TextTokenizer.encode`."""
        if _is_small(items, prompt):
            return self._tokenizer.encode(items, truncation, prompt=prompt)
        return await self._run(partial(self._tokenizer.encode, items, truncation, prompt=prompt))

    async def pieces(
        self, texts: Sequence[str], *, add_special_tokens: bool
    ) -> list[tuple[TokenPiece, ...]]:
        """As `TextTokenizer.pieces`."""
        work = partial(self._tokenizer.pieces, texts, add_special_tokens=add_special_tokens)
        return work() if _is_small(texts, "") else await self._run(work)

    async def decode(
        self, id_lists: Sequence[Sequence[int]], *, skip_special_tokens: bool
    ) -> list[str]:
        """As `TextTokenizer.decode`."""
        work = partial(self._tokenizer.decode, id_lists, skip_special_tokens=skip_special_tokens)
        return work() if _is_small(id_lists, "") else await self._run(work)

    def close(self) -> None:
        """Take no more work; what was handed in still gets its answer."""
        self._pool.shutdown(wait=False)

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _is_small(items: Sequence[Sequence[object]], prompt: str) -> bool:
    if len(items) > INLINE_ITEMS:
        return False
    return sum(map(len, items)) + len(items) * len(prompt) <= INLINE_CHARACTERS
