"""The comparison that decides whether an engine is published."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import ParityBounds, Precision
from infinity_v3.compiler.parity import (
    RAW_MAX_RELATIVE,
    OutputKind,
    ParityReport,
    bounds_of,
    compare,
    judge_batching,
    judge_reference,
    output_kind,
)

Rows = list[NDArray[np.float32]]
FLOAT32 = bounds_of(Precision.FLOAT32)
BFLOAT16 = bounds_of(Precision.BFLOAT16)
VECTORS, RAW, TOKENS = OutputKind.VECTORS, OutputKind.RAW, OutputKind.TOKENS
LOGITS, TOKEN_LOGITS, OPTIONS = OutputKind.LOGITS, OutputKind.TOKEN_LOGITS, OutputKind.OPTIONS
UNSCALED = (RAW, TOKENS, LOGITS, TOKEN_LOGITS)


def vectors(count: int = 5, width: int = 32, *, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(width).astype(np.float32) for _ in range(count)]


def token_rows(lengths: Sequence[int] = (1, 4, 2), width: int = 8) -> Rows:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((length, width)).astype(np.float32) * 3 for length in lengths]


def rows_of(kind: OutputKind) -> Rows:
    return token_rows() if kind.is_per_token else vectors()


def shifted(rows: Rows, position: int, amount: float) -> Rows:
    """The same with the largest component of one row moved."""
    changed = [row.copy() for row in rows]
    flat = changed[position].reshape(-1)
    flat[np.argmax(np.abs(flat))] += amount
    return changed


def log_odds(probability: float) -> Rows:
    """One label whose probability is that."""
    return [np.asarray([np.log(probability / (1 - probability))], dtype=np.float32)]


def logits_of(*probabilities: float) -> NDArray[np.float32]:
    """Logits of labels of which one is true."""
    return np.log(np.asarray(probabilities, dtype=np.float32))


def test_the_bounds_are_those_of_the_artifact_format() -> None:
    assert ParityBounds(max_abs=2e-5, batch_max_abs=1e-5) == FLOAT32
    assert ParityBounds(min_cosine=0.999, batch_min_cosine=0.9999, max_probability=2e-2) == BFLOAT16
    int8 = ParityBounds(min_cosine=0.99, batch_min_cosine=0.9999, max_probability=2e-2)
    assert bounds_of(Precision.INT8) == int8
    assert RAW_MAX_RELATIVE == 5e-5


@pytest.mark.parametrize("precision", [Precision.FLOAT16, Precision.FP8_DYNAMIC])
def test_a_precision_without_bounds_cannot_pass(precision: Precision) -> None:
    with pytest.raises(KeyError):
        bounds_of(precision)


def test_outputs_are_compared_by_their_name() -> None:
    assert {name: output_kind(name) for name in ("pooled", "pooled_cls", "hidden", "logits")} == {
        "pooled": VECTORS,
        "pooled_cls": VECTORS,
        "hidden": TOKENS,
        "logits": LOGITS,
    }
    assert output_kind("token_logits") is TOKEN_LOGITS
    assert output_kind("token_vectors") is TOKENS
    assert output_kind("sparse") is RAW
    assert [kind for kind in OutputKind if kind.is_per_token] == [TOKENS, TOKEN_LOGITS]
    assert output_kind("option_logits") is OPTIONS
    assert [kind for kind in OutputKind if kind.is_logits] == [LOGITS, TOKEN_LOGITS, OPTIONS]


@pytest.mark.parametrize("bounds", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("kind", OutputKind)
def test_equal_outputs_pass(bounds: ParityBounds, kind: OutputKind) -> None:
    rows = rows_of(kind)
    found = compare(rows, rows, kind)
    assert found.max_abs.value == 0.0
    assert found.min_cosine.value == pytest.approx(1.0)
    assert found.is_finite
    assert (found.max_probability is not None) == kind.is_logits
    assert judge_reference("pooled", found, bounds, kind) == []
    assert judge_batching("pooled", found, bounds, kind) == []


def test_vectors_are_compared_after_normalisation() -> None:
    rows = vectors()
    assert compare([row * 7 for row in rows], rows, VECTORS).max_abs.value < 1e-6
    opposite = compare([-row for row in rows], rows, VECTORS)
    assert opposite.min_cosine.value == pytest.approx(-1.0)


@pytest.mark.parametrize("kind", UNSCALED)
def test_others_are_compared_as_they_are_relative_to_their_size(kind: OutputKind) -> None:
    large = [np.full((2, 4), 100.0, dtype=np.float32)]
    small = [np.full((2, 4), 0.01, dtype=np.float32)]
    assert compare(shifted(large, 0, 1.0), large, kind).max_abs.value == pytest.approx(0.01)
    assert compare(shifted(small, 0, 1.0), small, kind).max_abs.value == pytest.approx(1.0)
    assert compare([row * 2 for row in large], large, kind).max_abs.value == pytest.approx(1.0)


@given(position=st.integers(0, 4))
def test_a_failure_names_output_figure_probe_and_bound(position: int) -> None:
    rows = vectors()
    found = compare(shifted(rows, position, 0.01), rows, VECTORS)
    assert found.max_abs.at == position
    (sentence,) = judge_reference("pooled", found, FLOAT32, VECTORS)
    assert sentence.startswith("pooled: difference from the reference is 0.00")
    assert sentence.endswith(f"on probe {position}, allowed is 2e-05")
    (sentence,) = judge_batching("pooled", found, FLOAT32, VECTORS)
    assert sentence.startswith("pooled: difference alone against batched is")
    assert sentence.endswith(f"on probe {position}, allowed is 1e-05")


@pytest.mark.parametrize("kind", [VECTORS, RAW, TOKENS])
def test_half_precision_is_judged_by_direction(kind: OutputKind) -> None:
    rows = vectors()
    found = compare(shifted(rows, 3, 5.0), rows, kind)
    (sentence,) = judge_reference("pooled", found, BFLOAT16, kind)
    assert "pooled: cosine to the reference is 0." in sentence
    assert sentence.endswith("on probe 3, needed is 0.999")
    (sentence,) = judge_batching("pooled", found, BFLOAT16, kind)
    assert sentence.endswith("on probe 3, needed is 0.9999")
    slightly = compare(shifted(rows, 3, 0.01), rows, kind)
    assert judge_reference("pooled", slightly, BFLOAT16, kind) == []
    assert judge_reference("pooled", slightly, FLOAT32, kind) != []


@pytest.mark.parametrize("kind", UNSCALED)
def test_what_is_not_normalised_has_a_bound_of_its_own(kind: OutputKind) -> None:
    rows = [np.ones((3, 4), dtype=np.float32)]
    within = compare(shifted(rows, 0, 4e-5), rows, kind)
    beyond = compare(shifted(rows, 0, 6e-5), rows, kind)
    assert judge_reference("hidden", within, FLOAT32, kind) == []
    (sentence,) = judge_reference("hidden", beyond, FLOAT32, kind)
    assert sentence.endswith("allowed is 5e-05")
    large = [row * 100 for row in rows]
    assert (
        judge_reference("hidden", compare(shifted(large, 0, 4e-3), large, kind), FLOAT32, kind)
        == []
    )


@pytest.mark.parametrize(
    ("found", "passes"), [(0.5, True), (0.519, True), (0.481, True), (0.521, False), (0.47, False)]
)
def test_a_single_logit_in_half_precision_is_judged_by_its_probability(
    found: float, passes: bool
) -> None:
    comparison = compare(log_odds(found), log_odds(0.5), LOGITS)
    assert comparison.max_probability is not None
    assert comparison.max_probability.value == pytest.approx(abs(found - 0.5), abs=1e-6)
    off = f"in probability is {abs(found - 0.5):.3g} on probe 0, allowed is 0.02"
    expected = ["from the reference", "alone against batched"]
    assert [
        *judge_reference("logits", comparison, BFLOAT16, LOGITS),
        *judge_batching("logits", comparison, BFLOAT16, LOGITS),
    ] == ([] if passes else [f"logits: difference {what} {off}" for what in expected])


def test_logits_that_are_sure_may_differ_where_their_probabilities_do_not() -> None:
    found, expected = [np.asarray([14.0, -9.0])], [np.asarray([11.0, -8.0])]
    rows = [row.astype(np.float32) for row in found], [row.astype(np.float32) for row in expected]
    comparison = compare(*rows, LOGITS)
    assert judge_reference("logits", comparison, BFLOAT16, LOGITS) == []
    # In float32 they are held to their own numbers.
    assert judge_reference("logits", comparison, FLOAT32, LOGITS) != []


def test_logits_in_half_precision_are_not_judged_by_direction() -> None:
    # Two numbers near zero point anywhere without a probability that changes.
    found, expected = np.asarray([0.004, -0.004]), np.asarray([-0.004, 0.004])
    rows = [found.astype(np.float32)], [expected.astype(np.float32)]
    comparison = compare(*rows, LOGITS)
    assert comparison.min_cosine.value == pytest.approx(-1.0)
    assert judge_reference("logits", comparison, BFLOAT16, LOGITS) == []
    assert judge_batching("logits", comparison, BFLOAT16, LOGITS) == []
    assert judge_reference("pooled", compare(*rows, VECTORS), BFLOAT16, VECTORS) != []


@pytest.mark.parametrize("kind", [LOGITS, TOKEN_LOGITS])
def test_probabilities_of_several_labels_add_up_to_one(kind: OutputKind) -> None:
    expected = logits_of(0.2, 0.5, 0.3)
    # The same constant added to all of them is the same distribution.
    same = compare([expected + 5], [expected], kind)
    assert same.max_probability is not None
    assert same.max_probability.value == pytest.approx(0.0, abs=1e-6)
    moved = compare([logits_of(0.2, 0.47, 0.33)], [expected], kind)
    assert moved.max_probability is not None
    assert moved.max_probability.value == pytest.approx(0.03, abs=1e-6)
    (sentence,) = judge_reference("logits", moved, BFLOAT16, kind)
    assert sentence.endswith("in probability is 0.03 on probe 0, allowed is 0.02")


def test_one_wrong_token_in_half_precision_is_found_by_its_probability() -> None:
    sure = np.tile(logits_of(0.98, 0.01, 0.01), (300, 1))
    rows = [sure[:3], sure]
    changed = [row.copy() for row in rows]
    changed[1][299] = logits_of(0.94, 0.05, 0.01)
    found = compare(changed, rows, TOKEN_LOGITS)
    (sentence,) = judge_reference("token_logits", found, BFLOAT16, TOKEN_LOGITS)
    assert sentence.startswith("token_logits: difference from the reference in probability is 0.04")
    assert "on probe 1" in sentence


@pytest.mark.parametrize("kind", [LOGITS, TOKEN_LOGITS])
def test_two_labels_that_changed_places_fail(kind: OutputKind) -> None:
    expected = [logits_of(0.7, 0.2, 0.1)]
    found = compare([expected[0][[1, 0, 2]]], expected, kind)
    for bounds in (FLOAT32, BFLOAT16):
        assert judge_reference("logits", found, bounds, kind) != []
        assert judge_batching("logits", found, bounds, kind) != []


def test_huge_logits_have_probabilities() -> None:
    rows = [np.asarray([1e4, -1e4, 0.0], dtype=np.float32), np.asarray([-1e4, 9e3, 1e4])]
    logits = [row.astype(np.float32) for row in rows]
    for found in (logits, [row[:1] for row in logits]):
        comparison = compare(found, found, LOGITS)
        assert comparison.max_probability is not None
        assert comparison.max_probability.value == 0.0
        assert judge_batching("logits", comparison, BFLOAT16, LOGITS) == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bounds", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("kind", OutputKind)
@pytest.mark.parametrize("side", ["found", "expected"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_an_output_that_is_not_finite_fails(
    value: float, bounds: ParityBounds, kind: OutputKind, side: str
) -> None:
    rows = rows_of(kind)
    broken = [row.copy() for row in rows]
    broken[1].reshape(-1)[0] = value
    found = compare(broken, rows, kind) if side == "found" else compare(rows, broken, kind)
    assert not found.is_finite
    # A comparison with NaN is false either way: it must not pass for that.
    sentences = judge_reference("pooled", found, bounds, kind)
    assert "pooled: an output or its reference is not finite" in sentences
    assert len(sentences) > 1 or kind.is_logits
    assert "pooled: an output is not finite" in judge_batching("pooled", found, bounds, kind)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bounds", [FLOAT32, BFLOAT16])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_single_logit_that_is_not_finite_fails(value: float, bounds: ParityBounds) -> None:
    # The sigmoid of infinity is a probability like any other.
    rows, broken = [np.asarray([30.0], np.float32)], [np.asarray([value], np.float32)]
    for found in (compare(broken, rows, LOGITS), compare(rows, broken, LOGITS)):
        assert judge_reference("logits", found, bounds, LOGITS) != []
        assert judge_batching("logits", found, bounds, LOGITS) != []
    both = compare(broken, broken, LOGITS)
    assert judge_batching("logits", both, bounds, LOGITS) != []


def test_a_row_of_zeros_is_no_match() -> None:
    rows = vectors()
    zeroed = [*rows[:2], np.zeros_like(rows[2]), *rows[3:]]
    found = compare(zeroed, rows, VECTORS)
    assert judge_reference("pooled", found, FLOAT32, VECTORS) != []
    assert judge_reference("pooled", found, BFLOAT16, VECTORS) != []


def test_one_bad_token_among_many_is_found() -> None:
    rows = token_rows((400, 3))
    bad = [row.copy() for row in rows]
    bad[0][399] = bad[0][398]
    for kind in (TOKENS, TOKEN_LOGITS):
        found = compare(bad, rows, kind)
        assert judge_reference("hidden", found, FLOAT32, kind) != []
        assert judge_reference("hidden", found, BFLOAT16, kind) != []


def test_a_weight_that_is_lost_among_many_fails() -> None:
    # Sparse vectors are nearly all zeros.
    row = np.zeros(1000, dtype=np.float32)
    row[[3, 500, 999]] = 2.0, 0.4, 1.0
    lost = row.copy()
    lost[500] = 0.0
    found = compare([lost], [row], RAW)
    assert judge_reference("sparse", found, FLOAT32, RAW) != []
    assert judge_reference("sparse", found, BFLOAT16, RAW) != []


def test_scaled_weights_fail_where_scaled_vectors_do_not() -> None:
    rows = vectors()
    scaled = [row * np.float32(1.001) for row in rows]
    assert judge_reference("pooled", compare(scaled, rows, VECTORS), FLOAT32, VECTORS) == []
    assert judge_reference("sparse", compare(scaled, rows, RAW), FLOAT32, RAW) != []


@pytest.mark.parametrize("kind", OutputKind)
def test_a_missing_row_is_an_error(kind: OutputKind) -> None:
    with pytest.raises(ValueError, match="zip"):
        compare(rows_of(kind)[:-1], rows_of(kind), kind)


@pytest.mark.parametrize("kind", [VECTORS, RAW, LOGITS])
def test_swapped_rows_fail(kind: OutputKind) -> None:
    rows = vectors()
    found = compare([rows[1], rows[0], *rows[2:]], rows, kind)
    for bounds in (FLOAT32, BFLOAT16):
        assert judge_reference("pooled", found, bounds, kind) != []


def test_a_report_with_a_failure_has_not_passed() -> None:
    report = ParityReport(
        target="cpu-x86_64-avx2-f32",
        reference="eager",
        probes_digest="0" * 64,
        probe_count=1,
        bounds=FLOAT32,
        figures={},
        failures=("pooled: too far",),
    )
    assert not report.passed


def test_options_are_held_to_their_probabilities_alone() -> None:
    expected = np.array([[1000.0], [999.0]], dtype=np.float32)
    shifted = compare([expected + 5.0], [expected], OPTIONS)
    assert shifted.max_probability is not None
    assert shifted.max_probability.value == 0.0
    exact = bounds_of(Precision.FLOAT32, is_decision=True)
    assert judge_reference("x", shifted, exact, OPTIONS) == []
    assert judge_batching("x", shifted, exact, OPTIONS) == []
    moved = compare([expected + np.array([[0.0], [1e-3]], dtype=np.float32)], [expected], OPTIONS)
    (sentence,) = judge_reference("x", moved, exact, OPTIONS)
    assert "in probability" in sentence
    assert "allowed is 1e-05" in sentence
    assert (
        judge_reference("x", moved, bounds_of(Precision.BFLOAT16, is_decision=True), OPTIONS) == []
    )
