"""Which target of an artifact a host may run: what it lacks, and the one choice among the rest.

Fails closed: what is not known to fit is refused. Loads nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from infinity_v3.artifacts.cpu_class import NEVER_BY_ITSELF
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.manifest import (
    Backend,
    Device,
    Manifest,
    Precision,
    Requirements,
    Target,
)


class DeviceChoice(str, Enum):
    """Devices a user may ask for; `AUTO` prefers cuda."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class DtypeChoice(str, Enum):
    """Precisions a user may ask for; `AUTO` takes the fastest, and never int8 or FP8."""

    AUTO = "auto"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"


class BackendChoice(str, Enum):
    """Engine formats a user may ask for."""

    AUTO = "auto"
    AOTI = "aoti"
    TENSORRT = "tensorrt"
    ONNX = "onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRequest:
    """How a user narrows the selection."""

    device: DeviceChoice = DeviceChoice.AUTO
    dtype: DtypeChoice = DtypeChoice.AUTO
    backend: BackendChoice = BackendChoice.AUTO
    fp8_dynamic: bool = False
    """Ask for the dynamic-FP8 target; `dtype` narrows nothing then."""
    allow_newer_torch: bool = False
    """Accept a newer torch minor than the one that built the engine; it needs a smoke run first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The chosen target; `reasons` has a clause per target considered, best first, chosen last."""

    target: Target
    reasons: tuple[str, ...]
    needs_smoke_run: bool = False
    """The engine was built by an older torch minor than the one installed."""


_DEVICE_ORDER = (Device.CUDA, Device.CPU)
_BACKEND_ORDER = (Backend.TENSORRT, Backend.AOTI, Backend.ONNX)
_PRECISION_ORDER = (
    Precision.BFLOAT16,
    Precision.FLOAT16,
    Precision.FLOAT32,
    Precision.INT8,
    Precision.FP8_DYNAMIC,
)
# Half precision in float16 is emulated on most CPUs: there it comes after float32.
_CPU_PRECISION_ORDER = (
    Precision.BFLOAT16,
    Precision.FLOAT32,
    Precision.FLOAT16,
    Precision.INT8,
    Precision.FP8_DYNAMIC,
)
_ISA_ORDER = ("amx_tile", "avx512_bf16", "avx512f", "avx2")


def incompatibility(
    target: Target, host: HostCapabilities, *, allow_newer_torch: bool = False
) -> str | None:
    """Say in words the first thing that `host` lacks for `target`, or None when it lacks nothing.

    `requires.kernel_abi` is met by the kernel library among the target's own files.
    """
    if target.device not in host.devices:
        offered = _names(host.devices)
        return f"needs device {target.device.value}, this release and host offer {offered}"
    if target.backend not in host.backends:
        return f"needs backend {target.backend.value}, this release has {_names(host.backends)}"
    return unmet_requirement(target.requires, host, allow_newer_torch=allow_newer_torch)


def unmet_requirement(
    requires: Requirements, host: HostCapabilities, *, allow_newer_torch: bool = False
) -> str | None:
    """Say in words the first of `requires` that `host` does not meet, or None when it meets all."""
    return next(_unmet(requires, host, allow_newer_torch), None)


def select_target(
    manifest: Manifest, host: HostCapabilities, request: TargetRequest | None = None
) -> Selection:
    """Choose the one target to run: device, then backend, then precision, then ISA level.

    Raises:
        RefusedError: nothing was compiled for the request, or this host fits none of it; each
            target is listed with the first thing it lacks.
    """
    request = request or TargetRequest()
    candidates = sorted(_requested(manifest, request), key=_preference)
    if not candidates:
        raise _not_compiled(manifest, request)
    skipped: list[str] = []
    for target in candidates:
        objection = _objection(target, host, request)
        if objection is None:
            return _selection(target, host, skipped)
        skipped.append(f"{target.name} {objection}")
    raise RefusedError(f"{manifest.name}: no target fits this host: {'; '.join(skipped)}")


def _selection(target: Target, host: HostCapabilities, skipped: list[str]) -> Selection:
    order = "next best after those skipped" if skipped else "first in order of preference"
    return Selection(
        target=target,
        reasons=(*skipped, f"{target.name} chosen: {order}"),
        needs_smoke_run=target.requires.torch not in (None, host.torch_minor),
    )


def _requested(manifest: Manifest, request: TargetRequest) -> list[Target]:
    return [
        target
        for target in manifest.targets
        if request.device in (DeviceChoice.AUTO, target.device.value)
        and request.backend in (BackendChoice.AUTO, target.backend.value)
        and _is_precision(target.precision, request)
    ]


def _is_precision(precision: Precision, request: TargetRequest) -> bool:
    if request.fp8_dynamic:
        return precision is Precision.FP8_DYNAMIC
    if request.dtype == DtypeChoice.AUTO:
        return precision not in NEVER_BY_ITSELF
    return precision.value == request.dtype


def _preference(target: Target) -> tuple[int, int, int, int, str]:
    precisions = _CPU_PRECISION_ORDER if target.device is Device.CPU else _PRECISION_ORDER
    return (
        _DEVICE_ORDER.index(target.device),
        _BACKEND_ORDER.index(target.backend),
        precisions.index(target.precision),
        _isa_rank(target),
        target.name,
    )


def _isa_rank(target: Target) -> int:
    flags = target.requires.isa
    return next((rank for rank, flag in enumerate(_ISA_ORDER) if flag in flags), len(_ISA_ORDER))


def _objection(target: Target, host: HostCapabilities, request: TargetRequest) -> str | None:
    if not target.parity.passed:
        return "did not pass its parity check"
    return incompatibility(target, host, allow_newer_torch=request.allow_newer_torch)


def _unmet(
    requires: Requirements, host: HostCapabilities, allow_newer_torch: bool
) -> Iterator[str]:
    if requires.arch != host.arch:
        yield f"needs a CPU of type {requires.arch}, this host is {host.arch}"
    for flag in requires.isa:
        if flag not in host.isa:
            yield _lacking_flag(flag, host)
    yield from _lacks_torch(requires.torch, host, allow_newer_torch)
    for what, version in (
        ("CUDA compute capability", requires.sm),
        ("CUDA", requires.cuda),
        ("TensorRT", requires.tensorrt),
        ("an NVIDIA driver from", requires.driver_min),
    ):
        if version is not None:
            yield f"needs {what} {version}, none was found on this host"


def _lacking_flag(flag: str, host: HostCapabilities) -> str:
    reason = host.dropped_isa.get(flag, "lacks it")
    return f"needs the CPU feature {flag}; this host ({host.cpu_model}): {reason}"


def _lacks_torch(
    minor: str | None, host: HostCapabilities, allow_newer_torch: bool
) -> Iterator[str]:
    found = host.torch_minor
    if minor is None or minor == found:
        return
    if found is None:
        yield f"needs torch {minor}, none is installed; `pip install 'torch=={minor}.*'`"
    elif not (allow_newer_torch and _is_newer(found, minor)):
        yield (
            f"needs torch {minor}, found {host.torch_version}; install torch {minor} or compile "
            "again"
        )


def _is_newer(found: str, required: str) -> bool:
    found_major, found_minor = found.split(".")
    major, minor = required.split(".")
    return found_major == major and int(found_minor) > int(minor)


def _names(members: frozenset[Device] | frozenset[Backend]) -> str:
    return ", ".join(sorted(member.value for member in members)) or "none"


def _not_compiled(manifest: Manifest, request: TargetRequest) -> RefusedError:
    dtype = Precision.FP8_DYNAMIC if request.fp8_dynamic else DtypeChoice(request.dtype)
    asked = (
        ("dtype", dtype.value),
        ("device", DeviceChoice(request.device).value),
        ("backend", BackendChoice(request.backend).value),
    )
    wanted = ", ".join(f"{what} {value}" for what, value in asked if value != "auto")
    present = ", ".join(
        f"{target.name} ({target.precision.value}, {target.device.value}, {target.backend.value})"
        for target in sorted(manifest.targets, key=_preference)
    )
    return RefusedError(
        f"{manifest.name}: no target was compiled for {wanted or 'dtype auto'}; "
        f"targets present: {present}"
    )
