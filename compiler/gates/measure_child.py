"""The process in which one artifact is timed as a server would run it on this host.

Each line on standard input is a JSON list of a kind of work and how many seconds to do it for; the
answer is a JSON list of tokens per call and the seconds of each call. Imports neither torch nor
transformers.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from infinity_v3.artifacts.store import open_artifact
from infinity_v3.compiler.gates.work import BATCH, SINGLE
from infinity_v3.compiler.tune_child import make_batch
from infinity_v3.compiler.tuning import TEXT_TOKENS
from infinity_v3.runtime.batch import Batch, pack
from infinity_v3.runtime.loading import LoadedModel, LoadSettings, load_model
from infinity_v3.runtime.truncation import Truncation

TEXT = "the quick brown fox jumps over the lazy dog"
MIN_CALLS, MAX_CALLS = 1, 200


def encode_single(model: LoadedModel) -> Batch:
    """Tokenise and pack a short text, as for a request with one input."""
    cut = Truncation(max_tokens=model.info.max_input_tokens)
    return pack(model.tokenizer.encode([TEXT], cut), position_offset=model.position_offset)


def full_batch(model: LoadedModel) -> Batch:
    """A batch of passages, filled as far as a server fills one."""
    info = model.info
    length = min(TEXT_TOKENS, info.max_input_tokens)
    return make_batch(
        min(info.fill_tokens, info.max_batch_items * length),
        vocab_size=info.vocab_size,
        longest=info.max_input_tokens,
        position_offset=model.position_offset,
    )


def time_calls(call: Callable[[], object], budget_s: float) -> list[float]:
    """Call over and over for so long; the first call is not counted."""
    call()
    begun_s, seconds = time.perf_counter(), list[float]()
    while len(seconds) < MAX_CALLS:
        started_s = time.perf_counter()
        if len(seconds) >= MIN_CALLS and started_s - begun_s > budget_s:
            break
        call()
        seconds.append(time.perf_counter() - started_s)
    return seconds


def serve(path: Path, target_name: str, answers: TextIO) -> None:
    """Answer requests until standard input ends."""
    # Who else may write to it was decided before this process was started.
    artifact = open_artifact(path, allow_shared=True)
    target = next(target for target in artifact.manifest.targets if target.name == target_name)
    model = load_model(artifact, target, LoadSettings())
    outputs, batch = frozenset({model.main_output}), full_batch(model)
    works: dict[str, tuple[int, Callable[[], object]]] = {
        SINGLE: (
            encode_single(model).num_tokens,
            lambda: model.engine.run(encode_single(model), outputs),
        ),
        BATCH: (batch.num_tokens, lambda: model.engine.run(batch, outputs)),
    }
    for line in sys.stdin:
        kind, budget_s = json.loads(line)
        num_tokens, call = works[kind]
        answers.write(json.dumps([num_tokens, time_calls(call, budget_s)]) + "\n")
        answers.flush()
    model.engine.close()


def main(arguments: Sequence[str]) -> None:
    """Entry of the child: ARTIFACT TARGET."""
    path, target_name = arguments
    # What libraries print must not get between two answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Path(path), target_name, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
