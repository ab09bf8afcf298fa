"""From checkpoint to HTTP: every head of Gemma decoders."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, cells_of, check_cell

FAMILIES = ("gemma2", "gemma3_text", "embeddinggemma")


@pytest.mark.parametrize("cell", cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
