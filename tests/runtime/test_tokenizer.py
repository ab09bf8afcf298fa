"""Our truncation against the reference tokenizer's: WordPiece, byte-level BPE and Unigram."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers
from transformers import (  # noqa: TID251  the reference that ours must equal
    AutoTokenizer,
    PreTrainedTokenizerBase,
)

from compiled import minilm_checkpoint
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.requests import TruncationSide
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation
from tiny_checkpoints import make_tiny_checkpoint
from tiny_models import END, MAX_INPUT_TOKENS, START, VOCAB_SIZE, word_tokenizer

SIDES = tuple(TruncationSide)
FAMILIES = ("minilm", "bert", "roberta", "xlm-roberta", "camembert")
SAMPLES = (
    "test",
    " ",
    "\t\n ",
    "\0",
    "What is Deep Learning?",
    "深度学习 é — naïve café, ﬁne ½",
    "e\u0301 combining, \u200d joiner, 👩‍👩‍👧 family",
    "a [SEP] b <s> c </s> [CLS] <|endoftext|>",
    "x" * 150 + " " + "y" * 400,
    "1234567890" * 30,
    "one two three " * 200,
    "深度学习" * 300,
    "=" * 3000,
    " ".join("z" * 300 for _ in range(90)),
    "word " * 30 + " " * 5000 + "tail " * 30,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {"minilm": minilm_checkpoint()}

    def get(family: str) -> Path:
        if family not in made:
            made[family] = make_tiny_checkpoint(family, tmp_path_factory.mktemp(family))
        return made[family]

    return get


@pytest.fixture(params=FAMILIES)
def pair(
    request: pytest.FixtureRequest, checkpoint: Callable[[str], Path]
) -> tuple[TextTokenizer, PreTrainedTokenizerBase]:
    """Our tokenizer and the reference for one checkpoint."""
    path = checkpoint(request.param)
    reference = AutoTokenizer.from_pretrained(path)
    ours = TextTokenizer.from_file(
        path / "tokenizer.json", vocab_size=len(reference), max_input_tokens=128
    )
    return ours, reference


@pytest.fixture
def words() -> TextTokenizer:
    return TextTokenizer(word_tokenizer(), vocab_size=VOCAB_SIZE, max_input_tokens=MAX_INPUT_TOKENS)


def reference_ids(
    reference: PreTrainedTokenizerBase, text: str, truncation: Truncation
) -> list[int]:
    reference.truncation_side = truncation.side.value
    encoded = reference(text, truncation=True, max_length=truncation.max_tokens)
    return list(encoded["input_ids"])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("max_tokens", [2, 3, 4, 7, 64, 128])
def test_truncation_equals_the_checkpoint_tokenizer(
    pair: tuple[TextTokenizer, PreTrainedTokenizerBase], side: TruncationSide, max_tokens: int
) -> None:
    ours, reference = pair
    truncation = Truncation(max_tokens=max_tokens, side=side)
    for text, encoded in zip(SAMPLES, ours.encode(SAMPLES, truncation), strict=True):
        expected = reference_ids(reference, text, truncation)
        assert encoded.input_ids.tolist() == expected, text[:40]


@pytest.mark.parametrize("side", SIDES)
def test_long_texts_are_not_encoded_whole_yet_end_the_same(
    pair: tuple[TextTokenizer, PreTrainedTokenizerBase], side: TruncationSide
) -> None:
    ours, reference = pair
    generator = random.Random(5)
    fragments = ["hello", "world", "naïve", "深度", "x" * 120, "42", "  ", "\n", "9" * 40, "don't"]
    for max_tokens in (8, 128):
        truncation = Truncation(max_tokens=max_tokens, side=side)
        for _ in range(8):
            text = " ".join(generator.choices(fragments, k=generator.randint(500, 5000)))
            expected = reference_ids(reference, text, truncation)
            assert ours.encode([text], truncation)[0].input_ids.tolist() == expected


def test_the_prompt_is_plain_text_in_front(
    pair: tuple[TextTokenizer, PreTrainedTokenizerBase],
) -> None:
    ours, reference = pair
    for side in SIDES:
        truncation = Truncation(max_tokens=6, side=side)
        encoded = ours.encode(["what is this about"], truncation, prompt="query: ")
        expected = reference_ids(reference, "query: what is this about", truncation)
        assert encoded[0].input_ids.tolist() == expected


@pytest.mark.parametrize(
    "text", ["深度学习 é", "a👩‍👩‍👧b naïve", "plain text, [SEP] and <s>", " x  y "]
)
def test_offsets_slice_the_text(
    pair: tuple[TextTokenizer, PreTrainedTokenizerBase], text: str
) -> None:
    ours, reference = pair
    pieces = ours.pieces([text], add_special_tokens=True)[0]
    assert [piece.token_id for piece in pieces] == list(reference(text)["input_ids"])
    for piece in pieces:
        if piece.is_special:
            assert (piece.start, piece.stop) == (None, None)
            assert piece.text == reference.convert_ids_to_tokens(piece.token_id)
        else:
            assert piece.text == text[piece.start : piece.stop]
    covered = {
        index
        for piece in pieces
        if piece.start is not None and piece.stop is not None
        for index in range(piece.start, piece.stop)
    }
    assert {index for index, character in enumerate(text) if not character.isspace()} <= covered


def test_decode_returns_the_text(pair: tuple[TextTokenizer, PreTrainedTokenizerBase]) -> None:
    ours, _ = pair
    text = "the cat"
    ids = [piece.token_id for piece in ours.pieces([text], add_special_tokens=True)[0]]
    assert ours.decode([ids, ids], skip_special_tokens=True) == [text, text]
    assert ours.decode([ids], skip_special_tokens=False) != [text]


def test_settings_of_the_file_are_switched_off() -> None:
    path = minilm_checkpoint() / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_file(str(path))
    assert backend.truncation is not None
    ours = TextTokenizer(backend, vocab_size=30522, max_input_tokens=512)
    lengths = [
        encoded.num_tokens for encoded in ours.encode(["a " * 300, "a"], Truncation(max_tokens=512))
    ]
    assert lengths == [302, 3]


def test_threads_with_mixed_settings_do_not_disturb_each_other() -> None:
    path = minilm_checkpoint() / "tokenizer.json"
    ours = TextTokenizer.from_file(path, vocab_size=30522, max_input_tokens=256)
    text = "one two three four five six seven eight nine ten " * 60
    cases = [
        Truncation(max_tokens=max_tokens, side=side)
        for max_tokens in (5, 17, 256)
        for side in SIDES
    ]
    expected = [ours.encode([text], case)[0].input_ids.tolist() for case in cases]

    def work(index: int) -> bool:
        case = index % len(cases)
        encoded = ours.encode([text, "short"], cases[case])
        return encoded[0].input_ids.tolist() == expected[case] and encoded[1].num_tokens == 3

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(320)))


def word_ids(*ids: int) -> str:
    return " ".join(f"w{token_id}" for token_id in ids)


def encode(words: TextTokenizer, *items: str | tuple[int, ...], **rule: object) -> list[list[int]]:
    truncation = Truncation(**({"max_tokens": MAX_INPUT_TOKENS} | rule))  # type: ignore[arg-type]
    return [encoded.input_ids.tolist() for encoded in words.encode(items, truncation)]


def test_ids_and_texts_may_be_mixed(words: TextTokenizer) -> None:
    assert encode(words, word_ids(5, 6), (5, 6), word_ids(7)) == [
        [START, 5, 6, END],
        [5, 6],
        [START, 7, END],
    ]


@pytest.mark.parametrize(
    ("ids", "side", "kept"),
    [
        ((START, 5, 6, 7, END), "right", [START, 5, END]),
        ((START, 5, 6, 7, 8), "right", [START, 5, 6]),
        ((START, 5, 6, 7, END), "left", [START, 7, END]),
        ((5, 6, 7, 8, END), "left", [7, 8, END]),
        ((5, 6, 7), "left", [5, 6, 7]),
    ],
)
def test_ids_are_clipped_with_their_special_ends(
    words: TextTokenizer, ids: tuple[int, ...], side: str, kept: list[int]
) -> None:
    assert encode(words, ids, max_tokens=3, side=TruncationSide(side)) == [kept]


@pytest.mark.parametrize("side", SIDES)
def test_a_limit_of_one_token_is_kept(words: TextTokenizer, side: TruncationSide) -> None:
    kept = START if side is TruncationSide.RIGHT else END
    text, ids = encode(words, word_ids(5, 6), (START, 5, END), max_tokens=1, side=side)
    assert text == [kept]
    assert len(ids) == 1


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE, 2**32, 2**80])
def test_ids_outside_the_vocabulary_are_named(words: TextTokenizer, token_id: int) -> None:
    with pytest.raises(InferenceError, match=rf"{token_id} at position 2.*{VOCAB_SIZE}") as e:
        encode(words, word_ids(5), (5, 6, token_id))
    assert (e.value.kind, e.value.code) == (ErrorKind.VALIDATION, "invalid_token_id")
    assert e.value.item == 1


def test_exactly_the_limit_needs_no_truncation(words: TextTokenizer) -> None:
    text = word_ids(*range(3, 3 + MAX_INPUT_TOKENS - 2))
    (ids,) = encode(words, text, is_allowed=False)
    assert len(ids) == MAX_INPUT_TOKENS


@pytest.mark.parametrize("item", [word_ids(*range(3, 100)), tuple(range(3, 102))])
def test_without_truncation_too_long_is_refused(
    words: TextTokenizer, item: str | tuple[int, ...]
) -> None:
    with pytest.raises(InferenceError, match=r"must have less than 64 tokens\. Given: 99") as e:
        encode(words, "w5", item, is_allowed=False)
    assert (e.value.code, e.value.item) == ("input_too_long", 1)


def test_without_truncation_characters_are_bounded(words: TextTokenizer) -> None:
    limit = 250 * MAX_INPUT_TOKENS
    encode(words, " " * limit, is_allowed=False)
    message = f"must have less than {limit} characters. Given: {limit + 1}"
    with pytest.raises(InferenceError, match=message) as e:
        encode(words, " " * (limit + 1), is_allowed=False)
    assert e.value.code == "input_too_long"
    with pytest.raises(InferenceError, match="characters"):
        words.pieces([" " * (limit + 1)], add_special_tokens=True)


def test_the_tokens_that_are_listed_at_once_are_bounded(
    words: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infinity_v3.runtime.tokenizer.MAX_LISTED_TOKENS", 10)
    assert len(words.pieces(["w5 w6 w7"] * 2, add_special_tokens=True)) == 2
    with pytest.raises(InferenceError, match="more than 10 tokens in all") as e:
        words.pieces(["w5 w6 w7"] * 3, add_special_tokens=True)
    assert (e.value.code, e.value.item) == ("input_too_long", None)


@pytest.mark.parametrize("order", [1, -1])
def test_the_first_item_at_fault_is_named(words: TextTokenizer, order: int) -> None:
    faults: Sequence[str | tuple[int, ...]] = [word_ids(*range(3, 100)), (5000,), " " * 20_000]
    for position in (0, 40):
        items = ["w5"] * position + list(faults[::order])
        with pytest.raises(InferenceError) as e:
            encode(words, *items, is_allowed=False)
        assert e.value.item == position


def test_a_tokenizer_failure_names_its_text() -> None:
    vocab = {"known": 0}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_tokens(["a"])
    ours = TextTokenizer(backend, vocab_size=10, max_input_tokens=8)
    with pytest.raises(InferenceError, match="the tokenizer failed") as e:
        ours.encode(["known", "known", "other"], Truncation(max_tokens=8))
    assert (e.value.kind, e.value.code) == (ErrorKind.TOKENIZER, "tokenizer_error")
    assert e.value.item == 2
    assert "other" not in e.value.message


def test_a_text_without_tokens_is_empty() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    ours = TextTokenizer(backend, vocab_size=1, max_input_tokens=8)
    with pytest.raises(InferenceError, match="`inputs` cannot be empty") as e:
        ours.encode(["a", "  "], Truncation(max_tokens=8))
    assert (e.value.kind, e.value.item) == (ErrorKind.EMPTY, 1)


def test_tokens_beyond_the_embedding_table_never_reach_the_model() -> None:
    ours = TextTokenizer(word_tokenizer(), vocab_size=10, max_input_tokens=8)
    assert ours.encode(["w9"], Truncation(max_tokens=8))[0].input_ids.tolist() == [1, 9, 2]
    with pytest.raises(InferenceError, match="the model's table ends at 9") as e:
        ours.encode(["w9", "w10"], Truncation(max_tokens=8))
    assert (e.value.kind, e.value.item) == (ErrorKind.TOKENIZER, 1)


def test_token_types_of_the_template_are_kept() -> None:
    backend = word_tokenizer()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A:1 </s>:2", special_tokens=[("</s>", END)]
    )
    ours = TextTokenizer(backend, vocab_size=VOCAB_SIZE, max_input_tokens=8)
    (encoded,) = ours.encode(["w5 w6 w7 w8"], Truncation(max_tokens=3))
    assert encoded.input_ids.tolist() == [5, 6, END]
    assert encoded.token_type_ids is not None
    assert encoded.token_type_ids.tolist() == [1, 1, 2]
