"""Logits to answers: probabilities, what they say, and how sure that is. In float64 throughout.

Knows nothing of protocols' prompts or of HTTP.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.decision import QuestionType

Probabilities = NDArray[np.float64]
_LEAST = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one question.

    Attributes:
        probabilities: of the options, in their order; of a noul false, then true.
        value: the probability of true for a noul, the expected level for a score, the position of
            the likeliest option for a choice.
        confidence: 0 to 1; None for a noul.
        native_confidence: what the protocol itself reports; None = the same.
        is_truncated: tokens of the state were left out.
    """

    kind: QuestionType
    probabilities: tuple[float, ...]
    value: float
    confidence: float | None
    native_confidence: float | None
    is_truncated: bool


def probabilities_of(logits: NDArray[np.float32], temperature: float) -> Probabilities:
    """Softmax of finite logits (K,), divided by a temperature."""
    scaled = logits.astype(np.float64) / temperature
    powers = np.exp(scaled - scaled.max())
    found: Probabilities = powers / powers.sum()
    return found


def make_answer(
    kind: QuestionType, p: Probabilities, native: float | None, *, is_truncated: bool
) -> Answer:
    """What probabilities (K,) say."""
    return Answer(
        kind=kind,
        probabilities=tuple(p.tolist()),
        value=_value(kind, p),
        confidence=_confidence(kind, p),
        native_confidence=native,
        is_truncated=is_truncated,
    )


def choice_confidence(p: Probabilities) -> float:
    """How far the likeliest option stands above an even share: 0 to 1."""
    even = 1.0 / len(p)
    return 1.0 if len(p) == 1 else float((p.max() - even) / (1.0 - even))


def score_confidence(p: Probabilities) -> float:
    """How close the levels stay to the likeliest one, against an even spread: 0 to 1."""
    if len(p) == 1:
        return 1.0
    levels = np.arange(len(p))
    spread = float((p * np.abs(levels - int(p.argmax()))).sum())
    even = float(np.abs(levels - (len(p) - 1) / 2).mean())
    return max(0.0, 1.0 - spread / even)


def entropy_confidence(p: Probabilities) -> float:
    """One minus the normalised entropy (Shannon, 1948): 0 to 1; 1 for a lone option."""
    if len(p) < 2:
        return 1.0
    entropy = -float((p * np.log(np.clip(p, _LEAST, 1.0))).sum())
    return min(1.0, max(0.0, 1.0 - entropy / math.log(len(p))))


def _value(kind: QuestionType, p: Probabilities) -> float:
    if kind is QuestionType.NOUL:
        return float(p[1])
    if kind is QuestionType.SCORE:
        return float((np.arange(len(p)) * p).sum())
    return float(p.argmax())


def _confidence(kind: QuestionType, p: Probabilities) -> float | None:
    if kind is QuestionType.NOUL:
        return None
    return choice_confidence(p) if kind is QuestionType.CHOICE else score_confidence(p)
