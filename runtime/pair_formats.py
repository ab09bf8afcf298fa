"""What a query and a document look like to the tokenizer, and which tokens come from which.

Knows nothing of limits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import tokenizers

from infinity_v3.artifacts.manifest import PairTemplate
from infinity_v3.runtime.encodings import TokenizerInput, encode_one

Texts = tuple[str, str]
"""Query and document."""

NUM_RECENT = 8
"""Encodings of queries that are kept: a long one is looked at in several widths per document."""

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
    """Obligations: of one request, so that it may keep what it has seen."""

    adds_special_tokens: bool

    def render(self, texts: Texts) -> TokenizerInput:
        """Build what the tokenizer is given."""
        ...

    def complete(
        self, rendered: tokenizers.Encoding, texts: Texts, position: int
    ) -> tokenizers.Encoding:
        """Make the encoding of the pair of that of what was rendered.

        Raises:
            InferenceError: TOKENIZER, with the item's position.
        """
        ...

    def locate(self, encoding: tokenizers.Encoding, texts: Texts) -> tuple[TextPlaces, TextPlaces]:
        """Find the tokens of the query and of the document; all others hold the two together."""
        ...


class ComposedPair:
    """Two encodings that the tokenizer's own template joins: queries are not encoded twice."""

    adds_special_tokens = False

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._recent: deque[tuple[str, tokenizers.Encoding]] = deque(maxlen=NUM_RECENT)

    def render(self, texts: Texts) -> TokenizerInput:
        return texts[1]

    def complete(
        self, rendered: tokenizers.Encoding, texts: Texts, position: int
    ) -> tokenizers.Encoding:
        return self._backend.post_process(self._query(texts[0], position), rendered)

    def locate(self, encoding: tokenizers.Encoding, texts: Texts) -> tuple[TextPlaces, TextPlaces]:
        # Not by `sequence_ids`: they are wrong where an encoding was post-processed before.
        places = _text_places(encoding)
        num_query = len(self._query(texts[0], 0))  # kept, so it does not fail
        query, document = places[:num_query], places[num_query:]
        return TextPlaces(places=query, start=0), TextPlaces(places=document, start=0)

    def _query(self, text: str, position: int) -> tokenizers.Encoding:
        for seen, encoding in self._recent:
            if seen == text:
                return encoding
        found = encode_one(self._backend, text, position, add_special_tokens=False)
        self._recent.append((text, found))
        return found


class JoinedPair:
    """Two texts that the tokenizer's own template joins in whatever way."""

    adds_special_tokens = True

    def render(self, texts: Texts) -> TokenizerInput:
        return texts

    def complete(
        self, rendered: tokenizers.Encoding, texts: Texts, position: int
    ) -> tokenizers.Encoding:
        return rendered

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

    def complete(
        self, rendered: tokenizers.Encoding, texts: Texts, position: int
    ) -> tokenizers.Encoding:
        return rendered

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


def choose_format(
    backend: tokenizers.Tokenizer, template: PairTemplate | None
) -> Callable[[], PairFormat]:
    """Decide how pairs are encoded; what is given makes the format of one request.

    Args:
        backend: neither truncates nor pads.
        template: None = the tokenizer's own.
    """
    if template is not None:
        return partial(RenderedPair, template)
    return partial(ComposedPair, backend) if _is_composable(backend) else JoinedPair


def _is_composable(backend: tokenizers.Tokenizer) -> bool:
    """Whether pairs have the query's tokens once and then, once, the document's."""
    num_tokens = len(backend.encode("a", add_special_tokens=False))
    pair = backend.encode("a", "a")
    sequences = [pair.sequence_ids[place] for place in _text_places(pair)]
    return sequences == [0] * num_tokens + [1] * num_tokens


def _text_places(encoding: tokenizers.Encoding) -> list[int]:
    """Places of all tokens but those that the tokenizer added."""
    mask = encoding.special_tokens_mask
    return [place for place, is_special in enumerate(mask) if not is_special]


def _within(encoding: tokenizers.Encoding, start: int, length: int) -> TextPlaces:
    columns = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    places = [
        place
        for place, ((begin, end), is_special) in enumerate(columns)
        if not is_special and start <= begin and end <= start + length
    ]
    return TextPlaces(places=places, start=start)
