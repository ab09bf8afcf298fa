"""Holds an artifact's own figures against the gates of a build file, before it is pushed.

The keys mean what they mean in a channel's policy. Runs nothing, opens no file.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TypeGuard

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.builds.entry import GateBounds, ModelEntry

MEGABYTE = 1_000_000
_LOGITS = frozenset({"logits", "token_logits"})
"""Outputs without a direction: the cosine of one number says nothing."""


def check_bounds(
    bounds: GateBounds, manifest: Manifest, build: Mapping[str, object]
) -> tuple[GateFigure, ...]:
    """Return one figure per gate and target.

    Args:
        bounds: what the build file asks for.
        manifest: of the artifact.
        build: its build.json.
    """
    return (
        *_required(bounds, manifest),
        *_measured("min-cosine", bounds.min_cosine, manifest, build),
        *_measured("max-abs", bounds.max_abs, manifest, build),
        *_size(bounds, manifest),
    )


def check_required_targets(entry: ModelEntry, built: Collection[str]) -> None:
    """Refuse an entry that asks for a target which it does not build.

    Raises:
        UsageError: names the file, the entry and the target.
    """
    for name in entry.gates.required_targets:
        if name not in built:
            raise UsageError(
                f"{entry.place}: gates: required-targets: expected targets that the model builds "
                f"({', '.join(built)}), found {name!a}{nearest(name, built)}"
            )


def artifact_bytes(manifest: Manifest) -> int:
    """Bytes of every file that the manifest lists."""
    return sum(entry.num_bytes for entry in manifest.files)


def _required(bounds: GateBounds, manifest: Manifest) -> Iterator[GateFigure]:
    names = tuple(target.name for target in manifest.targets)
    for name in bounds.required_targets:
        is_there = name in names
        yield GateFigure(
            gate="required-targets",
            subject=name,
            current=None,
            candidate="present" if is_there else "absent",
            bound="present",
            passed=is_there,
            detail="" if is_there else f"targets: {', '.join(names)}{nearest(name, names)}",
        )


def _measured(
    gate: str, bound: float | None, manifest: Manifest, build: Mapping[str, object]
) -> Iterator[GateFigure]:
    if bound is None:
        return
    is_cosine = gate == "min-cosine"
    for target in manifest.targets:
        values = _values(manifest, build, target.name, is_cosine=is_cosine)
        yield GateFigure(
            gate=gate,
            subject=target.name,
            current=None,
            candidate=_shown(values, is_cosine),
            bound=f"{'>=' if is_cosine else '<='} {bound:g}",
            passed=_holds(values, bound, is_cosine),
            detail=_detail(values),
        )


def _values(
    manifest: Manifest, build: Mapping[str, object], target: str, *, is_cosine: bool
) -> list[float] | None:
    """The figure of every output that has one; None where build.json lacks some."""
    parity = build.get("parity")
    figures = parity.get(target) if isinstance(parity, Mapping) else None
    if not isinstance(figures, Mapping):
        return None
    kind = "min_cosine" if is_cosine else "max_abs"
    outputs = [spec.name for spec in manifest.graph.outputs]
    compared = [name for name in outputs if not is_cosine or name not in _LOGITS]
    found = [figures.get(f"{name}.{kind}") for name in compared]
    numbers = [float(value) for value in found if _is_number(value)]
    return numbers if len(numbers) == len(compared) else None


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)


def _holds(values: list[float] | None, bound: float, is_cosine: bool) -> bool:
    if values is None:
        return False
    return all(value >= bound if is_cosine else value <= bound for value in values)


def _shown(values: list[float] | None, is_cosine: bool) -> str | None:
    if not values:
        return None
    return f"{min(values):.8f}" if is_cosine else f"{max(values):.3g}"


def _detail(values: list[float] | None) -> str:
    if values is None:
        return "build.json has no whole set of parity figures of it"
    return "" if values else "no output of it is a vector"


def _size(bounds: GateBounds, manifest: Manifest) -> Iterator[GateFigure]:
    if bounds.max_size_mb is None:
        return
    num_bytes = artifact_bytes(manifest)
    yield GateFigure(
        gate="max-size-mb",
        subject="all files",
        current=None,
        candidate=f"{num_bytes / MEGABYTE:.1f} MB",
        bound=f"<= {bounds.max_size_mb} MB",
        passed=num_bytes <= bounds.max_size_mb * MEGABYTE,
    )
