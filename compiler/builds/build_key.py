"""The build key: one digest over everything that shapes an artifact. Compiles nothing.

Two builds of one key make the same engines; where paths, threads or labels differ, the key does
not.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.torch_install import minor_of
from infinity_v3.artifacts.typed_json import Location, canonical_bytes, to_json
from infinity_v3.compiler.availability import runnable_targets
from infinity_v3.compiler.builds.entry import KEY_FIELD, LABEL, SHOWN_KEY_DIGITS, ModelEntry
from infinity_v3.compiler.builds.sources import SourceState
from infinity_v3.compiler.cpu_targets import CpuTarget
from infinity_v3.compiler.kernel_library import KERNEL_ABI, kernel_digest
from infinity_v3.compiler.provenance import UNKNOWN, tool_version
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.toolchain import package_version

_WITHOUT_EFFECT = frozenset(
    {"checkpoint", "revision", "out", "targets", "labels", "kernel_cache", "threads"}
)
"""Fields of a request that change no code, or that stand in the key in their resolved form.

Every other field changes the key: a new option is in it from its first day.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolState:
    """What compiles: everything of a key that is the same for all models of one run.

    Attributes:
        release: version of infinity_v3.
        torch, transformers: their minors, e.g. "2.13".
        arch: machine type of the host.
        kernel_abi: version of our operators' signatures.
    """

    release: str
    torch: str
    transformers: str
    arch: str
    kernel_abi: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInputs:
    """Everything that goes into a build key.

    Attributes:
        options: every field of the request that can change an engine, by name.
        targets: digest of the kernel library by target: the host class, as none is built for a
            target that the host does not run.
    """

    source: SourceState
    options: Mapping[str, object]
    targets: Mapping[str, str]
    tool: ToolState

    @property
    def key(self) -> str:
        """The build key, 64 hex digits."""
        data = canonical_bytes(to_json(self), Location("build inputs"))
        return hashlib.sha256(data).hexdigest()


def tool_state() -> ToolState:
    """Return what this host compiles with."""
    return ToolState(
        release=tool_version(),
        torch=_minor("torch"),
        transformers=_minor("transformers"),
        arch=detect_host().arch,
        kernel_abi=KERNEL_ABI,
    )


def build_inputs(
    request: CompileRequest,
    source: SourceState,
    tool: ToolState,
    digest_of: Callable[[CpuTarget], str] = kernel_digest,
) -> BuildInputs:
    """Collect the inputs of one model.

    Args:
        request: the checked options.
        source: its checkpoint.
        tool: what compiles.
        digest_of: digest of a target's kernel library; asks a compiler for its version.

    Raises:
        UsageError: an unknown target.
        RefusedError: a target that this host cannot run, and so not verify.
    """
    return BuildInputs(
        source=source,
        options=effective_options(request),
        targets={target.name: digest_of(target) for target in runnable_targets(request.targets)},
        tool=tool,
    )


def effective_options(request: CompileRequest) -> dict[str, object]:
    """Return every field that can change an engine, by name; not the source, nor the targets."""
    return {
        field.name: getattr(request, field.name)
        for field in fields(request)
        if field.name not in _WITHOUT_EFFECT
    }


def version_of(entry: ModelEntry, key: str) -> str:
    """Return the version of an entry whose build key is known."""
    return entry.version.replace(KEY_FIELD, key[:SHOWN_KEY_DIGITS])


def key_of_build(build: Mapping[str, object]) -> str | None:
    """Return the build key that a build.json records, or None."""
    labels = build.get("labels")
    key = labels.get(LABEL) if isinstance(labels, Mapping) else None
    return key if isinstance(key, str) else None


def _minor(package: str) -> str:
    return minor_of(package_version(package) or "") or UNKNOWN
