"""The tiny checkpoints of the tests are what they claim to be."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from sentence_transformers import SentenceTransformer

from reference_library import load_reference_model, load_reference_tokenizer
from tiny_checkpoints import (
    FAMILIES,
    keep_only_pytorch_bin,
    make_tiny_checkpoint,
    split_into_shards,
    truncate_safetensors,
)

TEXTS = (
    "What is Deep Learning?",
    "the cat sat on the mat",
    "die Katze ist schön",
    "深度 学习",
    "привет мир",
    "",
    "zzqqx",
)


def digests(path: Path) -> dict[str, str]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_told_apart(checkpoints: dict[str, Path], family: str) -> None:
    model = SentenceTransformer(str(checkpoints[family]), device="cpu")
    vectors = model.encode(list(TEXTS), batch_size=1)
    cosines = vectors @ vectors.T - np.eye(len(TEXTS))
    assert cosines.max() < 0.98, f"closest pair has cosine {cosines.max():.4f}"


@pytest.mark.parametrize("family", FAMILIES)
def test_order_of_words_matters(checkpoints: dict[str, Path], family: str) -> None:
    model = SentenceTransformer(str(checkpoints[family]), device="cpu")
    first, second = model.encode(["the dog and the cat", "the cat and the dog"], batch_size=1)
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_same_seed_gives_the_same_bytes(tmp_path: Path, family: str) -> None:
    first = make_tiny_checkpoint(family, tmp_path / "first", seed=3)
    again = make_tiny_checkpoint(family, tmp_path / "again", seed=3)
    other = make_tiny_checkpoint(family, tmp_path / "other", seed=4)
    assert digests(first) == digests(again)
    changed = {name for name, digest in digests(first).items() if digests(other)[name] != digest}
    assert changed == {"model.safetensors"}


@pytest.mark.parametrize("family", FAMILIES)
def test_tokenizer_marks_start_and_end_as_the_model_expects(
    checkpoints: dict[str, Path], family: str
) -> None:
    tokenizer = load_reference_tokenizer(checkpoints[family])
    ids = tokenizer("the cat")["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    config = load_reference_model(checkpoints[family]).config
    assert tokenizer.pad_token_id == config.pad_token_id
    assert tokenizer.unk_token_id not in tokenizer("the cat", add_special_tokens=False)["input_ids"]
    assert len(tokenizer) <= config.vocab_size


def test_weights_are_stored_in_the_asked_type(tmp_path: Path) -> None:
    path = make_tiny_checkpoint("bert", tmp_path, dtype="bfloat16")
    assert load_reference_model(path).dtype is torch.bfloat16


def test_shards_hold_the_same_model(bert: Path) -> None:
    before = load_reference_model(bert).state_dict()
    after = load_reference_model(split_into_shards(bert)).state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_missing_shard_is_missing(bert: Path) -> None:
    split_into_shards(bert, remove_shard=2)
    names = sorted(file.name for file in bert.glob("model*"))
    assert names == ["model-00001-of-00002.safetensors", "model.safetensors.index.json"]


def test_truncated_weights_cannot_be_opened(bert: Path) -> None:
    truncate_safetensors(bert)
    with pytest.raises(SafetensorError), safe_open(bert / "model.safetensors", framework="pt"):
        pass


def test_pytorch_bin_is_the_only_weight_file(bert: Path) -> None:
    names = {file.name for file in keep_only_pytorch_bin(bert).glob("*model*")}
    assert "pytorch_model.bin" in names
    assert "model.safetensors" not in names
