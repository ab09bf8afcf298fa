"""Entities against the transformers pipeline on the same logits."""

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import (  # noqa: TID251  the reference that ours must equal
    AutoTokenizer,
    PreTrainedTokenizerBase,
    TokenClassificationPipeline,
)
from transformers.pipelines.token_classification import (  # noqa: TID251  its own strategies
    AggregationStrategy,
)

from compiled import minilm_checkpoint
from infinity_v3.runtime.entities import EntityRules, read_entities
from infinity_v3.runtime.requests import Aggregation, TruncationSide
from infinity_v3.runtime.results import TokenEntity
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation
from tiny_checkpoints import make_tiny_checkpoint

FAMILIES = ("minilm", "roberta", "xlm-roberta", "qwen3", "llama")
LABEL_SETS = (
    ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    ("I-PER", "PER", "O", "NAME"),
    ("O", "B-PER-SON", "S-LOC", "E-LOC", "MISC"),
)
SAMPLES = (
    "Apple is looking at buying U.K. startup for $1 billion",
    "unbelievably long-winded, e.g. don't; (naïve) café №5",
    "深度学习 é a👩‍👩‍👧b [SEP] <s> [UNK] ☃☃",
    "  two  spaces\tand tabs\n",
    "microsoft",
)
MAX_TOKENS = 64


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {"minilm": minilm_checkpoint()}

    def get(family: str) -> Path:
        if family not in made:
            made[family] = make_tiny_checkpoint(family, tmp_path_factory.mktemp(family))
        return made[family]

    return get


@pytest.fixture
def tools(
    request: pytest.FixtureRequest, checkpoint: Callable[[str], Path]
) -> tuple[TextTokenizer, PreTrainedTokenizerBase]:
    return open_tokenizers(checkpoint(request.param))


@lru_cache(maxsize=8)
def open_tokenizers(path: Path) -> tuple[TextTokenizer, PreTrainedTokenizerBase]:
    theirs = AutoTokenizer.from_pretrained(path)
    ours = TextTokenizer.from_file(
        path / "tokenizer.json", vocab_size=1 << 20, max_input_tokens=MAX_TOKENS
    )
    return ours, theirs


def reference(
    theirs: PreTrainedTokenizerBase,
    text: str,
    logits: NDArray[np.float32],
    rules: EntityRules,
    max_tokens: int,
) -> list[dict[str, Any]]:
    """What the pipeline makes of these logits; only its model is missing."""
    pipeline: Any = TokenClassificationPipeline.__new__(TokenClassificationPipeline)
    pipeline.tokenizer = theirs
    labels = dict(enumerate(rules.labels))
    pipeline.model = SimpleNamespace(config=SimpleNamespace(id2label=labels))
    inputs = theirs(
        text,
        return_tensors="pt",
        truncation=True,
        max_length=max_tokens,
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
    )
    output = {**inputs, "logits": torch.from_numpy(logits[np.newaxis]), "sentence": text}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = pipeline.postprocess(
            [output],
            aggregation_strategy=AggregationStrategy(rules.aggregation.value),
            ignore_labels=list(rules.ignored_labels),
        )
    return list(found)


def read(
    ours: TextTokenizer, text: str, rules: EntityRules, seed: int, max_tokens: int = MAX_TOKENS
) -> tuple[tuple[TokenEntity, ...], NDArray[np.float32]]:
    texts = ours.encode_words([text], Truncation(max_tokens=max_tokens))
    shape = (texts[0].encoded.num_tokens, len(rules.labels))
    logits = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return read_entities(texts, [logits], rules)[0], logits


def assert_same(
    text: str, found: Sequence[TokenEntity], expected: Sequence[dict[str, Any]]
) -> None:
    keys = ("entity", "entity_group")
    names = [entry.get(keys[0], entry.get(keys[1])) for entry in expected]
    assert [list(entity.results) for entity in found] == [[name] for name in names]
    spans = [(entry["start"], entry["end"]) for entry in expected]
    assert [(entity.start, entity.end) for entity in found] == spans
    np.testing.assert_allclose(
        np.array([next(iter(entity.results.values())) for entity in found]),
        np.array([entry["score"] for entry in expected]),
        rtol=1e-5,
    )
    assert all(entity.start <= entity.end <= len(text) for entity in found)


@pytest.mark.parametrize("tools", FAMILIES, indirect=True)
@pytest.mark.parametrize("labels", LABEL_SETS)
@pytest.mark.parametrize("aggregation", tuple(Aggregation))
def test_entities_equal_the_pipeline(
    tools: tuple[TextTokenizer, PreTrainedTokenizerBase],
    labels: tuple[str, ...],
    aggregation: Aggregation,
) -> None:
    ours, theirs = tools
    for seed, text in enumerate(SAMPLES):
        for ignored in (frozenset[str](), frozenset({"O"}), frozenset({"PER", "B-LOC", "LOC"})):
            rules = EntityRules(labels=labels, ignored_labels=ignored, aggregation=aggregation)
            found, logits = read(ours, text, rules, seed)
            assert_same(text, found, reference(theirs, text, logits, rules, MAX_TOKENS))


fragments = st.sampled_from(
    ["Apple", "U.K.", " ", " ", "$1", "naïve", "深", "don't", "\t", "unbelievable", "☃", "e\u0301"]
)


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(fragments, min_size=1, max_size=12).map("".join),
    labels=st.sampled_from(LABEL_SETS),
    aggregation=st.sampled_from(tuple(Aggregation)),
    seed=st.integers(0, 1 << 20),
    max_tokens=st.integers(3, 20),
)
def test_any_text_equals_the_pipeline(
    text: str, labels: tuple[str, ...], aggregation: Aggregation, seed: int, max_tokens: int
) -> None:
    ours, theirs = open_tokenizers(minilm_checkpoint())
    rules = EntityRules(labels=labels, ignored_labels=frozenset({"O"}), aggregation=aggregation)
    found, logits = read(ours, text, rules, seed, max_tokens)
    assert_same(text, found, reference(theirs, text, logits, rules, max_tokens))


def minilm_words() -> TextTokenizer:
    return open_tokenizers(minilm_checkpoint())[0]


def rules_of(aggregation: Aggregation, *, shows_logits: bool = False) -> EntityRules:
    return EntityRules(
        labels=("O", "B-ORG", "I-ORG"),
        ignored_labels=frozenset({"O"}),
        aggregation=aggregation,
        shows_logits=shows_logits,
    )


def entities_of(text: str, best: Sequence[int], rules: EntityRules) -> tuple[TokenEntity, ...]:
    """Entities where each token, special ones included, has a label that wins by far."""
    texts = minilm_words().encode_words([text], Truncation(max_tokens=MAX_TOKENS))
    logits = np.eye(3, dtype=np.float32)[list(best)] * 10
    return read_entities(texts, [logits], rules)[0]


def test_single_tokens_are_spelled_as_in_the_vocabulary() -> None:
    first, second = entities_of("Apple ☃☃", [1, 1, 2, 0], rules_of(Aggregation.NONE))
    assert (first.token, first.token_id, first.start, first.end) == ("apple", 6207, 0, 5)
    assert list(first.results) == ["B-ORG"]
    assert (second.token, second.token_id, second.start, second.end) == ("[UNK]", 100, 6, 8)


def test_groups_are_slices_of_the_text() -> None:
    (group,) = entities_of("The Apple Store", [1, 0, 1, 2, 1], rules_of(Aggregation.SIMPLE))
    assert (group.token, group.token_id) == ("Apple Store", 0)
    assert (group.start, group.end) == (4, 15)
    assert list(group.results) == ["ORG"]
    assert group.results["ORG"] == pytest.approx(1.0, abs=1e-4)


def test_a_beginning_begins_a_new_group() -> None:
    groups = entities_of("apple apple apple", [0, 1, 1, 2, 0], rules_of(Aggregation.SIMPLE))
    assert [(group.start, group.end) for group in groups] == [(0, 5), (6, 17)]


def test_logits_are_shown_for_every_label_and_the_best_one_decides() -> None:
    rules = rules_of(Aggregation.NONE, shows_logits=True)
    (only,) = entities_of("the apple", [1, 0, 2, 1], rules)
    assert only.token == "apple"
    assert only.results == {"O": 0.0, "B-ORG": 0.0, "I-ORG": 10.0}


def test_equal_scores_give_the_lower_class() -> None:
    texts = minilm_words().encode_words(["apple"], Truncation(max_tokens=MAX_TOKENS))
    logits = np.array([[0, 0, 0], [1, 3, 3], [0, 0, 0]], dtype=np.float32)
    for aggregation in Aggregation:
        ((only,),) = read_entities(texts, [logits], rules_of(aggregation))
        name = "B-ORG" if aggregation is Aggregation.NONE else "ORG"
        assert only.results[name] == pytest.approx(1 / (2 + np.exp(-2)))


@pytest.mark.parametrize("side", tuple(TruncationSide))
@pytest.mark.parametrize("filler", [20, 4000])
def test_characters_count_from_the_beginning_of_the_text(side: TruncationSide, filler: int) -> None:
    text = "apple " * filler + "pear"
    truncation = Truncation(max_tokens=8, side=side)
    (words,) = minilm_words().encode_words([text], truncation, prompt="query: ")
    assert words.text == text
    assert words.encoded.num_tokens == 8
    assert [token.row for token in words.tokens] == (
        [3, 4, 5, 6] if side is TruncationSide.RIGHT else [1, 2, 3, 4, 5, 6]
    )
    assert all(text[token.start : token.end] == token.text for token in words.tokens)
    last = words.tokens[-1]
    assert last.text == ("apple" if side is TruncationSide.RIGHT else "pear")
    assert last.end == (23 if side is TruncationSide.RIGHT else len(text))
