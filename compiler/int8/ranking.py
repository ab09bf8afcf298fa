"""Whether an engine ranks texts as the reference does.

Each text is a query for all others. What the reference puts first is worth most; discounted
cumulative gain (Järvelin and Kekäläinen 2002) of the engine's order, divided by that of the
reference's, says how much of it is kept.
"""

import numpy as np
from numpy.typing import NDArray

DEPTH = 10
"""Ranks that count."""
MIN_AGREEMENT = 0.98


def rank_agreement(found: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Mean ratio of gains over all queries, 1 = the same order among what counts.

    Args:
        found, reference: (Q, D) vectors of the same texts.
    """
    expected, ranked = _orders(reference), _orders(found)
    depth = min(DEPTH, expected.shape[1])
    gains = np.arange(depth, 0, -1, dtype=np.float64)
    discounts = 1.0 / np.log2(np.arange(2, depth + 2))
    values = np.zeros((len(expected), len(expected)))
    np.put_along_axis(values, expected[:, :depth], gains[np.newaxis], axis=1)
    taken = np.take_along_axis(values, ranked[:, :depth], axis=1)
    return float(((taken * discounts).sum(axis=1) / (gains * discounts).sum()).mean())


def judge_ranking(name: str, agreement: float) -> list[str]:
    """A sentence where too little of the reference's order is kept."""
    if agreement >= MIN_AGREEMENT:
        return []
    return [
        f"{name}: texts are ranked as the reference ranks them to {agreement:.4f}, needed is "
        f"{MIN_AGREEMENT:g}"
    ]


def _orders(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """(Q, Q - 1): the other texts of each, nearest first."""
    units = vectors.astype(np.float64)
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    similarities = units @ units.T
    np.fill_diagonal(similarities, -np.inf)
    return np.argsort(-similarities, axis=1, kind="stable")[:, :-1]
