"""From checkpoint to HTTP: every head of Qwen decoders."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, cells_of, check_cell

FAMILIES = ("qwen2", "qwen3", "qwen3_moe")


@pytest.mark.parametrize("cell", cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
