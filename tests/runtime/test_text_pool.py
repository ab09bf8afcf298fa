"""Tokenizer work on threads: what nobody waits for any more ends."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from threading import Event

import pytest
import tokenizers

from infinity_v3.runtime.chunks import CHUNK_ITEMS
from infinity_v3.runtime.encodings import TokenizerInput, encode_many, encode_one
from infinity_v3.runtime.late_interaction import Side
from infinity_v3.runtime.requests import TextPair
from infinity_v3.runtime.text_pool import INLINE_ITEMS, TextPool
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation
from tiny_models import MAX_INPUT_TOKENS, VOCAB_SIZE, word_tokenizer

NUM_ITEMS = 4 * CHUNK_ITEMS
TRUNCATION = Truncation(max_tokens=MAX_INPUT_TOKENS)
SIDE = Side(prefix_id=None, max_tokens=None)
TEXTS = ["w5"] * NUM_ITEMS
PAIRS = [TextPair(query="w5", document="w6")] * NUM_ITEMS
MODULES = ("pairs", "pair_formats", "single_texts", "tokenizer")
CALLS: dict[str, Callable[[TextPool], Awaitable[object]]] = {
    "texts": lambda pool: pool.encode(TEXTS, TRUNCATION, ""),
    "pairs": lambda pool: pool.encode(PAIRS, TRUNCATION, ""),
    "side": lambda pool: pool.encode_side(TEXTS, TRUNCATION, SIDE, ""),
    "words": lambda pool: pool.encode_words(TEXTS, TRUNCATION, ""),
    "pieces": lambda pool: pool.pieces(TEXTS, add_special_tokens=True),
}


class Gate:
    """Stops the first call of the tokenizers library, and counts what it is given."""

    def __init__(self) -> None:
        self.num_encoded = 0
        self.is_entered = Event()
        self.is_open = Event()

    def many(
        self, backend: tokenizers.Tokenizer, items: list[TokenizerInput], **options: bool
    ) -> list[tokenizers.Encoding | None]:
        self._pass(len(items))
        return encode_many(backend, items, **options)

    def one(
        self, backend: tokenizers.Tokenizer, item: TokenizerInput, position: int, **options: bool
    ) -> tokenizers.Encoding:
        self._pass(1)
        return encode_one(backend, item, position, **options)

    def _pass(self, num_items: int) -> None:
        self.num_encoded += num_items
        self.is_entered.set()
        assert self.is_open.wait(10.0)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    for name in MODULES:
        monkeypatch.setattr(f"infinity_v3.runtime.{name}.encode_one", gate.one)
    for name in ("pairs", "single_texts"):
        monkeypatch.setattr(f"infinity_v3.runtime.{name}.encode_many", gate.many)
    return gate


@pytest.fixture
def pool() -> Iterator[TextPool]:
    tokenizer = TextTokenizer(
        word_tokenizer(), vocab_size=VOCAB_SIZE, max_input_tokens=MAX_INPUT_TOKENS
    )
    pool = TextPool(tokenizer, num_workers=1)
    yield pool
    pool.close()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_cancelled_call_encodes_no_further_chunk(
    pool: TextPool, gate: Gate, call: Callable[[TextPool], Awaitable[object]]
) -> None:
    async def scenario() -> None:
        task = asyncio.ensure_future(call(pool))
        await asyncio.to_thread(gate.is_entered.wait, 10.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.is_open.set()
        # There is one thread: it is free when it takes this.
        await pool.call(lambda: None, is_small=False)

    asyncio.run(scenario())
    assert 1 <= gate.num_encoded <= CHUNK_ITEMS + 1


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_is_waited_for_encodes_all(
    pool: TextPool, gate: Gate, call: Callable[[TextPool], Awaitable[object]]
) -> None:
    async def scenario() -> object:
        return await call(pool)

    gate.is_open.set()
    assert NUM_ITEMS > INLINE_ITEMS
    found = asyncio.run(scenario())
    assert isinstance(found, list)
    assert len(found) == NUM_ITEMS <= gate.num_encoded
