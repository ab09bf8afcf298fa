"""Questions about a state, in the service's own words; the server has checked their shape.

Knows nothing of prompts or of HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infinity_v3.artifacts.decision import QuestionType
from infinity_v3.runtime.requests import Schedule

Json = str | int | float | bool | None | Mapping[str, "Json"] | Sequence["Json"]
"""A value as it was sent: keys in their order, whole numbers of any width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOption:
    """One thing that a question can be answered with.

    Attributes:
        name: the key of a choice; "0", "1", ... of levels; "false" and "true" of a statement, or
            what the question calls them.
        text: what the model is told of it; None = nothing.
    """

    name: str
    text: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question.

    Attributes:
        key: names it in the reply; no model sees it.
        instructions: None = the type's own sentence.
        options: in the order sent; of a noul false, then true.
    """

    key: str
    kind: QuestionType
    instructions: Json
    options: tuple[AnswerOption, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideRequest:
    """Questions about one state.

    Attributes:
        state: a text, an object or a list.
        questions: at least one, each with at least one option.
        max_len: longest sequence in tokens; None, and more than the model's = the model's.
        head_max_len: tokens of the half that holds the question; None = the model's.
    """

    state: Json
    questions: tuple[Question, ...]
    max_len: int | None = None
    head_max_len: int | None = None
    schedule: Schedule = field(default_factory=Schedule)
