"""The tokenizer in an artifact does what the checkpoint's does inside sentence-transformers."""

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from infinity_v3.compiler.tokenizer_copy import TOKENIZER_FILE, copy_tokenizer
from infinity_v3.model_specs.hub_config import read_hub_config
from tiny_checkpoints import FAMILIES, make_tiny_checkpoint, set_json_key

TEXTS = (
    "The Quick BROWN Fox",
    "HÄUSER, Straße, ÉLÈVE, ŒUVRE, ẞ",
    "Привет МИР, ΟΔΟΣ, İstanbul, Ⅷ",
    "an </S> and a <MASK> in the text",
    "",
    "plain text",
)


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    path = tmp_path / "stage"
    path.mkdir()
    return path


def make_checkpoint(family: str, path: Path, *, lowers: bool) -> Path:
    make_tiny_checkpoint(family, path, max_seq_length=64)
    set_json_key(path / "sentence_bert_config.json", "do_lower_case", lowers)
    return path


def reference_ids(checkpoint: Path, text: str) -> list[int]:
    model = SentenceTransformer(str(checkpoint), device="cpu")
    ids: list[int] = model.preprocess([text])["input_ids"][0].tolist()
    return ids


@pytest.mark.parametrize("lowers", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_equal_sentence_transformers(
    family: str, lowers: bool, tmp_path: Path, stage: Path
) -> None:
    checkpoint = make_checkpoint(family, tmp_path / "checkpoint", lowers=lowers)
    copy_tokenizer(read_hub_config(checkpoint), stage)
    copied = Tokenizer.from_file(str(stage / TOKENIZER_FILE))
    for text in TEXTS:
        assert copied.encode(text).ids == reference_ids(checkpoint, text), text


def test_lowering_changes_the_ids_of_a_cased_tokenizer(tmp_path: Path, stage: Path) -> None:
    checkpoint = make_checkpoint("roberta", tmp_path / "checkpoint", lowers=True)
    copy_tokenizer(read_hub_config(checkpoint), stage)
    original = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    copied = Tokenizer.from_file(str(stage / TOKENIZER_FILE))
    assert original.encode("FOX").ids != original.encode("fox").ids
    assert copied.encode("FOX").ids == original.encode("fox").ids


@pytest.mark.parametrize(("family", "lowers"), [("roberta", False), ("bert", True)])
def test_a_tokenizer_that_needs_no_lowering_is_copied_byte_for_byte(
    family: str, lowers: bool, tmp_path: Path, stage: Path
) -> None:
    checkpoint = make_checkpoint(family, tmp_path / "checkpoint", lowers=lowers)
    copy_tokenizer(read_hub_config(checkpoint), stage)
    expected = (checkpoint / "tokenizer.json").read_bytes()
    assert (stage / TOKENIZER_FILE).read_bytes() == expected


def test_an_existing_normaliser_comes_after_the_lowering(tmp_path: Path, stage: Path) -> None:
    checkpoint = make_checkpoint("xlm-roberta", tmp_path / "checkpoint", lowers=True)
    before = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))["normalizer"]
    copy_tokenizer(read_hub_config(checkpoint), stage)
    after = json.loads((stage / TOKENIZER_FILE).read_text(encoding="utf-8"))["normalizer"]
    assert after == {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, before]}


def test_files_beside_it_come_along_and_the_checkpoint_stays_as_it_was(
    tmp_path: Path, stage: Path
) -> None:
    checkpoint = make_checkpoint("camembert", tmp_path / "checkpoint", lowers=True)
    (checkpoint / "chat_template.jinja").write_text("{{ messages }}")
    (checkpoint / "vocab.txt").write_text("not read")
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.is_file()}
    copy_tokenizer(read_hub_config(checkpoint), stage)
    assert {path.name for path in (stage / "tokenizer").iterdir()} == {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    }
    after = {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.is_file()}
    assert after == before
