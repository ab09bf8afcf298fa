"""Probes of a decision model: token sequences in which some tokens are read. Knows no engine."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.decision import Decision, QuestionType
from infinity_v3.compiler.probes import Probes

_SEED = 90_125
_MOST_READ = 120


def ask(probes: Probes, decision: Decision) -> Probes:
    """Make a question of every probe: types by turns, up to 120 tokens to read, all masked."""
    rng = np.random.default_rng(_SEED)
    kinds = list(QuestionType)
    asked = [kinds[i % len(kinds)] for i in range(len(probes.ids))]
    readouts = tuple(
        _positions(rng, len(row), kind) for row, kind in zip(probes.ids, asked, strict=True)
    )
    return replace(
        probes,
        ids=tuple(
            _masked(row, places, decision.special_ids["mask"])
            for row, places in zip(probes.ids, readouts, strict=True)
        ),
        types=tuple(
            np.full(len(row), decision.type_ids[kind.value], dtype=np.int64)
            for row, kind in zip(probes.ids, asked, strict=True)
        ),
        readouts=readouts,
        temperatures=tuple(
            decision.temperature.of(kind, len(places))
            for kind, places in zip(asked, readouts, strict=True)
        ),
    )


def _positions(rng: np.random.Generator, length: int, kind: QuestionType) -> NDArray[np.int64]:
    most = 2 if kind is QuestionType.NOUL else min(_MOST_READ, length)
    count = min(length, 2 if kind is QuestionType.NOUL else int(rng.integers(1, most + 1)))
    return np.sort(rng.choice(length, count, replace=False)).astype(np.int64)


def _masked(row: NDArray[np.int64], places: NDArray[np.int64], mask: int) -> NDArray[np.int64]:
    masked = row.copy()
    masked[places] = mask
    return masked
