"""Pairs of texts to token ids, cut longest-first.

For pairs that the tokenizer joins, the result is what the tokenizers library's own truncation
gives; of rendered pairs, the template's own tokens all stay. Knows nothing of queues or engines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import tokenizers

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.checks import empty_item, too_long
from infinity_v3.runtime.encodings import as_encoded, encode_many, encode_one
from infinity_v3.runtime.pair_formats import PairFormat, RenderedPair, TextPlaces, Texts
from infinity_v3.runtime.requests import TextPair, TruncationSide
from infinity_v3.runtime.truncation import Truncation, keep_end, share_room
from infinity_v3.runtime.windows import (
    MAX_CHARACTERS_PER_TOKEN,
    MAX_CLIPPED_CHARACTERS,
    WINDOW_GROWTH,
    first_width,
    is_safe,
    window,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextRule:
    """How much of one text of a pair can matter.

    Attributes:
        limit: no more tokens of it than that stay.
        max_characters: where it is cut, no more of it is ever looked at.
        side: where it is cut.
        is_cut: False where it is encoded whole, so that its tokens can be counted.
        is_clipped: it is cut to `limit` before the two share their room, so that the rest of it
            does not make it the longer one.
    """

    limit: int
    max_characters: int
    side: TruncationSide
    is_cut: bool
    is_clipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Glimpse:
    """A query and a document as far as they may matter, and what of them fits a window."""

    pair: Texts
    texts: Texts

    @property
    def is_whole(self) -> bool:
        return self.texts == self.pair


_Rules = tuple[_TextRule, _TextRule]


class PairEncoder:
    """Encodes the pairs of one request.

    Args:
        backend: neither truncates nor pads.
        pair_format: of this request alone.
        truncation: limit and what happens beyond it.
        max_characters: longest text that is encoded whole; of others no more is looked at, save
            of a document that has a longer limit of its own.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        pair_format: PairFormat,
        truncation: Truncation,
        *,
        max_characters: int,
    ) -> None:
        self._backend = backend
        self._format = pair_format
        self._truncation = truncation
        self._rules = _rules(truncation, max_characters)
        self._max_characters = max_characters

    @property
    def num_fixed_tokens(self) -> int:
        """Tokens of every pair beside those of its texts."""
        return len(self._encode_one(_Glimpse(pair=("", ""), texts=("", "")), 0))

    def encode(self, pairs: Sequence[TextPair], first_position: int) -> Iterator[EncodedText]:
        """Turn pairs into what the model is fed.

        Args:
            pairs: in request order.
            first_position: position of the first one, for errors.

        Raises:
            InferenceError: the first pair at fault, by its position.
        """
        width = first_width(self._truncation)
        fitting = list(takewhile(lambda pair: not self._excess(pair), pairs))
        glimpses = [_look(pair, self._rules, width) for pair in fitting]
        encodings = self._encode_many(glimpses)
        columns = zip(glimpses, encodings, strict=True)
        for position, (glimpse, encoding) in enumerate(columns, first_position):
            found = self._encode_one(glimpse, position, encoding)
            settled, found = self._settle(glimpse, found, width, position)
            yield self._cut(found, settled.texts, position)
        for position, pair in enumerate(pairs[len(fitting) :], first_position + len(fitting)):
            raise too_long(self._max_characters, self._excess(pair), "characters", position)

    def _excess(self, pair: TextPair) -> int:
        """Characters of a text that is too long to be encoded whole but must be; 0 = none is."""
        texts = zip((pair.query, pair.document), self._rules, strict=True)
        whole = (len(text) for text, rule in texts if not rule.is_cut)
        return next((length for length in whole if length > self._max_characters), 0)

    def _encode_many(self, glimpses: Sequence[_Glimpse]) -> list[tokenizers.Encoding | None]:
        is_rendered = isinstance(self._format, RenderedPair)
        return encode_many(
            self._backend,
            [self._format.render(glimpse.texts) for glimpse in glimpses],
            has_offsets=is_rendered or not all(glimpse.is_whole for glimpse in glimpses),
            add_special_tokens=self._format.adds_special_tokens,
        )

    def _encode_one(
        self, glimpse: _Glimpse, position: int, rendered: tokenizers.Encoding | None = None
    ) -> tokenizers.Encoding:
        """Encode a pair, of which what was rendered may be encoded already."""
        if rendered is None:
            rendered = encode_one(
                self._backend,
                self._format.render(glimpse.texts),
                position,
                add_special_tokens=self._format.adds_special_tokens,
            )
        return self._format.complete(rendered, glimpse.texts, position)

    def _settle(
        self, glimpse: _Glimpse, encoding: tokenizers.Encoding, width: int, position: int
    ) -> tuple[_Glimpse, tokenizers.Encoding]:
        """Look at more and more of a pair until what is left cannot matter."""
        while not glimpse.is_whole:
            located = self._format.locate(encoding, glimpse.texts)
            if _is_settled(glimpse, encoding, located, self._rules):
                break
            width *= WINDOW_GROWTH
            glimpse = _widen(glimpse, self._rules, width)
            encoding = self._encode_one(glimpse, position)
        return glimpse, encoding

    def _cut(self, encoding: tokenizers.Encoding, texts: Texts, position: int) -> EncodedText:
        truncation = self._truncation
        ids: list[int] = encoding.ids
        if not ids:
            raise empty_item(position)
        types: list[int] | None = encoding.type_ids
        types = types if types and any(types) else None
        if len(ids) > truncation.max_tokens or truncation.max_document_tokens is not None:
            located = self._format.locate(encoding, texts)
            kept = _kept_places(len(ids), located, position, truncation)
            ids = [ids[place] for place in kept]
            types = None if types is None else [types[place] for place in kept]
        return as_encoded(ids, types)


def _rules(truncation: Truncation, max_characters: int) -> _Rules:
    query = _TextRule(
        limit=truncation.max_tokens,
        max_characters=max_characters,
        side=truncation.side,
        is_cut=truncation.is_allowed,
    )
    clip = truncation.max_document_tokens
    if clip is None:
        return query, query
    return query, _TextRule(
        limit=clip,
        max_characters=max(
            max_characters, min(MAX_CHARACTERS_PER_TOKEN * clip, MAX_CLIPPED_CHARACTERS)
        ),
        side=TruncationSide.RIGHT,
        is_cut=True,
        is_clipped=True,
    )


def _look(pair: TextPair, rules: _Rules, width: int) -> _Glimpse:
    query, document = (
        window(text, rule.max_characters, rule.side) if rule.is_cut else text
        for text, rule in zip((pair.query, pair.document), rules, strict=True)
    )
    return _widen(_Glimpse(pair=(query, document), texts=(query, document)), rules, width)


def _widen(glimpse: _Glimpse, rules: _Rules, width: int) -> _Glimpse:
    query, document = (
        window(text, width, rule.side) if rule.is_cut else text
        for text, rule in zip(glimpse.pair, rules, strict=True)
    )
    return _Glimpse(pair=glimpse.pair, texts=(query, document))


def _is_settled(
    glimpse: _Glimpse,
    encoding: tokenizers.Encoding,
    located: tuple[TextPlaces, TextPlaces],
    rules: _Rules,
) -> bool:
    """Whether the rest of both texts cannot matter."""
    columns = zip(glimpse.pair, glimpse.texts, located, rules, strict=True)
    query, document = (_count(encoding, *column) for column in columns)
    if not (query.is_enough and document.is_enough):
        return False
    if query.is_exact and document.is_exact:
        return True
    # The longer of both gives tokens up first, so which one it is must be known.
    if query.is_exact:
        return document.at_least >= query.at_least
    return document.is_exact and query.at_least > document.at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """What is known of a text's number of tokens, and whether all that may stay are known."""

    at_least: int
    is_exact: bool
    is_enough: bool


def _count(
    encoding: tokenizers.Encoding, whole: str, text: str, found: TextPlaces, rule: _TextRule
) -> _Count:
    is_whole = len(text) == len(whole)
    num_tokens = len(found.places) if is_whole else _num_safe(encoding, len(text), found, rule.side)
    is_clip_reached = rule.is_clipped and num_tokens >= rule.limit
    return _Count(
        at_least=rule.limit if is_clip_reached else num_tokens,
        is_exact=is_whole or is_clip_reached,
        is_enough=is_whole or num_tokens >= rule.limit,
    )


def _num_safe(
    encoding: tokenizers.Encoding, width: int, found: TextPlaces, side: TruncationSide
) -> int:
    offsets, start = encoding.offsets, found.start
    spans = ((offsets[place][0] - start, offsets[place][1] - start) for place in found.places)
    return sum(is_safe(span, width, side) for span in spans)


def _kept_places(
    num_tokens: int,
    located: tuple[TextPlaces, TextPlaces],
    position: int,
    truncation: Truncation,
) -> list[int]:
    query, document = (found.places for found in located)
    clipped = document[: truncation.max_document_tokens]
    num_fixed = num_tokens - len(query) - len(document)
    num_wanted = num_fixed + len(query) + len(clipped)
    if num_wanted > truncation.max_tokens and not truncation.is_allowed:
        raise too_long(truncation.max_tokens, num_wanted, "tokens", position)
    shares = share_room(len(query), len(clipped), truncation.max_tokens - num_fixed)
    kept = set(keep_end(query, shares[0], truncation.side))
    kept.update(keep_end(clipped, shares[1], truncation.side))
    texts = {*query, *document}
    places = [place for place in range(num_tokens) if place in kept or place not in texts]
    return keep_end(places, truncation.max_tokens, truncation.side)
