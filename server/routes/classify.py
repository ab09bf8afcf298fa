"""/predict in TEI's shape and /v1/classify in SGLang's: scores of labels."""

import uuid
from typing import TYPE_CHECKING

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.requests import ClassifyInput, ClassifyRequest, ScoreForm, TextPair
from infinity_v3.server.call import Call, schedule_of
from infinity_v3.server.errors import validation
from infinity_v3.server.intake import take_in
from infinity_v3.server.items import Items
from infinity_v3.server.replies import (
    Answer,
    Encoder,
    created_s,
    encoder_for,
    note_result,
    usage,
)
from infinity_v3.server.schemas import ClassifyBody, PredictBody
from infinity_v3.server.score_items import parse_classify, parse_predict
from infinity_v3.server.served import ServedModel
from infinity_v3.server.text_options import cut_options, text_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infinity_v3.runtime.results import ClassifyResult, LabelScores


async def predict(call: Call[PredictBody]) -> Answer:
    """The labels of each item, best first; a bare item is answered without the outer list."""
    body, model = call.body, call.model
    parsed = parse_predict(body.inputs, max_items=call.budget.limit)
    items = take_in(call, parsed, model.service.check_can_classify, is_scoring=True)
    form = ScoreForm.LOGITS if body.raw_scores else ScoreForm.NATIVE
    request = ClassifyRequest(
        items=items.items,
        is_list=items.is_list,
        options=text_options(body),
        schedule=schedule_of(call),
        form=form,
    )
    result = await model.service.classify(request)
    note_result(call, result)
    encoder = encoder_for(call)
    rows = [_ranked_labels(model, item, form, encoder) for item in result.items]
    return Answer(value=rows if items.is_list else rows[0], encoder=encoder)


def _ranked_labels(
    model: ServedModel, item: "LabelScores", form: ScoreForm, encoder: Encoder
) -> list[dict[str, object]]:
    scores, labels = _numbers(item.scores, form, encoder), model.info.labels
    return [{"score": scores[index], "label": labels[index]} for index in item.order]


def _numbers(scores: "Sequence[float]", form: ScoreForm, encoder: Encoder) -> "Sequence[object]":
    """Logits are float32, what an activation made of them is not."""
    return encoder.numbers(scores) if form is ScoreForm.LOGITS else scores


async def classify(call: Call[ClassifyBody]) -> Answer:
    """The scores of each item by class id."""
    body, model = call.body, call.model
    parsed = parse_classify(body, max_items=call.budget.limit)
    can = model.service.check_can_classify
    items = take_in(call, parsed, can, field="input", is_scoring=True)
    _check_pairs(items, model)
    _check_rid(body.rid, items.num_items)
    form = ScoreForm.PROBABILITIES if body.use_activation else ScoreForm.LOGITS
    request = ClassifyRequest(
        items=items.items,
        is_list=items.is_list,
        options=cut_options(body, model.info),
        schedule=schedule_of(call),
        form=form,
    )
    result = await model.service.classify(request)
    note_result(call, result)
    encoder = encoder_for(call)
    return Answer(value=_document(model, result, form, encoder), encoder=encoder)


def _check_pairs(items: Items[ClassifyInput], model: ServedModel) -> None:
    is_pair = any(isinstance(item, TextPair) for item in items.items)
    if is_pair and model.info.kind is not Kind.RERANKER:
        raise validation(
            "`messages`: the roles query and document are for re-ranker models", param="messages"
        )


def _check_rid(rid: str | list[str] | None, num_items: int) -> None:
    if isinstance(rid, list) and len(rid) != num_items:
        raise validation(
            f"`rid`: expected one identifier per item, {num_items}. Given: {len(rid)}", param="rid"
        )


def _document(
    model: ServedModel, result: "ClassifyResult", form: ScoreForm, encoder: Encoder
) -> dict[str, object]:
    labels = model.info.labels
    return {
        "id": f"classify-{uuid.uuid4().hex}",
        "object": "list",
        "created": created_s(),
        "model": model.name,
        "data": [
            {
                "index": index,
                "label": labels[item.order[0]],
                "probs": _numbers(item.scores, form, encoder),
                "num_classes": len(item.scores),
            }
            for index, item in enumerate(result.items)
        ],
        "usage": {**usage(result), "completion_tokens": 0, "prompt_tokens_details": None},
    }
