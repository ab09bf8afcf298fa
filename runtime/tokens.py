"""How a text split into tokens, for people to look at. Knows nothing of models."""

from dataclasses import dataclass

import tokenizers


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPiece:
    """One token of a text.

    Attributes:
        text: exactly `text[start:stop]` of the tokenised text; a special token's own string.
        is_special: the tokenizer added it around the text.
        start, stop: characters (Unicode code points); None for special tokens.
    """

    token_id: int
    text: str
    is_special: bool
    start: int | None
    stop: int | None


def read_pieces(encoding: tokenizers.Encoding, text: str) -> tuple[TokenPiece, ...]:
    """List the tokens of an encoding that was made with offsets."""
    columns = (encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask)
    return tuple(
        TokenPiece(
            token_id=token_id,
            text=token if is_special else text[start:stop],
            is_special=bool(is_special),
            start=None if is_special else start,
            stop=None if is_special else stop,
        )
        for token_id, token, (start, stop), is_special in zip(*columns, strict=True)
    )
