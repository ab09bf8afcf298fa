"""Pairs of texts against the tokenizers library's own longest-first truncation."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import processors

from compiled import minilm_checkpoint
from infinity_v3.artifacts.manifest import PairTemplate
from infinity_v3.runtime.encodings import TokenizerInput, encode_one
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.requests import TextPair, TruncationSide
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation, share_room
from tiny_checkpoints import make_tiny_checkpoint
from tiny_models import END, FIRST_WORD, MAX_INPUT_TOKENS, START, VOCAB_SIZE, word_tokenizer

SIDES = tuple(TruncationSide)
FAMILIES = ("minilm", "roberta", "xlm-roberta", "qwen3", "llama")
VOCAB_LIMIT = 1 << 20
TEMPLATE = PairTemplate(
    before="w100 w101 ", between=" w102 ", after=" w103 w104", adds_special_tokens=True
)
BEFORE, BETWEEN, AFTER = [100, 101], [102], [103, 104]
SAMPLES = (
    "",
    "short",
    "What is Deep Learning?",
    "深度学习 é — naïve café, ﬁne ½",
    "a [SEP] b <s> c </s>",
    "x" * 30 + " " + "y" * 20,
    "one two three " * 8,
    "word " * 8 + " " * 20 + "tail " * 8,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {"minilm": minilm_checkpoint()}

    def get(family: str) -> Path:
        if family not in made:
            made[family] = make_tiny_checkpoint(family, tmp_path_factory.mktemp(family))
        return made[family] / "tokenizer.json"

    return get


def reference(
    backend: tokenizers.Tokenizer, query: str, document: str, truncation: Truncation
) -> tuple[list[int], list[int]]:
    """Ids and token types as the library cuts them."""
    backend.no_padding()
    backend.enable_truncation(
        truncation.max_tokens, strategy="longest_first", direction=truncation.side.value
    )
    encoding = backend.encode(query, document)
    return list(encoding.ids), list(encoding.type_ids)


def encode(
    ours: TextTokenizer, query: str, document: str, truncation: Truncation
) -> tuple[list[int], list[int]]:
    (encoded,) = ours.encode([TextPair(query=query, document=document)], truncation)
    types = encoded.token_type_ids
    zeros = [0] * encoded.num_tokens
    return encoded.input_ids.tolist(), zeros if types is None else types.tolist()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("max_tokens", [4, 5, 6, 9, 24, 25])
def test_pairs_equal_the_library(
    files: Callable[[str], Path], family: str, side: TruncationSide, max_tokens: int
) -> None:
    theirs = tokenizers.Tokenizer.from_file(str(files(family)))
    ours = TextTokenizer.from_file(files(family), vocab_size=VOCAB_LIMIT, max_input_tokens=128)
    truncation = Truncation(max_tokens=max_tokens, side=side)
    for query in SAMPLES:
        for document in SAMPLES:
            expected = reference(theirs, query, document, truncation)
            assert encode(ours, query, document, truncation) == expected, (
                query[:20],
                document[:20],
            )


def post_processor(name: str) -> processors.PostProcessor:
    start, end = ("<s>", 0), ("</s>", 2)
    if name == "byte level":
        return processors.ByteLevel(trim_offsets=True)
    if name == "bert":
        return processors.BertProcessing(end, start)
    if name == "roberta":
        return processors.RobertaProcessing(end, start, trim_offsets=True)
    template = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[start]
    )
    return processors.Sequence([processors.ByteLevel(trim_offsets=True), template])


@pytest.mark.parametrize("name", ["byte level", "bert", "roberta", "sequence"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("max_tokens", [5, 9, 24, 128])
def test_pairs_of_every_post_processor_equal_the_library(
    files: Callable[[str], Path],
    name: str,
    side: TruncationSide,
    max_tokens: int,
) -> None:
    theirs, mine = (tokenizers.Tokenizer.from_file(str(files("roberta"))) for _ in range(2))
    theirs.post_processor = mine.post_processor = post_processor(name)
    ours = TextTokenizer(mine, vocab_size=VOCAB_LIMIT, max_input_tokens=128)
    truncation = Truncation(max_tokens=max_tokens, side=side)
    for query in SAMPLES:
        for document in SAMPLES[1:]:
            expected = reference(theirs, query, document, truncation)
            assert encode(ours, query, document, truncation) == expected


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("$B:1 </s> $A", [7, 8, END, 5, 6]),
        ("$A $B:1 </s> $A", [5, 6, 7, 8, END, 5, 6]),
        ("$A $A $B:1 </s>", [5, 6, 5, 6, 7, 8, END]),
    ],
)
def test_other_orders_of_a_tokenizer_are_its_own(pair: str, expected: list[int]) -> None:
    backend = word_tokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="$A", pair=pair, special_tokens=[("</s>", END)]
    )
    ours = TextTokenizer(backend, vocab_size=VOCAB_SIZE, max_input_tokens=MAX_INPUT_TOKENS)
    found, _ = encode(ours, "w5 w6", "w7 w8", Truncation(max_tokens=64))
    assert found == expected
    if pair.startswith("$B"):
        cut, _ = encode(ours, "w5 w6", "w7 w8 w9", Truncation(max_tokens=4))
        assert cut == [7, 8, END, 5]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", SIDES)
def test_long_pairs_are_not_encoded_whole_yet_end_the_same(
    files: Callable[[str], Path], family: str, side: TruncationSide
) -> None:
    theirs = tokenizers.Tokenizer.from_file(str(files(family)))
    theirs.no_padding()
    theirs.no_truncation()
    ours = TextTokenizer.from_file(files(family), vocab_size=VOCAB_LIMIT, max_input_tokens=128)
    generator = random.Random(3)
    fragments = ["hello", "world", "naïve", "深度", "x" * 120, "42", "  ", "\n", "9" * 40, "don't"]
    for max_tokens in (9, 10, 128):
        truncation = Truncation(max_tokens=max_tokens, side=side)
        for limits in ((5, 2000), (2000, 2000), (2000, 5), (60, 2000), (200, 2000), (2000, 200)):
            query, document = (
                " ".join(generator.choices(fragments, k=generator.randint(limit // 2, limit)))
                for limit in limits
            )
            expected = cut_whole(theirs.encode(query, document), truncation)
            assert encode(ours, query, document, truncation)[0] == expected


@pytest.mark.parametrize("is_query_long", [True, False])
@pytest.mark.parametrize("count", [1, 15, 100])
def test_one_very_long_text_is_never_encoded_whole(
    monkeypatch: pytest.MonkeyPatch, is_query_long: bool, count: int
) -> None:
    encoded: list[int] = []

    def watch(
        backend: tokenizers.Tokenizer, item: TokenizerInput, position: int, **options: bool
    ) -> tokenizers.Encoding:
        encoded.append(len(item) if isinstance(item, str) else sum(map(len, item)))
        return encode_one(backend, item, position, **options)

    monkeypatch.setattr("infinity_v3.runtime.pairs.encode_one", watch)
    monkeypatch.setattr("infinity_v3.runtime.pair_formats.encode_one", watch)
    texts = ("w7 " * 300_000, "w8 " * count)
    query, document = texts if is_query_long else texts[::-1]
    found, _ = encode(word_pairs(), query, document, Truncation(max_tokens=20))
    short, long = min(count, 8), 17 - min(count, 8)
    assert found.count(7) == long
    assert found.count(8) == short
    assert sum(encoded) < 20_000


def cut_whole(encoding: tokenizers.Encoding, truncation: Truncation) -> list[int]:
    """Cut a pair whose tokens are all known, as the library does; it takes very long for that."""
    sequences = encoding.sequence_ids
    counts = [sequences.count(0), sequences.count(1)]
    room = truncation.max_tokens - sequences.count(None)
    kept = []
    for sequence, share in enumerate(share_room(counts[0], counts[1], room)):
        places = [place for place, found in enumerate(sequences) if found == sequence]
        right = truncation.side is TruncationSide.RIGHT
        kept += places[:share] if right else places[len(places) - share :]
    fixed = [place for place, found in enumerate(sequences) if found is None]
    return [encoding.ids[place] for place in sorted(kept + fixed)]


def reference_shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Take the tokens away one by one."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


lengths = st.integers(0, 40)


@given(first=lengths, second=lengths, room=st.integers(0, 60))
def test_shares_never_exceed_the_room_and_take_from_the_longer(
    first: int, second: int, room: int
) -> None:
    kept = share_room(first, second, room)
    assert sum(kept) == min(first + second, room)
    assert kept[0] <= first
    assert kept[1] <= second
    wanted = reference_shares(first, second, room)
    # One token more or less of an odd room is a convention, which the library's own tests pin.
    assert abs(kept[0] - wanted[0]) <= 1


@given(
    query=st.integers(0, 40),
    document=st.integers(0, 40),
    max_tokens=st.integers(3, MAX_INPUT_TOKENS),
    side=st.sampled_from(SIDES),
)
@example(query=40, document=40, max_tokens=20, side=TruncationSide.RIGHT)
@example(query=41, document=40, max_tokens=20, side=TruncationSide.LEFT)
def test_any_lengths_equal_the_library(
    query: int, document: int, max_tokens: int, side: TruncationSide
) -> None:
    texts = (words(FIRST_WORD, query), words(500, document))
    truncation = Truncation(max_tokens=max_tokens, side=side)
    assert encode(word_pairs(), *texts, truncation) == reference(
        word_tokenizer(), *texts, truncation
    )


def words(first: int, count: int) -> str:
    return " ".join(f"w{index}" for index in range(first, first + count))


def ids(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def word_pairs(template: PairTemplate | None = None) -> TextTokenizer:
    return TextTokenizer(
        word_tokenizer(),
        vocab_size=VOCAB_SIZE,
        max_input_tokens=MAX_INPUT_TOKENS,
        pair_template=template,
    )


@pytest.mark.parametrize(("max_tokens", "kept"), [(1, [START]), (2, [START, END])])
@pytest.mark.parametrize("side", SIDES)
def test_a_limit_below_the_special_tokens_is_kept(
    max_tokens: int, kept: list[int], side: TruncationSide
) -> None:
    truncation = Truncation(max_tokens=max_tokens, side=side)
    found, _ = encode(word_pairs(), "w5", "w6", truncation)
    assert len(found) == max_tokens
    if side is TruncationSide.RIGHT:
        assert found == kept


def test_a_rendered_pair_is_one_text() -> None:
    found, types = encode(word_pairs(TEMPLATE), "w5 w6", "w7", Truncation(max_tokens=64))
    assert found == [START, *BEFORE, 5, 6, *BETWEEN, 7, *AFTER, END]
    assert not any(types)


def test_a_template_may_bring_all_special_tokens_itself() -> None:
    template = PairTemplate(
        before="<s> ", between=" </s> ", after=" </s>", adds_special_tokens=False
    )
    found, _ = encode(word_pairs(template), "w5", "w6", Truncation(max_tokens=64))
    assert found == [START, 5, END, 6, END]


@given(
    query=st.integers(0, 60),
    document=st.integers(0, 60),
    max_tokens=st.integers(7, 40),
    side=st.sampled_from(SIDES),
    is_document_first=st.booleans(),
)
def test_only_the_texts_of_a_rendered_pair_are_cut(
    query: int, document: int, max_tokens: int, side: TruncationSide, is_document_first: bool
) -> None:
    template = PairTemplate(
        before=TEMPLATE.before,
        between=TEMPLATE.between,
        after=TEMPLATE.after,
        adds_special_tokens=True,
        is_document_first=is_document_first,
    )
    texts = (words(200, query), words(500, document))
    truncation = Truncation(max_tokens=max_tokens, side=side)
    found, _ = encode(word_pairs(template), *texts, truncation)
    num_query, num_document = share_room(query, document, max_tokens - 7)
    is_right = side is TruncationSide.RIGHT
    kept = [
        ids(start if is_right else start + count - num, num)
        for start, count, num in ((200, query, num_query), (500, document, num_document))
    ]
    first, second = kept[::-1] if is_document_first else kept
    assert found == [START, *BEFORE, *first, *BETWEEN, *second, *AFTER, END]


@pytest.mark.parametrize("side", SIDES)
def test_long_rendered_pairs_are_cut_like_short_ones(side: TruncationSide) -> None:
    ours = word_pairs(TEMPLATE)
    truncation = Truncation(max_tokens=20, side=side)
    text = words(200, 300)
    short = encode(ours, "w5", " ".join(text.split()[:40]), truncation)
    if side is TruncationSide.LEFT:
        short = encode(ours, "w5", " ".join(text.split()[-40:]), truncation)
    assert (
        encode(ours, "w5", text + " " * 5000 if side is TruncationSide.RIGHT else text, truncation)
        == short
    )


def test_a_token_that_reaches_into_the_template_stays() -> None:
    template = PairTemplate(before="w1", between=" w102 ", after="", adds_special_tokens=False)
    found, _ = encode(word_pairs(template), "23 w5 w6 w7", "w8", Truncation(max_tokens=4))
    assert found == [123, 5, *BETWEEN, 8]


@pytest.mark.parametrize(
    ("max_document_tokens", "max_tokens", "side", "expected"),
    [
        (2, 64, TruncationSide.RIGHT, [START, 5, 6, END, 500, 501, END]),
        (2, 64, TruncationSide.LEFT, [START, 5, 6, END, 500, 501, END]),
        (5, 7, TruncationSide.LEFT, [START, 5, 6, END, 503, 504, END]),
        (5, 7, TruncationSide.RIGHT, [START, 5, 6, END, 500, 501, END]),
        (99, 9, TruncationSide.RIGHT, [START, 5, 6, END, *range(500, 504), END]),
        (1, 6, TruncationSide.RIGHT, [START, 5, 6, END, 500, END]),
    ],
)
@pytest.mark.parametrize("count", [20, 490])
def test_documents_are_cut_first(
    max_document_tokens: int,
    max_tokens: int,
    side: TruncationSide,
    expected: list[int],
    count: int,
) -> None:
    truncation = Truncation(
        max_tokens=max_tokens, side=side, max_document_tokens=max_document_tokens
    )
    assert encode(word_pairs(), "w5 w6", words(500, count), truncation)[0] == expected


def test_a_cut_document_may_make_a_pair_fit() -> None:
    document = "w7 " * 20_000
    fits = Truncation(max_tokens=64, is_allowed=False, max_document_tokens=10)
    assert len(encode(word_pairs(), "w5", document, fits)[0]) == 14
    too_short = Truncation(max_tokens=13, is_allowed=False, max_document_tokens=10)
    with pytest.raises(InferenceError, match=r"must have less than 13 tokens\. Given: 14"):
        encode(word_pairs(), "w5", document, too_short)


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_the_first_pair_at_fault_is_named(template: PairTemplate | None) -> None:
    ours = word_pairs(template)
    limit = 250 * MAX_INPUT_TOKENS
    fine = TextPair(query="w5", document="w6")
    too_many_tokens = TextPair(query="w5", document="w6 " * 100)
    too_many_characters = TextPair(query="w5", document=" " * (limit + 1))
    strict = Truncation(max_tokens=MAX_INPUT_TOKENS, is_allowed=False)
    for position in (0, 1, 40):
        pairs = [fine] * position
        with pytest.raises(InferenceError, match=r"tokens\. Given: 1") as e:
            ours.encode([*pairs, too_many_tokens, too_many_characters], strict)
        assert (e.value.code, e.value.item) == ("input_too_long", position)
        with pytest.raises(InferenceError, match=f"characters. Given: {limit + 1}") as e:
            ours.encode([*pairs, too_many_characters, too_many_tokens], strict)
        assert (e.value.code, e.value.item) == ("input_too_long", position)


def test_pairs_texts_and_ids_may_be_mixed() -> None:
    pair = TextPair(query="w5", document="w6")
    encoded = word_pairs().encode(
        ["w7", pair, (8, 9), pair, "w3"], Truncation(max_tokens=64), prompt="w4 "
    )
    assert [text.input_ids.tolist() for text in encoded] == [
        [START, 4, 7, END],
        [START, 5, END, 6, END],
        [8, 9],
        [START, 5, END, 6, END],
        [START, 4, 3, END],
    ]
    types = encoded[1].token_type_ids
    assert types is not None
    assert types.tolist() == [0, 0, 0, 1, 1]


def test_a_tokenizer_failure_names_its_pair() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"known": 0}, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_tokens(["a"])
    ours = TextTokenizer(backend, vocab_size=10, max_input_tokens=8)
    pairs = [TextPair(query="known", document=text) for text in ("known", "known", "other")]
    with pytest.raises(InferenceError, match="the tokenizer failed") as e:
        ours.encode(pairs, Truncation(max_tokens=8))
    assert (e.value.kind, e.value.code) == (ErrorKind.TOKENIZER, "tokenizer_error")
    assert e.value.item == 2


def test_a_pair_without_tokens_is_empty() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    ours = TextTokenizer(backend, vocab_size=1, max_input_tokens=8)
    pairs = [TextPair(query="a", document=" "), TextPair(query=" ", document=" ")]
    with pytest.raises(InferenceError, match="`inputs` cannot be empty") as e:
        ours.encode(pairs, Truncation(max_tokens=8))
    assert (e.value.kind, e.value.item) == (ErrorKind.EMPTY, 1)
