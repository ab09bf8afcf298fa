"""Late interaction: the rules of a checkpoint give the tokens that sentence-transformers feeds."""

import json
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import LateInteraction
from infinity_v3.model_specs.hub_config import HubConfig, read_hub_config
from infinity_v3.model_specs.kind import resolve_kind
from infinity_v3.model_specs.late_interaction import resolve_late_interaction
from infinity_v3.model_specs.length_limit import length_limit
from infinity_v3.model_specs.registry import match
from infinity_v3.runtime.late_interaction import Side
from infinity_v3.runtime.requests import TruncationSide
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation
from tiny_checkpoints import make_tiny_checkpoint, remove_json_key, set_json_key
from tiny_retrievers import STANFORD_TRAITS, ColbertTraits, make_colbert_checkpoint

TEXTS = (
    "a",
    "hello world, this is a test!",
    "What? (yes) & no; [x] {y}",
    " leading and trailing ",
    "Füße 深度学习 🙂",
    "again " * 40,
)
SHORT = ColbertTraits(query_length=8)
"""For tiny windows: fill-up tokens must see some of the query."""
SHORT_STANFORD = replace(STANFORD_TRAITS["modernbert"], query_length=8)
LAYOUTS = {
    "bert-pylate": ("bert", "pylate", None),
    "bert-stanford": ("bert", "stanford", None),
    "bert-library": ("bert", "sentence-transformers", None),
    "modernbert-pylate": ("modernbert", "pylate", SHORT),
    "modernbert-stanford": ("modernbert", "stanford", SHORT_STANFORD),
    "modernbert-library": ("modernbert", "sentence-transformers", SHORT),
    "xlm-roberta-stanford": ("xlm-roberta", "stanford", None),
    "xlm-roberta-pylate": ("xlm-roberta", "pylate", None),
    "attending": ("bert", "pylate", ColbertTraits(attend_to_expansion=True)),
    "not-expanded": ("bert", "pylate", ColbertTraits(expand_queries=False)),
    "all-tokens": ("bert", "sentence-transformers", ColbertTraits(skip_punctuation=False)),
    "no-markers": ("bert", "pylate", ColbertTraits(query_prefix="", document_prefix="")),
}
METADATA = "artifact.metadata"
MASK = "2_MultiVectorMask/config.json"
SENTENCE = "sentence_bert_config.json"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("late")


@pytest.fixture(params=LAYOUTS)
def checkpoint(request: pytest.FixtureRequest, root: Path) -> Path:
    family, layout, traits = LAYOUTS[request.param]
    path = root / str(request.param)
    if not path.exists():
        make_colbert_checkpoint(family, path, layout=layout, traits=traits)
    return path


def rules_of(path: Path) -> LateInteraction:
    config = read_hub_config(path)
    return resolve_late_interaction(config, match(config)).rules


def tokenizer_of(config: HubConfig, max_tokens: int) -> TextTokenizer:
    return TextTokenizer.from_file(
        config.tokenizer.tokenizer,
        vocab_size=config.model.vocab_size,
        max_input_tokens=max_tokens,
    )


@pytest.mark.parametrize("side", ["query", "document"])
def test_tokens_are_those_of_the_library(checkpoint: Path, side: str) -> None:
    config = read_hub_config(checkpoint)
    limit = length_limit(config, match(config)).rule.max_tokens
    rules = Side.of(rules_of(checkpoint), side)
    truncation = Truncation(max_tokens=limit, side=TruncationSide.RIGHT, is_allowed=True)
    found = tokenizer_of(config, limit).encode_side(
        TEXTS, truncation, rules, prompt=config.prompts.named[side]
    )
    library = MultiVectorEncoder(str(checkpoint), device="cpu")
    for text, encoded in zip(TEXTS, found, strict=True):
        wanted = library.preprocess([text], prompt=library.prompts[side], task=side)
        assert encoded.input_ids.tolist() == wanted["input_ids"][0].tolist()
        num_keys = encoded.num_tokens if encoded.num_keys is None else encoded.num_keys
        assert num_keys == int(wanted["attention_mask"].sum())
        assert kept(encoded.input_ids, rules) == kept_by(library, wanted, side)


def kept(ids: np.ndarray, rules: Side) -> list[int]:
    return [int(token) for token in ids if token not in rules.skipped_ids]


def kept_by(library: MultiVectorEncoder, features: dict[str, torch.Tensor], side: str) -> list[int]:
    mask = next(module for module in library if type(module).__name__ == "MultiVectorMask")
    masked = mask(dict(features), task=side)
    kept_ids: list[int] = features["input_ids"][masked["attention_mask"].bool()].tolist()
    return kept_ids


def test_a_marker_is_a_token_where_the_vocabulary_knows_it(root: Path, tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path, layout="stanford")
    config = read_hub_config(tmp_path)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    rules = rules_of(tmp_path)
    markers = (vocabulary["[unused0]"], vocabulary["[unused1]"])
    assert (rules.query_prefix_id, rules.document_prefix_id) == markers
    assert rules.query_expansion_id == vocabulary["[MASK]"]
    assert (rules.query_length, rules.document_length) == (16, 48)
    assert rules.skipped_ids == tuple(
        sorted(vocabulary[sign] for sign in string.punctuation if sign in vocabulary)
    )
    assert config.prompts.named == {"query": " ", "document": " "}
    assert config.prompts.default == "document"


def test_a_marker_that_the_vocabulary_lacks_is_text(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path)
    config_file = tmp_path / "config_sentence_transformers.json"
    set_json_key(config_file, "query_prefix", "ask this: ")
    set_json_key(config_file, "prompts", {"query": "ask this: now ", "other": "x"})
    config = read_hub_config(tmp_path)
    assert config.prompts.named == {"query": "ask this: now ", "document": "", "other": "x"}
    assert rules_of(tmp_path).query_prefix_id is None


def test_a_stored_prompt_follows_the_marker(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path)
    config_file = tmp_path / "config_sentence_transformers.json"
    set_json_key(config_file, "prompts", {"query": "[Q] find ", "document": "read "})
    set_json_key(config_file, "default_prompt_name", "query")
    config = read_hub_config(tmp_path)
    assert config.prompts.named == {"query": "find ", "document": "read "}
    assert config.prompts.default == "query"


def test_the_first_releases_of_pylate_state_no_class(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path)
    before = rules_of(tmp_path)
    remove_json_key(tmp_path / "config_sentence_transformers.json", "model_type")
    assert rules_of(tmp_path) == before


def test_without_metadata_the_usual_values_hold(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path, layout="stanford")
    (tmp_path / METADATA).unlink()
    rules = rules_of(tmp_path)
    assert (rules.query_length, rules.document_length) == (32, 512)
    assert rules.skipped_ids


def test_the_mask_token_is_found_without_its_role(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path)
    before = rules_of(tmp_path).query_expansion_id
    remove_json_key(tmp_path / "tokenizer_config.json", "mask_token")
    (tmp_path / "special_tokens_map.json").unlink()
    assert rules_of(tmp_path).query_expansion_id == before


def test_lengths_end_where_positions_do(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path, layout="stanford")
    set_json_key(tmp_path / METADATA, "doc_maxlen", 8192)
    config = read_hub_config(tmp_path)
    limit = length_limit(config, match(config))
    assert limit.rule.max_tokens == 512
    assert limit.warnings == (
        f"{METADATA}: the longest query or document, 8192 is beyond the 512 positions that an "
        "input can use; 512 counts",
    )
    assert rules_of(tmp_path).document_length == 512


def test_the_longer_side_is_the_limit(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path)
    config = read_hub_config(tmp_path)
    limit = length_limit(config, match(config))
    # sentence_bert_config.json says 47, which holds for neither side.
    assert limit.rule.max_tokens == 48
    assert limit.rule.source == "config_sentence_transformers.json"
    assert limit.warnings == ()


REFUSALS = {
    "metadata is no JSON": ("stanford", METADATA, None, None, "expected JSON"),
    "other similarity": ("stanford", METADATA, "similarity", "l2", 'similarity: expected "cosine"'),
    "other scores": ("stanford", METADATA, "interaction", "flipr", 'expected "colbert"'),
    "length of another type": ("stanford", METADATA, "query_maxlen", "32", "query_maxlen"),
    "flag of another type": ("stanford", METADATA, "mask_punctuation", 1, "mask_punctuation"),
    "kept tokens": ("sentence-transformers", MASK, "keep_only_token_ids", [3], "keeps all tokens"),
    "skipped in queries": (
        "sentence-transformers",
        MASK,
        "skiplist_tasks",
        ["query", "document"],
        "skips no tokens of a query",
    ),
    "a minimum": (
        "sentence-transformers",
        SENTENCE,
        "query_expansion",
        {"strategy": "min", "length": 16},
        'query_expansion.strategy: expected "fixed"',
    ),
    "no length": (
        "sentence-transformers",
        SENTENCE,
        "query_expansion",
        {"strategy": "fixed"},
        "query_expansion.length",
    ),
    "unknown filler": (
        "sentence-transformers",
        SENTENCE,
        "query_expansion",
        {"strategy": "fixed", "length": 16, "token": "[NONE]"},
        'expected "[NONE]", which queries are filled up with',
    ),
    "pooled dense": (
        "sentence-transformers",
        "1_Dense/config.json",
        "module_input_name",
        "sentence_embedding",
        'module_input_name: expected "token_embeddings"',
    ),
    "pooled norm": (
        "sentence-transformers",
        "3_Normalize/config.json",
        "module_input_name",
        "sentence_embedding",
        'module_input_name: expected "token_embeddings"',
    ),
    "dense of another width": ("pylate", "1_Dense/config.json", "in_features", 8, "expected 32"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_rules_that_cannot_be_kept_are_refused(tmp_path: Path, case: str) -> None:
    layout, name, key, value, sentence = REFUSALS[case]
    make_colbert_checkpoint("bert", tmp_path, layout=layout)
    if key is None:
        (tmp_path / name).write_text("query_maxlen = 32", encoding="utf-8")
    else:
        set_json_key(tmp_path / name, key, value)
    with pytest.raises(UsageError) as caught:
        rules_of(tmp_path)
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message


def test_a_marker_beyond_the_table_is_refused(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path)
    rows = read_hub_config(tmp_path).model.vocab_size
    set_json_key(tmp_path / "config.json", "vocab_size", rows - 1)
    with pytest.raises(UsageError, match=f"expected ids below vocab_size {rows - 1} .* found"):
        rules_of(tmp_path)


def test_a_minimum_that_is_the_maximum_is_fixed(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path, layout="sentence-transformers")
    before = rules_of(tmp_path)
    expansion = {"strategy": "min", "length": 16}
    set_json_key(tmp_path / SENTENCE, "query_expansion", expansion)
    set_json_key(tmp_path / SENTENCE, "query_length", 16)
    assert rules_of(tmp_path) == before


def test_expansion_needs_the_module_that_keeps_it(tmp_path: Path) -> None:
    make_colbert_checkpoint("bert", tmp_path, layout="sentence-transformers")
    rows = json.loads((tmp_path / "modules.json").read_text())
    kept_rows = [row for row in rows if "MultiVectorMask" not in row["type"]]
    (tmp_path / "modules.json").write_text(json.dumps(kept_rows))
    with pytest.raises(UsageError, match="expected a MultiVectorMask module"):
        read_hub_config(tmp_path)
    set_json_key(tmp_path / SENTENCE, "query_expansion", None)
    assert rules_of(tmp_path).query_expansion_id is None


def test_a_plain_checkpoint_is_none(tmp_path: Path) -> None:
    make_tiny_checkpoint("bert", tmp_path)
    config = read_hub_config(tmp_path)
    with pytest.raises(UsageError, match="expected a late-interaction checkpoint"):
        resolve_late_interaction(config, match(config))
    assert resolve_kind(config, match(config), None, None).value == "embedding"


def test_fill_up_tokens_that_would_see_nothing_are_refused(tmp_path: Path) -> None:
    path = make_colbert_checkpoint("modernbert", tmp_path / "m")
    with pytest.raises(UsageError, match="expected an attention window of at least 32 tokens"):
        rules_of(path)
    attending = ColbertTraits(attend_to_expansion=True)
    path = make_colbert_checkpoint("modernbert", tmp_path / "n", traits=attending)
    assert rules_of(path).attends_to_expansion
