"""Embedded and shared weights begin where cache lines do."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.cpp_extension import include_paths

from infinity_v3.compiler.backends.aligned_constants import LINE_BYTES, aligned_constants_flags
from infinity_v3.compiler.programs.kept import save_weights
from tiny_artifacts import TinyArtifact

HEADER = "torch/csrc/inductor/aoti_runtime/model_base.h"
REQUEST = "void* data_ptr = std::malloc(num_bytes);"


class Named(nn.Module):
    """One buffer of a given name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.register_buffer(name, torch.arange(6.0))
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return x + self.get_buffer(self.name)


def test_it_is_used_with_the_torch_that_is_installed(tmp_path: Path) -> None:
    assert aligned_constants_flags(include_paths(), tmp_path) == f"-I{tmp_path}"
    usual = next(Path(one) / HEADER for one in include_paths() if (Path(one) / HEADER).exists())
    changed = (tmp_path / HEADER).read_text().splitlines()
    pairs = zip(usual.read_text().splitlines(), changed, strict=True)
    ((old, new),) = [(old, new) for old, new in pairs if old != new]
    assert old.strip() == REQUEST
    assert f"std::aligned_alloc({LINE_BYTES}, " in new


@pytest.mark.parametrize("text", ["", f"{REQUEST}\n{REQUEST}\n", "void* data_ptr = other(1);\n"])
def test_another_header_stays_as_it_is(tmp_path: Path, text: str) -> None:
    given, folder = tmp_path / "given" / HEADER, tmp_path / "changed"
    given.parent.mkdir(parents=True)
    given.write_text(text)
    assert aligned_constants_flags([str(tmp_path / "given")], folder) == ""
    assert aligned_constants_flags([str(tmp_path / "none")], folder) == ""
    assert not folder.exists()


def test_engines_ask_for_such_memory(small: TinyArtifact) -> None:
    engines = sorted(small.artifact.glob("targets/*/model.so"))
    assert engines
    assert [path for path in engines if b"aligned_alloc" not in path.read_bytes()] == []


@pytest.mark.parametrize("name_length", range(1, 70, 3))
def test_numbers_of_a_shared_file_begin_there(tmp_path: Path, name_length: int) -> None:
    name = "x" * name_length
    program = torch.export.export(Named(name), (torch.ones(6),), strict=False)
    path = tmp_path / "weights.safetensors"
    save_weights(program, path)
    start = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    assert start % LINE_BYTES == 0
    assert load_file(path)[name].equal(torch.arange(6.0))
