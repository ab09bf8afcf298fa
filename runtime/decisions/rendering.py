"""How values that are no texts are written for a model. Knows nothing of prompts."""

import json

from infinity_v3.artifacts.decision import QuestionType
from infinity_v3.runtime.decisions.question import Json, Question

_DEFAULT_INSTRUCTIONS = {
    QuestionType.NOUL: "Is the statement true, or is the answer to the question yes?",
    QuestionType.CHOICE: "Which option applies to the state?",
    QuestionType.SCORE: "Which level describes the state?",
}


def as_text(value: Json) -> str:
    """A text as it is, anything else as JSON on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def instructions_of(question: Question) -> str:
    """What is asked; the type's own sentence where nothing is said."""
    if question.instructions is None:
        return _DEFAULT_INSTRUCTIONS[question.kind]
    return as_text(question.instructions)


def is_blank(value: Json) -> bool:
    """Whether nothing is said of an option; 0 and false are something."""
    return value is None or value == ""
