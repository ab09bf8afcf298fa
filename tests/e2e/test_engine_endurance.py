"""An engine that is called for days: nothing leaks, nothing is shared that should not be.

Native memory is seen from outside only, so each measurement has a process of its own.
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from engine_calls import open_engine, opened_engine, random_ids
from infinity_v3.runtime.engine import EngineError
from tiny_artifacts import (
    FLOAT32_TARGET,
    HOST_TARGETS,
    TinyArtifact,
)

NUM_CALLS = 100_000
NUM_MIXED_CALLS = 10_000
NUM_REFUSED = 3_000
MAX_GROWTH_MB = 10.0
MEASURE_TIMEOUT_S = 300

CALLS = """
import json, sys, time
from pathlib import Path
import numpy as np
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.runtime.batch import EncodedText, pack
from infinity_v3.runtime.engine import EngineError, EngineSettings, load_engine

def resident_mb():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6

def random_batch(rng, vocab_size, max_length):
    lengths = rng.integers(1, max_length, rng.integers(1, 5))
    ids = [rng.integers(0, vocab_size, length) for length in lengths]
    return pack([EncodedText(input_ids=row) for row in ids], position_offset=0)

def bad_batch(rng, vocab_size, max_tokens, limits):
    kind = int(rng.integers(0, 3))
    good = [EncodedText(input_ids=rng.integers(0, vocab_size, 8))]
    if kind == 0:
        good.append(EncodedText(input_ids=np.full(3, vocab_size, dtype=np.int64)))
    if kind == 1:
        good.append(EncodedText(input_ids=np.zeros(max_tokens + 1, dtype=np.int64)))
    if kind == 2:
        good = good * (limits.max_sequences + 1)
    return pack(good, position_offset=0)

path, name = sys.argv[1:3]
num_calls, num_refused, max_length = map(int, sys.argv[3:])
artifact = open_artifact(Path(path))
target = next(target for target in artifact.manifest.targets if target.name == name)
engine = load_engine(artifact, target, EngineSettings(num_threads=1))
rng, vocab_size = np.random.default_rng(1), artifact.manifest.model.vocab_size
max_tokens = artifact.manifest.model.max_input_tokens
outputs = frozenset({"pooled", "hidden"})
batches = [random_batch(rng, vocab_size, max_length) for _ in range(512)]
bad = [bad_batch(rng, vocab_size, max_tokens, engine.limits) for _ in range(16)]
marks, begin = [], time.monotonic()
for call in range(num_calls):
    engine.run(batches[call % 512], outputs)
    if (call + 1) % (num_calls // 10) == 0:
        marks.append(resident_mb())
refused = 0
for call in range(num_refused):
    try:
        engine.run(bad[call % 16], outputs)
    except EngineError:
        refused += 1
after_refusals = resident_mb()
still = engine.run(batches[0], outputs).tensors["pooled"]
engine.close()
print(json.dumps({
    "marks": marks, "refused": refused, "after_refusals": after_refusals,
    "seconds": time.monotonic() - begin, "is_finite": bool(np.isfinite(still).all()),
}))
"""


@pytest.mark.slow
def test_a_hundred_thousand_calls_leak_nothing(small: TinyArtifact) -> None:
    assert_leaks_nothing(small, FLOAT32_TARGET, NUM_CALLS, max_length=12)


@pytest.mark.slow
@pytest.mark.parametrize("name", [target.name for target in HOST_TARGETS])
def test_calls_of_very_different_sizes_leak_nothing(bert: TinyArtifact, name: str) -> None:
    assert_leaks_nothing(bert, name, NUM_MIXED_CALLS, max_length=200)


def assert_leaks_nothing(
    tiny: TinyArtifact, target: str, num_calls: int, *, max_length: int
) -> None:
    """Random batches, then refused ones, and the process stays as large as after a tenth."""
    counts = (str(num_calls), str(NUM_REFUSED), str(max_length))
    done = subprocess.run(
        [sys.executable, "-c", CALLS, tiny.artifact, target, *counts],
        capture_output=True,
        text=True,
        timeout=MEASURE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(target, found)  # noqa: T201  the figures, for whoever runs with -s
    warm, *later = found["marks"]
    assert max(later) - warm < MAX_GROWTH_MB, found
    assert found["refused"] == NUM_REFUSED
    assert found["after_refusals"] - later[-1] < MAX_GROWTH_MB, found
    assert found["is_finite"]


def test_outputs_belong_to_their_receiver(small: TinyArtifact) -> None:
    rng = np.random.default_rng(5)
    with opened_engine(small.artifact) as opened:
        vocab_size = opened.artifact.manifest.model.vocab_size
        texts = [random_ids(rng, rng.integers(1, 20, 3).tolist(), vocab_size) for _ in range(40)]
        held = [opened.run(batch) for batch in texts]
        kept = [{name: array.copy() for name, array in outputs.items()} for outputs in held]
        for outputs in held[::2]:
            for array in outputs.values():
                assert array.flags.writeable
                array[...] = np.nan
        again = [opened.run(batch) for batch in texts]
    for position, copies in enumerate(kept):
        for name, expected in copies.items():
            assert np.array_equal(again[position][name], expected), "a receiver's write came back"
            if position % 2:
                assert np.array_equal(held[position][name], expected), "a later call wrote into it"


def test_outputs_outlive_the_engine(small: TinyArtifact) -> None:
    opened = open_engine(small.artifact)
    held = opened.run([[5, 6, 7], [8]])
    kept = {name: array.copy() for name, array in held.items()}
    opened.engine.close()
    for name, expected in kept.items():
        assert np.array_equal(held[name], expected)


def test_inputs_are_not_changed(small: TinyArtifact) -> None:
    ids = np.arange(5, 25, dtype=np.int64)
    with opened_engine(small.artifact) as opened:
        opened.run([ids, ids[:3]])
    assert np.array_equal(ids, np.arange(5, 25))


def test_a_refused_call_leaves_the_engine_as_it_was(small: TinyArtifact) -> None:
    with opened_engine(small.artifact) as opened:
        expected = opened.run([[5, 6, 7]])
        vocab_size = opened.artifact.manifest.model.vocab_size
        for texts in ([[vocab_size]], [[-1]], [[5] * 33]):
            with pytest.raises(EngineError, match="refused before the engine ran"):
                opened.run(texts)
            for name, array in opened.run([[5, 6, 7]]).items():
                assert np.array_equal(array, expected[name])


def test_other_threads_run_while_the_engine_does(roberta: TinyArtifact) -> None:
    with opened_engine(roberta.artifact, FLOAT32_TARGET, num_threads=1) as opened:
        vocab_size = opened.artifact.manifest.model.vocab_size
        texts = random_ids(np.random.default_rng(2), [512] * 60, vocab_size)
        opened.run(texts[:2])
        worker = threading.Thread(target=opened.run, args=(texts,))
        num_ticks, begin = 0, time.monotonic()
        worker.start()
        while worker.is_alive():
            time.sleep(0.001)
            num_ticks += 1
        seconds = time.monotonic() - begin
        worker.join()
    # With the lock held, one tick passes before the call and one after it.
    assert seconds > 0.05, f"{seconds:.3f} s is too short to see anything"
    assert num_ticks >= 10, f"{num_ticks} ticks in {seconds:.3f} s"


def test_engines_run_in_several_threads_at_once(small: TinyArtifact) -> None:
    rng = np.random.default_rng(6)
    engines = [open_engine(small.artifact) for _ in range(3)]
    vocab_size = engines[0].artifact.manifest.model.vocab_size
    texts = [random_ids(rng, rng.integers(1, 20, 4).tolist(), vocab_size) for _ in range(50)]
    expected = [engines[0].run(batch)["pooled"] for batch in texts]
    failures: list[int] = []

    def work(number: int) -> None:
        for position, batch in enumerate(texts * 4):
            found = engines[number].run(batch)["pooled"]
            if np.abs(found - expected[position % len(texts)]).max() > 1e-6:
                failures.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(engines))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for opened in engines:
        opened.engine.close()
    assert failures == []


def test_an_engine_keeps_to_its_number_of_threads(roberta: TinyArtifact) -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from engine_calls import opened_engine\n"
        "count = lambda: len(list(Path('/proc/self/task').iterdir()))\n"
        "for num_threads in (1, 2):\n"
        "    with opened_engine(Path(sys.argv[1]), num_threads=num_threads) as opened:\n"
        "        before = count()\n"
        "        opened.run([list(range(5, 200))] * 40)\n"
        "        print(count() - before)\n"
    )
    support = Path(__file__).parents[1] / "support"
    command = [sys.executable, "-c", script, str(roberta.artifact), str(support)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [int(line) for line in done.stdout.split()] == [0, 1]
