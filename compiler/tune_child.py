"""The process in which the engine of one target is timed, with one number of threads.

Each line on standard input is a JSON list of a batch size in tokens and how many seconds to run it
for; the answer is one of the seconds of each call. Imports neither torch nor transformers.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from infinity_v3.artifacts.store import open_artifact
from infinity_v3.compiler.tuning import TEXT_TOKENS
from infinity_v3.runtime.batch import Batch, EncodedText, pack
from infinity_v3.runtime.engine import Engine, EngineSettings, load_engine

MIN_CALLS, MAX_CALLS = 3, 50


def make_batch(num_tokens: int, *, vocab_size: int, longest: int, position_offset: int) -> Batch:
    """Pack texts of random ids, the last one shorter where they don't fit evenly."""
    generator = np.random.default_rng(num_tokens)
    length = min(TEXT_TOKENS, longest)
    lengths = [length] * (num_tokens // length) + [num_tokens % length] * bool(num_tokens % length)
    texts = [
        EncodedText(input_ids=generator.integers(0, vocab_size, size, dtype=np.int64))
        for size in lengths
    ]
    return pack(texts, position_offset=position_offset)


def time_calls(
    engine: Engine, batch: Batch, outputs: frozenset[str], budget_s: float
) -> list[float]:
    """Run a batch over and over for so long; the first call is not counted."""
    engine.run(batch, outputs)
    begun_s, seconds = time.perf_counter(), list[float]()
    while len(seconds) < MAX_CALLS:
        started_s = time.perf_counter()
        if len(seconds) >= MIN_CALLS and started_s - begun_s > budget_s:
            break
        engine.run(batch, outputs)
        seconds.append(time.perf_counter() - started_s)
    return seconds


def serve(path: Path, target_name: str, output: str, num_threads: int, answers: TextIO) -> None:
    """Answer requests until standard input ends."""
    # Who else may write to it was decided before this process was started.
    artifact = open_artifact(path, allow_shared=True)
    manifest = artifact.manifest
    target = next(target for target in manifest.targets if target.name == target_name)
    engine = load_engine(artifact, target, EngineSettings(num_threads=num_threads))
    for line in sys.stdin:
        num_tokens, budget_s = json.loads(line)
        batch = make_batch(
            num_tokens,
            vocab_size=manifest.model.vocab_size,
            longest=manifest.model.max_input_tokens,
            position_offset=manifest.model.position_offset,
        )
        seconds = time_calls(engine, batch, frozenset({output}), budget_s)
        answers.write(json.dumps(seconds) + "\n")
        answers.flush()
    engine.close()


def main(arguments: Sequence[str]) -> None:
    """Entry of the child: ARTIFACT TARGET OUTPUT THREADS."""
    path, target_name, output, num_threads = arguments
    # What libraries print must not get between two answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Path(path), target_name, output, int(num_threads), answers)


if __name__ == "__main__":
    main(sys.argv[1:])
