"""Tokens in the shape of Text Embeddings Inference: /predict_tokens, /tokenize, /decode."""

from typing import TYPE_CHECKING

from infinity_v3.runtime.requests import (
    Aggregation,
    ClassifyTokensRequest,
    DecodeRequest,
    ScoreForm,
    TokenizeRequest,
)
from infinity_v3.server.call import Call, schedule_of
from infinity_v3.server.errors import validation
from infinity_v3.server.items import empty_list
from infinity_v3.server.replies import Answer, Encoder, accept, encoder_for, note_result
from infinity_v3.server.schemas import DecodeBody, PredictTokensBody, TokenizeBody
from infinity_v3.server.text_options import text_options

if TYPE_CHECKING:
    from infinity_v3.runtime.results import TokenEntity


async def predict_tokens(call: Call[PredictTokensBody]) -> Answer:
    """The labelled tokens, or groups of tokens, of each text."""
    body, model = call.body, call.model
    texts = _texts(body.inputs)
    _accept(call, texts)
    model.service.check_can_classify_tokens()
    call.budget.take(len(texts))
    result = await model.service.classify_tokens(_request(call, texts))
    note_result(call, result)
    encoder = encoder_for(call)
    document = [[_entity(entity, body, encoder) for entity in row] for row in result.entities]
    return Answer(value=document, encoder=encoder)


def _accept(call: Call[PredictTokensBody], texts: tuple[str, ...]) -> None:
    accept(
        call,
        is_batch=isinstance(call.body.inputs, list),
        num_items=len(texts),
        num_characters=sum(map(len, texts)),
        is_scoring=True,
    )


def _request(call: Call[PredictTokensBody], texts: tuple[str, ...]) -> ClassifyTokensRequest:
    body = call.body
    aggregation = Aggregation(body.aggregation_strategy)
    if body.raw_scores and aggregation is not Aggregation.NONE:
        raise validation(
            "`raw_scores`: logits are of single tokens, which need `aggregation_strategy` none",
            param="raw_scores",
        )
    return ClassifyTokensRequest(
        texts=texts,
        is_list=isinstance(body.inputs, list),
        options=text_options(body),
        schedule=schedule_of(call),
        aggregation=aggregation,
        ignored_labels=frozenset(body.ignore_labels),
        form=ScoreForm.LOGITS if body.raw_scores else ScoreForm.NATIVE,
    )


def _entity(entity: "TokenEntity", body: PredictTokensBody, encoder: Encoder) -> dict[str, object]:
    scores = list(entity.results.values())
    numbers = encoder.numbers(scores) if body.raw_scores else scores
    return {
        "token": entity.token,
        "token_id": entity.token_id,
        "start": entity.start,
        "end": entity.end,
        "results": dict(zip(entity.results, numbers, strict=True)),
    }


def _texts(inputs: str | list[str]) -> tuple[str, ...]:
    texts = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    if not texts:
        raise empty_list("inputs")
    return texts


async def tokenize(call: Call[TokenizeBody]) -> Answer:
    """The tokens of each text; offsets count characters of prompt + text."""
    body, model = call.body, call.model
    texts = _texts(body.inputs)
    _note_items(call, len(texts))
    request = TokenizeRequest(
        texts=texts,
        is_list=isinstance(body.inputs, list),
        add_special_tokens=body.add_special_tokens,
        prompt_name=body.prompt_name,
    )
    rows = await model.service.tokenize(request)
    document = [
        [
            {
                "id": piece.token_id,
                "text": piece.text,
                "special": piece.is_special,
                "start": piece.start,
                "stop": piece.stop,
            }
            for piece in row
        ]
        for row in rows
    ]
    return Answer(value=document, encoder=encoder_for(call))


async def decode(call: Call[DecodeBody]) -> Answer:
    """The text of each list of ids."""
    body, model = call.body, call.model
    id_lists, is_list = _id_lists(body.ids)
    _note_items(call, len(id_lists))
    request = DecodeRequest(
        id_lists=id_lists, is_list=is_list, skip_special_tokens=body.skip_special_tokens
    )
    texts = await model.service.decode(request)
    return Answer(value=texts, encoder=encoder_for(call))


def _note_items(call: Call[TokenizeBody] | Call[DecodeBody], num_items: int) -> None:
    call.exchange.outcome.num_items = num_items
    call.budget.take(num_items)


def _id_lists(ids: list[int | list[int]]) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """The lists of ids, and whether the field was a list of lists."""
    if not ids:
        raise empty_list("input_ids")
    bare = tuple(element for element in ids if isinstance(element, int))
    nested = tuple(tuple(element) for element in ids if not isinstance(element, int))
    if bare and nested:
        index = next(i for i, e in enumerate(ids) if isinstance(e, int) != isinstance(ids[0], int))
        raise validation(
            f"`ids[{index}]`: expected all ids or all lists of ids", param=f"ids[{index}]"
        )
    return (nested, True) if nested else ((bare,), False)
