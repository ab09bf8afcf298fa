"""Labelled tokens to entities, as the transformers token-classification pipeline defines them.

Knows nothing of engines, requests or how texts are tokenised.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.requests import Aggregation
from infinity_v3.runtime.results import TokenEntity
from infinity_v3.runtime.scores import softmax
from infinity_v3.runtime.words import TextToken, TokenizedText

BEGIN_PREFIX, INSIDE_PREFIX = "B-", "I-"
GROUP_TOKEN_ID = 0

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRules:
    """How the tokens of one request become entities.

    Attributes:
        labels: in the order of the logits.
        ignored_labels: entries whose best label is one of these are left out.
        shows_logits: of every label, instead of the best label's share; not with an aggregation.
    """

    labels: tuple[str, ...]
    ignored_labels: frozenset[str]
    aggregation: Aggregation
    shows_logits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """A token, or the tokens of a word, with its best label."""

    label: str
    score: float
    start: int
    end: int


def read_entities(
    texts: Sequence[TokenizedText], logits: Sequence[NDArray[np.float32]], rules: EntityRules
) -> tuple[tuple[TokenEntity, ...], ...]:
    """Give each text its entities.

    Args:
        texts: B of them.
        logits: B matrices (S, C) finite, a row for every token that the model was fed.
        rules: of the request.
    """
    return tuple(
        _read_text(text, matrix, rules) for text, matrix in zip(texts, logits, strict=True)
    )


def _read_text(
    text: TokenizedText, logits: NDArray[np.float32], rules: EntityRules
) -> tuple[TokenEntity, ...]:
    scores = logits.astype(np.float64)
    if not rules.shows_logits:
        scores = softmax(scores)
    if rules.aggregation is Aggregation.NONE:
        return tuple(_label_tokens(text.tokens, scores, rules))
    spans = _label_spans(text.tokens, scores, rules)
    groups = (_join(run, text.text) for run in _runs(spans))
    return tuple(group for group in groups if rules.ignored_labels.isdisjoint(group.results))


def _label_tokens(
    tokens: Sequence[TextToken], scores: Scores, rules: EntityRules
) -> Iterator[TokenEntity]:
    for token in tokens:
        row = scores[token.row].tolist()
        best = row.index(max(row))
        if rules.labels[best] in rules.ignored_labels:
            continue
        results = {rules.labels[best]: row[best]}
        yield TokenEntity(
            token=token.text,
            token_id=token.token_id,
            start=token.start,
            end=token.end,
            results=dict(zip(rules.labels, row, strict=True)) if rules.shows_logits else results,
        )


def _label_spans(
    tokens: Sequence[TextToken], scores: Scores, rules: EntityRules
) -> Iterator[_Span]:
    if rules.aggregation is Aggregation.SIMPLE:
        words: Iterable[Sequence[TextToken]] = ([token] for token in tokens)
        choose: Callable[[Scores], Scores] = _first
    else:
        words = _words(tokens)
        choose = _CHOOSERS[rules.aggregation]
    for word in words:
        row = choose(scores[[token.row for token in word]])
        best = int(row.argmax())
        yield _Span(
            label=rules.labels[best], score=float(row[best]), start=word[0].start, end=word[-1].end
        )


def _words(tokens: Sequence[TextToken]) -> Iterator[list[TextToken]]:
    word: list[TextToken] = []
    for token in tokens:
        if word and not token.is_subword:
            yield word
            word = []
        word.append(token)
    if word:
        yield word


def _first(scores: Scores) -> Scores:
    row: Scores = scores[0]
    return row


def _average(scores: Scores) -> Scores:
    mean: Scores = scores.mean(axis=0)
    return mean


def _most_certain(scores: Scores) -> Scores:
    row: Scores = scores[int(scores.max(axis=1).argmax())]
    return row


_CHOOSERS: dict[Aggregation, Callable[[Scores], Scores]] = {
    Aggregation.FIRST: _first,
    Aggregation.AVERAGE: _average,
    Aggregation.MAX: _most_certain,
}


def _runs(spans: Iterable[_Span]) -> Iterator[list[_Span]]:
    run: list[_Span] = []
    for span in spans:
        if run and (span.label.startswith(BEGIN_PREFIX) or _tag(span) != _tag(run[-1])):
            yield run
            run = []
        run.append(span)
    if run:
        yield run


def _tag(span: _Span) -> str:
    """The label without its prefix; one without a prefix counts as a continuation."""
    label = span.label
    return label[2:] if label.startswith((BEGIN_PREFIX, INSIDE_PREFIX)) else label


def _join(spans: Sequence[_Span], text: str) -> TokenEntity:
    start, end = spans[0].start, spans[-1].end
    # The pipeline names a group by what follows the first hyphen, whatever stands before it.
    name = spans[0].label.split("-", 1)[-1]
    score = sum(span.score for span in spans) / len(spans)
    return TokenEntity(
        token=text[start:end], token_id=GROUP_TOKEN_ID, start=start, end=end, results={name: score}
    )
