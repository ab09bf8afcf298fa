"""Watches Inductor while it generates code, and records what that code calls, in order.

Knows nothing of time, machines or tables.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._inductor import dependencies, ir, scheduler
from torch._inductor.codegen import cpp
from torch._inductor.virtualized import V

from graph_calls import (
    Access,
    AttentionShape,
    GraphCall,
    LinearShape,
    OperatorKind,
    Size,
    finish_calls,
)
from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.operators import (
    ATTENTION,
    BF16_LINEAR,
    BF16_MLP,
    DISENTANGLED,
    EMBEDDING_NORM,
    INT8_LINEAR,
    LAYER_NORM,
    POOL,
    POOL_MODES,
    SPLADE,
)

_LINEAR = re.compile(r"_linear_pointwise|_mkl_linear|\b(add)?mm\b|\blinear\b")
_NO_WORK = re.compile(
    r"_(_to_copy|_unsafe_view|view|unsqueeze|squeeze|select|slice|split|unbind|permute|transpose"
    r"|expand|(varlen|disentangled)_attention_[0-9a-f]{12})(?=_|$)"
)
"""Parts of a kernel's name that say nothing of what it computes."""

_ONE_ROW_MODES = tuple(POOL_MODES[mode] for mode in (PoolingMode.CLS, PoolingMode.LAST_TOKEN))


@dataclass(slots=True)
class Recorder:
    """Fills up while code is generated."""

    calls: list[GraphCall] = field(default_factory=list)
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Symbol of a size -> which of the graph's inputs, and which of its dimensions."""
    outputs: frozenset[str] = frozenset()
    _aliases: dict[str, list[Access]] = field(default_factory=dict)

    def graph_calls(self) -> tuple[GraphCall, ...]:
        """All calls, finished; see `finish_calls`."""
        return finish_calls([self._with_outputs(call) for call in self.calls], self.outputs)

    def sizes(self, inputs: Sequence[torch.Tensor]) -> dict[str, int]:
        """Values of the graph's symbols for these inputs."""
        return {name: inputs[i].shape[dim] for name, (i, dim) in self.symbols.items()}

    def add_extern(self, node: Any) -> None:
        """An operator of a library."""
        reads, writes = _accesses([node])
        if isinstance(node.node, ir.MultiOutput):
            for read in node.read_writes.reads:
                self._aliases.setdefault(read.name, []).extend(writes)
            return
        if isinstance(node.node, ir.AssertScalar):
            return
        self._look_at_graph()
        self.calls.append(_extern_call(node.node, reads, writes or (_unsized(node.node),)))

    def add_fused(self, name: str, nodes: Sequence[Any]) -> None:
        """A kernel that Inductor wrote."""
        self._look_at_graph()
        reads, writes = _accesses(nodes)
        is_embedding = "_embedding_" in name
        self.calls.append(
            GraphCall(
                kind=OperatorKind.EMBEDDING if is_embedding else OperatorKind.FUSED,
                name=name,
                label=fused_label(name),
                reads=reads,
                writes=writes,
            )
        )

    def _look_at_graph(self) -> None:
        self.outputs = frozenset(V.graph.get_output_names())
        shapes = [
            value.get_size()
            for value in V.graph.graph_inputs.values()
            if isinstance(value, ir.TensorBox)
        ]
        for number, shape in enumerate(shapes):
            for dim, size in enumerate(shape):
                if isinstance(size, sympy.Symbol):
                    self.symbols.setdefault(str(size), (number, dim))

    def _with_outputs(self, call: GraphCall) -> GraphCall:
        """A library's operator hands its results out under other names."""
        handed = [alias for write in call.writes for alias in self._aliases.get(write.buffer, [])]
        return replace(call, writes=tuple(handed)) if handed else call


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record what is generated within the block."""
    recorder = Recorder()
    usual_extern = scheduler.Scheduler.codegen_extern_call
    usual_fused = cpp.KernelGroup.call_kernel

    def codegen_extern_call(self: scheduler.Scheduler, node: Any) -> None:
        recorder.add_extern(node)
        usual_extern(self, node)

    def call_kernel(self: Any, wrapper: Any, kernel_name: str) -> None:
        recorder.add_fused(kernel_name, self.scheduled_nodes)
        usual_fused(self, wrapper, kernel_name)  # type: ignore[no-untyped-call]

    scheduler.Scheduler.codegen_extern_call = codegen_extern_call  # type: ignore[assignment, method-assign]
    cpp.KernelGroup.call_kernel = call_kernel  # type: ignore[method-assign]
    try:
        yield recorder
    finally:
        scheduler.Scheduler.codegen_extern_call = usual_extern  # type: ignore[method-assign]
        cpp.KernelGroup.call_kernel = usual_fused  # type: ignore[method-assign]


def fused_label(kernel_name: str) -> str:
    """cpp_fused_add_native_layer_norm_view_3 -> "fused add native layer norm"."""
    words = kernel_name.removeprefix("cpp_").rstrip("0123456789").rstrip("_")
    return " ".join(_NO_WORK.sub("", words).split("_"))


def _extern_call(node: Any, reads: Sequence[Access], writes: Sequence[Access]) -> GraphCall:
    name = str(getattr(node, "python_kernel_name", None) or type(node).__name__)
    base = name.removeprefix("torch.ops.").removeprefix("extern_kernels.")
    kind, linear, attention, label = OperatorKind.OTHER, None, None, base
    if _is_ours(base, ATTENTION, DISENTANGLED):
        kind, attention = OperatorKind.ATTENTION, _attention_shape(node, base)
        window = f", window {attention.window}" if attention.window >= 0 else ""
        label = f"attention{window}"
    elif _is_ours(base, POOL, SPLADE):
        kind, label = OperatorKind.POOLING, "pooling"
        if _is_ours(base, POOL) and node.constant_args[-1] in _ONE_ROW_MODES:
            reads = _pooled_rows(node)
    elif _is_ours(base, LAYER_NORM, EMBEDDING_NORM):
        kind, label, reads = _norm(node, base, reads)
    elif _is_ours(base, INT8_LINEAR):
        kind, linear = OperatorKind.INT8_LINEAR, _int8_linear_shape(node)
    elif _is_ours(base, BF16_LINEAR, BF16_MLP):
        kind, linear = OperatorKind.LINEAR, _bf16_shape(node, base)
    elif _LINEAR.search(base):
        kind, linear = OperatorKind.LINEAR, _linear_shape(node, base)
    return GraphCall(
        kind=kind,
        name=base,
        label=label,
        reads=tuple(reads),
        writes=tuple(writes),
        linear=linear,
        attention=attention,
    )


def _pooled_rows(node: Any) -> tuple[Access, ...]:
    """One row per text of the tokens' vectors (N, D), by cu_seqlens (B + 1,)."""
    hidden, bounds = node.inputs[:2]
    rows, width = hidden.get_size()
    access = Access(
        buffer=hidden.get_name(),
        index="first or last of each text",
        count=(bounds.get_size()[0] - 1) * width,
        of=rows * width,
        item_bytes=hidden.get_dtype().itemsize,
    )
    return (access,)


def _norm(
    node: Any, base: str, reads: Sequence[Access]
) -> tuple[OperatorKind, str, Sequence[Access]]:
    """A LayerNorm takes part in no role of a linear layer, as the loops that Inductor writes."""
    if _is_ours(base, LAYER_NORM):
        return OperatorKind.FUSED, "LayerNorm", reads
    return OperatorKind.EMBEDDING, "embedding + LayerNorm", _looked_up(node)


def _looked_up(node: Any) -> tuple[Access, ...]:
    """Of tables (R, D) the rows that ids (N,) name; each table stands before its ids."""
    matrices = [tensor for tensor in node.inputs if len(tensor.get_size()) == 2]
    ids = [tensor for tensor in node.inputs if tensor.get_dtype() == torch.int64]
    rows = ids[0].get_size()[0]
    gathered = [(table, rows * table.get_size()[1], "gathered") for table in matrices]
    return tuple(
        Access(
            buffer=tensor.get_name(),
            index=index,
            count=count,
            of=math.prod(tensor.get_size()),
            item_bytes=tensor.get_dtype().itemsize,
        )
        for tensor, count, index in (*gathered, *((one, rows, "all") for one in ids))
    )


def _is_ours(name: str, *operators: str) -> bool:
    return any(name.startswith(f"infinity.{operator}") for operator in operators)


def _attention_shape(node: Any, name: str) -> AttentionShape:
    query, _, value = (tensor.get_size() for tensor in node.inputs[:3])
    # The schema ends with causal, window, scale and softcap; the other operator has neither.
    is_plain = _is_ours(name, ATTENTION)
    causal, window = node.constant_args[-4:-2] if is_plain else (False, -1)
    return AttentionShape(
        heads=int(query[1]),
        dim=int(query[2]),
        v_dim=int(value[2]),
        causal=bool(causal),
        window=int(window),
    )


def _linear_shape(node: Any, name: str) -> LinearShape:
    tensors = [tensor.get_size() for tensor in node.inputs if hasattr(tensor, "get_size")]
    rows, k = tensors[1 if "addmm" in name else 0][-2:]
    weight = next(shape for shape in reversed(tensors) if _is_matrix(shape))
    words = [word for word in getattr(node, "constant_args", ()) if isinstance(word, str)]
    return LinearShape(
        rows=rows,
        n=math.prod(int(size) for size in weight) // int(k),
        k=int(k),
        epilogue=" ".join(word for word in words if word not in ("", "none")),
    )


def _int8_linear_shape(node: Any) -> LinearShape:
    """By x (rows, K) and the int32 sums (N,) of the columns; the weights are padded."""
    rows, k = node.inputs[0].get_size()
    sums = next(tensor for tensor in node.inputs if tensor.get_dtype() == torch.int32)
    activation = Activation(int(node.constant_args[-1]))
    return LinearShape(
        rows=rows,
        n=int(sums.get_size()[0]),
        k=int(k),
        epilogue="" if activation is Activation.NONE else activation.name.lower(),
    )


def _bf16_shape(node: Any, name: str) -> LinearShape:
    """By x (rows, K) and the arguments N and, of two layers, H; the weights are padded."""
    rows, k = node.inputs[0].get_size()
    hidden = 0
    if _is_ours(name, BF16_MLP):
        hidden, activation, n = _whole_numbers(node)
    else:
        n, activation = _whole_numbers(node)
    epilogue = _bf16_epilogue(node, activation)
    return LinearShape(rows=rows, n=n, k=int(k), epilogue=epilogue, hidden=hidden)


def _whole_numbers(node: Any) -> tuple[int, ...]:
    """Arguments that are no tensors; an absent tensor is one of the node's constants, too."""
    return tuple(int(argument) for argument in node.constant_args if argument is not None)


def _bf16_epilogue(node: Any, activation: int) -> str:
    """The activation, and whether something is added."""
    words = [] if activation == Activation.NONE else [Activation(activation).name.lower()]
    return " ".join([*words, "add"] if _has_residual(node) else words)


def _has_residual(node: Any) -> bool:
    return any(
        len(tensor.get_size()) == 2 and tensor.get_dtype() == torch.bfloat16
        for tensor in node.inputs[1:]
    )


def _is_matrix(shape: Sequence[Size]) -> bool:
    """Two known sizes: a weight, as no number of rows is known."""
    return len(shape) == 2 and not any(sympy.sympify(size).free_symbols for size in shape)


def _accesses(nodes: Sequence[Any]) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
    """Reads from outside of a group of nodes, and all its writes."""
    writes = [access for node in nodes for access in _each(node.read_writes.writes)]
    inner = {write.buffer for write in writes}
    reads = [access for node in nodes for access in _each(node.read_writes.reads)]
    return tuple(read for read in reads if read.buffer not in inner), tuple(writes)


def _each(deps: Iterable[Any]) -> Iterator[Access]:
    for dep in deps:
        if isinstance(dep, dependencies.WeakDep):
            continue
        try:
            access = Access(
                buffer=dep.name,
                index=str(dep),
                count=_iterated(dep),
                of=V.graph.get_numel(dep.name),
                item_bytes=V.graph.get_dtype(dep.name).itemsize,
            )
        except NotImplementedError:  # several results, each of which has a node of its own
            continue
        yield access


def _iterated(dep: Any) -> Size:
    """Elements that the loops around an access visit; a gather visits no more than that."""
    if isinstance(dep, dependencies.MemoryDep) and dep.is_indirect():
        return math.prod(dep.size)
    return dep.get_numel()


def _unsized(node: Any) -> Access:
    return Access(buffer=node.get_name(), index="", count=0, of=0, item_bytes=0)
