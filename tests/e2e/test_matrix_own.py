"""From checkpoint to HTTP: families that transformers lacks."""

import pytest

from compiled import CompiledArtifacts
from matrix import OWN_FAMILIES, Cell, check_cell, sampled_cells_of


@pytest.mark.parametrize("cell", sampled_cells_of(tuple(OWN_FAMILIES)), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
