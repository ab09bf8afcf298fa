"""Limit and position offset agree with the reference models' own position functions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import LengthRule
from infinity_v3.compiler.export import LIMITS
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.length_limit import (
    MOST_TOKENS,
    LengthLimit,
    length_limit,
    position_offset,
)
from infinity_v3.model_specs.registry import match
from reference_library import load_reference_model
from tiny_checkpoints import FAMILIES, make_tiny_checkpoint, set_json_key, write_json

AFTER_PADDING = ("roberta", "xlm-roberta", "camembert")


def limit_of(path: Path, override: int | None = None) -> LengthLimit:
    config = read_hub_config(path)
    return length_limit(config, match(config), override)


def test_real_checkpoint_keeps_its_stored_limit_below_its_positions(minilm: Path) -> None:
    limit = limit_of(minilm)
    assert limit.rule == LengthRule(max_tokens=256, source="sentence_bert_config.json")
    assert (limit.position_offset, limit.position_rows, limit.warnings) == (0, 512, ())


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_decide_without_a_stored_limit(checkpoints: dict[str, Path], family: str) -> None:
    limit = limit_of(checkpoints[family])
    assert limit.rule == LengthRule(max_tokens=512, source="config.json")
    assert limit.position_offset == (2 if family in AFTER_PADDING else 0)
    assert limit.position_rows == 512 + limit.position_offset


@pytest.mark.parametrize("pad_token_id", [0, 1, 5])
@pytest.mark.parametrize("family", AFTER_PADDING)
def test_offset_is_that_of_the_reference_position_function(
    tmp_path: Path, family: str, pad_token_id: int
) -> None:
    path = make_tiny_checkpoint(family, tmp_path, pooling=None)
    set_json_key(path / "config.json", "pad_token_id", pad_token_id)
    config = read_hub_config(path)
    embeddings: Any = load_reference_model(path).embeddings
    ids = torch.full((1, 9), 20)
    positions = embeddings.create_position_ids_from_input_ids(ids, embeddings.padding_idx)
    offset = position_offset(config, match(config))
    assert positions.tolist() == [list(range(offset, offset + 9))]


@pytest.mark.parametrize("family", FAMILIES)
def test_reference_takes_the_limit_and_not_one_token_more(
    checkpoints: dict[str, Path], family: str
) -> None:
    model = load_reference_model(checkpoints[family])
    longest = limit_of(checkpoints[family]).rule.max_tokens
    with torch.no_grad():
        assert model(torch.full((1, longest), 20)).last_hidden_state.shape[1] == longest
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.full((1, longest + 1), 20))


@pytest.mark.parametrize("max_seq_length", [8, 64, 512])
def test_stored_limit_is_that_of_sentence_transformers(tmp_path: Path, max_seq_length: int) -> None:
    path = make_tiny_checkpoint("xlm-roberta", tmp_path, max_seq_length=max_seq_length)
    expected = SentenceTransformer(str(path), device="cpu").max_seq_length
    assert limit_of(path).rule.max_tokens == expected == max_seq_length


def test_stored_limit_beyond_the_positions_is_lowered_with_a_warning(roberta: Path) -> None:
    write_json(roberta / "sentence_roberta_config.json", {"max_seq_length": 514})
    limit = limit_of(roberta)
    assert limit.rule == LengthRule(max_tokens=512, source="config.json")
    (warning,) = limit.warnings
    assert "sentence_roberta_config.json: max_seq_length 514" in warning
    assert "512" in warning


def test_limit_stated_by_the_tokenizer_alone_counts_as_in_sentence_transformers(
    roberta: Path,
) -> None:
    set_json_key(roberta / "tokenizer_config.json", "model_max_length", 64)
    expected = SentenceTransformer(str(roberta), device="cpu").max_seq_length
    limit = limit_of(roberta)
    assert limit.rule == LengthRule(max_tokens=64, source="tokenizer_config.json")
    assert expected == 64
    assert limit.warnings == ()


def test_limit_stated_by_the_tokenizer_of_a_bare_model_is_only_warned_about(roberta: Path) -> None:
    (roberta / "modules.json").unlink()
    set_json_key(roberta / "tokenizer_config.json", "model_max_length", 64)
    limit = limit_of(roberta)
    assert limit.rule == LengthRule(max_tokens=512, source="config.json")
    (warning,) = limit.warnings
    assert "model_max_length 64" in warning
    assert "--max-sequence-length 64" in warning
    write_json(roberta / "sentence_bert_config.json", {"max_seq_length": 32})
    assert limit_of(roberta).warnings == ()


@pytest.mark.parametrize("override", [3, 16, 256])
def test_override_lowers_the_limit(minilm: Path, override: int) -> None:
    limit = limit_of(minilm, override)
    assert limit.rule == LengthRule(max_tokens=override, source="--max-sequence-length")
    assert limit.warnings == ()


def test_override_above_the_stored_limit_warns_up_to_the_positions(minilm: Path) -> None:
    limit = limit_of(minilm, 512)
    assert limit.rule == LengthRule(max_tokens=512, source="--max-sequence-length")
    (warning,) = limit.warnings
    assert "more than the 256 tokens of sentence_bert_config.json" in warning


@pytest.mark.parametrize("override", [513, 10**9, 2, 1, 0, -5])
def test_override_that_does_not_fit_is_refused(minilm: Path, override: int) -> None:
    sentence = f"--max-sequence-length: expected 3 to 512 .* {override}$"
    with pytest.raises(UsageError, match=sentence):
        limit_of(minilm, override)


def test_position_table_without_room_is_refused(roberta: Path) -> None:
    for rows, found in ((1, 0), (2, 0), (4, 2)):
        set_json_key(roberta / "config.json", "max_position_embeddings", rows)
        with pytest.raises(UsageError, match=f"room for at least 3 tokens .*, found {found}$"):
            limit_of(roberta)
    set_json_key(roberta / "config.json", "max_position_embeddings", 5)
    assert limit_of(roberta).rule.max_tokens == 3


def test_stored_limit_without_room_is_refused(bert: Path) -> None:
    write_json(bert / "sentence_bert_config.json", {"max_seq_length": 2})
    with pytest.raises(UsageError, match=r"sentence_bert_config.json: expected room for"):
        limit_of(bert)


def test_no_input_is_longer_than_a_batch(tmp_path: Path) -> None:
    path = make_tiny_checkpoint("llama", tmp_path)
    set_json_key(path / "config.json", "max_position_embeddings", 131072)
    set_json_key(path / "tokenizer_config.json", "model_max_length", 131072)
    limit = limit_of(path)
    assert limit.rule == LengthRule(max_tokens=MOST_TOKENS, source="config.json")
    assert limit.warnings == (
        "config.json: max_position_embeddings 131072 is beyond the 32768 tokens of a batch; "
        "32768 counts",
    )
    assert limit.position_rows == 131072
    assert limit_of(path, MOST_TOKENS).rule.max_tokens == MOST_TOKENS
    with pytest.raises(UsageError, match=r"expected \d+ to 32768 .* tokens of a batch"):
        limit_of(path, MOST_TOKENS + 1)


def test_a_stored_limit_beyond_a_batch_is_lowered_with_a_warning(tmp_path: Path) -> None:
    path = make_tiny_checkpoint("llama", tmp_path, max_seq_length=65536)
    set_json_key(path / "config.json", "max_position_embeddings", 131072)
    (warning,) = limit_of(path).warnings
    assert "sentence_bert_config.json: max_seq_length 65536 is beyond the 32768 tokens" in warning


def test_the_tokenizer_does_not_widen_the_positions(tmp_path: Path) -> None:
    path = make_tiny_checkpoint("qwen3", tmp_path)
    set_json_key(path / "config.json", "max_position_embeddings", MOST_TOKENS)
    set_json_key(path / "tokenizer_config.json", "model_max_length", 131072)
    limit = limit_of(path)
    assert limit.rule == LengthRule(max_tokens=MOST_TOKENS, source="config.json")
    assert limit.warnings == ()


def test_engines_take_batches_of_that_many_tokens() -> None:
    assert LIMITS.max_tokens == MOST_TOKENS
