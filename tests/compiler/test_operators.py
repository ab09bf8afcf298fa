"""Our operators as the exporter and the generated code see them.

References, refusals, and a graph that calls each kernel with and without its optional tensors.
"""

import ctypes
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from infinity_v3.artifacts.manifest import Graph, PoolingMode, Precision
from infinity_v3.compiler.backends.aoti import build_cpu_engine
from infinity_v3.compiler.export import LIMITS, ExportedModel
from infinity_v3.compiler.operators import POOL_MODES, define_operators
from kernel_calls import HOST_TARGETS, Kernels, cu_seqlens, seeded

HEADS, DIM, VOCABULARY = 2, 8, 40
WIDTH = HEADS * DIM
LENGTHS = [5, 1, 9]
DELTA = torch.tensor([0, 1, 1, 2, 3, 3, 4], dtype=torch.int32)


class EveryOperator(nn.Module):
    """Each operator once with all its optional tensors, or once with none of them."""

    def __init__(self, *, has_options: bool) -> None:
        super().__init__()
        self.has_options = has_options
        self.register_buffer("distance_bias", seeded(HEADS, 7, seed=1))
        self.register_buffer("delta", DELTA)
        self.positions = nn.Parameter(seeded(5, WIDTH, seed=2))
        self.project = nn.Linear(WIDTH, WIDTH)
        self.vocabulary = nn.Linear(WIDTH, VOCABULARY)
        with torch.no_grad():
            for seed, weight in enumerate(
                (*self.project.parameters(), *self.vocabulary.parameters())
            ):
                weight.copy_(seeded(*weight.shape, seed=10 + seed) * 0.3)

    def forward(self, hidden: Tensor, cu: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        """Stored tokens (N, D), bounds, rows of T packed tokens -> one output per operator."""
        ops = torch.ops.infinity
        x = self.project(hidden).unflatten(1, (HEADS, DIM))
        positions = self.project(self.positions).unflatten(1, (HEADS, DIM))
        bias, table = (self.distance_bias, rows) if self.has_options else (None, None)
        pos_key, pos_query = (positions, -positions) if self.has_options else (None, None)
        term_bias = self.vocabulary.bias if self.has_options else None
        mode = POOL_MODES[PoolingMode.WEIGHTED_MEAN]
        attended = ops.varlen_attention(x, x, x, cu, bias, table, None, True, -1, 0.3, 2.0)
        scale, shift = self.positions[0], self.positions[1] if self.has_options else None
        other, ids = (-hidden.abs(), rows % 5) if self.has_options else (None, None)
        places = self.positions if self.has_options else None
        return (
            attended,
            ops.layer_norm(hidden, other, scale, shift, 1e-3),
            ops.embedding_norm(hidden, rows, places, ids, places, ids, scale, shift, 1e-3),
            ops.segment_pool(hidden, cu, table, mode),
            ops.disentangled_attention(x, x, x, pos_key, pos_query, self.delta, cu, 0.3),
            ops.splade_pool(hidden, self.vocabulary.weight, term_bias, cu),
        )


def export(model: nn.Module, *inputs: Tensor) -> ExportedModel:
    stored, packed, bounds = (Dim(name, min=3, max=4096) for name in ("N", "T", "B1"))
    program = torch.export.export(
        model, inputs, dynamic_shapes=({0: stored}, {0: bounds}, {0: packed}), strict=False
    )
    return ExportedModel(
        program=program,
        graph=Graph(inputs=(), outputs=()),
        precision=Precision.FLOAT32,
        limits=LIMITS,
    )


def run_library(folder: Path, entry: str, inputs: list[Tensor]) -> list[Tensor]:
    for kernel in folder.glob("libinfinity-kernels-*.so"):
        ctypes.CDLL(str(kernel), mode=ctypes.RTLD_GLOBAL)
    outputs: list[Tensor] = torch._C._aoti.AOTIModelContainerRunnerCpu(str(folder / entry), 1).run(
        inputs
    )
    return outputs


class WithAndWithout(nn.Module):
    """Every operator, with its optional tensors and then without."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(EveryOperator(has_options=has) for has in (True, False))

    def forward(self, hidden: Tensor, cu: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        return tuple(out for part in self.parts for out in part(hidden, cu, rows))


@pytest.mark.parametrize("kernels", HOST_TARGETS[-1:], ids=lambda t: t.name, indirect=True)
@torch.no_grad()
def test_a_compiled_graph_calls_every_kernel(kernels: Kernels, tmp_path: Path) -> None:
    define_operators()
    model = WithAndWithout()
    inputs = [seeded(15, WIDTH, seed=3), cu_seqlens(LENGTHS), torch.arange(15)]
    engine = build_cpu_engine(
        export(model, *inputs),
        kernels.target,
        kernels.library,
        tmp_path / "engine",
        share_weights=False,
    )
    other = [seeded(40, WIDTH, seed=4), cu_seqlens([7, 2, 30, 1]), torch.arange(40)]
    for given in (inputs, other):
        found = run_library(tmp_path / "engine", engine.entry, given)
        for one, expected in zip(found, model(*given), strict=True):
            torch.testing.assert_close(one, expected, atol=3e-6, rtol=1e-5)


def random_operands() -> dict[str, Tensor]:
    """Three sequences, the third of which starts with two tokens of the first."""
    return {
        "q": seeded(13, 4, DIM, seed=1),
        "k": seeded(13, 2, DIM, seed=2),
        "v": seeded(13, 2, DIM, seed=3),
        "bias": seeded(4, 9, seed=4),
        "rows": torch.tensor([*range(6), 0, 1, *range(6, 13)]),
    }


@pytest.mark.parametrize("options", [(), ("bias",), ("rows",), ("bias", "rows")])
def test_the_attention_reference_computes_what_the_kernel_does(
    kernels: Kernels, options: tuple[str, ...]
) -> None:
    define_operators()
    x, lengths = random_operands(), [5, 1, 9] if "rows" in options else [5, 1, 7]
    bias, rows = (x[name] if name in options else None for name in ("bias", "rows"))
    for causal, window, softcap in ((True, -1, 0.0), (True, 3, 1.0), ("rows" in options, -1, 2.0)):
        expected = torch.ops.infinity.varlen_attention(
            *(x["q"], x["k"], x["v"], cu_seqlens(lengths), bias, rows, None),
            *(causal, window, 0.3, softcap),
        )
        found = kernels.attention(
            [x["q"], x["k"], x["v"]],
            lengths,
            bias=bias,
            rows=rows,
            causal=causal,
            window=window,
            scale=0.3,
            softcap=softcap,
        )
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("terms", [(), ("key",), ("query",), ("key", "query")])
def test_the_disentangled_reference_computes_what_the_kernel_does(
    kernels: Kernels, terms: tuple[str, ...]
) -> None:
    define_operators()
    q, k, v = (seeded(16, HEADS, DIM, seed=n) for n in range(3))
    pos_key, pos_query = (
        seeded(5, HEADS, DIM, seed=n) if name in terms else None
        for n, name in enumerate(("key", "query"), 3)
    )
    expected = torch.ops.infinity.disentangled_attention(
        q, k, v, pos_key, pos_query, DELTA, cu_seqlens(LENGTHS), 0.3
    )
    found = kernels.disentangled(
        (q, k, v), LENGTHS, delta=DELTA, pos_key=pos_key, pos_query=pos_query, scale=0.3
    )
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert expected[15].eq(0).all()


@pytest.mark.parametrize("bias", [seeded(VOCABULARY, seed=5), None], ids=["bias", "no bias"])
def test_the_pooling_references_compute_what_the_kernels_do(
    kernels: Kernels, bias: Tensor | None
) -> None:
    define_operators()
    hidden, weight, lengths = seeded(15, 16), seeded(VOCABULARY, 16, seed=1), [5, 0, 9]
    expected = torch.ops.infinity.splade_pool(hidden, weight, bias, cu_seqlens(lengths))
    found = kernels.splade(hidden, weight, bias, lengths)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-6)
    for mode, code in POOL_MODES.items():
        for rows in (None, torch.arange(14).flip(0)):
            pooled = torch.ops.infinity.segment_pool(hidden, cu_seqlens(lengths), rows, code)
            found = kernels.pool(hidden, lengths, mode, rows)
            torch.testing.assert_close(found, pooled, atol=1e-6, rtol=0)


def test_an_export_refuses_dtypes_that_the_kernels_would() -> None:
    define_operators()
    ops = torch.ops.infinity
    x = torch.empty(4, 2, 8, device="meta")
    cu = torch.empty(3, dtype=torch.int32, device="meta")
    wrong = torch.empty(2, 5, dtype=torch.bfloat16, device="meta")
    with pytest.raises(TypeError, match=r"^distance_bias: expected torch.float32"):
        ops.varlen_attention(x, x, x, cu, wrong, None, None, False, -1, 0.3, 0.0)
    with pytest.raises(TypeError, match=r"^rows: expected torch.int64"):
        ops.segment_pool(x[:, 0], cu, cu, 0)
    with pytest.raises(TypeError, match=r"^delta: expected torch.int32"):
        ops.disentangled_attention(x, x, x, None, None, cu.long(), cu, 0.3)
    with pytest.raises(TypeError, match=r"^weight: expected torch.float32"):
        ops.splade_pool(x[:, 0], wrong, None, cu)
