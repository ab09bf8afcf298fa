"""Builds one engine as the product does, runs it under torch's profiler, and adds up by operator.

The build differs from the product's by Inductor's own profiling hooks alone: every kernel and every
operator of a library, ours among them, opens a record of its name. The n-th record of a call
belongs to the n-th call that was recorded while the code was generated.

Floors are measured in turn with the engine, by the same threads: products of large square matrices
in the engine's number format, 8-bit products on registers where the engine has any, and copies of
buffers that the caches may hold, as they may hold what an operator reads. The fastest round counts,
for floors as for operators: other work on the machine only adds time.
"""

import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._inductor import config
from torch.profiler import ProfilerActivity, profile

from graph_calls import GraphCall, OperatorKind
from graph_recorder import Recorder, recording
from infinity_v3.artifacts.manifest import Precision
from infinity_v3.compiler.availability import runnable_targets
from infinity_v3.compiler.backends.aoti import constant_tensors
from infinity_v3.compiler.cpu_targets import CpuTarget
from infinity_v3.compiler.engines import build_targets, input_names
from infinity_v3.compiler.export import TORCH_DTYPES
from infinity_v3.compiler.pipeline import CompilePlan, plan_compile
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.runtime.batch import Batch, EncodedText, pack
from infinity_v3.runtime.engines.filling import MIN_TOKENS, fill_up, rounded_tokens
from int8_rate import Int8Loop

_HOOKS = {"cpp.enable_kernel_profile": True, "profiler_mark_wrapper_call": True}
_WHOLE_CALL = "inductor_wrapper_call"
_RECORDS = ("aoti_torch_cpu_", "graph_")
_WARM_UPS = 3
_SQUARES = (512, 1024, 2048)
"""Sides of the matrices; the fastest one is the peak."""
_COPIED_BYTES = (1 << 21, 1 << 22, 1 << 23)
"""Sizes of the copied buffers; the fastest one is the bandwidth."""
_COPIES = 10
"""In a row; all but the first few find the buffers in the caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A batch of equally long texts."""

    texts: int
    text_tokens: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return (self.text_tokens,) * self.texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What this machine reached in the same run.

    Attributes:
        gflops: products of large square matrices, 10^9 operations per second.
        gbytes: copies, 10^9 bytes read or written per second.
        int8_gops: 8-bit products and their sums, 10^9 operations per second; None = not measured.
    """

    gflops: float
    gbytes: float
    int8_gops: float | None

    def floor_us(self, call: GraphCall, flops: int, moved_bytes: int) -> float:
        """What a call of so many operations or bytes takes at least."""
        if call.kind is not OperatorKind.INT8_LINEAR:
            return (
                flops / self.gflops if call.kind.is_compute else moved_bytes / self.gbytes
            ) / 1e3
        assert self.int8_gops is not None, "8-bit layers, but no rate of theirs; this is a bug"
        return flops / self.int8_gops / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """All calls of one operator in one engine call."""

    label: str
    kind: OperatorKind
    calls: int
    time_us: float
    flops: int
    moved_bytes: int
    floor_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One engine call of one shape.

    Attributes:
        between_us: in the generated code, but in none of the operators: allocations, size checks.
        unprofiled_us: a whole call without the profiler.
    """

    shape: Shape
    rates: Rates
    operators: tuple[OperatorTime, ...]
    between_us: float
    unprofiled_us: float

    @property
    def total_us(self) -> float:
        return self.between_us + sum(operator.time_us for operator in self.operators)


class Engine:
    """An engine with profiling hooks, loaded through torch's own runner.

    Args:
        int8_loop: the floor of 8-bit layers; None = the engine has none.
    """

    def __init__(
        self, plan: CompilePlan, recorder: Recorder, runner: Any, int8_loop: Int8Loop | None
    ) -> None:
        self.plan = plan
        self.target = plan.targets[0]
        self._int8_loop = int8_loop
        self._recorder = recorder
        self._runner = runner
        self._calls = recorder.graph_calls()

    def breakdown(self, shape: Shape, num_rounds: int) -> Breakdown:
        """Measure one shape; see the module's docstring."""
        inputs = self._inputs(shape)
        run = partial(self._runner.run, inputs)
        for _ in range(_WARM_UPS):
            run()
        unprofiled_s = min(_seconds(run) for _ in range(num_rounds))
        meter = _Meter(TORCH_DTYPES[self.target.precision], self._int8_loop)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(num_rounds):
                run()
                meter.measure()
        rates = meter.rates()
        times_us = _call_times(profiler, self._calls, num_rounds)
        return Breakdown(
            shape=shape,
            rates=rates,
            operators=self._by_operator(shape, inputs, times_us.operators, rates),
            between_us=times_us.between,
            unprofiled_us=unprofiled_s * 1e6,
        )

    def _by_operator(
        self,
        shape: Shape,
        inputs: Sequence[torch.Tensor],
        times_us: Sequence[float],
        rates: Rates,
    ) -> tuple[OperatorTime, ...]:
        sizes = self._recorder.sizes(inputs)
        found: dict[str, OperatorTime] = {}
        for call, time_us in zip(self._calls, times_us, strict=True):
            one = _operator_time(call, time_us, sizes, shape, rates)
            known = found.get(one.label)
            found[one.label] = one if known is None else _added(known, one)
        return tuple(found.values())

    def _inputs(self, shape: Shape) -> list[torch.Tensor]:
        """Random tokens, filled up as the runtime fills them.

        Raises:
            SystemExit: the texts are longer than the model takes.
        """
        limit = self.plan.limit
        longest = limit.position_rows - limit.position_offset
        if shape.text_tokens > longest:
            raise SystemExit(
                f"--lengths: expected at most {longest} tokens, the model's positions, "
                f"found {shape.text_tokens}"
            )
        batch = self._batch(shape)
        return [torch.from_numpy(getattr(batch, name)) for name in input_names(self.plan)]

    def _batch(self, shape: Shape) -> Batch:
        generator = np.random.default_rng(shape.text_tokens)
        vocab_size = self.plan.config.model.vocab_size
        texts = [
            EncodedText(input_ids=generator.integers(0, vocab_size, length, dtype=np.int64))
            for length in shape.lengths
        ]
        offset = self.plan.limit.position_offset
        batch = pack(texts, position_offset=offset)
        is_rounded = self.target.precision is not Precision.FLOAT32
        wanted = rounded_tokens(batch.num_tokens) if is_rounded else MIN_TOKENS
        return fill_up(batch, num_stored=wanted, num_tokens=wanted, position_offset=offset)


def build_engine(
    checkpoint: Path, target: str | None, num_threads: int, folder: Path, progress: Progress
) -> Engine:
    """Build and load.

    Args:
        target: None = the best that this host can run.
        folder: created; receives the engine and must outlive it.
    """
    folder.mkdir(parents=True)
    name = target or runnable_targets(())[0].name
    request = CompileRequest(
        checkpoint=str(checkpoint), out=folder / "artifact", targets=(name,), threads=num_threads
    )
    plan = plan_compile(request, progress)
    with recording() as recorder, config.patch(_HOOKS):
        built = build_targets(plan, request, folder, progress)
    engine = folder / "targets" / name
    for file in built.engines[0].files:
        if file != built.engines[0].entry:
            ctypes.CDLL(str(engine / file), mode=ctypes.RTLD_GLOBAL)
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(engine / built.engines[0].entry), 1)
    if built.shared:
        constants = constant_tensors(built.exported[plan.targets[0].precision].program)
        names = runner.get_constant_names_to_original_fqns()
        supplied = {name: constants[original] for name, original in names.items()}
        runner.update_constant_buffer(supplied, False, True, True)
    torch.set_num_threads(num_threads)
    return Engine(plan, recorder, runner, _int8_loop(plan.targets[0], folder, num_threads))


def _int8_loop(target: CpuTarget, folder: Path, num_threads: int) -> Int8Loop | None:
    if target.precision is not Precision.INT8:
        return None
    return Int8Loop(folder, num_threads, uses_tiles="amx_int8" in target.isa)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallTimes:
    """Of the fastest rounds; `operators` in the order of the calls."""

    operators: tuple[float, ...]
    between: float


def _call_times(profiler: Any, calls: Sequence[GraphCall], num_rounds: int) -> _CallTimes:
    events = sorted(profiler.events(), key=lambda event: event.time_range.start)
    totals = [_us(event) for event in events if event.name == _WHOLE_CALL]
    records = [event for event in events if event.name.startswith(_RECORDS)]
    _refuse_other_order([record.name for record in records], calls, num_rounds)
    times = np.array([_us(record) for record in records]).reshape(num_rounds, len(calls))
    between = np.array(totals) - times.sum(axis=1)
    return _CallTimes(
        operators=tuple(float(fastest) for fastest in times.min(axis=0)),
        between=float(between.min()),
    )


def _us(event: Any) -> float:
    return float(event.time_range.elapsed_us())


def _refuse_other_order(found: Sequence[str], calls: Sequence[GraphCall], num_rounds: int) -> None:
    """The profiler's records are told apart by their order alone."""
    expected = [call.name for call in calls] * num_rounds
    if len(found) != len(expected):
        raise SystemExit(
            f"expected {len(calls)} operators in each of {num_rounds} calls, the profiler found "
            f"{len(found)} in all; this torch release generates other code"
        )
    for shown, call in zip(found, expected, strict=True):
        if call.startswith("cpp_") and not shown.endswith(call):
            raise SystemExit(f"expected {call}, the profiler found {shown} in its place")


def _operator_time(
    call: GraphCall, time_us: float, sizes: Mapping[str, int], shape: Shape, rates: Rates
) -> OperatorTime:
    flops, moved = call.flops(sizes, shape.lengths), call.moved_bytes(sizes)
    return OperatorTime(
        label=call.label,
        kind=call.kind,
        calls=1,
        time_us=time_us,
        flops=flops,
        moved_bytes=moved,
        floor_us=rates.floor_us(call, flops, moved),
    )


def _added(one: OperatorTime, other: OperatorTime) -> OperatorTime:
    return replace(
        one,
        calls=one.calls + other.calls,
        time_us=one.time_us + other.time_us,
        flops=one.flops + other.flops,
        moved_bytes=one.moved_bytes + other.moved_bytes,
        floor_us=one.floor_us + other.floor_us,
    )


class _Meter:
    """Measures products and copies, one of each size at a time."""

    def __init__(self, dtype: torch.dtype, int8_loop: Int8Loop | None) -> None:
        self._int8_loop = int8_loop
        self._int8_gops: float | None = None
        self._squares = {side: torch.rand(3, side, side).to(dtype) for side in _SQUARES}
        self._buffers = {size: torch.zeros(2, size, dtype=torch.uint8) for size in _COPIED_BYTES}
        self._seconds: dict[tuple[str, int], float] = {}

    def measure(self) -> None:
        for side, (left, right, out) in self._squares.items():
            self._time("product", side, partial(torch.mm, left, right, out=out))
        for size, (source, sink) in self._buffers.items():
            for _ in range(_COPIES):
                self._time("copy", size, partial(sink.copy_, source))

        if self._int8_loop is not None:
            self._int8_gops = max(self._int8_gops or 0.0, self._int8_loop.gops())

    def rates(self) -> Rates:
        return Rates(
            gflops=max(2e-9 * side**3 / self._seconds["product", side] for side in _SQUARES),
            gbytes=max(2e-9 * size / self._seconds["copy", size] for size in _COPIED_BYTES),
            int8_gops=self._int8_gops,
        )

    def _time(self, what: str, size: int, run: Callable[[], object]) -> None:
        fastest_s = self._seconds.get((what, size), math.inf)
        self._seconds[what, size] = min(fastest_s, _seconds(run))


def _seconds(run: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s
