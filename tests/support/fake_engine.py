"""An engine without a model: numbers follow from the ids, delays and failures from tests.

Implements the `Engine` protocol of the runtime. Knows nothing of services.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import Graph, Limits, TensorSpec
from infinity_v3.runtime.batch import Batch
from infinity_v3.runtime.engine import EngineError, EngineOutput

WIDTH = 8
PER_TOKEN = frozenset({"hidden", "token_vectors", "token_logits"})
DEADLINE_S = 10.0


class FakeEngine:
    """Deterministic engine.

    Attributes:
        batches: ids of every call, one tuple per sequence.
        num_stored: stored tokens of every call.
        key_counts: tokens that are seen, by sequence and call.
        outputs: names asked for, by call.
        failing_ids: a batch holding one of these fails.
        width: of every output, at most WIDTH.
        non_finite_ids: a sequence holding one of these gets NaN.
        poison: called first in every call; may raise anything.
        max_running: calls that may be under way at once.
        gate: calls wait here; open unless a test closes it.
        is_closed: `close` was called.
        owners: threads that have made calls and not released theirs since.
    """

    def __init__(
        self,
        *,
        max_tokens: int = 4096,
        max_sequences: int = 512,
        outputs: Sequence[str] = ("pooled", "hidden"),
        inputs: Sequence[str] = ("input_ids",),
        width: int = WIDTH,
    ) -> None:
        self.width = width
        self.graph = Graph(
            inputs=tuple(TensorSpec(name=name, dtype="int64", dims=("T",)) for name in inputs),
            outputs=tuple(
                TensorSpec(
                    name=name, dtype="float32", dims=("T" if name in PER_TOKEN else "B", width)
                )
                for name in outputs
            ),
        )
        self.limits = Limits(max_tokens=max_tokens, max_sequences=max_sequences)
        self.batches: list[tuple[tuple[int, ...], ...]] = []
        self.num_stored: list[int] = []
        self.team_sizes: list[int | None] = []
        self.key_counts: list[tuple[int, ...]] = []
        self.outputs: list[frozenset[str]] = []
        self.failing_ids: set[int] = set()
        self.non_finite_ids: set[int] = set()
        self.poison: Callable[[], None] = lambda: None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.is_closed = False
        self.owners: set[int] = set()
        self.max_running = 1
        self._num_running = 0
        self._lock = threading.Lock()

    def run(
        self, batch: Batch, outputs: frozenset[str], *, num_threads: int | None = None
    ) -> EngineOutput:
        assert not self.is_closed, "run after close"
        with self._lock:
            self._num_running += 1
            assert self._num_running <= self.max_running, "too many calls at a time"
        self.team_sizes.append(num_threads)
        try:
            return self._run(batch, outputs)
        finally:
            with self._lock:
                self._num_running -= 1

    def release_threads(self) -> None:
        self.owners.discard(threading.get_ident())

    def close(self) -> None:
        assert self._num_running == 0, "closed under a running call"
        assert not self.is_closed, "closed twice"
        self.is_closed = True

    def _run(self, batch: Batch, outputs: frozenset[str]) -> EngineOutput:
        sequences = split(batch)
        self.owners.add(threading.get_ident())
        self.batches.append(sequences)
        self.num_stored.append(batch.num_stored_tokens)
        self.key_counts.append(tuple(batch.key_counts.tolist()))
        self.outputs.append(outputs)
        self.entered.set()
        assert self.gate.wait(DEADLINE_S), "the test never opened the gate"
        self.poison()
        ids = {token for sequence in sequences for token in sequence}
        if ids & self.failing_ids:
            raise EngineError("out of memory")
        tensors = {name: self._output(name, sequences) for name in outputs}
        return EngineOutput(tensors=tensors)

    def _output(self, name: str, sequences: Iterable[Sequence[int]]) -> NDArray[np.float32]:
        make = hidden if name in PER_TOKEN else pooled
        parts = [self._spoil(make(ids)[..., : self.width], ids) for ids in sequences]
        return np.concatenate(parts) if name in PER_TOKEN else np.stack(parts)

    def _spoil(self, values: NDArray[np.float32], ids: Sequence[int]) -> NDArray[np.float32]:
        if self.non_finite_ids & set(ids):
            values[..., -1] = np.nan
        return values


def split(batch: Batch) -> tuple[tuple[int, ...], ...]:
    """Ids of each sequence of a batch."""
    bounds = batch.cu_seqlens.tolist()
    ids = batch.input_ids[batch.rows].tolist()
    return tuple(tuple(ids[a:b]) for a, b in itertools.pairwise(bounds))


def hidden(ids: Sequence[int]) -> NDArray[np.float32]:
    """(S, WIDTH): what the fake model gives for each token."""
    tokens = np.asarray(ids, dtype=np.float64)[:, np.newaxis]
    return np.sin(tokens * np.arange(1, WIDTH + 1)).astype(np.float32)


def pooled(ids: Sequence[int]) -> NDArray[np.float32]:
    """(WIDTH,): what the fake model gives for a sequence; order matters."""
    weights = np.arange(1, len(ids) + 1, dtype=np.float64)[:, np.newaxis]
    mean: NDArray[np.float64] = (hidden(ids) * weights).sum(axis=0) / len(ids)
    return mean.astype(np.float32)
