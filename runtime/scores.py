"""Logits to scores, and their order. Knows nothing of labels, requests or engines."""

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import Heads, ScoreActivation
from infinity_v3.runtime.requests import ScoreForm

MULTI_LABEL = "multi_label_classification"
"""The problem type whose labels exclude none of the others."""


def choose_activation(heads: Heads, form: ScoreForm) -> ScoreActivation:
    """Decide what is done to the logits of one request.

    Args:
        heads: of the artifact; without an activation the logits are the scores.
        form: what the request asks for.
    """
    if form is ScoreForm.LOGITS:
        return ScoreActivation.NONE
    if form is ScoreForm.PROBABILITIES:
        is_multi_label = heads.problem_type == MULTI_LABEL
        return ScoreActivation.SIGMOID if is_multi_label else ScoreActivation.SOFTMAX
    return heads.activation or ScoreActivation.NONE


def activate(logits: NDArray[np.floating], activation: ScoreActivation) -> NDArray[np.float64]:
    """Turn finite logits into scores, in float64.

    Args:
        logits: (..., C).
        activation: softmax runs over the last dimension.

    Returns:
        The scores, in a new array of the same shape.
    """
    wide = logits.astype(np.float64)
    if activation is ScoreActivation.SIGMOID:
        return sigmoid(wide)
    return softmax(wide) if activation is ScoreActivation.SOFTMAX else wide


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), where exp() is only taken of what is not positive."""
    powers = np.exp(-np.abs(values))
    scores: NDArray[np.float64] = np.where(values >= 0.0, 1.0, powers) / (1.0 + powers)
    return scores


def softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp(x) / sum(exp(x)) over the last dimension, after the maximum is subtracted."""
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    scores: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return scores


def best_first(logits: NDArray[np.float32]) -> tuple[int, ...]:
    """Positions of (N,) logits, highest first; equal ones keep their order."""
    return tuple(np.argsort(-logits, kind="stable").tolist())


def cosines(source: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compare one vector with others, in float64.

    Args:
        source: (D,) finite.
        others: (N, D) finite.

    Returns:
        (N,) within -1 and 1; 0.0 where either vector is zero.
    """
    left, right = source.astype(np.float64), others.astype(np.float64)
    # Sums of one row each, in one order: a pair's score does not depend on what is beside it.
    norms = np.sqrt(np.einsum("d,d->", left, left)) * np.sqrt(np.einsum("nd,nd->n", right, right))
    products = np.einsum("nd,d->n", right, left)
    scores: NDArray[np.float64] = np.divide(
        products, norms, out=np.zeros_like(products), where=norms > 0.0
    )
    return np.clip(scores, -1.0, 1.0)
