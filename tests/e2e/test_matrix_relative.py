"""From checkpoint to HTTP: two heads each of encoders whose attention knows distances."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, check_cell, sampled_cells_of

FAMILIES = ("mpnet", "deberta-v2", "deberta-v2-conv")


@pytest.mark.parametrize("cell", sampled_cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
