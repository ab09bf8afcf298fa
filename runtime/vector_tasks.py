"""Tasks that give vectors: of texts, of their tokens, over the vocabulary, or compared.

Knows nothing of queues or HTTP.
"""

import numpy as np

from infinity_v3.artifacts.manifest import LateInteraction
from infinity_v3.runtime.blame import (
    first_positions,
    located,
    located_at,
    located_behind_source,
)
from infinity_v3.runtime.checks import check_count, check_dimensions, check_items
from infinity_v3.runtime.late_interaction import Side
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.outputs import HIDDEN_OUTPUT
from infinity_v3.runtime.pipeline import TextPipeline
from infinity_v3.runtime.requests import (
    EmbedRequest,
    EmbedSparseRequest,
    EmbedTokensRequest,
    ScoreRequest,
    SimilarityRequest,
)
from infinity_v3.runtime.results import (
    EmbedResult,
    ScoreResult,
    SimilarityResult,
    SparseResult,
    SparseVector,
)
from infinity_v3.runtime.scores import cosines
from infinity_v3.runtime.work import Readout, RowForm


class VectorTasks:
    """The vector tasks of one model; callers have asked whether it can do them."""

    def __init__(self, model: LoadedModel, pipeline: TextPipeline) -> None:
        self._model = model
        self._pipeline = pipeline

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        width = self._model.info.width
        assert width is not None, "an embedding model without width; this is a bug"
        check_dimensions(request.dimensions, width)
        readout = Readout(
            output=self._model.main_output,
            normalize=request.normalize,
            dimensions=request.dimensions,
        )
        with located(is_list=request.is_list):
            done = await self._pipeline.infer(
                request.items, request.options, request.schedule, readout
            )
        return EmbedResult(rows=done.arrays(), item_tokens=done.item_tokens, timing=done.timing)

    async def embed_tokens(self, request: EmbedTokensRequest) -> EmbedResult:
        rules = self._model.heads.late_interaction
        with located(is_list=request.is_list):
            if rules is not None:
                return await self._embed_side(request, rules)
            readout = Readout(output=HIDDEN_OUTPUT, form=RowForm.TOKENS)
            done = await self._pipeline.infer(
                request.items, request.options, request.schedule, readout
            )
        return EmbedResult(rows=done.arrays(), item_tokens=done.item_tokens, timing=done.timing)

    async def embed_sparse(self, request: EmbedSparseRequest) -> SparseResult:
        readout = Readout(output=self._model.main_output, form=RowForm.SPARSE)
        with located(is_list=request.is_list):
            done = await self._pipeline.infer(
                request.items, request.options, request.schedule, readout
            )
        vectors = (
            SparseVector(indices=tuple(row.indices.tolist()), values=tuple(row.values.tolist()))
            for row in done.sparse()
        )
        return SparseResult(
            vectors=tuple(vectors), item_tokens=done.item_tokens, timing=done.timing
        )

    async def compare(self, request: SimilarityRequest) -> SimilarityResult:
        check_count(len(request.sentences))
        readout = Readout(output=self._model.main_output)
        with located_behind_source():
            done = await self._pipeline.infer(
                (request.source, *request.sentences), request.options, request.schedule, readout
            )
        rows = done.arrays()
        scores = cosines(rows[0], np.stack(rows[1:]))
        return SimilarityResult(
            scores=tuple(scores.tolist()), item_tokens=done.item_tokens, timing=done.timing
        )

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Compare the two texts of each pair; equal texts are embedded once."""
        check_count(len(request.pairs))
        texts = [text for pair in request.pairs for text in (pair.query, pair.document)]
        first = first_positions(texts)
        readout = Readout(output=self._model.main_output)
        with (
            located(is_list=request.is_list),
            located_at(tuple(position // 2 for position in first.values())),
        ):
            done = await self._pipeline.infer(
                tuple(first), request.options, request.schedule, readout
            )
        rows = dict(zip(first, done.arrays(), strict=True))
        scores = (
            cosines(rows[pair.query], rows[pair.document][np.newaxis]) for pair in request.pairs
        )
        return ScoreResult(
            scores=tuple(float(score[0]) for score in scores),
            item_tokens=done.item_tokens,
            timing=done.timing,
        )

    async def _embed_side(self, request: EmbedTokensRequest, rules: LateInteraction) -> EmbedResult:
        options, pipeline = request.options, self._pipeline
        truncation = pipeline.rules.truncation(options)
        prompts = pipeline.rules.prompts
        prompt = prompts.text(options.prompt_name)
        side = Side.of(rules, prompts.name(options.prompt_name))
        check_items(request.items, has_prompt_name=options.prompt_name is not None)
        readout = Readout(
            output=self._model.main_output,
            form=RowForm.TOKENS,
            normalize=self._model.heads.normalize,
        )
        with pipeline.slot() as started_s:
            texts = await pipeline.texts.encode_side(request.items, truncation, side, prompt)
            done = await pipeline.run(texts, request.schedule, readout, started_s)
        rows = (side.pick(text, row) for text, row in zip(texts, done.arrays(), strict=True))
        return EmbedResult(rows=tuple(rows), item_tokens=done.item_tokens, timing=done.timing)
