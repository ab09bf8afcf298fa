"""Holds an artifact's own figures against the gates of a build file, before it is pushed.

The keys mean what they mean in a channel's policy. Runs nothing, opens no file.
"""

from collections.abc import Collection, Iterator, Mapping

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.builds.entry import GateBounds, ModelEntry
from infinity_v3.compiler.gates.parity_gate import MAX_ABS, MIN_COSINE, bounded_figure
from infinity_v3.compiler.gates.promotion import Measured
from infinity_v3.compiler.gates.targets_gate import required_figures

MEGABYTE = 1_000_000


def check_bounds(
    bounds: GateBounds, manifest: Manifest, build: Mapping[str, object]
) -> tuple[GateFigure, ...]:
    """Return one figure per gate and target.

    Args:
        bounds: what the build file asks for.
        manifest: of the artifact.
        build: its build.json.
    """
    measured = Measured(manifest=manifest, build=build)
    asked = ((MIN_COSINE, bounds.min_cosine), (MAX_ABS, bounds.max_abs))
    return (
        *required_figures(bounds.required_targets, manifest),
        *(
            bounded_figure(measured, target, gate, bound)
            for gate, bound in asked
            if bound is not None
            for target in manifest.targets
        ),
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
