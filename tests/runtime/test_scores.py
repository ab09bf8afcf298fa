"""Activations, order and cosines against longhand arithmetic."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import Heads, ScoreActivation
from infinity_v3.runtime.requests import ScoreForm
from infinity_v3.runtime.scores import activate, best_first, choose_activation, cosines

MULTI_LABEL = "multi_label_classification"
LARGE = float(2**99)
finite = st.floats(-LARGE, LARGE, width=32)
logit_rows = hnp.arrays(np.float32, st.integers(1, 6), elements=finite)


@pytest.mark.parametrize(
    ("activation", "problem_type", "form", "expected"),
    [
        (ScoreActivation.SIGMOID, None, ScoreForm.NATIVE, ScoreActivation.SIGMOID),
        (ScoreActivation.SOFTMAX, MULTI_LABEL, ScoreForm.NATIVE, ScoreActivation.SOFTMAX),
        (ScoreActivation.NONE, None, ScoreForm.NATIVE, ScoreActivation.NONE),
        (ScoreActivation.SIGMOID, None, ScoreForm.LOGITS, ScoreActivation.NONE),
        (ScoreActivation.SIGMOID, None, ScoreForm.PROBABILITIES, ScoreActivation.SOFTMAX),
        (ScoreActivation.NONE, "regression", ScoreForm.PROBABILITIES, ScoreActivation.SOFTMAX),
        (ScoreActivation.NONE, MULTI_LABEL, ScoreForm.PROBABILITIES, ScoreActivation.SIGMOID),
    ],
)
def test_who_decides_about_the_activation(
    activation: ScoreActivation,
    problem_type: str | None,
    form: ScoreForm,
    expected: ScoreActivation,
) -> None:
    heads = Heads(activation=activation, problem_type=problem_type)
    assert choose_activation(heads, form) is expected


@given(logit_rows)
def test_softmax_is_a_distribution_in_the_order_of_the_logits(logits: NDArray[np.float32]) -> None:
    scores = activate(logits, ScoreActivation.SOFTMAX)
    assert scores.dtype == np.float64
    assert scores.sum() == pytest.approx(1.0)
    assert np.all(np.diff(scores[np.argsort(logits, kind="stable")]) >= 0.0)


@pytest.mark.parametrize("logit", [-1e30, -800.0, -20.0, -0.5, 0.0, 0.5, 20.0, 25.0, 800.0, 1e30])
def test_sigmoid_at_any_size(logit: float) -> None:
    (score,) = activate(np.array([logit], np.float32), ScoreActivation.SIGMOID)
    expected = 1.0 / (1.0 + math.exp(-logit)) if logit > -700 else 0.0
    assert score == pytest.approx(expected, rel=1e-15)


def test_large_logits_keep_distinct_scores() -> None:
    low, high = activate(np.array([20.0, 25.0], np.float32), ScoreActivation.SIGMOID)
    assert low < high < 1.0


def test_softmax_in_longhand() -> None:
    logits = np.array([[1.0, 2.0, -3.0], [1000.0, 999.0, 0.0]], np.float32)
    powers = [[math.exp(1.0), math.exp(2.0), math.exp(-3.0)], [1.0, math.exp(-1.0), 0.0]]
    expected = [[power / sum(row) for power in row] for row in powers]
    np.testing.assert_allclose(activate(logits, ScoreActivation.SOFTMAX), expected, rtol=1e-14)


def test_one_label_is_certain_by_softmax() -> None:
    assert activate(np.array([-7.5], np.float32), ScoreActivation.SOFTMAX).tolist() == [1.0]


def test_no_activation_gives_the_logits() -> None:
    logits = np.array([0.1, -5.5], np.float32)
    assert activate(logits, ScoreActivation.NONE).tolist() == logits.tolist()


@given(hnp.arrays(np.float32, st.integers(1, 12), elements=st.sampled_from([-1.0, 0.0, -0.0, 2.0])))
def test_best_first_with_ties_by_position(logits: NDArray[np.float32]) -> None:
    order = best_first(logits)
    assert sorted(order) == list(range(len(logits)))
    for left, right in pairwise(order):
        assert (-logits[left], left) < (-logits[right], right)


def test_cosines_in_longhand() -> None:
    rng = np.random.default_rng(3)
    source, others = rng.normal(size=8).astype(np.float32), rng.normal(size=(5, 8))
    wide = source.astype(np.float64)
    expected = [
        float(wide @ row / (np.linalg.norm(wide) * np.linalg.norm(row)))
        for row in others.astype(np.float32).astype(np.float64)
    ]
    np.testing.assert_allclose(cosines(source, others.astype(np.float32)), expected, rtol=1e-13)


@given(
    hnp.arrays(np.float32, 4, elements=finite),
    hnp.arrays(np.float32, (3, 4), elements=finite),
)
def test_cosines_stay_within_one(source: NDArray[np.float32], others: NDArray[np.float32]) -> None:
    scores = cosines(source, others)
    assert np.all(np.abs(scores) <= 1.0)
    (itself,) = cosines(source, source[np.newaxis])
    assert itself == pytest.approx(1.0 if source.any() else 0.0)


def test_a_zero_vector_compares_as_zero() -> None:
    zero, vector = np.zeros(3, np.float32), np.ones((1, 3), np.float32)
    assert cosines(zero, vector).tolist() == [0.0]
    assert cosines(vector[0], np.zeros((2, 3), np.float32)).tolist() == [0.0, 0.0]


def test_opposites_are_exactly_minus_one_at_the_most() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        vector = rng.normal(size=384).astype(np.float32)
        (same,) = cosines(vector, vector[np.newaxis])
        (opposite,) = cosines(vector, -vector[np.newaxis])
        assert -1.0 <= opposite < -0.999999
        assert 0.999999 < same <= 1.0


@given(
    hnp.arrays(np.float32, 40, elements=st.floats(-1, 1, width=32)),
    hnp.arrays(np.float32, (5, 40), elements=st.floats(-1, 1, width=32)),
)
def test_a_pair_scores_the_same_in_any_company(
    source: NDArray[np.float32], others: NDArray[np.float32]
) -> None:
    alone = [float(cosines(source, other[np.newaxis])[0]) for other in others]
    assert cosines(source, others).tolist() == alone
