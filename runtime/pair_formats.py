"""What a query and a document look like to the tokenizer, and which tokens come from which.

Knows nothing of limits or requests.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar

import tokenizers

from infinity_v3.artifacts.manifest import PairTemplate
from infinity_v3.runtime.encodings import TokenizerInput

Texts = tuple[str, str]
"""Query and document."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPlaces:
    """Where the tokens of one text of a pair are.

    Attributes:
        places: of the text's tokens among all tokens of the pair, ascending.
        start: where the text begins, in the characters that the encoding's offsets count.
    """

    places: list[int]
    start: int


class PairFormat(Protocol):
    """Obligations: holds nothing that changes, so that any thread may use it."""

    adds_special_tokens: bool

    def render(self, texts: Texts) -> TokenizerInput: ...

    def locate(self, encoding: tokenizers.Encoding, texts: Texts) -> tuple[TextPlaces, TextPlaces]:
        """Find the tokens of the query and of the document; all others hold the two together."""
        ...


class JoinedPair:
    """Two texts that the tokenizer's own template joins."""

    adds_special_tokens = True

    def render(self, texts: Texts) -> TokenizerInput:
        return texts

    def locate(self, encoding: tokenizers.Encoding, texts: Texts) -> tuple[TextPlaces, TextPlaces]:
        places: tuple[list[int], list[int]] = ([], [])
        for place, sequence in enumerate(encoding.sequence_ids):
            if sequence is not None:
                places[sequence].append(place)
        return TextPlaces(places=places[0], start=0), TextPlaces(places=places[1], start=0)


class RenderedPair:
    """One text that a template of the artifact makes of two."""

    def __init__(self, template: PairTemplate) -> None:
        self._template = template
        self.adds_special_tokens = template.adds_special_tokens

    def render(self, texts: Texts) -> TokenizerInput:
        first, second = self._in_order(texts)
        return (
            self._template.before + first + self._template.between + second + self._template.after
        )

    def locate(self, encoding: tokenizers.Encoding, texts: Texts) -> tuple[TextPlaces, TextPlaces]:
        """Find the tokens that lie wholly inside a text; one that reaches out of it holds."""
        first, second = self._in_order(texts)
        start = len(self._template.before)
        next_start = start + len(first) + len(self._template.between)
        return self._in_order(
            (_within(encoding, start, len(first)), _within(encoding, next_start, len(second)))
        )

    def _in_order(self, values: tuple[Value, Value]) -> tuple[Value, Value]:
        """Query and document to their order in the text, or back."""
        first, second = values
        return (second, first) if self._template.is_document_first else (first, second)


def _within(encoding: tokenizers.Encoding, start: int, length: int) -> TextPlaces:
    columns = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    places = [
        place
        for place, ((begin, end), is_special) in enumerate(columns)
        if not is_special and start <= begin and end <= start + length
    ]
    return TextPlaces(places=places, start=start)
