"""docs/models.md says what the registry and the matrix have, with figures within tolerance."""

import re
from pathlib import Path

import pytest

from infinity_v3.model_specs.registry import SPECS
from matrix import EXPERT_FAMILIES, TASKS, all_cells
from matrix_page import NOT_BUILT, Row, read_rows

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
ROWS = read_rows(PAGE)


def test_every_family_is_listed_with_its_status() -> None:
    listed = dict(re.findall(r"^\| (?!family)(\S+) \| `.*\| ([\w, ]+) \|$", PAGE, re.MULTILINE))
    expected = {
        spec.family: "verified" if spec.is_verified else "experimental, unverified"
        for spec in SPECS
    }
    assert listed == expected


def test_every_cell_of_the_matrix_has_a_row() -> None:
    expected = [(cell.family, cell.task, TASKS[cell.task].checked_against) for cell in all_cells()]
    assert [(row.checkpoint, row.task, row.oracle) for row in ROWS] == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.checkpoint}-{row.task}")
def test_figures_are_within_tolerance(row: Row) -> None:
    assert row.figures
    for figure in row.figures.values():
        if figure == NOT_BUILT:
            assert row.checkpoint in EXPERT_FAMILIES
        elif figure.startswith("cos "):
            assert float(figure.removeprefix("cos ")) >= 0.999
        elif figure.startswith("Δp "):
            assert float(figure.removeprefix("Δp ")) <= 2e-2
        else:
            assert float(figure) <= (2e-5 if _is_vector(row) else 5e-5)


def _is_vector(row: Row) -> bool:
    """Embedding artifacts also have token vectors, whose bound is the wider one."""
    return False if row.task == "embedding" else TASKS[row.task].is_normalized
