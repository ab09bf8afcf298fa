"""The table of target selection: order, narrowing, and the reasons when nothing fits."""

from dataclasses import replace

import pytest

from fake_artifact import (
    AMX_ISA,
    AVX2_ISA,
    AVX512_BF16_ISA,
    AVX512_ISA,
    make_manifest,
    make_target,
)
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
from infinity_v3.artifacts.target import (
    BackendChoice,
    DeviceChoice,
    DtypeChoice,
    TargetRequest,
    incompatibility,
    select_target,
    unmet_requirement,
)

AMX = "cpu-x86_64-amx-bf16"
AVX512_BF16 = "cpu-x86_64-avx512-bf16"
AVX512 = "cpu-x86_64-avx512-f32"
AVX2 = "cpu-x86_64-avx2-f32"


def cpu_target(name: str, isa: tuple[str, ...], **overrides: object) -> Target:
    precision = Precision.BFLOAT16 if name.endswith("bf16") else Precision.FLOAT32
    fields: dict[str, object] = {
        "precision": precision,
        "requires": Requirements(arch="x86_64", isa=isa, torch="2.13"),
    }
    return make_target(name, **{**fields, **overrides})


CPU_TARGETS = (
    cpu_target(AVX2, AVX2_ISA),
    cpu_target(AVX512, AVX512_ISA),
    cpu_target(AMX, AMX_ISA),
    cpu_target(AVX512_BF16, AVX512_BF16_ISA),
)


def host_with(*flags: str, **overrides: object) -> HostCapabilities:
    host = HostCapabilities(
        arch="x86_64",
        isa=frozenset(flags),
        torch_version="2.13.0+cpu",
        cpu_model="Test CPU",
    )
    return replace(host, **overrides)  # type: ignore[arg-type]  # fields by name


ALL = host_with(*AMX_ISA)


def cpu_manifest(*targets: Target) -> Manifest:
    return make_manifest(targets=targets or CPU_TARGETS)


def refusal_of(manifest: Manifest, host: HostCapabilities, request: TargetRequest) -> str:
    with pytest.raises(RefusedError) as caught:
        select_target(manifest, host, request)
    assert caught.value.exit_code == 3
    return str(caught.value)


@pytest.mark.parametrize(
    ("isa", "dtype", "chosen"),
    [
        (AMX_ISA, DtypeChoice.AUTO, AMX),
        (AVX512_BF16_ISA, DtypeChoice.AUTO, AVX512_BF16),
        (AVX512_ISA, DtypeChoice.AUTO, AVX512),
        (AVX2_ISA, DtypeChoice.AUTO, AVX2),
        (AMX_ISA, DtypeChoice.FLOAT32, AVX512),
        (AVX2_ISA, DtypeChoice.FLOAT32, AVX2),
        (AMX_ISA, DtypeChoice.BFLOAT16, AMX),
        (AVX512_BF16_ISA, DtypeChoice.BFLOAT16, AVX512_BF16),
    ],
)
def test_best_cpu_target_that_the_host_can_run(
    isa: tuple[str, ...], dtype: DtypeChoice, chosen: str
) -> None:
    selection = select_target(cpu_manifest(), host_with(*isa), TargetRequest(dtype=dtype))

    assert selection.target.name == chosen
    assert selection.reasons[-1].startswith(f"{chosen} chosen")
    assert not selection.needs_smoke_run


def test_reasons_name_what_each_better_target_lacked() -> None:
    selection = select_target(cpu_manifest(), host_with(*AVX512_ISA))

    assert selection.reasons == (
        f"{AMX} needs the CPU feature avx512_bf16; this host (Test CPU): lacks it",
        f"{AVX512_BF16} needs the CPU feature avx512_bf16; this host (Test CPU): lacks it",
        f"{AVX512} chosen: next best after those skipped",
    )


def test_order_does_not_depend_on_the_manifest() -> None:
    forward = select_target(cpu_manifest(*CPU_TARGETS), ALL)
    backward = select_target(cpu_manifest(*CPU_TARGETS[::-1]), ALL)

    assert forward == backward


def _placed(name: str, device: Device, backend: Backend, precision: Precision) -> Target:
    requires = Requirements(arch="x86_64", torch="2.13")
    return make_target(name, device=device, backend=backend, precision=precision, requires=requires)


ORDERED = (
    _placed("a", Device.CUDA, Backend.TENSORRT, Precision.BFLOAT16),
    _placed("b", Device.CUDA, Backend.TENSORRT, Precision.FLOAT16),
    _placed("c", Device.CUDA, Backend.AOTI, Precision.BFLOAT16),
    _placed("d", Device.CUDA, Backend.AOTI, Precision.FLOAT32),
    _placed("e", Device.CUDA, Backend.ONNX, Precision.BFLOAT16),
    _placed("f", Device.CPU, Backend.AOTI, Precision.BFLOAT16),
    _placed("g", Device.CPU, Backend.AOTI, Precision.FLOAT32),
    _placed("h", Device.CPU, Backend.AOTI, Precision.FLOAT16),
    _placed("i", Device.CPU, Backend.ONNX, Precision.FLOAT32),
)
EVERYTHING = host_with(devices=frozenset(Device), backends=frozenset(Backend))


@pytest.mark.parametrize("best", range(len(ORDERED)))
def test_order_is_device_backend_precision(best: int) -> None:
    targets = ORDERED[best:][::-1]

    assert select_target(cpu_manifest(*targets), EVERYTHING).target == ORDERED[best]


@pytest.mark.parametrize(
    ("request_", "chosen"),
    [
        (TargetRequest(device=DeviceChoice.CPU), "f"),
        (TargetRequest(device=DeviceChoice.CUDA), "a"),
        (TargetRequest(backend=BackendChoice.AOTI), "c"),
        (TargetRequest(backend=BackendChoice.ONNX), "e"),
        (TargetRequest(dtype=DtypeChoice.FLOAT16), "b"),
        (TargetRequest(device=DeviceChoice.CPU, backend=BackendChoice.ONNX), "i"),
        (TargetRequest(device=DeviceChoice.CPU, dtype=DtypeChoice.FLOAT16), "h"),
    ],
)
def test_request_narrows_the_choice(request_: TargetRequest, chosen: str) -> None:
    assert select_target(cpu_manifest(*ORDERED), EVERYTHING, request_).target.name == chosen


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (TargetRequest(dtype=DtypeChoice.FLOAT16), "dtype float16"),
        (TargetRequest(device=DeviceChoice.CUDA), "device cuda"),
        (TargetRequest(backend=BackendChoice.TENSORRT), "backend tensorrt"),
        (
            TargetRequest(dtype=DtypeChoice.FLOAT32, backend=BackendChoice.ONNX),
            "dtype float32, backend onnx",
        ),
    ],
)
def test_request_that_was_not_compiled_lists_the_targets(
    request_: TargetRequest, wanted: str
) -> None:
    message = refusal_of(cpu_manifest(), ALL, request_)

    assert message == (
        f"fake-encoder: no target was compiled for {wanted}; targets present: "
        f"{AMX} (bfloat16, cpu, aoti), {AVX512_BF16} (bfloat16, cpu, aoti), "
        f"{AVX512} (float32, cpu, aoti), {AVX2} (float32, cpu, aoti)"
    )


def test_int8_is_never_chosen_by_auto() -> None:
    int8 = cpu_target("cpu-x86_64-avx2-int8", AVX2_ISA, precision=Precision.INT8)

    assert "no target was compiled for dtype auto" in refusal_of(
        cpu_manifest(int8), ALL, TargetRequest()
    )
    assert select_target(cpu_manifest(int8, *CPU_TARGETS), ALL).target.name == AMX


def test_host_without_any_fitting_target_lists_each_with_its_first_lack() -> None:
    message = refusal_of(cpu_manifest(), host_with("fma"), TargetRequest())

    assert message == (
        "fake-encoder: no target fits this host: "
        + "; ".join(
            f"{name} needs the CPU feature avx2; this host (Test CPU): lacks it"
            for name in (AMX, AVX512_BF16, AVX512, AVX2)
        )
    )


def test_target_that_failed_parity_is_never_chosen() -> None:
    best = CPU_TARGETS[2]
    failed = replace(best, parity=replace(best.parity, passed=False))
    selection = select_target(cpu_manifest(failed, CPU_TARGETS[0]), ALL)
    assert selection.target.name == AVX2
    assert selection.reasons[0] == f"{AMX} did not pass its parity check"

    message = refusal_of(cpu_manifest(failed), ALL, TargetRequest(allow_newer_torch=True))
    assert message.endswith(f"{AMX} did not pass its parity check")


@pytest.mark.parametrize(
    ("installed", "is_newer_allowed", "is_accepted"),
    [
        ("2.13.0+cpu", False, True),
        ("2.13.9", False, True),
        ("2.14.0", False, False),
        ("2.14.0", True, True),
        ("2.100.0", True, True),
        ("2.12.0", False, False),
        ("2.12.0", True, False),
        ("2.9.0", True, False),
        ("3.14.0", True, False),
        (None, True, False),
        ("unknown", True, False),
    ],
)
def test_torch_minor(installed: str | None, is_newer_allowed: bool, is_accepted: bool) -> None:
    host = replace(ALL, torch_version=installed)
    problem = incompatibility(CPU_TARGETS[0], host, allow_newer_torch=is_newer_allowed)

    assert (problem is None) == is_accepted
    assert problem is None or problem.startswith("needs torch 2.13, ")


def test_newer_torch_needs_a_smoke_run() -> None:
    host = replace(ALL, torch_version="2.14.0")
    selection = select_target(cpu_manifest(), host, TargetRequest(allow_newer_torch=True))

    assert selection.needs_smoke_run


@pytest.mark.parametrize(
    ("requires", "problem"),
    [
        (Requirements(arch="aarch64"), "needs a CPU of type aarch64, this host is x86_64"),
        (Requirements(arch="x86_64", isa=("sve",)), "needs the CPU feature sve; this host"),
        (Requirements(arch="x86_64", sm="90"), "needs CUDA compute capability 90, none was found"),
        (Requirements(arch="x86_64", cuda="13"), "needs CUDA 13, none was found"),
        (Requirements(arch="x86_64", tensorrt="11.0"), "needs TensorRT 11.0, none was found"),
        (Requirements(arch="x86_64", driver_min="580"), "needs an NVIDIA driver from 580, none"),
    ],
)
def test_requirement_that_the_host_does_not_meet(requires: Requirements, problem: str) -> None:
    found = unmet_requirement(requires, ALL)

    assert found is not None
    assert found.startswith(problem)


def test_requirements_that_the_host_meets() -> None:
    requires = Requirements(arch="x86_64", isa=AMX_ISA, torch="2.13", kernel_abi="1")

    assert unmet_requirement(requires, ALL) is None


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"device": Device.CUDA}, "needs device cuda, this release and host offer cpu"),
        ({"backend": Backend.ONNX}, "needs backend onnx, this release has aoti"),
        ({"backend": Backend.TENSORRT}, "needs backend tensorrt, this release has aoti"),
    ],
)
def test_target_that_this_release_cannot_run(overrides: dict[str, object], problem: str) -> None:
    assert incompatibility(cpu_target(AVX2, AVX2_ISA, **overrides), ALL) == problem


def test_reason_for_a_dropped_flag_is_told() -> None:
    amx = frozenset({"amx_tile", "amx_bf16"})
    host = replace(
        ALL, isa=ALL.isa - amx, dropped_isa=dict.fromkeys(amx, "the kernel refused AMX tiles")
    )

    assert incompatibility(CPU_TARGETS[2], host) == (
        "needs the CPU feature amx_bf16; this host (Test CPU): the kernel refused AMX tiles"
    )
