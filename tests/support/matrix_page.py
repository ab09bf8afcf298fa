"""The page of supported models: written from what the matrix measured, and read back by a test.

Knows nothing of how the figures come about.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infinity_v3.model_specs.spec import ModelSpec

HEADER = """# Models

Families and tasks that compile, and how close each engine came to the reference when the matrix
ran last. Every row went the whole way: a seeded tiny checkpoint with the traits of its family,
`infinity-compile model`, `infinity_v3`, HTTP.

`make matrix` writes this page. `infinity-compile catalog` lists public checkpoints by name.
"""
FIGURES = """
float32 figures are the largest difference from the reference: of normalised vectors (allowed
2e-05), else relative to the larger of 1 and the value (allowed 5e-05). bf16 figures are the lowest
cosine (at least 0.999) or, for logits, the largest difference in probability (at most 0.02).
Mixtures of experts are built in float32 alone, because rounding may send a token to other experts.
"""
NOT_BUILT = "not built"
_ROW = re.compile(
    r"^\| (?P<checkpoint>[\w.-]+) \| (?P<task>\w+) \| (?P<oracle>[\w. -]+) \|(?P<rest>.*)\|$"
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One family under one task.

    Attributes:
        checkpoint: name of the tiny checkpoint.
        task: as in `matrix.TASKS`.
        oracle: what was compared with.
        figures: target -> figure, as printed.
    """

    checkpoint: str
    task: str
    oracle: str
    figures: Mapping[str, str]


def figure_of(parity: Mapping[str, float], *, is_half: bool) -> str:
    """The figure of one target that the page shows.

    Args:
        parity: figures by output and measure, as in build.json.
        is_half: the target computes in half precision.
    """
    outputs = {name.partition(".")[0] for name in parity}
    if not is_half:
        return f"{max(parity[f'{name}.max_abs'] for name in outputs):.1e}"
    changes = [parity[key] for name in outputs if (key := f"{name}.max_probability") in parity]
    if changes:
        return f"Δp {max(changes):.4f}"
    return f"cos {min(parity[f'{name}.min_cosine'] for name in outputs):.5f}"


def render(
    specs: Sequence[ModelSpec], rows: Sequence[Row], targets: Sequence[str], origin: str
) -> str:
    """The whole page.

    Args:
        specs: every family.
        rows: in the order of the table.
        targets: columns.
        origin: the sentence that says where and on which commit the figures were taken.
    """
    parts = [
        HEADER,
        "\n## Families\n\n",
        *_family_table(specs),
        "\n## Figures\n\n",
        origin,
        FIGURES,
    ]
    return "".join([*parts, "\n", *_figure_table(rows, targets)])


def read_rows(page: str) -> tuple[Row, ...]:
    """The rows of a page's figures."""
    _, _, figures = page.partition("## Figures")
    header = next(line for line in figures.splitlines() if line.startswith("| checkpoint"))
    targets = [cell.strip() for cell in header.strip("|").split("|")][3:]
    rows = []
    for line in figures.splitlines():
        match = _ROW.match(line)
        if match and match["checkpoint"] != "checkpoint":
            cells = [cell.strip() for cell in match["rest"].split("|")]
            named = dict(zip(targets, cells, strict=True))
            rows.append(
                Row(
                    checkpoint=match["checkpoint"],
                    task=match["task"],
                    oracle=match["oracle"],
                    figures=named,
                )
            )
    return tuple(rows)


def _family_table(specs: Sequence[ModelSpec]) -> Iterable[str]:
    yield "| family | `model_type` | attention | status |\n|---|---|---|---|\n"
    for spec in specs:
        types = ", ".join(f"`{name}`" for name in spec.model_types)
        attention = "causal" if spec.is_causal else "both ways"
        status = "verified" if spec.is_verified else "experimental, unverified"
        yield f"| {spec.family} | {types} | {attention} | {status} |\n"


def _figure_table(rows: Sequence[Row], targets: Sequence[str]) -> Iterable[str]:
    yield f"| checkpoint | task | checked against | {' | '.join(targets)} |\n"
    yield f"|{'---|' * (3 + len(targets))}\n"
    for row in rows:
        figures = " | ".join(row.figures[target] for target in targets)
        yield f"| {row.checkpoint} | {row.task} | {row.oracle} | {figures} |\n"
