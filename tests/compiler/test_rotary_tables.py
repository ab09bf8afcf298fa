"""Rotary tables are computed once per call, however many layers read them."""

import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from infinity_v3.artifacts.manifest import Graph, Precision
from infinity_v3.compiler.backends import aoti
from infinity_v3.compiler.export import LIMITS, ExportedModel
from kernel_calls import HOST_TARGETS, Kernels

WIDTH = 32


class Rotated(nn.Module):
    """Layers that all turn their rows by the same angles."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(num_layers))

    def forward(self, hidden: Tensor, position_ids: Tensor) -> Tensor:
        angles = position_ids[:, None].float() * torch.arange(1.0, WIDTH + 1) / WIDTH
        cos, sin = angles.cos(), angles.sin()
        for place, layer in enumerate(self.layers):
            rows = layer(hidden)
            # Layers of the same code would share a kernel, and one look at it would tell nothing.
            hidden = (rows * cos + rows.roll(1, 1) * sin) * (place + 2)
        return hidden


def generated_code(kernels: Kernels, folder: Path, num_layers: int) -> str:
    """C++ of a compiled model."""
    with torch.no_grad():
        program = torch.export.export(
            Rotated(num_layers),
            (torch.ones(8, WIDTH), torch.arange(8)),
            dynamic_shapes=({0: (tokens := Dim("T", min=2, max=4096))}, {0: tokens}),
        )
    exported = ExportedModel(
        program=program,
        graph=Graph(inputs=(), outputs=()),
        precision=Precision.FLOAT32,
        limits=LIMITS,
    )
    aoti.build_cpu_engine(exported, kernels.target, kernels.library, folder, share_weights=True)
    return (folder / "code.cpp").read_text()


@pytest.fixture
def keep_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what was generated beside the engine."""
    usual = aoti._extract_library

    def extract(package: Path, out: Path, target: object) -> None:
        with zipfile.ZipFile(package) as archive:
            names = [name for name in archive.namelist() if name.endswith(".cpp")]
            code = "\n".join(archive.read(name).decode() for name in names)
        (out.parent / "code.cpp").write_text(code)
        usual(package, out, target)  # type: ignore[arg-type]

    monkeypatch.setattr(aoti, "_extract_library", extract)


@pytest.mark.usefixtures("keep_code")
@pytest.mark.parametrize("kernels", HOST_TARGETS[-1:], ids=lambda t: t.name, indirect=True)
def test_more_layers_compute_no_more_angles(kernels: Kernels, tmp_path: Path) -> None:
    codes = [generated_code(kernels, tmp_path / str(count), count) for count in (1, 3)]
    for word in ("cos(", "sin("):
        one, three = (code.count(word) for code in codes)
        assert one == three > 0
