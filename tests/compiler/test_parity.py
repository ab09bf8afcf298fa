"""The comparison that decides whether an engine is published."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import ParityBounds, Precision
from infinity_v3.compiler.parity import (
    TOKEN_MAX_RELATIVE,
    ParityReport,
    bounds_of,
    compare,
    judge_batching,
    judge_reference,
)

Rows = list[NDArray[np.float32]]
FLOAT32 = bounds_of(Precision.FLOAT32)
BFLOAT16 = bounds_of(Precision.BFLOAT16)


def vectors(count: int = 5, width: int = 32, *, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(width).astype(np.float32) for _ in range(count)]


def token_rows(lengths: Sequence[int] = (1, 4, 2), width: int = 8) -> Rows:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((length, width)).astype(np.float32) * 3 for length in lengths]


def shifted(rows: Rows, position: int, amount: float) -> Rows:
    """The same with the largest component of one row moved."""
    changed = [row.copy() for row in rows]
    flat = changed[position].reshape(-1)
    flat[np.argmax(np.abs(flat))] += amount
    return changed


def test_the_bounds_are_those_of_the_artifact_format() -> None:
    assert ParityBounds(max_abs=2e-5, batch_max_abs=1e-5) == FLOAT32
    assert ParityBounds(min_cosine=0.999, batch_min_cosine=0.9999) == BFLOAT16
    assert TOKEN_MAX_RELATIVE == 5e-5


@pytest.mark.parametrize("precision", [Precision.FLOAT16, Precision.INT8])
def test_a_precision_without_bounds_cannot_pass(precision: Precision) -> None:
    with pytest.raises(KeyError):
        bounds_of(precision)


@pytest.mark.parametrize("bounds", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("tokens", [False, True])
def test_equal_outputs_pass(bounds: ParityBounds, tokens: bool) -> None:
    rows = token_rows() if tokens else vectors()
    found = compare(rows, rows, tokens=tokens)
    assert found.max_abs == 0.0
    assert found.min_cosine == pytest.approx(1.0)
    assert found.is_finite
    assert judge_reference("pooled", found, bounds, tokens=tokens) == []
    assert judge_batching("pooled", found, bounds) == []


def test_vectors_are_compared_after_normalisation() -> None:
    rows = vectors()
    assert compare([row * 7 for row in rows], rows, tokens=False).max_abs < 1e-6
    assert compare([-row for row in rows], rows, tokens=False).min_cosine == pytest.approx(-1.0)


def test_tokens_are_compared_as_they_are_relative_to_their_size() -> None:
    large = [np.full((2, 4), 100.0, dtype=np.float32)]
    small = [np.full((2, 4), 0.01, dtype=np.float32)]
    assert compare(shifted(large, 0, 1.0), large, tokens=True).max_abs == pytest.approx(0.01)
    assert compare(shifted(small, 0, 1.0), small, tokens=True).max_abs == pytest.approx(1.0)
    assert compare([row * 2 for row in large], large, tokens=True).max_abs == pytest.approx(1.0)


@given(position=st.integers(0, 4))
def test_a_failure_names_output_figure_probe_and_bound(position: int) -> None:
    rows = vectors()
    found = compare(shifted(rows, position, 0.01), rows, tokens=False)
    (sentence,) = judge_reference("pooled", found, FLOAT32, tokens=False)
    assert sentence.startswith("pooled: difference from the reference is 0.00")
    assert sentence.endswith(f"on probe {position}, allowed is 2e-05")
    (sentence,) = judge_batching("pooled", found, FLOAT32)
    assert sentence.startswith("pooled: difference alone against batched is")
    assert sentence.endswith(f"on probe {position}, allowed is 1e-05")


def test_half_precision_is_judged_by_direction() -> None:
    rows = vectors()
    found = compare(shifted(rows, 3, 5.0), rows, tokens=False)
    (sentence,) = judge_reference("pooled", found, BFLOAT16, tokens=False)
    assert "pooled: cosine to the reference is 0." in sentence
    assert sentence.endswith("on probe 3, needed is 0.999")
    (sentence,) = judge_batching("pooled", found, BFLOAT16)
    assert sentence.endswith("on probe 3, needed is 0.9999")
    slightly = compare(shifted(rows, 3, 0.01), rows, tokens=False)
    assert judge_reference("pooled", slightly, BFLOAT16, tokens=False) == []
    assert judge_reference("pooled", slightly, FLOAT32, tokens=False) != []


def test_tokens_have_a_bound_of_their_own() -> None:
    rows = [np.ones((3, 4), dtype=np.float32)]
    within = compare(shifted(rows, 0, 4e-5), rows, tokens=True)
    beyond = compare(shifted(rows, 0, 6e-5), rows, tokens=True)
    assert judge_reference("hidden", within, FLOAT32, tokens=True) == []
    (sentence,) = judge_reference("hidden", beyond, FLOAT32, tokens=True)
    assert sentence.endswith("allowed is 5e-05")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bounds", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_an_output_that_is_not_finite_fails(
    value: float, bounds: ParityBounds, tokens: bool
) -> None:
    rows = token_rows() if tokens else vectors()
    broken = [row.copy() for row in rows]
    broken[1].reshape(-1)[0] = value
    found = compare(broken, rows, tokens=tokens)
    assert not found.is_finite
    sentences = judge_batching("pooled", found, bounds)
    assert "pooled: an output is not finite" in sentences
    # A comparison with NaN is false either way: it must not pass for that.
    assert judge_reference("pooled", found, bounds, tokens=tokens) != []


def test_a_row_of_zeros_is_no_match() -> None:
    rows = vectors()
    zeroed = [*rows[:2], np.zeros_like(rows[2]), *rows[3:]]
    found = compare(zeroed, rows, tokens=False)
    assert judge_reference("pooled", found, FLOAT32, tokens=False) != []
    assert judge_reference("pooled", found, BFLOAT16, tokens=False) != []


def test_one_bad_token_among_many_is_found() -> None:
    rows = token_rows((400, 3))
    bad = [row.copy() for row in rows]
    bad[0][399] = bad[0][398]
    found = compare(bad, rows, tokens=True)
    assert judge_reference("hidden", found, FLOAT32, tokens=True) != []
    assert judge_reference("hidden", found, BFLOAT16, tokens=True) != []


def test_a_missing_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare(vectors(4), vectors(5), tokens=False)


def test_swapped_rows_fail() -> None:
    rows = vectors()
    found = compare([rows[1], rows[0], *rows[2:]], rows, tokens=False)
    for bounds in (FLOAT32, BFLOAT16):
        assert judge_reference("pooled", found, bounds, tokens=False) != []


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
