"""The two sides of late-interaction models, on ids that are plain to see."""

from dataclasses import replace

import numpy as np
import pytest
import tokenizers
from tokenizers import processors

from infinity_v3.artifacts.manifest import LateInteraction
from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.errors import InferenceError
from infinity_v3.runtime.late_interaction import Side
from infinity_v3.runtime.requests import TruncationSide
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation
from tiny_models import END, MAX_INPUT_TOKENS, START, VOCAB_SIZE, word_tokenizer

QUERY_PREFIX, DOCUMENT_PREFIX, FILLER = 900, 901, 902
SKIPPED = (50, 51)
RULES = LateInteraction(
    query_prefix_id=QUERY_PREFIX,
    document_prefix_id=DOCUMENT_PREFIX,
    query_length=8,
    document_length=6,
    query_expansion_id=FILLER,
    skipped_ids=SKIPPED,
)
QUERY, DOCUMENT = Side.of(RULES, "query"), Side.of(RULES, "document")
LIMIT = Truncation(max_tokens=MAX_INPUT_TOKENS)


def encode(
    side: Side, *items: str | tuple[int, ...], truncation: Truncation = LIMIT, prompt: str = ""
) -> list[EncodedText]:
    ours = TextTokenizer(word_tokenizer(), vocab_size=VOCAB_SIZE, max_input_tokens=MAX_INPUT_TOKENS)
    return ours.encode_side(items, truncation, side, prompt=prompt)


def ids_of(side: Side, /, *items: str | tuple[int, ...], **rule: object) -> list[list[int]]:
    truncation = Truncation(**({"max_tokens": MAX_INPUT_TOKENS} | rule))  # type: ignore[arg-type]
    return [text.input_ids.tolist() for text in encode(side, *items, truncation=truncation)]


@pytest.mark.parametrize("prompt_name", [None, "document", "passage"])
def test_whatever_is_no_query_is_a_document(prompt_name: str | None) -> None:
    assert Side.of(RULES, prompt_name) == DOCUMENT
    assert DOCUMENT != QUERY


def test_queries_get_a_prefix_and_are_filled_up_behind_the_last_token() -> None:
    (query,) = encode(QUERY, "w5 w6")
    assert query.input_ids.tolist() == [START, QUERY_PREFIX, 5, 6, END, FILLER, FILLER, FILLER]
    assert query.num_keys == 5


def test_fillers_may_be_seen() -> None:
    (query,) = encode(replace(QUERY, attends_to_fillers=True), "w5")
    assert query.num_tokens == 8
    assert query.num_keys is None


def test_a_full_query_is_cut_and_needs_no_fillers() -> None:
    (query,) = encode(QUERY, "w5 w6 w7 w8 w9 w10 w11")
    assert query.input_ids.tolist() == [START, QUERY_PREFIX, 5, 6, 7, 8, 9, END]
    assert query.num_keys is None


def test_queries_without_expansion_keep_their_length() -> None:
    assert ids_of(replace(QUERY, filler_id=None), "w5") == [[START, QUERY_PREFIX, 5, END]]


def test_documents_get_their_own_prefix_and_length() -> None:
    short, long = ids_of(DOCUMENT, "w5", "w5 w6 w7 w8 w9")
    assert short == [START, DOCUMENT_PREFIX, 5, END]
    assert long == [START, DOCUMENT_PREFIX, 5, 6, 7, END]


def test_long_documents_of_one_request_are_encoded_in_chunks() -> None:
    found = ids_of(DOCUMENT, *["w5", "w6 " * 3000] * 40)
    assert (
        found
        == [
            [START, DOCUMENT_PREFIX, 5, END],
            [START, DOCUMENT_PREFIX, 6, 6, 6, END],
        ]
        * 40
    )


def test_the_side_s_own_end_may_be_cut() -> None:
    (found,) = ids_of(DOCUMENT, "w5 w6 w7 w8 w9", side=TruncationSide.LEFT)
    assert found == [START, DOCUMENT_PREFIX, 7, 8, 9, END]


def test_a_request_may_ask_for_less_but_not_for_more() -> None:
    assert ids_of(QUERY, "w5 w6 w7", max_tokens=5) == [[START, QUERY_PREFIX, 5, 6, END]]
    assert ids_of(QUERY, "w5", max_tokens=5) == [[START, QUERY_PREFIX, 5, END, FILLER]]
    assert len(ids_of(QUERY, "w5", max_tokens=60)[0]) == 8


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_a_limit_without_room_is_kept(max_tokens: int) -> None:
    for side in (QUERY, DOCUMENT):
        (found,) = ids_of(side, "w5 w6", max_tokens=max_tokens)
        assert len(found) == max_tokens


def test_without_truncation_too_long_is_refused() -> None:
    with pytest.raises(InferenceError, match=r"must have less than 5 tokens\. Given: 7") as e:
        encode(DOCUMENT, "w5", "w5 w6 w7 w8 w9", truncation=replace(LIMIT, is_allowed=False))
    assert e.value.item == 1


def test_ids_are_fed_as_they_are() -> None:
    items = ("w5", (7, 8, 9, 10, 11, 12, 13), (14,))
    query, whole, last = encode(QUERY, *items)
    assert query.num_tokens == 8
    assert whole.input_ids.tolist() == [7, 8, 9, 10, 11, 12, 13]
    assert (last.input_ids.tolist(), last.num_keys) == ([14], None)


def test_the_prompt_stands_in_front_of_the_text() -> None:
    (found,) = encode(DOCUMENT, "w5", prompt="w7 ")
    assert found.input_ids.tolist() == [START, DOCUMENT_PREFIX, 7, 5, END]


def test_without_a_leading_special_token_the_prefix_comes_first() -> None:
    backend = word_tokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", END)]
    )
    ours = TextTokenizer(backend, vocab_size=VOCAB_SIZE, max_input_tokens=MAX_INPUT_TOKENS)
    (found,) = ours.encode_side(["w5"], LIMIT, DOCUMENT)
    assert found.input_ids.tolist() == [DOCUMENT_PREFIX, 5, END]


def test_token_types_keep_in_step() -> None:
    backend: tokenizers.Tokenizer = word_tokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A:1 </s>:1", special_tokens=[("<s>", START), ("</s>", END)]
    )
    ours = TextTokenizer(backend, vocab_size=VOCAB_SIZE, max_input_tokens=MAX_INPUT_TOKENS)
    (found,) = ours.encode_side(["w5 w6"], LIMIT, QUERY)
    assert found.token_type_ids is not None
    assert found.token_type_ids.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]


def test_skipped_tokens_get_no_vector() -> None:
    (text,) = encode(DOCUMENT, "w50 w7 w51")
    matrix = np.arange(text.num_tokens * 2, dtype=np.float32).reshape(-1, 2)
    picked = DOCUMENT.pick(text, matrix)
    np.testing.assert_array_equal(picked, matrix[[0, 1, 3, 5]])
    assert QUERY.pick(text, matrix) is matrix
