"""/rerank, /v1/rerank, /v2/rerank: documents by relevance, in two dialects with one handler."""

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from infinity_v3.runtime.errors import InferenceError
from infinity_v3.runtime.requests import RankRequest, ScoreForm
from infinity_v3.server.call import Call, schedule_of
from infinity_v3.server.errors import from_inference, validation
from infinity_v3.server.items import empty_list
from infinity_v3.server.replies import (
    Answer,
    accept,
    created_s,
    encoder_for,
    note_result,
    usage,
)
from infinity_v3.server.schemas import RerankBody
from infinity_v3.server.text_options import cut_options, text_options, with_reason

if TYPE_CHECKING:
    from infinity_v3.runtime.results import RankResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What is ranked, and the field it stood in, which is the dialect."""

    field: str
    texts: tuple[str, ...]

    @property
    def is_tei(self) -> bool:
        return self.field == "texts"


async def rerank(call: Call[RerankBody]) -> Answer:
    """Candidates, best first."""
    body, model = call.body, call.model
    candidates = _candidates(body)
    count = len(candidates.texts)
    num_characters = count * len(body.query) + sum(map(len, candidates.texts))
    accept(call, is_batch=True, num_items=count, num_characters=num_characters, is_scoring=True)
    model.service.check_can_rank()
    call.budget.take(count, candidates.field)
    result = await _rank(call, candidates)
    note_result(call, result)
    return _answer(call, candidates, result)


def _candidates(body: RerankBody) -> Candidates:
    if (body.texts is msgspec.UNSET) is (body.documents is msgspec.UNSET):
        raise validation("exactly one of `texts` and `documents` is required", param="texts")
    if not isinstance(body.texts, msgspec.UnsetType):
        return _not_empty(Candidates(field="texts", texts=tuple(body.texts)))
    assert not isinstance(body.documents, msgspec.UnsetType), "it was checked; this is a bug"
    texts = tuple(item if isinstance(item, str) else item.text for item in body.documents)
    return _not_empty(Candidates(field="documents", texts=texts))


def _not_empty(candidates: Candidates) -> Candidates:
    if not candidates.texts:
        raise empty_list(candidates.field)
    return candidates


async def _rank(call: Call[RerankBody], candidates: Candidates) -> "RankResult":
    body = call.body
    # A length is checked in both dialects, but only one of them cuts at it.
    cut = cut_options(body, call.model.info)
    request = RankRequest(
        query=body.query,
        documents=candidates.texts,
        options=text_options(body) if candidates.is_tei else cut,
        schedule=schedule_of(call),
        form=ScoreForm.LOGITS if body.raw_scores else ScoreForm.NATIVE,
        max_document_tokens=None if candidates.is_tei else body.max_tokens_per_doc,
    )
    try:
        return await call.model.service.rank(request)
    except InferenceError as error:
        raise from_inference(with_reason(error, body), candidates.field) from None


def _answer(call: Call[RerankBody], candidates: Candidates, result: "RankResult") -> Answer:
    encoder = encoder_for(call)
    order = result.order[: call.body.top_n]
    scores = [result.scores[index] for index in order]
    numbers = encoder.numbers(scores) if call.body.raw_scores else scores
    ranking = list(zip(order, numbers, strict=True))
    if candidates.is_tei:
        return Answer(value=_tei_entries(call.body, candidates, ranking), encoder=encoder)
    entries = _document_entries(call.body, candidates, ranking)
    return Answer(value=_document(call, result, entries), encoder=encoder)


Ranking = list[tuple[int, object]]
Entries = list[dict[str, object]]


def _tei_entries(body: RerankBody, candidates: Candidates, ranking: Ranking) -> Entries:
    entries: Entries = [{"index": index, "score": score} for index, score in ranking]
    if body.return_text:
        for entry, (index, _) in zip(entries, ranking, strict=True):
            entry["text"] = candidates.texts[index]
    return entries


def _document_entries(body: RerankBody, candidates: Candidates, ranking: Ranking) -> Entries:
    entries: Entries = [{"index": index, "relevance_score": score} for index, score in ranking]
    if body.return_documents:
        for entry, (index, _) in zip(entries, ranking, strict=True):
            entry["document"] = {"text": candidates.texts[index]}
    return entries


def _document(call: Call[RerankBody], result: "RankResult", entries: Entries) -> dict[str, object]:
    version = "2" if call.exchange.path.startswith("/v2/") else "1"
    return {
        "object": "rerank",
        "id": f"rerank-{uuid.uuid4().hex}",
        "created": created_s(),
        "model": call.model.name,
        "results": entries,
        "usage": usage(result),
        "meta": {"api_version": {"version": version}},
    }
