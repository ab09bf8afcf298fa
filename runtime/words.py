"""The tokens of a text with their characters, and which of them continue a word.

Knows nothing of labels or requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from infinity_v3.runtime.batch import EncodedText

USUAL_UNKNOWN_TOKEN = "<unk>"
"""What tokenizers call it whose file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextToken:
    """One token of a text, special tokens aside.

    Attributes:
        row: its place among all tokens that the model is fed.
        text: as the vocabulary spells it.
        start, end: characters of the text, end excluded.
        is_subword: it continues the word of the token before it.
    """

    row: int
    token_id: int
    text: str
    start: int
    end: int
    is_subword: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedText:
    """A text as the model is fed it, and its tokens."""

    text: str
    encoded: EncodedText
    tokens: tuple[TextToken, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRule:
    """How the transformers token-classification pipeline tells that a token continues a word.

    Attributes:
        has_marks: the vocabulary spells such tokens with a mark in front, so that their spelling is
            longer than the characters they stand for.
        unknown_id: the token of what is not in the vocabulary always begins a word.
    """

    has_marks: bool
    unknown_id: int | None

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer) -> "WordRule":
        """Read the rule off a tokenizer."""
        model = backend.model
        unknown = getattr(model, "unk_token", None) or USUAL_UNKNOWN_TOKEN
        return cls(
            has_marks=bool(getattr(model, "continuing_subword_prefix", None)),
            unknown_id=backend.token_to_id(unknown),
        )

    def is_subword(self, spelling: str, token_id: int, text: str, span: tuple[int, int]) -> bool:
        """Judge one token; `span` counts characters of `text`."""
        start, end = span
        if token_id == self.unknown_id:
            return False
        if self.has_marks:
            return len(spelling) != end - start
        return start > 0 and " " not in text[start - 1 : start + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WordReader:
    """Lists the tokens of one text.

    Attributes:
        text: prompt and text.
        num_prompt_characters: the text begins behind so many.
        num_skipped_characters: the encoding begins behind so many.
    """

    rule: WordRule
    text: str
    num_prompt_characters: int
    num_skipped_characters: int

    def read(self, encoding: tokenizers.Encoding, places: Sequence[int]) -> tuple[TextToken, ...]:
        """List the tokens that stay at `places`, without special ones and the prompt's."""
        mask = encoding.special_tokens_mask
        ids, spellings, offsets = encoding.ids, encoding.tokens, encoding.offsets
        tokens = (
            self._read(row, ids[place], spellings[place], offsets[place])
            for row, place in enumerate(places)
            if not mask[place]
        )
        return tuple(token for token in tokens if token.start >= 0)

    def _read(self, row: int, token_id: int, spelling: str, offsets: tuple[int, int]) -> TextToken:
        start, end = (offset + self.num_skipped_characters for offset in offsets)
        return TextToken(
            row=row,
            token_id=token_id,
            text=spelling,
            start=start - self.num_prompt_characters,
            end=end - self.num_prompt_characters,
            is_subword=self.rule.is_subword(spelling, token_id, self.text, (start, end)),
        )
