"""Tasks that give scores: of pairs, of texts, of tokens.

Knows nothing of queues or HTTP.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.blame import first_positions, located, located_at
from infinity_v3.runtime.checks import (
    check_count,
    check_items,
    check_text,
    invalid_value,
    prompt_refused,
)
from infinity_v3.runtime.entities import EntityRules, read_entities
from infinity_v3.runtime.errors import QUERY_FIELD
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.pipeline import TextPipeline
from infinity_v3.runtime.requests import (
    Aggregation,
    ClassifyRequest,
    ClassifyTokensRequest,
    RankRequest,
    Schedule,
    ScoreForm,
    ScoreRequest,
    TextOptions,
    TextPair,
)
from infinity_v3.runtime.results import (
    ClassifyResult,
    ClassifyTokensResult,
    LabelScores,
    RankResult,
    RequestTiming,
    ScoreResult,
)
from infinity_v3.runtime.scores import activate, best_first, choose_activation
from infinity_v3.runtime.work import Readout, RowForm

INLINE_TOKENS = 256
"""Up to so many, reading entities takes less than a millisecond or two."""


class ScoreTasks:
    """The scoring tasks of one model; callers have asked whether it can do them."""

    def __init__(self, model: LoadedModel, pipeline: TextPipeline) -> None:
        self._model = model
        self._pipeline = pipeline

    async def rank(self, request: RankRequest) -> RankResult:
        check_count(len(request.documents))
        check_text(request.query, None, field=QUERY_FIELD)
        if request.options.prompt_name is not None:
            raise prompt_refused("dual inputs", None)
        scored = await self._score(
            [TextPair(query=request.query, document=text) for text in request.documents],
            request.options,
            request.schedule,
            request.form,
            max_document_tokens=request.max_document_tokens,
        )
        return RankResult(
            scores=scored.scores,
            order=best_first(scored.logits),
            item_tokens=scored.item_tokens,
            timing=scored.timing,
        )

    async def score(self, request: ScoreRequest) -> ScoreResult:
        with located(is_list=request.is_list):
            scored = await self._score(
                request.pairs, request.options, request.schedule, ScoreForm.NATIVE
            )
        return ScoreResult(
            scores=scored.scores, item_tokens=scored.item_tokens, timing=scored.timing
        )

    async def _score(
        self,
        pairs: Sequence[TextPair],
        options: TextOptions,
        schedule: Schedule,
        form: ScoreForm,
        *,
        max_document_tokens: int | None = None,
    ) -> "_ScoredPairs":
        # Equal pairs are scored once: in different batches, their last digits could differ.
        first = first_positions(pairs)
        with located_at(tuple(first.values())):
            done = await self._pipeline.infer(
                tuple(first),
                options,
                schedule,
                Readout(output=self._model.main_output),
                max_document_tokens=max_document_tokens,
            )
        places = {pair: place for place, pair in enumerate(first)}
        of = [places[pair] for pair in pairs]
        logits = np.concatenate(done.arrays())[of]
        scores = activate(logits[:, np.newaxis], choose_activation(self._model.heads, form))
        return _ScoredPairs(
            logits=logits,
            scores=tuple(scores[:, 0].tolist()),
            item_tokens=tuple(done.item_tokens[place] for place in of),
            timing=done.timing,
        )

    async def classify(self, request: ClassifyRequest) -> ClassifyResult:
        with located(is_list=request.is_list):
            done = await self._pipeline.infer(
                request.items,
                request.options,
                request.schedule,
                Readout(output=self._model.main_output),
            )
        logits = np.stack(done.arrays())
        scores = activate(logits, choose_activation(self._model.heads, request.form))
        items = (
            LabelScores(scores=tuple(row), order=best_first(raw))
            for row, raw in zip(scores.tolist(), logits, strict=True)
        )
        return ClassifyResult(items=tuple(items), item_tokens=done.item_tokens, timing=done.timing)

    async def classify_tokens(self, request: ClassifyTokensRequest) -> ClassifyTokensResult:
        options, pipeline = request.options, self._pipeline
        rules = self._entity_rules(request)
        readout = Readout(output=self._model.main_output, form=RowForm.TOKENS)
        with located(is_list=request.is_list):
            truncation = pipeline.rules.truncation(options)
            prompt = pipeline.rules.prompts.text(options.prompt_name)
            check_items(request.texts, has_prompt_name=options.prompt_name is not None)
            with pipeline.slot() as started_s:
                texts = await pipeline.texts.encode_words(request.texts, truncation, prompt)
                encoded = [text.encoded for text in texts]
                done = await pipeline.run(encoded, request.schedule, readout, started_s)
                entities = await pipeline.texts.call(
                    partial(read_entities, texts, done.arrays(), rules),
                    is_small=sum(done.item_tokens) <= INLINE_TOKENS,
                )
        return ClassifyTokensResult(
            entities=entities, item_tokens=done.item_tokens, timing=done.timing
        )

    def _entity_rules(self, request: ClassifyTokensRequest) -> EntityRules:
        is_raw = request.form is ScoreForm.LOGITS
        if is_raw and request.aggregation is not Aggregation.NONE:
            message = "logits are of single tokens: they cannot be had with an aggregation strategy"
            raise invalid_value(message, None, field=None)
        return EntityRules(
            labels=self._model.info.labels,
            ignored_labels=request.ignored_labels,
            aggregation=request.aggregation,
            shows_logits=is_raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoredPairs:
    """What came of pairs, in request order; `logits` are (N,)."""

    logits: NDArray[np.float32]
    scores: tuple[float, ...]
    item_tokens: tuple[int, ...]
    timing: RequestTiming
