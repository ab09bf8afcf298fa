"""From checkpoint to HTTP: every head of encoders with windows."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, cells_of, check_cell

FAMILIES = ("modernbert", "ultrabert", "ultrabert-windows")


@pytest.mark.parametrize("cell", cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
