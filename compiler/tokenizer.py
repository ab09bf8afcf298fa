"""Opens a checkpoint's tokenizer as the runtime will. Tokenises nothing."""

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
