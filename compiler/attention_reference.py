"""What the attention operators compute, in plain torch, one sequence at a time.

For eager runs of exported graphs. Knows nothing of kernels and models.
"""

from itertools import pairwise

import torch
from torch import Tensor


def attention_reference(  # noqa: PLR0913 - the operator's schema
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
    """Attention within each sequence.

    Args:
        q: (N, H, D) stored tokens; k: (N, Hkv, D), v: (N, Hkv, Dv) with H a multiple of Hkv.
        cu_seqlens: (B + 1,) int32, bounds of the sequences among T packed tokens.
        distance_bias: (H, 2 R + 1) float32, added to the scores: [h, R + (j - i)] for query i and
            key j; distances beyond R take the ends. None = nothing is added.
        rows: (T,) int64, the row of each packed token. A sequence's first tokens may lie in rows of
            earlier sequences; its other rows follow on those seen so far, and are its own. None =
            token t lies in row t, T = N.
        key_counts: (B,) int32, only so many leading tokens of a sequence are keys; None = all.
        window: negative for none; else keys with |i - j| <= window, or 0 <= i - j < window when
            causal.
        softcap: 0 for none; else scores become softcap * tanh(scale * q.k / softcap).

    Returns:
        (N, H, Dv), the dtype of q, each row computed by the sequence that owns it; rows of no
        sequence, and queries that see no key, are zeros.
    """
    out = q.new_zeros(q.shape[0], q.shape[1], v.shape[2])
    group = q.shape[1] // k.shape[1]
    for index, (tokens, own) in enumerate(_sequences(cu_seqlens, rows)):
        query, key, value = (x[tokens].float().transpose(0, 1) for x in (q, k, v))
        key, value = (x.repeat_interleave(group, 0) for x in (key, value))
        scores = scale * query @ key.transpose(1, 2)
        if softcap > 0:
            scores = softcap * torch.tanh(scores / softcap)
        distance = _distance(len(tokens))
        if distance_bias is not None:
            scores = scores + distance_bias[:, _clamped(distance, distance_bias.shape[1])]
        visible = _visible(-distance, causal, window)
        if key_counts is not None:
            visible &= torch.arange(len(tokens)) < key_counts[index]
        scores = scores.masked_fill(~visible, float("-inf"))
        mixed = (scores.softmax(-1).nan_to_num(0.0) @ value).transpose(0, 1)
        out[tokens[own:]] = mixed[own:].to(q.dtype)
    return out


def _sequences(cu_seqlens: Tensor, rows: Tensor | None) -> list[tuple[Tensor, int]]:
    """Per sequence its rows, and how many of the first belong to earlier sequences."""
    seen, found = 0, []
    for start, stop in pairwise(cu_seqlens.tolist()):
        own = torch.arange(start, stop) if rows is None else rows[start:stop]
        shared = int((own < seen).sum())
        seen += stop - start - shared
        found.append((own, shared))
    return found


def _distance(length: int) -> Tensor:
    """Distances j - i of queries i (rows) and keys j."""
    return torch.arange(length)[None, :] - torch.arange(length)[:, None]


def _clamped(distance: Tensor, columns: int) -> Tensor:
    reach = columns // 2
    return distance.clamp(-reach, reach) + reach


def _visible(behind: Tensor, causal: bool, window: int) -> Tensor:
    """Which keys a query sees, from i - j."""
    if causal:
        return (behind >= 0) & (behind < (len(behind) if window < 0 else window))
    return behind.abs() <= (len(behind) if window < 0 else window)


def disentangled_reference(  # noqa: PLR0913 - the operator's schema
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos_key: Tensor | None,
    pos_query: Tensor | None,
    delta: Tensor,
    cu_seqlens: Tensor,
    scale: float,
) -> Tensor:
    """Disentangled attention within each sequence (He et al. 2021).

    The score of query i and key j is scale * (q_i.k_j + q_i.pos_key[d] + k_j.pos_query[d]), where d
    is delta at the distance i - j.

    Args:
        q, k, v: (T, H, D).
        pos_key, pos_query: (P, H, D), or None for a term that is absent.
        delta: (2 R + 1,) int32, monotonous: row of the distance d at R + d; distances beyond R take
            the ends.
        cu_seqlens: (B + 1,) int32.

    Returns:
        (T, H, D), the dtype of q; tokens of no sequence are zeros.
    """
    out = q.new_zeros(v.shape)
    for start, stop in pairwise(cu_seqlens.tolist()):
        query, key, value = (x[start:stop].float().transpose(0, 1) for x in (q, k, v))
        row = (
            delta[_clamped(-_distance(stop - start), len(delta))].long().expand(len(query), -1, -1)
        )
        scores = query @ key.transpose(1, 2)
        if pos_key is not None:
            scores = scores + (query @ pos_key.float().permute(1, 2, 0)).gather(2, row)
        if pos_query is not None:
            by_key = key @ pos_query.float().permute(1, 2, 0)
            scores = scores + by_key.gather(2, row.transpose(1, 2)).transpose(1, 2)
        mixed = (scores * scale).softmax(-1) @ value
        out[start:stop] = mixed.transpose(0, 1).to(q.dtype)
    return out
