"""Holds a kept program to the reference, as engines are held: later targets are compared with it.

Knows nothing of how a program is kept.
"""

from collections.abc import Sequence

from infinity_v3.artifacts.manifest import Precision
from infinity_v3.compiler.parity import (
    Outputs,
    ParityReport,
    bounds_of,
    compare,
    judge_reference,
    output_kind,
)
from infinity_v3.compiler.probes import Probes

PROGRAM_NAME = "program/float32"
"""What the program is called where a target would be named."""


def judge_program(
    found: Sequence[Outputs], expected: Sequence[Outputs], probes: Probes, reference_name: str
) -> ParityReport:
    """Compare what the kept program says to the referenced probes, within the bounds of float32."""
    bounds = bounds_of(Precision.FLOAT32, is_decision=bool(probes.readouts))
    leading = range(probes.referenced)
    figures: dict[str, float] = {}
    failures: list[str] = []
    for name in sorted(found[0]):
        kind = output_kind(name)
        comparison = compare(
            probes.scaled([row[name] for row in found], leading),
            probes.scaled([row[name] for row in expected], leading),
            kind,
        )
        figures |= comparison.figures(f"{name}.")
        failures += judge_reference(name, comparison, bounds, kind)
    return ParityReport(
        target=PROGRAM_NAME,
        reference=reference_name,
        probes_digest=probes.digest,
        probe_count=len(probes.ids),
        bounds=bounds,
        figures=figures,
        failures=tuple(failures),
    )
