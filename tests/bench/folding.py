"""Measures what sharing prefixes gains: one query with many documents, folded and not, in turn.

Both go through the runtime as the server starts it, from texts to vectors or scores, in one process
on one engine; only one of them is told that the engine can fold. See docs/performance.md.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.target import DtypeChoice, TargetRequest, select_target
from infinity_v3.runtime.batch import ROWS_INPUT, Batch
from infinity_v3.runtime.engine import Engine, EngineOutput
from infinity_v3.runtime.fold import find_fold
from infinity_v3.runtime.loading import LoadedModel, LoadSettings, load_model
from infinity_v3.runtime.observer import SilentObserver
from infinity_v3.runtime.requests import EmbedRequest, RankRequest
from infinity_v3.runtime.service import InferenceService
from infinity_v3.runtime.settings import ServiceSettings
from machine import choose_cpus, describe_machine
from workloads import PROSE

Numbers = NDArray[np.float64]
Ask = Callable[[], Awaitable[Numbers]]

REST_S = 0.02
"""Between turns, so that the threads of the one before have stopped spinning."""
FOLD_RUNS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What is asked for."""

    query: str
    documents: tuple[str, ...]


class Lent:
    """An engine that more than one service uses in turn; who lends it closes it."""

    def __init__(self, engine: Engine, *, can_fold: bool) -> None:
        self._engine = engine
        self.limits = engine.limits
        inputs = tuple(spec for spec in engine.graph.inputs if can_fold or spec.name != ROWS_INPUT)
        self.graph = replace(engine.graph, inputs=inputs)
        self.batches: list[Batch] = []

    def run(
        self, batch: Batch, outputs: frozenset[str], *, num_threads: int | None = None
    ) -> EngineOutput:
        self.batches.append(batch)
        return self._engine.run(batch, outputs, num_threads=num_threads)

    def release_threads(self) -> None:
        self._engine.release_threads()

    def close(self) -> None:
        """The lender does it."""


class Side:
    """One of the two services, and what its requests took."""

    def __init__(self, model: LoadedModel, texts: Texts, *, can_fold: bool) -> None:
        self.engine = Lent(model.engine, can_fold=can_fold)
        self.seconds: list[float] = []
        self._service = InferenceService(
            replace(model, engine=self.engine), ServiceSettings(), SilentObserver()
        )
        self._ask = _make_ask(self._service, texts)

    def start(self) -> None:
        self._service.start()

    def close(self) -> None:
        self._service.close()

    async def ask(self) -> Numbers:
        """Give the request's numbers; its time is kept."""
        self.engine.batches.clear()
        started_s = time.perf_counter()
        numbers = await self._ask()
        self.seconds.append(time.perf_counter() - started_s)
        await asyncio.sleep(REST_S)
        return numbers


def main() -> None:
    options = _parse()
    os.sched_setaffinity(0, choose_cpus(options.threads))
    model = _load(options)
    try:
        figures = asyncio.run(measure(model, _make_texts(options), options.rounds))
    finally:
        model.engine.close()
    machine = describe_machine(threads=options.threads, rounds=options.rounds)
    if options.json:
        print(json.dumps({"folding": figures, "machine": machine}))
        return
    for name, value in {**machine, **figures}.items():
        print(f"{name}: {json.dumps(value)}")


async def measure(model: LoadedModel, texts: Texts, num_rounds: int) -> Mapping[str, object]:
    """Let both sides answer the same request in turn.

    Raises:
        SystemExit: nothing was folded.
    """
    folded, plain = (Side(model, texts, can_fold=can_fold) for can_fold in (True, False))
    with ExitStack() as stack:
        for side in (folded, plain):
            side.start()
            stack.callback(side.close)
        difference = float(np.abs(await folded.ask() - await plain.ask()).max())
        folded.seconds.clear()
        plain.seconds.clear()
        for number in range(num_rounds):
            for side in (folded, plain)[:: 1 if number % 2 else -1]:
                await side.ask()
    num_tokens = sum(batch.num_tokens for batch in folded.engine.batches)
    num_stored = sum(batch.num_stored_tokens for batch in folded.engine.batches)
    if num_tokens == num_stored:
        raise SystemExit("nothing was folded: expected an artifact of a causal model")
    folded_s, plain_s = (statistics.median(side.seconds) for side in (folded, plain))
    return {
        "target": model.info.target_name,
        "documents": len(texts.documents),
        "batches": len(folded.engine.batches),
        "tokens": num_tokens,
        "folded_tokens": num_tokens - num_stored,
        "largest_difference": difference,
        "plain_ms": round(plain_s * 1e3, 2),
        "folded_ms": round(folded_s * 1e3, 2),
        "gain": round(plain_s / folded_s, 3),
        "finding_us": _time_finding(plain.engine.batches),
    }


def _make_ask(service: InferenceService, texts: Texts) -> Ask:
    if service.info.kind is Kind.RERANKER:

        async def rank() -> Numbers:
            ranked = await service.rank(RankRequest(query=texts.query, documents=texts.documents))
            return np.array(ranked.scores)

        return rank

    async def embed() -> Numbers:
        items = tuple(f"{texts.query} {document}" for document in texts.documents)
        embedded = await service.embed(EmbedRequest(items=items, is_list=True))
        return np.stack(embedded.rows).astype(np.float64)

    return embed


def _time_finding(batches: Sequence[Batch]) -> float:
    """Median microseconds of looking for what a batch shares, over all batches."""
    seconds: list[float] = []
    for batch in batches:
        bounds = itertools.pairwise(batch.cu_seqlens.tolist())
        sequences = [batch.input_ids[start:stop] for start, stop in bounds]
        for _ in range(FOLD_RUNS):
            started_s = time.perf_counter()
            find_fold(sequences)
            seconds.append(time.perf_counter() - started_s)
    return round(statistics.median(seconds) * 1e6, 1)


def _make_texts(options: argparse.Namespace) -> Texts:
    """Stretches of English prose; each document begins somewhere else."""
    words = PROSE.read_text().split()
    count = options.document_words
    last = len(words) - count
    starts = [options.query_words + number * 31 % last for number in range(options.documents)]
    return Texts(
        query=" ".join(words[: options.query_words]),
        documents=tuple(" ".join(words[start : start + count]) for start in starts),
    )


def _load(options: argparse.Namespace) -> LoadedModel:
    artifact = open_artifact(options.artifact)
    request = TargetRequest(dtype=DtypeChoice(options.dtype))
    target = select_target(artifact.manifest, detect_host(), request).target
    return load_model(artifact, target, LoadSettings(num_threads=options.threads))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--artifact", type=Path, required=True, help="of a causal model")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side")
    parser.add_argument("--documents", type=int, default=40, help="in one request")
    parser.add_argument("--query-words", type=int, default=50, help="words that all share")
    parser.add_argument("--document-words", type=int, default=35, help="words of each document")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the engine"
    )
    parser.add_argument("--dtype", default="auto", help="auto, float32 or bfloat16")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    for name in ("rounds", "documents", "query_words", "document_words", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected 1 or more")
    return options


if __name__ == "__main__":
    main()
