"""Opens a checkpoint's tokenizer as the runtime will, and checks it against the model."""

from pathlib import Path

from tokenizers import Tokenizer

from infinity_v3.artifacts.errors import UsageError


def open_tokenizer(file: Path) -> Tokenizer:
    """Read tokenizer.json.

    Raises:
        UsageError: the tokenizers library cannot read it.
    """
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises no narrower type
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise UsageError(
            f"{file}: expected a tokenizer that the tokenizers library reads, found: {first}; "
            "fetch the checkpoint again or save the tokenizer anew with transformers"
        ) from error


def open_plain_tokenizer(file: Path) -> Tokenizer:
    """The same, without the padding and the truncation that it may say."""
    tokenizer = open_tokenizer(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def check_special_tokens(tokenizer: Tokenizer, file: Path, vocab_size: int) -> None:
    """Refuse a tokenizer that puts tokens around every text that the model has no row for.

    Args:
        tokenizer: opened from `file`.
        file: tokenizer.json, as sentences name it.
        vocab_size: rows of the model's word embedding.

    Raises:
        UsageError: every text would be refused, or the tokenizer cannot tokenise any.
    """
    largest = max(_tokens_of(tokenizer, file, ""), default=0)
    if largest >= vocab_size:
        raise UsageError(
            f"{file}: expected special tokens below config.json's vocab_size {vocab_size}, found "
            f"{largest} around every text; take both files from one checkpoint"
        )
    _tokens_of(tokenizer, file, "a")


def refuse_padding_at_end(tokenizer: Tokenizer, file: Path, pad_token_id: int | None) -> None:
    """Refuse a text that ends in padding, where the head looks for the last token before any.

    Raises:
        UsageError: the tokenizer ends every text with the padding token.
    """
    if _tokens_of(tokenizer, file, "a")[-1:] == [pad_token_id]:
        raise UsageError(
            f"{file}: expected texts that end in another token than padding, found padding "
            f"({pad_token_id}) at the end of every text, where this head would not read it; take "
            "pad_token_id in config.json and the tokenizer from one checkpoint"
        )


def _tokens_of(tokenizer: Tokenizer, file: Path, text: str) -> list[int]:
    try:
        return list(tokenizer.encode(text).ids)
    except Exception as error:  # the library raises no narrower type
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise UsageError(
            f"{file}: expected a tokenizer that tokenises any text, found one that fails: {first}; "
            "fetch the checkpoint again or save the tokenizer anew with transformers"
        ) from error


def vocabulary_warnings(tokenizer: Tokenizer, name: str, vocab_size: int) -> tuple[str, ...]:
    """Say so where the tokenizer knows tokens that the model has no row for.

    Args:
        name: of the file, as the sentence names it.
        vocab_size: rows of the model's word embedding.
    """
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest < vocab_size:
        return ()
    return (
        f"{name}: its token ids go up to {largest}, config.json's vocab_size {vocab_size} ends at "
        f"{vocab_size - 1}; texts that hold a token beyond it will be refused",
    )
