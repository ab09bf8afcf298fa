"""Several artifacts in one process: beside each other, one after another, and from other builds.

Libraries stay in a process for good, so each case has a process of its own.
"""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from infinity_v3.artifacts.store import open_artifact
from tampering import copy_artifact, replace_file
from tiny_artifacts import (
    AVX2_TARGET,
    FLOAT32_TARGET,
    TinyArtifact,
)

SUPPORT = Path(__file__).parents[1] / "support"
NUM_SWAPS = 20
MAX_GROWTH_MB = 10.0

BESIDE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from pathlib import Path
from engine_calls import opened_engine

cases = json.loads(sys.argv[2])
texts = [[5, 6, 7], [8], list(range(5, 36))]
alone = []
for path, target in cases:
    with opened_engine(Path(path), target) as opened:
        alone.append(opened.run(texts)["pooled"])
with opened_engine(Path(cases[0][0]), cases[0][1]) as a:
    with opened_engine(Path(cases[1][0]), cases[1][1]) as b:
        for _ in range(3):
            for opened, expected in zip((a, b), alone):
                assert np.array_equal(opened.run(texts)["pooled"], expected)
        words = Path("/proc/self/maps").read_text().split()
print(json.dumps(sorted({word.rpartition("/")[2] for word in words if "libinfinity-" in word})))
"""

SWAPS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from pathlib import Path
from engine_calls import opened_engine

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

cases, num_swaps = json.loads(sys.argv[2]), int(sys.argv[3])
texts = [[5, 6, 7], list(range(5, 30))]
expected, marks = {}, []
for swap in range(num_swaps):
    path, target = cases[swap % len(cases)]
    with opened_engine(Path(path), target) as opened:
        found = opened.run(texts)["pooled"]
    assert np.array_equal(expected.setdefault(path, found), found), path
    marks.append(resident_mb())
descriptors = len(list(Path("/proc/self/fd").iterdir()))
print(json.dumps({"marks": marks, "descriptors": descriptors}))
"""

LOAD_BOTH = """
import shutil, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from engine_calls import open_engine
from infinity_v3.runtime.engine import EngineLoadError

first = open_engine(Path(sys.argv[2]))
expected = first.run([[5, 6, 7]])["pooled"].tolist()
if sys.argv[4:]:
    shutil.rmtree(sys.argv[2])
try:
    open_engine(Path(sys.argv[3]))
except EngineLoadError as error:
    print("refused:", error)
else:
    print("loaded")
assert first.run([[5, 6, 7]])["pooled"].tolist() == expected
"""

HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from engine_calls import opened_engine

with opened_engine(Path(sys.argv[2])) as opened:
    opened.run([[5, 6, 7]])
    print("ready", flush=True)
    sys.stdin.read()
"""


def run_script(script: str, *arguments: str | Path) -> str:
    """Run in a fresh process; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, SUPPORT, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kernel_file(tiny: TinyArtifact, target_name: str) -> str:
    """Path of a target's kernel library inside its artifact."""
    targets = {target.name: target for target in open_artifact(tiny.artifact).manifest.targets}
    target = targets[target_name]
    (kernels,) = (entry.path for entry in target.files if entry.path != target.entry)
    return kernels


@pytest.mark.skipif(FLOAT32_TARGET == AVX2_TARGET, reason="this host runs one float32 target only")
def test_two_kernel_builds_live_in_one_process(bert: TinyArtifact, roberta: TinyArtifact) -> None:
    cases = [(str(bert.artifact), AVX2_TARGET), (str(roberta.artifact), FLOAT32_TARGET)]
    names = [kernel_file(bert, AVX2_TARGET), kernel_file(roberta, FLOAT32_TARGET)]
    loaded = json.loads(run_script(BESIDE, json.dumps(cases)))
    assert loaded == sorted(Path(name).name for name in names)
    assert len(set(loaded)) == 2


def test_two_artifacts_of_one_kernel_build_share_it(
    roberta: TinyArtifact, shared: TinyArtifact
) -> None:
    cases = [(str(roberta.artifact), FLOAT32_TARGET), (str(shared.artifact), FLOAT32_TARGET)]
    loaded = json.loads(run_script(BESIDE, json.dumps(cases)))
    assert loaded == [Path(kernel_file(roberta, FLOAT32_TARGET)).name]


def test_twenty_swaps_do_not_grow(
    bert: TinyArtifact, roberta: TinyArtifact, shared: TinyArtifact
) -> None:
    cases = [
        (str(bert.artifact), AVX2_TARGET),
        (str(roberta.artifact), FLOAT32_TARGET),
        (str(shared.artifact), FLOAT32_TARGET),
    ]
    found = json.loads(run_script(SWAPS, json.dumps(cases), str(NUM_SWAPS)))
    print(found)  # noqa: T201  the figures, for whoever runs with -s
    # By then each of them was loaded twice.
    warm, *later = found["marks"][2 * len(cases) - 1 :]
    assert max(later) - warm < MAX_GROWTH_MB, found
    assert found["descriptors"] < 16, found


def test_a_second_library_under_one_soname_is_refused(small: TinyArtifact, tmp_path: Path) -> None:
    kernels = kernel_file(small, FLOAT32_TARGET)
    other_bytes = copy_artifact(small.artifact, tmp_path / "other")
    # One byte more at the end: a loader would never notice.
    replace_file(other_bytes, kernels, (small.artifact / kernels).read_bytes() + b"\0")
    printed = run_script(LOAD_BOTH, small.artifact, other_bytes)
    assert printed.startswith(f"refused: {Path(kernels).name}: another library of this name and")
    # By itself it is as good as the first.
    same_bytes = copy_artifact(small.artifact, tmp_path / "same")
    assert run_script(LOAD_BOTH, small.artifact, same_bytes) == "loaded\n"
    assert run_script(LOAD_BOTH, other_bytes, other_bytes) == "loaded\n"


def test_a_library_whose_file_is_gone_still_counts(small: TinyArtifact, tmp_path: Path) -> None:
    kernels = kernel_file(small, FLOAT32_TARGET)
    other_code = copy_artifact(small.artifact, tmp_path / "other")
    content = bytearray((small.artifact / kernels).read_bytes())
    content[middle_of_code(content)] ^= 0xFF
    replace_file(other_code, kernels, bytes(content))
    for second, printed in ((small.artifact, "loaded"), (other_code, "refused")):
        first = copy_artifact(small.artifact, tmp_path / "first")
        assert run_script(LOAD_BOTH, first, second, "remove first").startswith(printed)
        assert not first.exists()


def middle_of_code(library: bytes | bytearray) -> int:
    """Offset in the middle of the executable segment of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", library, 32)
    entry_bytes, count = struct.unpack_from("<HH", library, 54)
    for position in range(table, table + count * entry_bytes, entry_bytes):
        kind, flags, offset, _, _, num_bytes = struct.unpack_from("<IIQQQQ", library, position)
        if kind == 1 and flags & 1:
            return int(offset + num_bytes // 2)
    raise AssertionError("no executable segment")


def test_two_processes_map_one_file_of_shared_weights(shared: TinyArtifact) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, SUPPORT, shared.artifact],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for holder in holders:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
        weights = shared.artifact / "weights" / "float32.safetensors"
        inode = weights.stat().st_ino
        for holder in holders:
            mapping = weight_mapping(holder.pid, str(weights))
            assert mapping["inode"] == inode
            assert mapping["Rss"] > 0
            assert mapping["Private_Dirty"] == 0, "the process has written to its weights"
    finally:
        for holder in holders:
            holder.communicate("", timeout=30)


def weight_mapping(pid: int, path: str) -> dict[str, int]:
    """Inode of a mapping and its figures in KiB, as the kernel counts them."""
    figures: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            is_found = line.endswith(path)
            if is_found:
                figures["inode"] = int(words[4])
        elif figures and is_found and words[-1] == "kB":
            key = words[0].removesuffix(":")
            figures[key] = figures.get(key, 0) + int(words[1])
    assert figures, f"{path} is not mapped"
    return figures
