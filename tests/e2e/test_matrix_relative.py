"""From checkpoint to HTTP: every head of encoders whose attention knows distances."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, cells_of, check_cell

FAMILIES = ("mpnet", "deberta-v2", "deberta-v2-conv")


@pytest.mark.parametrize("cell", cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
