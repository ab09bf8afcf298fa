"""Turns the `questions` of a body into typed ones, under the limits of the model.

Everything is refused here, before anything is tokenised. Knows nothing of routes or prompts.
"""

from collections.abc import Mapping
from typing import cast

from infinity_v3.artifacts.decision import DecisionLimits, QuestionType
from infinity_v3.artifacts.typed_json import JsonObject
from infinity_v3.runtime.decisions.question import AnswerOption, Json, Question
from infinity_v3.server.decision_errors import invalid
from infinity_v3.server.errors import HttpError, echoed
from infinity_v3.server.json_words import kind_of
from infinity_v3.server.schemas import DecideBody

_SIDES = ("false", "true")
_QUESTIONS = "questions"
_MEDIA = ("assets", "images", "media")
_LENGTHS = ("max_len", "head_max_len")
_LONGEST_SHOWN = 1e15


def check_fields(body: DecideBody) -> None:
    """Refuse what this release does not read, and lengths that are none.

    Raises:
        HttpError: 422.
    """
    for name in _MEDIA:
        if getattr(body, name) is not None:
            raise invalid("this model reads text only", "unsupported_media", name)
    for name in _LENGTHS:
        found = getattr(body, name)
        is_length = isinstance(found, int) and not isinstance(found, bool) and found > 0
        if found is not None and not is_length:
            is_short = type(found) in {int, float} and abs(found) < _LONGEST_SHOWN
            shown = found if is_short else kind_of(found)
            raise invalid(f"expected a whole number from 1, found {shown}", "value_error", name)


def parse_state(value: object) -> Json:
    """The state of a request.

    Raises:
        HttpError: 422.
    """
    if not isinstance(value, str | dict | list):
        message = f"expected a text, an object or a list, found {kind_of(value)}"
        raise invalid(message, "state_type", "state")
    if isinstance(value, dict) and set(value) == {"messages"} and _is_list(value["messages"]):
        raise invalid(
            "this model takes no conversations; send their text", "unsupported_media", "state"
        )
    return cast(Json, value)


def parse_questions(value: object, limits: DecisionLimits, most: int) -> tuple[Question, ...]:
    """The questions of a request, in their order.

    Args:
        value: what the body holds.
        limits: of the model.
        most: questions that the server takes at most.

    Raises:
        HttpError: 422 naming the first question at fault, or a number that is beyond its limit.
    """
    if not isinstance(value, dict):
        message = f"expected an object of questions by id, found {kind_of(value)}"
        raise invalid(message, "object_type", _QUESTIONS)
    if not value:
        raise invalid("expected at least one question, found none", "too_short", _QUESTIONS)
    _refuse_twice(value, _QUESTIONS)
    most = min(limits.max_questions, most)
    if len(value) > most:
        message = f"expected at most {most} questions, found {len(value)}"
        raise invalid(message, "too_many_questions", _QUESTIONS)
    _check_total(value, limits)
    return tuple(_question(key, question, limits) for key, question in value.items())


def _check_total(questions: Mapping[str, object], limits: DecisionLimits) -> None:
    total = sum(_num_options(question) for question in questions.values())
    if total > limits.max_total_options:
        message = f"expected at most {limits.max_total_options} options in all, found {total}"
        raise invalid(message, "too_many_options", _QUESTIONS)


def _num_options(question: object) -> int:
    criteria = question.get("criteria") if isinstance(question, dict) else None
    is_noul = isinstance(question, dict) and question.get("type") == QuestionType.NOUL.value
    return len(criteria) if isinstance(criteria, dict | list) and not is_noul else len(_SIDES)


def _question(key: str, value: object, limits: DecisionLimits) -> Question:
    at = (_QUESTIONS, key)
    if not key:
        raise invalid("expected an id of one character or more, found none", "too_short", *at)
    if not isinstance(value, dict):
        raise invalid(f"expected an object, found {kind_of(value)}", "object_type", *at)
    kind = _kind(value, at)
    instructions = value.get("instructions")
    if not isinstance(instructions, str | dict | list | None):
        message = f"expected a text, an object or a list, found {kind_of(instructions)}"
        raise invalid(message, "instructions_type", *at, "instructions")
    read = {
        QuestionType.CHOICE: _choice_options,
        QuestionType.SCORE: _score_options,
        QuestionType.NOUL: _noul_options,
    }[kind]
    return Question(
        key=key,
        kind=kind,
        instructions=cast(Json, instructions),
        options=read(value, limits, at),
    )


def _kind(question: Mapping[str, object], at: tuple[str, str]) -> QuestionType:
    if "type" not in question:
        raise invalid("the field is missing", "missing", *at, "type")
    name = question["type"]
    known = {kind.value: kind for kind in QuestionType}
    if not isinstance(name, str) or name not in known:
        shown = repr(echoed(name)) if isinstance(name, str) else kind_of(name)
        message = f"expected one of {', '.join(known)}, found {shown}"
        raise invalid(message, "unknown_question_type", *at, "type")
    return known[name]


def _choice_options(
    question: Mapping[str, object], limits: DecisionLimits, at: tuple[str, str]
) -> tuple[AnswerOption, ...]:
    criteria, path = question.get("criteria"), (*at, "criteria")
    if isinstance(criteria, list):
        criteria = _listed(criteria, path)
    if not isinstance(criteria, dict):
        message = "expected an object of descriptions by option, or a list of options, found "
        raise invalid(message + kind_of(criteria), "object_type", *path)
    _refuse_twice(criteria, *path)
    _check_count(len(criteria), limits.max_options, "options", path)
    return tuple(AnswerOption(name=name, text=cast(Json, text)) for name, text in criteria.items())


def _listed(names: list[object], path: tuple[str, ...]) -> dict[str, object]:
    """Names without descriptions."""
    found: dict[str, object] = {}
    for index, name in enumerate(names):
        if not isinstance(name, str):
            message = f"expected the name of an option, found {kind_of(name)}"
            raise invalid(message, "string_type", *path, index)
        if name in found:
            raise invalid("the option is there twice", "duplicate_key", *path, index)
        found[name] = None
    return found


def _score_options(
    question: Mapping[str, object], limits: DecisionLimits, at: tuple[str, str]
) -> tuple[AnswerOption, ...]:
    criteria, path = question.get("criteria"), (*at, "criteria")
    if not isinstance(criteria, list):
        message = f"expected a list of levels, the lowest first, found {kind_of(criteria)}"
        raise invalid(message, "list_type", *path)
    _check_count(len(criteria), limits.max_levels, "levels", path)
    for index, level in enumerate(criteria):
        if level is None:
            raise invalid("expected what the level means, found null", "null", *path, index)
    return tuple(
        AnswerOption(name=str(index), text=cast(Json, level))
        for index, level in enumerate(criteria)
    )


def _noul_options(
    question: Mapping[str, object], limits: DecisionLimits, at: tuple[str, str]
) -> tuple[AnswerOption, ...]:
    criteria, path = question.get("criteria"), (*at, "criteria")
    if criteria is None:
        criteria = {}
    if not isinstance(criteria, dict):
        message = f"expected an object with `true`, `false` or both, found {kind_of(criteria)}"
        raise invalid(message, "object_type", *path)
    _refuse_twice(criteria, *path)
    found: dict[str, object] = {}
    for key, text in criteria.items():
        side = key.lower()
        if side not in _SIDES:
            message = f"expected `true` or `false`, found {echoed(key)!r}"
            raise invalid(message, "unknown_key", *path, key)
        if side in found:
            raise invalid("the side is there twice", "duplicate_key", *path, key)
        found[side] = text
    names = _noul_names(question, at)
    return tuple(
        AnswerOption(name=name, text=cast(Json, found.get(side)))
        for side, name in zip(_SIDES, names, strict=True)
    )


def _noul_names(question: Mapping[str, object], at: tuple[str, str]) -> tuple[str, ...]:
    """What the model reads in place of the words false and true."""
    labels, path = question.get("labels"), (*at, "labels")
    if labels is None:
        return _SIDES
    if not isinstance(labels, dict) or set(labels) != set(_SIDES):
        found = "other keys" if isinstance(labels, dict) else kind_of(labels)
        message = f"expected an object with `false` and `true`, found {found}"
        raise invalid(message, "object_type", *path)
    names = [labels[side] for side in _SIDES]
    stripped = [name.strip() for name in names if isinstance(name, str)]
    if len(stripped) != len(names) or not all(stripped) or len(set(stripped)) != len(names):
        raise invalid("expected two different texts that are not blank", "labels", *path)
    return tuple(stripped)


def _check_count(found: int, most: int, noun: str, path: tuple[str, ...]) -> None:
    if found == 0:
        raise invalid(f"expected at least one of the {noun}, found none", "too_short", *path)
    if found > most:
        raise invalid(f"expected at most {most} {noun}, found {found}", "too_many_options", *path)


def _refuse_twice(value: Mapping[str, object], *path: str) -> None:
    key = value.duplicate_key if isinstance(value, JsonObject) else None
    if key is not None:
        raise invalid("the key is there twice", "duplicate_key", *path, key)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def question_error(error: HttpError, key: str) -> HttpError:
    """An error that the runtime found in one question, with its place in the body."""
    found = invalid(error.message, error.code, _QUESTIONS, key)
    return found if error.status == found.status else error
