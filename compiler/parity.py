"""The parity tolerances and the comparison itself, on plain arrays.

Knows nothing of engines or models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import ParityBounds, Precision

Outputs = Mapping[str, NDArray[np.float32]]
"""One input's outputs by name: vectors (D,), token outputs (S, D)."""


OPTION_LOGITS = "option_logits"
"""Output of a decision model: a logit for each option, (K, 1) of one question."""


class OutputKind(Enum):
    """How an output is compared.

    Attributes:
        VECTORS: normalised first; by its cosine in half precision.
        RAW: as it is, relative to max(1, |reference|); by its cosine in half precision.
        TOKENS: RAW, a row per token.
        LOGITS: RAW; in half precision by the probabilities that they give.
        TOKEN_LOGITS: LOGITS, a row per token.
        OPTIONS: always by the probabilities that all logits of an input give together.
    """

    VECTORS = "vectors"
    RAW = "raw"
    TOKENS = "tokens"
    LOGITS = "logits"
    TOKEN_LOGITS = "token logits"
    OPTIONS = "options"

    @property
    def is_per_token(self) -> bool:
        return self in (OutputKind.TOKENS, OutputKind.TOKEN_LOGITS)

    @property
    def is_logits(self) -> bool:
        return self in (OutputKind.LOGITS, OutputKind.TOKEN_LOGITS, OutputKind.OPTIONS)


_BOUNDS = {
    Precision.FLOAT32: ParityBounds(max_abs=2e-5, batch_max_abs=1e-5),
    Precision.BFLOAT16: ParityBounds(
        min_cosine=0.999, batch_min_cosine=0.9999, max_probability=2e-2
    ),
    Precision.INT8: ParityBounds(min_cosine=0.99, batch_min_cosine=0.9999, max_probability=2e-2),
}
_HALF_PROBABILITY, _FLOAT32_PROBABILITY = 2e-2, 1e-5
RAW_MAX_RELATIVE = 5e-5
"""Float32 outputs that are not normalised: absolute difference at most this times max(1, |x|)."""


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


def bounds_of(precision: Precision, *, is_decision: bool = False) -> ParityBounds:
    """The bounds a precision is held to; of a decision model only its probabilities count."""
    if not is_decision:
        return _BOUNDS[precision]
    is_exact = precision is Precision.FLOAT32
    return ParityBounds(max_probability=_FLOAT32_PROBABILITY if is_exact else _HALF_PROBABILITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The worst figure over all probes, and the probe that gave it."""

    value: float
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Worst figures of one output over all probes.

    Attributes:
        max_abs: VECTORS after normalisation, else relative to max(1, |expected|).
        max_probability: None for what is no logits.
        is_finite: of both sides.
    """

    max_abs: Worst
    min_cosine: Worst
    max_probability: Worst | None
    is_finite: bool

    def figures(self, prefix: str) -> dict[str, float]:
        """The values, each under a name that begins so."""
        figures = {
            f"{prefix}max_abs": self.max_abs.value,
            f"{prefix}min_cosine": self.min_cosine.value,
        }
        if self.max_probability is not None:
            figures[f"{prefix}max_probability"] = self.max_probability.value
        return figures


def compare(
    found: Sequence[NDArray[np.float32]], expected: Sequence[NDArray[np.float32]], kind: OutputKind
) -> Comparison:
    """Compare an output probe by probe."""
    pairs = [
        (_in_float64(left, kind), _in_float64(right, kind))
        for left, right in zip(found, expected, strict=True)
    ]
    # Unlike Python's max, numpy's keeps NaN wherever it stands.
    read = _softmax if kind is OutputKind.OPTIONS else _probabilities
    probabilities = (
        _largest([_difference(read(a), read(b)) for a, b in pairs]) if kind.is_logits else None
    )
    cosines = [float(_cosine(a, b).min()) for a, b in pairs]
    return Comparison(
        max_abs=_largest([_deviation(a, b, kind) for a, b in pairs]),
        min_cosine=Worst(value=float(np.min(cosines)), at=int(np.argmin(cosines))),
        max_probability=probabilities,
        is_finite=all(bool(np.isfinite(side).all()) for pair in pairs for side in pair),
    )


def judge_reference(
    name: str, found: Comparison, bounds: ParityBounds, kind: OutputKind
) -> list[str]:
    """Sentences for every bound towards the reference that an output breaks."""
    # Of one infinite logit the probability is as good as any.
    sentences = [] if found.is_finite else [f"{name}: an output or its reference is not finite"]
    if bounds.max_abs is not None:
        allowed = bounds.max_abs if kind is OutputKind.VECTORS else RAW_MAX_RELATIVE
        sentences += _above(f"{name}: difference from the reference", found.max_abs, allowed)
    if bounds.min_cosine is not None and not kind.is_logits:
        sentences += _below(f"{name}: cosine to the reference", found.min_cosine, bounds.min_cosine)
    return sentences + _judge_probability(f"{name}: difference from the reference", found, bounds)


def judge_batching(
    name: str, found: Comparison, bounds: ParityBounds, kind: OutputKind
) -> list[str]:
    """Sentences for every bound between alone and batched that an output breaks."""
    sentences = [] if found.is_finite else [f"{name}: an output is not finite"]
    what = f"{name}: difference alone against batched"
    if bounds.batch_max_abs is not None:
        sentences += _above(what, found.max_abs, bounds.batch_max_abs)
    if bounds.batch_min_cosine is not None and not kind.is_logits:
        what_cosine = f"{name}: cosine alone against batched"
        sentences += _below(what_cosine, found.min_cosine, bounds.batch_min_cosine)
    return sentences + _judge_probability(what, found, bounds)


def _judge_probability(what: str, found: Comparison, bounds: ParityBounds) -> list[str]:
    if bounds.max_probability is None or found.max_probability is None:
        return []
    return _above(f"{what} in probability", found.max_probability, bounds.max_probability)


def _above(what: str, found: Worst, bound: float) -> list[str]:
    if found.value <= bound:
        return []
    return [f"{what} is {found.value:.3g} on probe {found.at}, allowed is {bound:g}"]


def _below(what: str, found: Worst, bound: float) -> list[str]:
    if found.value >= bound:
        return []
    return [f"{what} is {found.value:.6f} on probe {found.at}, needed is {bound:g}"]


def _largest(values: Sequence[float]) -> Worst:
    return Worst(value=float(np.max(values)), at=int(np.argmax(values)))


def _deviation(a: NDArray[np.float64], b: NDArray[np.float64], kind: OutputKind) -> float:
    if kind is OutputKind.VECTORS:
        return _difference(_unit(a), _unit(b))
    return float((np.abs(a - b) / np.maximum(1.0, np.abs(b))).max())


def _difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.abs(a - b).max())


def _probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax over the last axis, sigmoid for a single label."""
    if logits.shape[-1] == 1:
        return 1.0 / (1.0 + np.exp(-np.clip(logits, -700, 700)))
    return _softmax(logits)


def _in_float64(values: NDArray[np.float32], kind: OutputKind) -> NDArray[np.float64]:
    wide = values.astype(np.float64)
    return wide.reshape(-1) if kind is OutputKind.OPTIONS else wide


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _unit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    return x / np.where(norm == 0, 1.0, norm)


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((_unit(a) * _unit(b)).sum(axis=-1))


def output_kind(name: str) -> OutputKind:
    """How the output of that name is compared."""
    known = {
        "hidden": OutputKind.TOKENS,
        "logits": OutputKind.LOGITS,
        "token_logits": OutputKind.TOKEN_LOGITS,
        "token_vectors": OutputKind.TOKENS,
        "sparse": OutputKind.RAW,
        OPTION_LOGITS: OutputKind.OPTIONS,
    }
    return known.get(name, OutputKind.VECTORS)
