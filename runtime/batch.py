"""Packed batches: sequences laid end to end, without padding.

Knows nothing of queues or engines, nor of how shared prefixes are found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOKEN_TYPES_INPUT = "token_type_ids"
ROWS_INPUT = "rows"
KEY_COUNTS_INPUT = "key_counts"
READOUTS_INPUT = "readout_positions"
"""Graph inputs that only some models declare; their arrays are the batch's of the same name."""
NO_READOUTS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    """One tokenised item.

    Attributes:
        input_ids: (S,) int64, special tokens included.
        token_type_ids: (S,) int64, or None for all zeros.
        num_keys: only so many tokens, from the first one, are seen by the others; None = all.
        readout_positions: (K,) int64, ascending, tokens whose states the model reads; None = none
            is named.
    """

    input_ids: NDArray[np.int64]
    token_type_ids: NDArray[np.int64] | None = None
    num_keys: int | None = None
    readout_positions: NDArray[np.int64] | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """T packed tokens of B sequences, the arrays of the packed graph contract.

    The tokens are stored in N <= T rows: a sequence may begin with tokens of an earlier one.

    Attributes:
        input_ids, position_ids, token_type_ids: (N,) int64.
        cu_seqlens: (B + 1,) int32, first 0, last T, strictly increasing.
        rows: (T,) int64, where each packed token is stored. Of every sequence, the first tokens
            (none, some, all but the last) lie in rows of earlier sequences; the others take the
            next unused rows, in order.
        key_counts: (B,) int32, how many tokens of each sequence, from its first one, are seen by
            its tokens; its length unless a text says otherwise.
        readout_positions: (M,) int64, the packed tokens that are read, in order.
        readout_bounds: (B + 1,) int64, first 0, last M, whose those are.
    """

    input_ids: NDArray[np.int64]
    position_ids: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    cu_seqlens: NDArray[np.int32]
    rows: NDArray[np.int64]
    key_counts: NDArray[np.int32]
    readout_positions: NDArray[np.int64]
    readout_bounds: NDArray[np.int64]

    @property
    def num_tokens(self) -> int:
        """Packed tokens, shared ones counted in each sequence."""
        return len(self.rows)

    @property
    def num_stored_tokens(self) -> int:
        """Tokens that are computed."""
        return len(self.input_ids)

    @property
    def num_sequences(self) -> int:
        return len(self.cu_seqlens) - 1


def pack(texts: Sequence[EncodedText], *, position_offset: int) -> Batch:
    """Lay texts end to end; every token is stored.

    Args:
        texts: at least one; each with at least one token.
        position_offset: position id of each sequence's first token (2 for RoBERTa-like models,
            else 0).
    """
    if len(texts) == 1:
        return _pack_one(texts[0], position_offset)
    lengths = np.fromiter((text.num_tokens for text in texts), dtype=np.int64, count=len(texts))
    assert lengths.all(), "an empty sequence reached the batch; this is a bug"
    cu_seqlens = np.zeros(len(texts) + 1, dtype=np.int32)
    np.cumsum(lengths, out=cu_seqlens[1:])
    total = int(cu_seqlens[-1])
    starts = np.repeat(cu_seqlens[:-1].astype(np.int64) - position_offset, lengths)
    rows = np.arange(total, dtype=np.int64)
    return Batch(
        input_ids=np.concatenate([text.input_ids for text in texts]),
        position_ids=rows - starts,
        token_type_ids=_pack_token_types(texts, total, cu_seqlens),
        cu_seqlens=cu_seqlens,
        rows=rows,
        key_counts=_count_keys(texts),
        readout_positions=_pack_readouts(texts, cu_seqlens),
        readout_bounds=bound_readouts(texts),
    )


def _pack_one(text: EncodedText, position_offset: int) -> Batch:
    """The same for a lone text, in a fraction of the time."""
    total = text.num_tokens
    assert total, "an empty sequence reached the batch; this is a bug"
    rows = np.arange(total, dtype=np.int64)
    types, positions = text.token_type_ids, text.readout_positions
    num_keys = total if text.num_keys is None else text.num_keys
    return Batch(
        input_ids=text.input_ids,
        position_ids=rows + position_offset if position_offset else rows,
        token_type_ids=np.zeros(total, dtype=np.int64) if types is None else types,
        cu_seqlens=np.array((0, total), dtype=np.int32),
        rows=rows,
        key_counts=np.array((num_keys,), dtype=np.int32),
        readout_positions=NO_READOUTS if positions is None else positions,
        readout_bounds=np.array((0, 0 if positions is None else len(positions)), dtype=np.int64),
    )


def _count_keys(texts: Sequence[EncodedText]) -> NDArray[np.int32]:
    counts = (text.num_tokens if text.num_keys is None else text.num_keys for text in texts)
    return np.fromiter(counts, dtype=np.int32, count=len(texts))


def bound_readouts(texts: Sequence[EncodedText]) -> NDArray[np.int64]:
    """Bounds (B + 1,) of the readout positions of each text, in the order given."""
    bounds = np.zeros(len(texts) + 1, dtype=np.int64)
    if any(text.readout_positions is not None for text in texts):
        np.cumsum([_num_readouts(text) for text in texts], out=bounds[1:])
    return bounds


def _num_readouts(text: EncodedText) -> int:
    return 0 if text.readout_positions is None else len(text.readout_positions)


def _pack_readouts(
    texts: Sequence[EncodedText], cu_seqlens: NDArray[np.int32]
) -> NDArray[np.int64]:
    packed = [
        text.readout_positions + start
        for text, start in zip(texts, cu_seqlens.tolist(), strict=False)
        if text.readout_positions is not None
    ]
    return np.concatenate(packed) if packed else NO_READOUTS


def _pack_token_types(
    texts: Sequence[EncodedText], total: int, cu_seqlens: NDArray[np.int32]
) -> NDArray[np.int64]:
    packed = np.zeros(total, dtype=np.int64)
    for text, start, stop in zip(texts, cu_seqlens, cu_seqlens[1:], strict=False):
        if text.token_type_ids is not None:
            packed[start:stop] = text.token_type_ids
    return packed
