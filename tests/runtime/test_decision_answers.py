"""Answers against the arithmetic written out, and the check vector of the specification."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.decision import QuestionType
from infinity_v3.runtime.decisions.answers import (
    choice_confidence,
    entropy_confidence,
    make_answer,
    probabilities_of,
    score_confidence,
)

VECTOR = np.array([0.1, 0.2, 0.7])
_LOGITS = st.lists(st.floats(-500, 500, width=32), min_size=1, max_size=40)


def test_the_check_vector() -> None:
    assert choice_confidence(VECTOR) == pytest.approx(0.55, abs=1e-12)
    assert score_confidence(VECTOR) == pytest.approx(0.4, abs=1e-12)
    assert entropy_confidence(VECTOR) == pytest.approx(0.2702, abs=5e-5)
    answer = make_answer(QuestionType.SCORE, VECTOR, None, is_truncated=False)
    assert answer.value == pytest.approx(1.6, abs=1e-12)


def test_the_first_of_equals_is_chosen() -> None:
    even = np.array([0.25, 0.375, 0.375])
    assert make_answer(QuestionType.CHOICE, even, None, is_truncated=False).value == 1
    assert score_confidence(np.array([0.5, 0.0, 0.5])) == 0.0


@pytest.mark.parametrize("certain", [[1.0], [0.0, 1.0], [1.0, 0.0, 0.0]])
def test_what_is_certain_has_confidence_one(certain: list[float]) -> None:
    p = np.array(certain)
    confidences = (choice_confidence(p), score_confidence(p), entropy_confidence(p))
    assert confidences == pytest.approx((1.0, 1.0, 1.0), abs=1e-9)


def test_an_even_spread_has_confidence_zero() -> None:
    for count in (2, 3, 10):
        p = np.full(count, 1 / count)
        assert choice_confidence(p) == pytest.approx(0.0, abs=1e-12)
        assert entropy_confidence(p) == pytest.approx(0.0, abs=1e-12)


@given(logits=_LOGITS, temperature=st.floats(0.5, 5.0))
def test_probabilities_sum_to_one_and_every_number_is_in_range(
    logits: list[float], temperature: float
) -> None:
    p = probabilities_of(np.array(logits, dtype=np.float32), temperature)
    assert math.isclose(p.sum(), 1.0, abs_tol=1e-12)
    for kind in (QuestionType.CHOICE, QuestionType.SCORE):
        answer = make_answer(kind, p, entropy_confidence(p), is_truncated=False)
        numbers = [*answer.probabilities, answer.confidence, answer.native_confidence]
        assert all(number is not None and 0.0 <= number <= 1.0 for number in numbers)
    assert 0.0 <= make_answer(QuestionType.SCORE, p, None, is_truncated=False).value <= len(p) - 1
