"""Decides for each model what has to be done: nothing, a push, a pull or a compile. Does none."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.signing import Signer
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.builds.bounds import check_required_targets
from infinity_v3.compiler.builds.build_key import (
    ToolState,
    build_inputs,
    key_of_build,
    version_of,
)
from infinity_v3.compiler.builds.entry import ModelEntry
from infinity_v3.compiler.builds.published import Published, PublishedBuild, find_published
from infinity_v3.compiler.builds.sources import SourceState, read_source
from infinity_v3.compiler.cpu_targets import CpuTarget
from infinity_v3.compiler.inspection import read_records
from infinity_v3.compiler.kernel_library import kernel_digest
from infinity_v3.compiler.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """One model whose inputs are known.

    Attributes:
        version: with the build key filled in.
        key: the build key.
        out: where the artifact is or will be.
        published: the registry has this very version; all that may be left is to sign it.
        elsewhere: another version of the registry with the same inputs, to be pulled.
        is_damaged: the registry has this very version with files missing; it is pushed again.
        is_there: `out` holds an artifact of the same inputs, from a run that did not end.
    """

    entry: ModelEntry
    version: str
    key: str
    source: SourceState
    out: Path
    published: PublishedBuild | None
    elsewhere: str | None
    is_there: bool
    is_damaged: bool = False

    @property
    def title(self) -> str:
        """Name and version, as a reference is written."""
        return f"{self.entry.name}=={self.version}"


class Planner:
    """Plans models one after the other, and remembers what is the same for all of them."""

    def __init__(
        self,
        *,
        out: Path,
        registry: Registry | None,
        tool: ToolState,
        progress: Progress,
        signer: Signer | None = None,
    ) -> None:
        self._out = out
        self._registry = registry
        self._tool = tool
        self._progress = progress
        self._signer = signer
        self._kernels: dict[str, str] = {}
        self._planned: dict[tuple[str, str], ModelEntry] = {}

    def plan(self, entry: ModelEntry) -> ModelPlan:
        """Read the inputs of a model and look for what was built from them.

        Raises:
            InfinityError: this model cannot be built, and why.
        """
        source = read_source(entry, self._progress)
        inputs = build_inputs(entry.request, source, self._tool, self._kernel_digest)
        check_required_targets(entry, tuple(inputs.targets))
        key = inputs.key
        version = version_of(entry, key)
        self._check_unique(entry, version)
        out = (self._out / entry.name / version).absolute()
        found = Published()
        if self._registry is not None:
            found = find_published(self._registry, entry.name, version, key, self._signer)
        return ModelPlan(
            entry=entry,
            version=version,
            key=key,
            source=source,
            out=out,
            published=found.same,
            elsewhere=found.elsewhere,
            is_there=found.same is None and _is_there(out, key),
            is_damaged=found.is_damaged,
        )

    def _kernel_digest(self, target: CpuTarget) -> str:
        if target.name not in self._kernels:
            self._kernels[target.name] = kernel_digest(target)
        return self._kernels[target.name]

    def _check_unique(self, entry: ModelEntry, version: str) -> None:
        earlier = self._planned.setdefault((entry.name, version), entry)
        if earlier is not entry:
            raise RefusedError(
                f"{entry.place}: {entry.name}=={version} is already made of the same inputs by "
                f"{earlier.place.rpartition(': ')[2]}; leave one of them out"
            )


def open_built(path: Path) -> tuple[Artifact, Mapping[str, object]]:
    """Open an artifact and its build.json.

    Raises:
        RefusedError: it is not a whole artifact.
    """
    artifact = open_artifact(path)
    return artifact, read_records(artifact)


def _is_there(out: Path, key: str) -> bool:
    if not out.exists() and not out.is_symlink():
        return False
    _, build = open_built(out)
    found = key_of_build(build)
    if found != key:
        inputs = "no build key" if found is None else f"build key {found[:12]}"
        raise RefusedError(
            f"{out}: holds an artifact with {inputs}, the build file makes {key[:12]}; remove it, "
            "raise the version, or put {key} into it"
        )
    return True
