"""The AMX target's build, on hosts that have all its instructions but the tiles themselves.

Its own code holds no tile instruction: the matrix library uses tiles where the host has them. So a
host with bf16 instructions builds the same library, and runs it through the whole pipeline.
"""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from infinity_v3.artifacts.host import HostCapabilities, detect_host
from infinity_v3.compiler import availability
from infinity_v3.compiler.pipeline import compile_model
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.request import CompileRequest
from tiny_checkpoints import make_tiny_checkpoint

TARGET = "cpu-x86_64-amx-bf16"
HOST = detect_host()


@pytest.mark.skipif("avx512_bf16" not in HOST.isa, reason="needs a CPU with avx512_bf16")
def test_the_amx_target_builds_and_passes_its_parity_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def host_with_tiles() -> HostCapabilities:
        return replace(HOST, isa=HOST.isa | {"amx_tile", "amx_bf16", "amx_int8"})

    monkeypatch.setattr(availability, "detect_host", host_with_tiles)
    checkpoint = make_tiny_checkpoint("bert", tmp_path / "checkpoint")
    request = CompileRequest(
        checkpoint=str(checkpoint), out=tmp_path / "artifact", targets=(TARGET,)
    )
    artifact = compile_model(request, SilentProgress())
    (target,) = artifact.manifest.targets
    assert target.name == TARGET
    assert {"amx_tile", "amx_bf16"} <= set(target.requires.isa)
    assert target.parity.passed
    assert target.parity.bounds.min_cosine == 0.999
    # An address of a Python object would make every build another artifact.
    assert b" at 0x" not in (artifact.path / target.entry).read_bytes()
    listing = subprocess.run(
        ["objdump", "-d", artifact.path / target.entry], capture_output=True, text=True, check=True
    )
    assert "tmm" not in listing.stdout
