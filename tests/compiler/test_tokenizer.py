"""The checkpoint's tokenizer as the tokenizers library sees it."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.tokenizer import open_tokenizer, vocabulary_warnings
from tiny_checkpoints import set_json_key
from tiny_tokenizers import build_tokenizer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    build_tokenizer("bert").backend.save(str(path))
    return path


@pytest.mark.parametrize(
    ("key", "value"),
    [("normalizer", {"type": "Bogus"}), ("model", {"type": "WordPiece"}), ("added_tokens", 3)],
)
def test_a_tokenizer_that_cannot_be_read_is_one_sentence(
    file: Path, key: str, value: object
) -> None:
    open_tokenizer(file)
    set_json_key(file, key, value)
    with pytest.raises(UsageError) as caught:
        open_tokenizer(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: expected a tokenizer that the tokenizers library reads")
    assert "\n" not in message


def test_ids_beyond_the_table_are_a_warning_with_both_numbers(file: Path) -> None:
    tokenizer = open_tokenizer(file)
    size = tokenizer.get_vocab_size()
    assert vocabulary_warnings(tokenizer, "tokenizer.json", size) == ()
    assert vocabulary_warnings(tokenizer, "tokenizer.json", size - 1) == (
        f"tokenizer.json: its token ids go up to {size - 1}, config.json's vocab_size {size - 1} "
        f"ends at {size - 2}; texts that hold a token beyond it will be refused",
    )


def test_added_tokens_count(file: Path) -> None:
    tokenizer = open_tokenizer(file)
    size = tokenizer.get_vocab_size()
    tokenizer.add_tokens(["<further>"])
    (warning,) = vocabulary_warnings(tokenizer, "tokenizer.json", size)
    assert f"go up to {size}," in warning
