"""From checkpoint to HTTP: a head or two of encoders with windows."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, check_cell, sampled_cells_of

FAMILIES = ("modernbert", "ultrabert", "ultrabert-windows")


@pytest.mark.parametrize("cell", sampled_cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
