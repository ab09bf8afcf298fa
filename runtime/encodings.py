"""Calls of the tokenizers library: many inputs at once, or one whose failure gets a name.

Knows nothing of truncation.
"""

from collections.abc import Sequence

import numpy as np
import tokenizers

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError

BRIEF_CHARACTERS = 1024
"""Up to this, handing the work to the library's thread pool takes longer than doing it."""

TokenizerInput = str | tuple[str, str]
"""A text, or a query and a document."""


def encode_many(
    backend: tokenizers.Tokenizer,
    inputs: Sequence[TokenizerInput],
    *,
    has_offsets: bool = False,
    add_special_tokens: bool = True,
) -> list[tokenizers.Encoding | None]:
    """Encode whole inputs; None = `encode_one` tells why the library failed.

    Of many it does not say on which it did: then all are None.
    """
    if sum(map(_num_characters, inputs)) <= BRIEF_CHARACTERS:
        return [
            encode_briefly(backend, item, add_special_tokens=add_special_tokens) for item in inputs
        ]
    try:
        encode = backend.encode_batch if has_offsets else backend.encode_batch_fast
        return list(encode(list(inputs), add_special_tokens=add_special_tokens))
    except Exception:  # the library raises no narrower type
        return [None] * len(inputs)


def encode_briefly(
    backend: tokenizers.Tokenizer, item: TokenizerInput, *, add_special_tokens: bool
) -> tokenizers.Encoding | None:
    """Encode one brief input on the calling thread; None when the library failed on it."""
    text, pair = (item, None) if isinstance(item, str) else item
    try:
        return backend.encode(text, pair, add_special_tokens=add_special_tokens)
    except Exception:  # the library raises no narrower type
        return None


def encode_one(
    backend: tokenizers.Tokenizer,
    item: TokenizerInput,
    position: int,
    *,
    add_special_tokens: bool = True,
) -> tokenizers.Encoding:
    """Encode one whole input, with offsets.

    Raises:
        InferenceError: TOKENIZER, with the item's position.
    """
    try:
        # The batch call, because only it releases the GIL.
        return backend.encode_batch([item], add_special_tokens=add_special_tokens)[0]
    except Exception as error:  # the library raises no narrower type
        raise InferenceError(
            ErrorKind.TOKENIZER,
            "tokenizer_error",
            f"the tokenizer failed on this text ({type(error).__name__})",
            item=position,
            field=ITEMS_FIELD,
        ) from error


def as_encoded(ids: Sequence[int], types: Sequence[int] | None) -> EncodedText:
    """Put ids and token types into arrays; types None = all zeros."""
    return EncodedText(
        input_ids=np.array(ids, dtype=np.int64),
        token_type_ids=None if types is None else np.array(types, dtype=np.int64),
    )


def _num_characters(item: TokenizerInput) -> int:
    return len(item) if isinstance(item, str) else len(item[0]) + len(item[1])
