"""What is in the libraries of a target, instruction by instruction, and that it is enough.

A host of the lowest class is imitated by disassembly and by hiding wider instructions from torch.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine_calls import Floats, assert_near, random_ids
from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.store import open_artifact
from reference_library import load_reference_model
from tiny_artifacts import AVX2_TARGET, HOST_TARGETS, TinyArtifact

OBJDUMP = shutil.which("objdump")
needs_objdump = pytest.mark.skipif(
    OBJDUMP is None, reason="objdump is not installed (package binutils): nothing was disassembled"
)
AVX512 = re.compile(r"%zmm\d|%k[0-7]\b|%[xy]mm(?:1[6-9]|2\d|3[01])\b")
"""Wide registers, mask registers, and the upper sixteen registers, which only AVX-512 can name."""
AMX = re.compile(r"%tmm\d|\bldtilecfg\b|\btilerelease\b|\btdp\w+\b")
LENGTHS = (1, 2, 3, 40, 129, 512, 17)

NARROW_CPU = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
RUN = """
import sys
from pathlib import Path
import numpy as np
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.runtime.batch import EncodedText, pack
from infinity_v3.runtime.engine import EngineSettings, load_engine

path, name, given, found = sys.argv[1:]
artifact = open_artifact(Path(path))
target = next(target for target in artifact.manifest.targets if target.name == name)
engine = load_engine(artifact, target, EngineSettings(num_threads=2))
with np.load(given) as archive:
    texts = [EncodedText(input_ids=archive[key]) for key in archive.files]
output = engine.run(pack(texts, position_offset=0), frozenset({"pooled"}))
engine.close()
assert not {"torch", "transformers"} & set(sys.modules)
np.save(found, output.tensors["pooled"])
"""


def libraries(tiny: TinyArtifact, target: str) -> list[Path]:
    found = sorted((tiny.artifact / "targets" / target).glob("*.so"))
    assert len(found) == 2, "expected the model and the kernel library"
    return found


def disassembled(library: Path) -> Iterator[str]:
    """Give the instructions of a library, one a line."""
    command = [str(OBJDUMP), "-d", "--no-show-raw-insn", str(library)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from process.stdout
    assert process.returncode == 0


def offending(library: Path, *patterns: re.Pattern[str]) -> list[str]:
    """Give up to five lines of a library that a pattern matches."""
    lines = [line for line in disassembled(library) if any(p.search(line) for p in patterns)]
    return [line.strip() for line in lines[:5]]


@needs_objdump
def test_the_avx2_target_holds_nothing_wider(bert: TinyArtifact) -> None:
    for library in libraries(bert, AVX2_TARGET):
        text = "".join(disassembled(library))
        assert "%ymm" in text, f"{library.name}: nothing was disassembled"
        assert "vfmadd" in text or library.name == "model.so"
        assert offending(library, AVX512, AMX) == [], library.name


@needs_objdump
@pytest.mark.parametrize("name", [t.name for t in HOST_TARGETS if "avx512" in t.name])
def test_the_avx512_targets_hold_no_tiles(bert: TinyArtifact, name: str) -> None:
    for library in libraries(bert, name):
        assert offending(library, AMX) == [], library.name
        # Were this empty, the search of the narrow target would prove nothing.
        assert offending(library, AVX512) != [], library.name


@needs_objdump
def test_no_library_asks_for_an_executable_stack(bert: TinyArtifact) -> None:
    # glibc 2.41 and later, and hosts that forbid memory to be written and executed, refuse those.
    for library in libraries(bert, AVX2_TARGET):
        command = [str(OBJDUMP), "-p", str(library)]
        headers = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert re.search(r"STACK off.*\n.* flags rw-$", headers, re.MULTILINE), library.name


def test_a_target_asks_for_all_that_its_code_needs(bert: TinyArtifact) -> None:
    targets = {target.name: target for target in open_artifact(bert.artifact).manifest.targets}
    assert set(targets) == {target.name for target in HOST_TARGETS}
    narrow = set(targets[AVX2_TARGET].requires.isa)
    assert {"avx2", "fma", "f16c", "bmi1", "bmi2", "movbe"} <= narrow
    assert not [flag for flag in narrow if flag.startswith(("avx512", "amx"))]
    for name, target in targets.items():
        assert narrow <= set(target.requires.isa) <= detect_host().isa
        assert not [flag for flag in target.requires.isa if flag.startswith("amx")] or "amx" in name


def test_the_avx2_target_runs_where_wider_instructions_are_hidden(
    bert: TinyArtifact, tmp_path: Path
) -> None:
    vocab_size = open_artifact(bert.artifact).manifest.model.vocab_size
    texts = random_ids(np.random.default_rng(3), LENGTHS, vocab_size)
    given, found = tmp_path / "given.npz", tmp_path / "found.npy"
    np.savez(given, *texts)
    done = subprocess.run(
        [sys.executable, "-c", RUN, bert.artifact, AVX2_TARGET, given, found],
        env=os.environ | NARROW_CPU,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = reference_vectors(bert.checkpoint, texts)
    assert_near(np.load(found), expected, atol=2e-5, what="avx2 with wider instructions hidden")


def reference_vectors(checkpoint: Path, texts: Sequence[NDArray[np.int64]]) -> Floats:
    model = load_reference_model(checkpoint)
    with torch.inference_mode():
        rows = [model(torch.from_numpy(ids)[None]).last_hidden_state[0].mean(0) for ids in texts]
    return np.stack([row.numpy() for row in rows])
