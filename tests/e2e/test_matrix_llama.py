"""From checkpoint to HTTP: a head or two of Llama and Mistral decoders."""

import pytest

from compiled import CompiledArtifacts
from matrix import Cell, check_cell, sampled_cells_of

FAMILIES = ("llama", "llama_bidirec", "mistral", "ministral", "ministral3", "nemotron-embedding")


@pytest.mark.parametrize("cell", sampled_cells_of(FAMILIES), ids=lambda cell: cell.name)
def test_cell(cell: Cell, compiled_artifact: CompiledArtifacts) -> None:
    check_cell(cell, compiled_artifact)
