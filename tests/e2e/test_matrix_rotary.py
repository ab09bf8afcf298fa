"""From checkpoint to HTTP: a head or two of encoders with rotary positions."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, check_cell, sampled_cells_of

FAMILIES = ("nomic_bert", "gte", "new", "jina_embeddings_v3", "eurobert")


@pytest.mark.parametrize("cell", sampled_cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
