"""Torch operators of our own, as the exporter sees them.

Each is a schema, a shape rule, and a plain reference for eager runs. Knows nothing of models. The
compiled engines call the C++ kernels of the same names instead of the references here.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from infinity_v3.artifacts.manifest import PoolingMode

ATTENTION = "varlen_attention"
POOL = "segment_pool"
_SCHEMAS = {
    ATTENTION: "(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, bool causal, int window,"
    " float scale) -> Tensor",
    POOL: "(Tensor hidden, Tensor cu_seqlens, int mode) -> Tensor",
}
_SHIMS = {
    ATTENTION: "AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v,"
    " AtenTensorHandle cu_seqlens, int32_t causal, int64_t window, double scale",
    POOL: "AtenTensorHandle hidden, AtenTensorHandle cu_seqlens, int64_t mode",
}
POOL_MODES = {
    PoolingMode.MEAN: 0,
    PoolingMode.MAX: 1,
    PoolingMode.MEAN_SQRT_LEN: 2,
    PoolingMode.WEIGHTED_MEAN: 3,
    PoolingMode.CLS: 4,
    PoolingMode.LAST_TOKEN: 5,
}
"""Codes shared with segment_pool.cpp."""
_GATHERED = {POOL_MODES[PoolingMode.CLS]: 0, POOL_MODES[PoolingMode.LAST_TOKEN]: -1}


def define_operators(digest: str | None = None) -> dict[str, torch._ops.OpOverload]:
    """Register the operators, once per process and digest.

    Args:
        digest: None for the names that graphs are exported with; else the names carry the digest of
            a kernel library, so that the generated code calls exactly that library.

    Returns:
        The overloads by base name.
    """
    overloads = {}
    for base in _SCHEMAS:
        name = base if digest is None else f"{base}_{digest}"
        if not hasattr(torch.ops.infinity, name):
            _define(name, base)
        overloads[base] = getattr(torch.ops.infinity, name).default
    return overloads


def shim_declaration(base: str, digest: str) -> str:
    """The C declaration of a kernel, as the generated code needs it."""
    return f"AOTITorchError aoti_torch_cpu_{base}_{digest}({_SHIMS[base]}, AtenTensorHandle* ret)"


def _define(name: str, base: str) -> None:
    torch.library.define(f"infinity::{name}", _SCHEMAS[base])
    fake, reference = _implementations()[base]
    torch.library.register_fake(f"infinity::{name}", fake)
    torch.library.impl(f"infinity::{name}", "CPU", reference)


def _implementations() -> dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]]:
    """Shape rule and reference of each operator."""
    return {
        ATTENTION: (_fake_attention, attention_reference),
        POOL: (_fake_pool, pool_reference),
    }


def _fake_attention(  # noqa: PLR0913 - the operator's schema
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, causal: bool, window: int, scale: float
) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[1], v.shape[2])


def _fake_pool(hidden: Tensor, cu_seqlens: Tensor, mode: int) -> Tensor:
    return hidden.new_empty(cu_seqlens.shape[0] - 1, hidden.shape[1], dtype=torch.float32)


def attention_reference(  # noqa: PLR0913 - the operator's schema
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, causal: bool, window: int, scale: float
) -> Tensor:
    """Attention within each sequence, one at a time.

    Args:
        q: (T, H, D); k, v: (T, Hkv, D) with H a multiple of Hkv.
        cu_seqlens: (B + 1,) int32.
        window: negative for none; else keys with |i - j| <= window, or 0 <= i - j < window when
            causal.

    Returns:
        (T, H, Dv), the dtype of q.
    """
    out = q.new_empty(q.shape[0], q.shape[1], v.shape[2])
    for start, stop in pairwise(cu_seqlens.tolist()):
        mask = _visible(stop - start, causal, window)
        query, key, value = (x[start:stop].transpose(0, 1)[None] for x in (q, k, v))
        result = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        out[start:stop] = result[0].transpose(0, 1)
    return out


def _visible(length: int, causal: bool, window: int) -> Tensor | None:
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    if causal:
        return (distance >= 0) & (distance < (length if window < 0 else window))
    return None if window < 0 else distance.abs() <= window


def pool_reference(hidden: Tensor, cu_seqlens: Tensor, mode: int) -> Tensor:
    """Pool each sequence's tokens: (T, D) -> (B, D) float32, see POOL_MODES.

    An empty sequence yields zeros.
    """
    bounds = pairwise(cu_seqlens.tolist())
    return torch.stack([_pool_one(hidden[i:j].float(), mode) for i, j in bounds])


def _pool_one(tokens: Tensor, mode: int) -> Tensor:
    length = tokens.shape[0]
    if length == 0:
        return tokens.new_zeros(tokens.shape[1])
    if mode in _GATHERED:
        return tokens[_GATHERED[mode]]
    if mode == POOL_MODES[PoolingMode.MAX]:
        return tokens.amax(0)
    if mode == POOL_MODES[PoolingMode.WEIGHTED_MEAN]:
        weights = torch.arange(1, length + 1, dtype=torch.float32)[:, None]
        return (tokens * weights).sum(0) / weights.sum()
    divisor = float(length) if mode == POOL_MODES[PoolingMode.MEAN] else length**0.5
    return tokens.sum(0) / divisor
