"""Texts that no model reads to their end: how much of them is looked at, and what is kept."""

from collections.abc import Callable, Sequence

import pytest
import tokenizers

from infinity_v3.runtime.encodings import TokenizerInput, encode_many, encode_one
from infinity_v3.runtime.requests import TextPair, TruncationSide
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation
from tiny_models import END, MAX_INPUT_TOKENS, START, VOCAB_SIZE, word_tokenizer

LEFT, RIGHT = TruncationSide.LEFT, TruncationSide.RIGHT
GUARD = 250 * MAX_INPUT_TOKENS
ENDLESS = {"word": "x" * 3_000_000, "blanks": " " * 3_000_000}
UNKNOWN = 0


@pytest.fixture
def ours() -> TextTokenizer:
    return TextTokenizer(word_tokenizer(), vocab_size=VOCAB_SIZE, max_input_tokens=MAX_INPUT_TOKENS)


@pytest.fixture
def num_encoded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts the characters of inputs that did not fit the first window."""
    widths: list[int] = []

    def watch(
        backend: tokenizers.Tokenizer, item: TokenizerInput, position: int, **options: bool
    ) -> tokenizers.Encoding:
        widths.append(len(item) if isinstance(item, str) else sum(map(len, item)))
        return encode_one(backend, item, position, **options)

    monkeypatch.setattr("infinity_v3.runtime.pairs.encode_one", watch)
    monkeypatch.setattr("infinity_v3.runtime.pair_formats.encode_one", watch)
    monkeypatch.setattr("infinity_v3.runtime.single_texts.encode_one", watch)
    return lambda: sum(widths)


def cut(side: TruncationSide, *, max_document_tokens: int | None = None) -> Truncation:
    return Truncation(
        max_tokens=MAX_INPUT_TOKENS, side=side, max_document_tokens=max_document_tokens
    )


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_an_endless_word_is_not_encoded_whole(
    ours: TextTokenizer, num_encoded: Callable[[], int], text: str, side: TruncationSide
) -> None:
    (encoded,) = ours.encode([text], cut(side))
    content = [UNKNOWN] if text.strip() else []
    assert encoded.input_ids.tolist() == [START, *content, END]
    assert num_encoded() < 3 * GUARD


def test_the_kept_side_decides_what_is_looked_at(ours: TextTokenizer) -> None:
    text = "w5" + " " * GUARD + "w6"
    found = {side: ours.encode([text], cut(side))[0].input_ids.tolist() for side in (LEFT, RIGHT)}
    assert found == {LEFT: [START, 6, END], RIGHT: [START, 5, END]}


def test_characters_count_from_the_beginning_of_a_text_that_is_cut_unread(
    ours: TextTokenizer,
) -> None:
    text = "w5" + " " * GUARD + "w6"
    (found,) = ours.encode_words([text], cut(LEFT))
    assert [(token.token_id, text[token.start : token.end]) for token in found.tokens] == [
        (6, "w6")
    ]


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("side", [LEFT, RIGHT])
@pytest.mark.parametrize("is_query", [True, False])
def test_neither_text_of_a_pair_is_encoded_whole(
    ours: TextTokenizer,
    num_encoded: Callable[[], int],
    text: str,
    side: TruncationSide,
    is_query: bool,
) -> None:
    pair = TextPair(query=text, document="w5") if is_query else TextPair(query="w5", document=text)
    found = ours.encode([pair] * 5, cut(side))
    content = [UNKNOWN] if text.strip() else []
    halves = (content, [5]) if is_query else ([5], content)
    assert found[-1].input_ids.tolist() == [START, *halves[0], END, *halves[1], END]
    assert num_encoded() < 5 * 3 * GUARD


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[TokenizerInput]:
    """All that pairs have the tokenizer encode."""
    found: list[TokenizerInput] = []

    def watch_one(
        backend: tokenizers.Tokenizer, item: TokenizerInput, position: int, **options: bool
    ) -> tokenizers.Encoding:
        found.append(item)
        return encode_one(backend, item, position, **options)

    def watch_many(
        backend: tokenizers.Tokenizer, items: Sequence[TokenizerInput], **options: bool
    ) -> list[tokenizers.Encoding | None]:
        found.extend(items)
        return encode_many(backend, items, **options)

    monkeypatch.setattr("infinity_v3.runtime.pairs.encode_one", watch_one)
    monkeypatch.setattr("infinity_v3.runtime.pairs.encode_many", watch_many)
    monkeypatch.setattr("infinity_v3.runtime.pair_formats.encode_one", watch_one)
    return found


@pytest.mark.parametrize("side", [LEFT, RIGHT])
@pytest.mark.parametrize("count", [1, 100])
def test_each_width_of_a_query_is_encoded_once(
    ours: TextTokenizer, encoded: list[TokenizerInput], side: TruncationSide, count: int
) -> None:
    query = "w5 " + " " * (2 * GUARD) + "w6"
    pairs = [TextPair(query=query, document=f"w{index + 7}") for index in range(count)]
    found = ours.encode(pairs, cut(side))
    kept = 5 if side is RIGHT else 6
    assert [text.input_ids.tolist() for text in found] == [
        [START, kept, END, index + 7, END] for index in range(count)
    ]
    widths = [len(item) for item in encoded if " " in item]
    assert len(widths) == len(set(widths)) == 3
    assert sum(widths) < 2 * GUARD


@pytest.mark.parametrize("count", [1, 100])
def test_a_query_that_must_fit_is_encoded_once(
    ours: TextTokenizer, encoded: list[TokenizerInput], count: int
) -> None:
    query = "w5" + " " * (GUARD - 2)
    pairs = [TextPair(query=query, document=f"w{index + 7}") for index in range(count)]
    ours.encode(pairs, Truncation(max_tokens=MAX_INPUT_TOKENS, is_allowed=False))
    assert encoded.count(query) == 1
    assert len(encoded) == count + 1


def test_pairs_of_several_queries_keep_their_own(ours: TextTokenizer) -> None:
    pairs = [
        TextPair(query=f"w{3 + index % 20}", document=f"w{500 + index}") for index in range(100)
    ]
    assert [text.input_ids.tolist() for text in ours.encode(pairs, cut(RIGHT))] == [
        [START, 3 + index % 20, END, 500 + index, END] for index in range(100)
    ]


@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_a_limit_of_documents_is_no_way_around(
    ours: TextTokenizer, num_encoded: Callable[[], int], side: TruncationSide
) -> None:
    document = "w5 " * 3_000_000
    pair = TextPair(query="w6", document=document)
    (found,) = ours.encode([pair], cut(side, max_document_tokens=1 << 62))
    assert found.num_tokens == MAX_INPUT_TOKENS
    assert num_encoded() < 3_000_000


def test_a_document_may_be_cut_behind_what_other_texts_are_read_to(ours: TextTokenizer) -> None:
    document = "w5 " * (GUARD // 3) + "w6 " * 100 + "w7 " * 100
    num_kept = GUARD // 3 + 100
    (found,) = ours.encode(
        [TextPair(query="w8", document=document)], cut(LEFT, max_document_tokens=num_kept)
    )
    room = MAX_INPUT_TOKENS - len([START, 8, END, END])
    assert found.input_ids.tolist() == [START, 8, END, *[6] * room, END]
