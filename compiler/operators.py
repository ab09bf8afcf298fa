"""Torch operators of our own, as the exporter sees them.

Each is a schema, a shape rule, and a plain reference for eager runs. Knows nothing of models. The
compiled engines call the C++ kernels of the same names instead of the references.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from infinity_v3.compiler.attention_reference import attention_reference, disentangled_reference
from infinity_v3.compiler.bf16.reference import bf16_linear_reference, bf16_mlp_reference
from infinity_v3.compiler.bf16.weights import PANEL as BF16_PANEL
from infinity_v3.compiler.bf16.weights import packed_size
from infinity_v3.compiler.grouped_mm_reference import grouped_mm_reference
from infinity_v3.compiler.int8.reference import int8_linear_reference
from infinity_v3.compiler.int8.weights import PANEL, STEP
from infinity_v3.compiler.norm_reference import embedding_norm_reference, layer_norm_reference
from infinity_v3.compiler.pooling_reference import POOL_MODES, pool_reference, splade_reference

__all__ = [
    "ATTENTION",
    "BF16_LINEAR",
    "BF16_MLP",
    "DISENTANGLED",
    "EMBEDDING_NORM",
    "GROUPED_MM",
    "INT8_LINEAR",
    "LAYER_NORM",
    "POOL",
    "POOL_MODES",
    "SPLADE",
    "attention_reference",
    "bf16_linear_reference",
    "bf16_mlp_reference",
    "define_operators",
    "disentangled_reference",
    "embedding_norm_reference",
    "grouped_mm_reference",
    "int8_linear_reference",
    "layer_norm_reference",
    "pool_reference",
    "shim_declaration",
    "splade_reference",
]

ATTENTION = "varlen_attention"
BF16_LINEAR = "bf16_linear"
BF16_MLP = "bf16_mlp"
DISENTANGLED = "disentangled_attention"
EMBEDDING_NORM = "embedding_norm"
GROUPED_MM = "grouped_mm"
INT8_LINEAR = "int8_linear"
LAYER_NORM = "layer_norm"
POOL = "segment_pool"
SPLADE = "splade_pool"

_GROUPED_MM_BYTES = 16
"""What torch asks of the strides of a grouped product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operator:
    """One operator: `shim` is the C parameter list of its kernel, in the schema's order.

    An optional tensor arrives there as a pointer to a handle, null for None.
    """

    schema: str
    shim: str
    fake: Callable[..., Tensor]
    reference: Callable[..., Tensor]


def define_operators(digest: str | None = None) -> dict[str, torch._ops.OpOverload]:
    """Register the operators, once per process and digest.

    Args:
        digest: None for the names that graphs are exported with; else the names carry the digest of
            a kernel library, so that the generated code calls exactly that library.

    Returns:
        The overloads by base name.
    """
    overloads = {}
    for base, operator in _operators().items():
        name = base if digest is None else f"{base}_{digest}"
        if not hasattr(torch.ops.infinity, name):
            _define(name, operator)
        overloads[base] = getattr(torch.ops.infinity, name).default
    return overloads


def shim_declaration(base: str, digest: str) -> str:
    """The C declaration of a kernel, as the generated code needs it."""
    parameters = f"{_operators()[base].shim}, AtenTensorHandle* ret"
    return f"AOTITorchError aoti_torch_cpu_{base}_{digest}({parameters})"


def _define(name: str, operator: _Operator) -> None:
    torch.library.define(f"infinity::{name}", operator.schema)
    torch.library.register_fake(f"infinity::{name}", operator.fake)
    torch.library.impl(f"infinity::{name}", "CPU", operator.reference)


def _operators() -> dict[str, _Operator]:
    return {
        ATTENTION: _Operator(
            schema="(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, Tensor? distance_bias,"
            " Tensor? rows, Tensor? key_counts, bool causal, int window, float scale,"
            " float softcap) -> Tensor",
            shim="AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v,"
            " AtenTensorHandle cu_seqlens, AtenTensorHandle* distance_bias, AtenTensorHandle* rows,"
            " AtenTensorHandle* key_counts, int32_t causal, int64_t window, double scale,"
            " double softcap",
            fake=_fake_attention,
            reference=attention_reference,
        ),
        BF16_LINEAR: _Operator(
            schema="(Tensor x, Tensor weights, int columns, Tensor? bias, Tensor? residual,"
            " int activation) -> Tensor",
            shim="AtenTensorHandle x, AtenTensorHandle weights, int64_t columns,"
            " AtenTensorHandle* bias, AtenTensorHandle* residual, int64_t activation",
            fake=_fake_bf16_linear,
            reference=bf16_linear_reference,
        ),
        BF16_MLP: _Operator(
            schema="(Tensor x, Tensor up, int hidden, Tensor? up_bias, int activation, Tensor down,"
            " int columns, Tensor? down_bias, Tensor? residual) -> Tensor",
            shim="AtenTensorHandle x, AtenTensorHandle up, int64_t hidden,"
            " AtenTensorHandle* up_bias, int64_t activation, AtenTensorHandle down,"
            " int64_t columns, AtenTensorHandle* down_bias, AtenTensorHandle* residual",
            fake=_fake_bf16_mlp,
            reference=bf16_mlp_reference,
        ),
        DISENTANGLED: _Operator(
            schema="(Tensor q, Tensor k, Tensor v, Tensor? pos_key, Tensor? pos_query,"
            " Tensor delta, Tensor cu_seqlens, float scale) -> Tensor",
            shim="AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v,"
            " AtenTensorHandle* pos_key, AtenTensorHandle* pos_query, AtenTensorHandle delta,"
            " AtenTensorHandle cu_seqlens, double scale",
            fake=_fake_disentangled,
            reference=disentangled_reference,
        ),
        EMBEDDING_NORM: _Operator(
            schema="(Tensor table, Tensor ids, Tensor? second_table, Tensor? second_ids,"
            " Tensor? third_table, Tensor? third_ids, Tensor weight, Tensor? bias, float epsilon)"
            " -> Tensor",
            shim="AtenTensorHandle table, AtenTensorHandle ids, AtenTensorHandle* second_table,"
            " AtenTensorHandle* second_ids, AtenTensorHandle* third_table,"
            " AtenTensorHandle* third_ids, AtenTensorHandle weight, AtenTensorHandle* bias,"
            " double epsilon",
            fake=_fake_embedding_norm,
            reference=embedding_norm_reference,
        ),
        GROUPED_MM: _Operator(
            schema="(Tensor tokens, Tensor weights, Tensor ends) -> Tensor",
            shim="AtenTensorHandle tokens, AtenTensorHandle weights, AtenTensorHandle ends",
            fake=_fake_grouped_mm,
            reference=grouped_mm_reference,
        ),
        INT8_LINEAR: _Operator(
            schema="(Tensor x, Tensor? factors, Tensor weights, Tensor column_sums,"
            " Tensor column_scales, Tensor? bias, int activation) -> Tensor",
            shim="AtenTensorHandle x, AtenTensorHandle* factors, AtenTensorHandle weights,"
            " AtenTensorHandle column_sums, AtenTensorHandle column_scales, AtenTensorHandle* bias,"
            " int64_t activation",
            fake=_fake_int8_linear,
            reference=int8_linear_reference,
        ),
        LAYER_NORM: _Operator(
            schema="(Tensor x, Tensor? other, Tensor weight, Tensor? bias, float epsilon)"
            " -> Tensor",
            shim="AtenTensorHandle x, AtenTensorHandle* other, AtenTensorHandle weight,"
            " AtenTensorHandle* bias, double epsilon",
            fake=_fake_layer_norm,
            reference=layer_norm_reference,
        ),
        POOL: _Operator(
            schema="(Tensor hidden, Tensor cu_seqlens, Tensor? rows, int mode) -> Tensor",
            shim="AtenTensorHandle hidden, AtenTensorHandle cu_seqlens, AtenTensorHandle* rows,"
            " int64_t mode",
            fake=_fake_pool,
            reference=pool_reference,
        ),
        SPLADE: _Operator(
            schema="(Tensor hidden, Tensor weight, Tensor? bias, Tensor cu_seqlens) -> Tensor",
            shim="AtenTensorHandle hidden, AtenTensorHandle weight, AtenTensorHandle* bias,"
            " AtenTensorHandle cu_seqlens",
            fake=_fake_splade,
            reference=splade_reference,
        ),
    }


def _fake_attention(  # noqa: PLR0913 - the operator's schema
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    distance_bias: Tensor | None,
    rows: Tensor | None,
    key_counts: Tensor | None,
    causal: bool,
    window: int,
    scale: float,
    softcap: float,
) -> Tensor:
    if distance_bias is not None:
        _check_dtype("distance_bias", distance_bias, torch.float32)
    if rows is not None:
        _check_dtype("rows", rows, torch.int64)
    if key_counts is not None:
        _check_dtype("key_counts", key_counts, torch.int32)
    return q.new_empty(q.shape[0], q.shape[1], v.shape[2])


def _fake_bf16_linear(
    x: Tensor,
    weights: Tensor,
    columns: int,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: int,
) -> Tensor:
    _check_dtype("x", x, torch.bfloat16)
    _check_dtype("weights", weights, torch.bfloat16)
    if bias is not None:
        _check_dtype("bias", bias, torch.float32)
    if residual is not None:
        _check_dtype("residual", residual, torch.bfloat16)
    depth = x.shape[1]
    if depth % 2 or weights.shape[0] != packed_size(columns, depth):
        raise ValueError(
            f"weights: expected {packed_size(columns, depth)} packed numbers for rows of {depth}, "
            f"an even number, and {columns} columns, found {weights.shape[0]}"
        )
    return x.new_empty(x.shape[0], columns)


def _fake_bf16_mlp(  # noqa: PLR0913 - the operator's schema
    x: Tensor,
    up: Tensor,
    hidden: int,
    up_bias: Tensor | None,
    activation: int,
    down: Tensor,
    columns: int,
    down_bias: Tensor | None,
    residual: Tensor | None,
) -> Tensor:
    if hidden % BF16_PANEL:
        raise ValueError(f"hidden: expected a multiple of {BF16_PANEL}, found {hidden}")
    between = _fake_bf16_linear(x, up, hidden, up_bias, None, activation)
    return _fake_bf16_linear(between, down, columns, down_bias, residual, 0)


def _fake_disentangled(  # noqa: PLR0913 - the operator's schema
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos_key: Tensor | None,
    pos_query: Tensor | None,
    delta: Tensor,
    cu_seqlens: Tensor,
    scale: float,
) -> Tensor:
    _check_dtype("delta", delta, torch.int32)
    for name, positions in (("pos_key", pos_key), ("pos_query", pos_query)):
        if positions is not None:
            _check_dtype(name, positions, q.dtype)
    return q.new_empty(v.shape)


def _fake_embedding_norm(  # noqa: PLR0913 - the operator's schema
    table: Tensor,
    ids: Tensor,
    second_table: Tensor | None,
    second_ids: Tensor | None,
    third_table: Tensor | None,
    third_ids: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    epsilon: float,
) -> Tensor:
    for name, other in (("second_table", second_table), ("third_table", third_table)):
        if other is not None:
            _check_dtype(name, other, table.dtype)
    for name, rows in (("ids", ids), ("second_ids", second_ids), ("third_ids", third_ids)):
        if rows is not None:
            _check_dtype(name, rows, torch.int64)
    return table.new_empty(ids.shape[0], table.shape[1])


def _fake_grouped_mm(tokens: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    _check_dtype("weights", weights, tokens.dtype)
    _check_dtype("ends", ends, torch.int32)
    for width in weights.shape[1:]:
        if width * weights.element_size() % _GROUPED_MM_BYTES:
            raise ValueError(
                f"weights: expected rows of a multiple of {_GROUPED_MM_BYTES} bytes, found {width} "
                f"numbers of {weights.element_size()} bytes"
            )
    return tokens.new_empty(tokens.shape[0], weights.shape[2])


def _fake_int8_linear(  # noqa: PLR0913 - the operator's schema
    x: Tensor,
    factors: Tensor | None,
    weights: Tensor,
    column_sums: Tensor,
    column_scales: Tensor,
    bias: Tensor | None,
    activation: int,
) -> Tensor:
    _check_dtype("x", x, torch.bfloat16)
    _check_dtype("weights", weights, torch.int8)
    _check_dtype("column_sums", column_sums, torch.int32)
    _check_dtype("column_scales", column_scales, torch.float32)
    for name, vector in (("factors", factors), ("bias", bias)):
        if vector is not None:
            _check_dtype(name, vector, torch.float32)
    depth, columns = x.shape[1], column_scales.shape[0]
    expected = -(-columns // PANEL) * PANEL * depth
    if depth % STEP or weights.shape[0] != expected:
        raise ValueError(
            f"weights: expected {expected} packed numbers for rows of {depth}, a multiple of "
            f"{STEP}, and {columns} columns, found {weights.shape[0]}"
        )
    return x.new_empty(x.shape[0], columns)


def _fake_layer_norm(
    x: Tensor, other: Tensor | None, weight: Tensor, bias: Tensor | None, epsilon: float
) -> Tensor:
    if other is not None:
        _check_dtype("other", other, x.dtype)
    return x.new_empty(x.shape)


def _fake_pool(hidden: Tensor, cu_seqlens: Tensor, rows: Tensor | None, mode: int) -> Tensor:
    if rows is not None:
        _check_dtype("rows", rows, torch.int64)
    return hidden.new_empty(cu_seqlens.shape[0] - 1, hidden.shape[1], dtype=torch.float32)


def _fake_splade(hidden: Tensor, weight: Tensor, bias: Tensor | None, cu_seqlens: Tensor) -> Tensor:
    _check_dtype("weight", weight, hidden.dtype)
    if bias is not None:
        _check_dtype("bias", bias, hidden.dtype)
    return hidden.new_empty(cu_seqlens.shape[0] - 1, weight.shape[0], dtype=torch.float32)


def _check_dtype(name: str, tensor: Tensor, expected: torch.dtype) -> None:
    """Fail while exporting what the kernel would refuse while serving."""
    if tensor.dtype != expected:
        raise TypeError(f"{name}: expected {expected}, found {tensor.dtype}; convert it before")
