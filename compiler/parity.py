"""The parity tolerances and the comparison itself, on plain arrays.

Knows nothing of engines or models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import ParityBounds, Precision

Outputs = Mapping[str, NDArray[np.float32]]
"""One input's outputs by name: vectors (D,), token outputs (S, D)."""

_BOUNDS = {
    Precision.FLOAT32: ParityBounds(max_abs=2e-5, batch_max_abs=1e-5),
    Precision.BFLOAT16: ParityBounds(min_cosine=0.999, batch_min_cosine=0.9999),
}
TOKEN_MAX_RELATIVE = 5e-5
"""Float32 token outputs: absolute difference at most this times max(1, |reference|)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityReport:
    """Verdict and figures of one target.

    Attributes:
        figures: worst values over all probes, e.g. "pooled.max_abs", "hidden.batch_min_cosine".
        failures: one sentence per bound that was broken; empty when passed.
    """

    target: str
    reference: str
    probes_digest: str
    probe_count: int
    bounds: ParityBounds
    figures: Mapping[str, float]
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures


def bounds_of(precision: Precision) -> ParityBounds:
    """The bounds a precision is held to."""
    return _BOUNDS[precision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Worst figures of one output over all probes, each with the probe that gave it."""

    max_abs: float
    max_abs_at: int
    min_cosine: float
    min_cosine_at: int
    is_finite: bool


def compare(
    found: Sequence[NDArray[np.float32]], expected: Sequence[NDArray[np.float32]], *, tokens: bool
) -> Comparison:
    """Compare an output probe by probe.

    Args:
        tokens: token outputs are compared as they are, relative to max(1, |expected|); vectors are
            normalised first.
    """
    deviations, cosines, finite = [], [], True
    for left, right in zip(found, expected, strict=True):
        a, b = left.astype(np.float64), right.astype(np.float64)
        finite = finite and bool(np.isfinite(a).all())
        cosines.append(float(_cosine(a, b).min()))
        difference = (
            np.abs(a - b) / np.maximum(1.0, np.abs(b)) if tokens else np.abs(_unit(a) - _unit(b))
        )
        deviations.append(float(difference.max()))
    return Comparison(
        max_abs=float(np.max(deviations)),  # unlike Python's max, keeps NaN wherever it stands
        max_abs_at=int(np.argmax(deviations)),
        min_cosine=float(np.min(cosines)),
        min_cosine_at=int(np.argmin(cosines)),
        is_finite=finite,
    )


def judge_reference(
    name: str, found: Comparison, bounds: ParityBounds, *, tokens: bool
) -> list[str]:
    """Sentences for every bound towards the reference that an output breaks."""
    checks = []
    if bounds.max_abs is not None:
        allowed = TOKEN_MAX_RELATIVE if tokens else bounds.max_abs
        checks.append(_above(f"{name}: difference from the reference", found, allowed))
    if bounds.min_cosine is not None:
        checks.append(_below(f"{name}: cosine to the reference", found, bounds.min_cosine))
    return [sentence for broken, sentence in checks if broken]


def judge_batching(name: str, found: Comparison, bounds: ParityBounds) -> list[str]:
    """Sentences for every bound between alone and batched that an output breaks."""
    checks = [(not found.is_finite, f"{name}: an output is not finite")]
    if bounds.batch_max_abs is not None:
        checks.append(
            _above(f"{name}: difference alone against batched", found, bounds.batch_max_abs)
        )
    if bounds.batch_min_cosine is not None:
        checks.append(
            _below(f"{name}: cosine alone against batched", found, bounds.batch_min_cosine)
        )
    return [sentence for broken, sentence in checks if broken]


def _above(what: str, found: Comparison, bound: float) -> tuple[bool, str]:
    sentence = f"{what} is {found.max_abs:.3g} on probe {found.max_abs_at}, allowed is {bound:g}"
    return not found.max_abs <= bound, sentence


def _below(what: str, found: Comparison, bound: float) -> tuple[bool, str]:
    sentence = (
        f"{what} is {found.min_cosine:.6f} on probe {found.min_cosine_at}, needed is {bound:g}"
    )
    return not found.min_cosine >= bound, sentence


def _unit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    return x / np.where(norm == 0, 1.0, norm)


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((_unit(a) * _unit(b)).sum(axis=-1))
