"""A fake engine whose numbers a test writes down, behind a real service on a real socket."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fake_engine import FakeEngine
from infinity_v3.artifacts.manifest import Heads, Kind, ScoreActivation
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.outputs import HIDDEN_OUTPUT, MAIN_OUTPUTS
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.settings import ServiceSettings
from loopback import Answer, Client, running_model
from tiny_models import fake_model

Script = Mapping[int, Sequence[float]]
"""Token id -> the row of every sequence that holds it."""


class ScriptedEngine(FakeEngine):
    """Gives the row of the first scripted id of a sequence, ones where there is none."""

    def __init__(
        self,
        script: Script,
        *,
        outputs: Sequence[str] = ("pooled", "hidden"),
        inputs: Sequence[str] = ("input_ids",),
        width: int = 8,
    ) -> None:
        super().__init__(outputs=outputs, inputs=inputs, width=width)
        self.script = script

    def _output(self, name: str, sequences: Iterable[Sequence[int]]) -> NDArray[np.float32]:
        if name == HIDDEN_OUTPUT:
            return super()._output(name, sequences)
        return np.stack([self._row(ids) for ids in sequences]).astype(np.float32)

    def _row(self, ids: Sequence[int]) -> NDArray[np.float64]:
        rows = [self.script[token] for token in ids if token in self.script]
        return np.array(rows[0] if rows else np.ones(self.width), dtype=np.float64)


def scoring_engine(script: Script, num_labels: int) -> ScriptedEngine:
    """An engine that gives logits."""
    return ScriptedEngine(script, outputs=(MAIN_OUTPUTS[Kind.CLASSIFIER],), width=num_labels)


RERANKER = Heads(labels=("LABEL_0",), activation=ScoreActivation.SIGMOID)
CLASSIFIER = Heads(labels=("bad", "so-so", "good"), activation=ScoreActivation.SOFTMAX)
MULTI_LABEL = Heads(
    labels=("joy", "anger", "neutral"),
    activation=ScoreActivation.SIGMOID,
    problem_type="multi_label_classification",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A server under test and the engine behind it.

    Attributes:
        pool: sends requests that have to wait.
    """

    client: Client
    engine: FakeEngine
    pool: ThreadPoolExecutor

    def send(self, path: str, body: object) -> "Future[Answer]":
        """Send a request from a thread of its own."""
        return self.pool.submit(self.client.post, path, body)

    def send_queued(self, path: str, body: object, *, num_queued: int) -> "Future[Answer]":
        """The same, and wait until so many items stand in the queue."""
        sent = self.send(path, body)
        self.client.wait_until(lambda: self.num_queued == num_queued)
        return sent

    def occupy(self, path: str, body: object) -> "Future[Answer]":
        """Close the engine's gate and send a request that runs into it."""
        self.engine.entered.clear()
        self.engine.gate.clear()
        sent = self.send(path, body)
        assert self.engine.entered.wait(10), "the engine was never called"
        return sent

    @property
    def num_queued(self) -> int:
        """Items that wait for the engine."""
        (model,) = self.client.context.models.all()
        return model.service.stats().num_queued_items


@contextmanager
def stage(
    engine: FakeEngine,
    *,
    kind: Kind = Kind.EMBEDDING,
    heads: Heads | None = None,
    prompts: PromptTable | None = None,
    settings: ServiceSettings | None = None,
) -> Iterator[Stage]:
    """A server over the engine; the gate is open again afterwards."""

    def make() -> LoadedModel:
        return fake_model(engine, kind=kind, heads=heads, prompts=prompts)

    with ThreadPoolExecutor(16) as pool, running_model(make, settings) as client:
        try:
            yield Stage(client=client, engine=engine, pool=pool)
        finally:
            engine.gate.set()
