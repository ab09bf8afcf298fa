"""From checkpoint to HTTP: a head or two of Gemma decoders."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, check_cell, sampled_cells_of

FAMILIES = ("gemma2", "gemma3_text", "embeddinggemma")


@pytest.mark.parametrize("cell", sampled_cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
