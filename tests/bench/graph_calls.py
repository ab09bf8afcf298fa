"""What a compiled graph calls, in order, and what each call has to compute and to move.

Knows nothing of Inductor, time, machines or tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]
from numpy.typing import NDArray

Size = Any
"""A whole number or an expression of sympy over the graph's symbols."""


class OperatorKind(Enum):
    """What bounds a call: products, or memory."""

    LINEAR = "linear"
    INT8_LINEAR = "int8_linear"
    ATTENTION = "attention"
    POOLING = "pooling"
    EMBEDDING = "embedding"
    FUSED = "fused"
    OTHER = "other"

    @property
    def is_compute(self) -> bool:
        return self in (OperatorKind.LINEAR, OperatorKind.INT8_LINEAR, OperatorKind.ATTENTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Elements of one buffer that a call reads or writes.

    Attributes:
        index: how they are found; the same index means the same elements.
        count: of the elements, each gathered one counted.
        of: elements of the whole buffer.
    """

    buffer: str
    index: str
    count: Size
    of: Size
    item_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearShape:
    """(rows, K) times (K, N); `epilogue` is what is applied to the product on the way out.

    Attributes:
        hidden: H of two layers, (rows, K) times (K, H) times (H, N); 0 = one layer.
    """

    rows: Size
    n: int
    k: int
    epilogue: str
    hidden: int = 0

    def flops(self, sizes: Mapping[str, int]) -> int:
        numbers = self.hidden * (self.k + self.n) if self.hidden else self.n * self.k
        return 2 * evaluate(self.rows, sizes) * numbers

    @property
    def size(self) -> str:
        """As a label shows it, results first."""
        return "x".join(str(size) for size in (self.n, self.hidden, self.k) if size)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """H heads, D per query and key, D_v per value; window -1 = none, as the operator has it."""

    heads: int
    dim: int
    v_dim: int
    causal: bool
    window: int

    def flops(self, lengths: Sequence[int]) -> int:
        """Both products over the pairs that see each other; softmax is not counted."""
        pairs = sum(visible_pairs(length, self.causal, self.window) for length in lengths)
        return 2 * pairs * self.heads * (self.dim + self.v_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCall:
    """One call of the generated code.

    Attributes:
        name: of the kernel, as the profiler shows it or a part of that.
        reads, writes: buffers; what never leaves a fused kernel is left out of `moved_bytes`.
    """

    kind: OperatorKind
    name: str
    label: str
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    linear: LinearShape | None = None
    attention: AttentionShape | None = None

    def flops(self, sizes: Mapping[str, int], lengths: Sequence[int]) -> int:
        """Operations on numbers of the call's format, a multiplication and its addition two."""
        if self.linear is not None:
            return self.linear.flops(sizes)
        return 0 if self.attention is None else self.attention.flops(lengths)

    def moved_bytes(self, sizes: Mapping[str, int]) -> int:
        """Bytes that must be read and written if each buffer is touched once."""
        return sum(touched_bytes(accesses, sizes) for accesses in (self.reads, self.writes))


def evaluate(size: Size, sizes: Mapping[str, int]) -> int:
    """A size with the graph's symbols replaced."""
    expression = sympy.sympify(size)
    return int(expression.subs({s: sizes[str(s)] for s in expression.free_symbols}))


def visible_pairs(length: int, causal: bool, window: int) -> int:
    """Pairs of query and key of one text that see each other."""
    queries: NDArray[np.int64] = np.arange(length)
    first, end = np.zeros_like(queries), np.full_like(queries, length)
    if window >= 0:
        first = np.maximum(0, queries - window + (1 if causal else 0))
        end = np.minimum(length, queries + window + 1)
    if causal:
        end = queries + 1
    return int((end - first).sum())


def touched_bytes(accesses: Iterable[Access], sizes: Mapping[str, int]) -> int:
    """Sum over buffers, no element of which is counted twice."""
    touched: dict[str, int] = {}
    for access in {(access.buffer, access.index): access for access in accesses}.values():
        num_bytes, whole = (
            access.item_bytes * evaluate(count, sizes) for count in (access.count, access.of)
        )
        touched[access.buffer] = min(whole, touched.get(access.buffer, 0) + num_bytes)
    return sum(touched.values())


def finish_calls(calls: Sequence[GraphCall], outputs: frozenset[str]) -> tuple[GraphCall, ...]:
    """Leave out what nobody reads, and name linear layers by their place in the graph.

    Args:
        calls: all of a graph, in order.
        outputs: buffers that the graph hands out.
    """
    return _with_roles(_without_scratch(calls, outputs))


def _without_scratch(calls: Sequence[GraphCall], outputs: frozenset[str]) -> list[GraphCall]:
    """Drop the writes that nobody reads later: a kernel could do without them."""
    wanted = set(outputs)
    kept = []
    for call in reversed(calls):
        writes = tuple(write for write in call.writes if write.buffer in wanted)
        wanted |= {read.buffer for read in call.reads}
        kept.append(replace(call, writes=writes))
    return kept[::-1]


def _with_roles(calls: Sequence[GraphCall]) -> tuple[GraphCall, ...]:
    """Name linear layers by what they feed and what feeds them, through fused kernels."""
    origins = _origins(calls)
    feeds_attention = {
        origin
        for number, call in enumerate(calls)
        if call.kind is OperatorKind.ATTENTION
        for origin in origins[number]
    }
    rows = next((call.linear.rows for call in calls if call.linear is not None), None)

    def role(number: int, shape: LinearShape) -> str:
        if shape.rows != rows:
            return "head"
        if number in feeds_attention:
            return "QKV"
        if any(calls[origin].kind is OperatorKind.ATTENTION for origin in origins[number]):
            return "attention output"
        if shape.hidden:
            return "MLP"
        return "MLP up" if shape.n > shape.k else "MLP down"

    return tuple(
        call if call.linear is None else replace(call, label=_label(role(i, call.linear), call))
        for i, call in enumerate(calls)
    )


def _label(role: str, call: GraphCall) -> str:
    assert call.linear is not None, "only linear layers have roles; this is a bug"
    epilogue = f" + {call.linear.epilogue}" if call.linear.epilogue else ""
    numbers = ", 8 bits" if call.kind is OperatorKind.INT8_LINEAR else ""
    return f"{role} {call.linear.size}{numbers}{epilogue}"


def _origins(calls: Sequence[GraphCall]) -> list[frozenset[int]]:
    """For each call the nearest calls before it that are no fused kernels."""
    producers: dict[str, int] = {}
    origins: list[frozenset[int]] = []

    def nearest(number: int) -> frozenset[int]:
        is_fused = calls[number].kind is OperatorKind.FUSED
        return origins[number] if is_fused else frozenset({number})

    for number, call in enumerate(calls):
        found = [producers[read.buffer] for read in call.reads if read.buffer in producers]
        origins.append(frozenset().union(*(nearest(producer) for producer in found)))
        producers |= {write.buffer: number for write in call.writes}
    return origins
