"""Which targets a pretended host may build, and how the others are refused."""

import pytest

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.compiler import availability
from infinity_v3.compiler.availability import list_availability, runnable_targets
from infinity_v3.compiler.cpu_targets import CPU_TARGETS
from infinity_v3.compiler.toolchain import CxxCompiler

AVX2 = "cpu-x86_64-avx2-f32"
AVX512 = "cpu-x86_64-avx512-f32"
AMX = "cpu-x86_64-amx-bf16"
INT8, AMX_INT8 = "cpu-x86_64-avx512-int8", "cpu-x86_64-amx-int8"
ISA = {target.name: frozenset(target.isa) for target in CPU_TARGETS}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostCapabilities:
    """A host with AVX-512 and nothing above it."""
    capabilities = HostCapabilities(arch="x86_64", isa=ISA[AVX512])
    monkeypatch.setattr(availability, "detect_host", lambda: capabilities)
    return capabilities


@pytest.mark.usefixtures("host")
def test_no_name_means_all_that_run_here() -> None:
    assert [target.name for target in runnable_targets(())] == [AVX512, AVX2]


@pytest.mark.usefixtures("host")
def test_names_come_in_the_order_of_preference() -> None:
    assert [target.name for target in runnable_targets((AVX2, AVX512))] == [AVX512, AVX2]


@pytest.mark.usefixtures("host")
def test_a_target_that_cannot_be_verified_is_refused() -> None:
    with pytest.raises(
        RefusedError, match=rf"--target: {AMX} needs the CPU feature .*leave it out"
    ):
        runnable_targets((AVX2, AMX))


@pytest.mark.usefixtures("host")
def test_an_unknown_target() -> None:
    with pytest.raises(
        UsageError, match=rf"unknown target 'cpu-avx2'.*this release builds {AMX}, "
    ):
        runnable_targets(("cpu-avx2",))


def test_8_bit_engines_are_built_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    every = frozenset(flag for isa in ISA.values() for flag in isa)
    host = HostCapabilities(arch="x86_64", isa=every)
    monkeypatch.setattr(availability, "detect_host", lambda: host)
    names = [target.name for target in CPU_TARGETS if target.name not in (INT8, AMX_INT8)]
    assert [target.name for target in runnable_targets(())] == names
    assert [target.name for target in runnable_targets((INT8, AMX))] == [AMX, INT8]
    assert [target.name for target in runnable_targets((INT8, AMX_INT8))] == [AMX_INT8, INT8]


def test_a_host_that_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    other = HostCapabilities(arch="aarch64", isa=frozenset())
    monkeypatch.setattr(availability, "detect_host", lambda: other)
    with pytest.raises(RefusedError) as caught:
        runnable_targets(())
    for target in CPU_TARGETS:
        assert f"{target.name} needs a CPU of type x86_64" in str(caught.value)


@pytest.mark.usefixtures("host")
def test_reasons_are_listed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "find_obstacles", lambda: ("torch is not installed",))
    old = CxxCompiler(command="g++", version="g++ 8")
    monkeypatch.setattr(availability, "find_cxx", lambda: old)
    monkeypatch.setattr(availability, "accepts_flags", lambda _, flags: "-march=x86-64-v3" in flags)
    rows = {row.name: row for row in list_availability()}
    assert list(rows) == [target.name for target in CPU_TARGETS]
    assert rows[AVX2].cannot_run is None
    assert rows[AVX2].cannot_build == ("torch is not installed",)
    assert len(rows[AMX].cannot_build) == 3
    assert rows[AMX].cannot_build[0].startswith("needs the CPU feature")
    assert rows[AVX512].cannot_build[1].startswith("g++ 8 does not know -march=x86-64-v4")
