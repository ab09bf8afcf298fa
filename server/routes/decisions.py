"""/v1/systemone and /v1/decide: typed questions about a state, each with its answer."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infinity_v3.artifacts.decision import QuestionType
from infinity_v3.artifacts.typed_json import JsonObject
from infinity_v3.runtime.decisions.question import DecideRequest, Question
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.server.call import Call, schedule_of
from infinity_v3.server.decision_errors import invalid
from infinity_v3.server.errors import HttpError, from_inference
from infinity_v3.server.exact_json import count_characters, refuse_foreign, write_exact
from infinity_v3.server.negotiation import JSON_TYPE
from infinity_v3.server.questions import (
    check_fields,
    parse_questions,
    parse_state,
    question_error,
)
from infinity_v3.server.replies import Answer, Encoder, accept, note_result
from infinity_v3.server.schemas import DecideBody

if TYPE_CHECKING:
    from infinity_v3.runtime.decisions.answers import Answer as Found
    from infinity_v3.runtime.results import DecideResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactEncoder(Encoder):
    """Writes levels as they were sent: whole numbers of any width."""

    def document(self, value: object) -> bytes:
        return write_exact(value)


async def decide(call: Call[DecideBody]) -> Answer:
    """An answer to each question, in the order of the request."""
    request = _request(call)
    call.budget.take(len(request.questions), "questions")
    try:
        result = await call.model.service.decide(request)
    except InferenceError as error:
        raise _located(error, request.questions) from None
    note_result(call, result)
    value = _document(call, request, result)
    return Answer(value=value, encoder=ExactEncoder(media_type=JSON_TYPE))


def _request(call: Call[DecideBody]) -> DecideRequest:
    """Check a body against the model.

    Raises:
        HttpError: 422.
        InferenceError: 424.
    """
    body, model = call.body, call.model
    if not isinstance(body.questions, JsonObject):  # not read by `parse_exact`
        refuse_foreign("state", body.state)
        refuse_foreign("questions", body.questions)
    decision = model.info.decision
    if decision is None:
        _accept(call)
        model.service.check_can_decide()  # raises
    assert decision is not None, "a decision model without its protocol; this is a bug"
    check_fields(body)
    state = parse_state(body.state)
    questions = parse_questions(body.questions, decision.limits, call.budget.limit)
    _accept(call)
    return DecideRequest(
        state=state,
        questions=questions,
        max_len=body.max_len,
        head_max_len=body.head_max_len,
        schedule=schedule_of(call),
    )


def _accept(call: Call[DecideBody]) -> None:
    body = call.body
    num_questions = len(body.questions) if isinstance(body.questions, dict) else 1
    accept(
        call,
        is_batch=num_questions > 1,
        num_items=num_questions,
        num_characters=count_characters([body.state, body.questions]),
        is_scoring=True,
    )


def _located(error: InferenceError, questions: tuple[Question, ...]) -> HttpError:
    """Name the question or the field that the runtime could not take."""
    found = from_inference(error, "questions")
    if error.kind not in {ErrorKind.VALIDATION, ErrorKind.TOKENIZER}:
        return found
    if error.item is not None:
        bare = InferenceError(error.kind, error.code, error.message)
        return question_error(from_inference(bare), questions[error.item].key)
    return invalid(error.message, found.code, *(() if found.param is None else (found.param,)))


def _document(
    call: Call[DecideBody], request: DecideRequest, result: "DecideResult"
) -> dict[str, object]:
    pairs = zip(request.questions, result.answers, strict=True)
    return {
        "model": call.model.name,
        "answers": {question.key: _answer(question, found) for question, found in pairs},
        "usage": {
            "input_tokens": result.num_input_tokens,
            "output_tokens": result.num_output_tokens,
        },
    }


def _answer(question: Question, found: "Found") -> dict[str, object]:
    answer = {"type": question.kind.value, **_fields(question, found)}
    if found.native_confidence is not None:
        answer["x_native_confidence"] = found.native_confidence
    if found.is_truncated:
        answer["x_truncated"] = True
    return answer


def _fields(question: Question, found: "Found") -> dict[str, object]:
    if question.kind is QuestionType.NOUL:
        return {"noul": found.value}
    names = [option.name for option in question.options]
    shared = {
        "probabilities": dict(zip(names, found.probabilities, strict=True)),
        "confidence": found.confidence,
    }
    if question.kind is QuestionType.CHOICE:
        return {"choice": names[int(found.value)], **shared}
    legend = {option.name: option.text for option in question.options}
    return {"score": found.value, "legend": legend, **shared}
