"""Two builds of the same inputs on one host give the same artifact, whatever surrounds them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch._inductor import cpu_vec_isa

from compiled import COMPILE_TIMEOUT_S
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.backends import aoti
from infinity_v3.compiler.cpu_targets import CPU_TARGETS, CpuTarget
from tiny_artifacts import FLOAT32_TARGET, TinyArtifact


def digests(artifact: Artifact) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in artifact.manifest.files}


def compile_elsewhere(tiny: TinyArtifact, place: Path) -> Path:
    """Compile with another checkpoint folder, output, home, cache of kernels and hash seed."""
    checkpoint = place / "checkpoints" / tiny.checkpoint.name
    shutil.copytree(tiny.checkpoint, checkpoint)
    folders = {"TMPDIR": "t", "HOME": "home", "XDG_CACHE_HOME": "cache"}
    for folder in folders.values():
        (place / folder).mkdir()
    out = place / "deeply" / "nested" / "output"
    program = Path(sys.executable).with_name("infinity-compile")
    options = ("--out", out, "--target", FLOAT32_TARGET, "--label", "run=second")
    done = subprocess.run(
        [program, "model", checkpoint, *options],
        env=os.environ
        | {name: str(place / folder) for name, folder in folders.items()}
        | {"PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo"},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert list((place / "cache").rglob("libinfinity-kernels-*.so")), "the kernels were built anew"
    return out


@pytest.mark.slow
def test_the_same_inputs_give_the_same_artifact(small: TinyArtifact, tmp_path: Path) -> None:
    first = open_artifact(small.artifact)
    second = open_artifact(compile_elsewhere(small, tmp_path))
    one, two = digests(first), digests(second)
    differing = sorted(path for path in one | two if one.get(path) != two.get(path))
    assert differing == [], "files differ between two builds of the same inputs"
    assert second.artifact_id == first.artifact_id
    for path in sorted(second.path.rglob("*")):
        if path.is_file() and path.name != "build.json":
            assert str(tmp_path).encode() not in path.read_bytes(), path


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: target.name)
def test_extensions_of_a_build_come_from_its_target(target: CpuTarget) -> None:
    """Not from the host, and not from what the process built before."""
    with aoti._vector_isa(target.flags):
        (isa,) = cpu_vec_isa.valid_vec_isa_list()
        flags = isa.build_arch_flags().split()
    assert ("-mavx512bf16" in flags) == ("-mavx512bf16" in target.flags.kernel_flags)
    assert "-mamx-fp16" not in flags
