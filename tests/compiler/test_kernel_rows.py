"""Identical prefixes of a batch's sequences stored once, against the same batch stored in full."""

import random

import pytest
import torch
from torch import Tensor

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.compiler.operators import POOL_MODES
from kernel_calls import Kernels, seeded

HEADS, KV_HEADS, DIM = 4, 2, 32


class Folded:
    """Sequences of token ids as a prefix tree: `rows` of each packed token, `ids` of each row."""

    def __init__(self, sequences: list[list[int]]) -> None:
        self.lengths = [len(sequence) for sequence in sequences]
        self.rows: list[int] = []
        self.ids: list[tuple[int, ...]] = []
        known: dict[tuple[int, ...], int] = {}
        for sequence in sequences:
            for end in range(1, len(sequence) + 1):
                prefix = tuple(sequence[:end])
                if prefix not in known:
                    known[prefix] = len(self.ids)
                    self.ids.append(prefix)
                self.rows.append(known[prefix])

    @property
    def table(self) -> Tensor:
        return torch.tensor(self.rows)

    def stored(self, *shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return seeded(len(self.ids), *shape, seed=seed, dtype=dtype)


def random_tree(seed: int) -> Folded:
    """Sequences that branch off earlier ones anywhere, also at block edges."""
    source = random.Random(seed)
    sequences = [[source.randrange(1000) for _ in range(300)]]
    for _ in range(9):
        prefix = source.choice(sequences)[: source.choice([0, 1, 31, 32, 33, 255, 256, 257, 280])]
        tail = [source.randrange(1000) for _ in range(source.choice([1, 2, 31, 33, 70]))]
        sequences.append([*prefix, *tail])
    return Folded(sequences)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("window", [-1, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folded_attention_is_the_unfolded_one(
    kernels: Kernels, seed: int, window: int, dtype: torch.dtype
) -> None:
    tree = random_tree(seed)
    assert len(tree.ids) < len(tree.rows)
    q, k, v = (
        tree.stored(heads, DIM, seed=n, dtype=dtype)
        for n, heads in enumerate((HEADS, KV_HEADS, KV_HEADS))
    )
    bias = seeded(HEADS, 81, seed=5)
    folded = kernels.attention(
        (q, k, v), tree.lengths, rows=tree.table, causal=True, window=window, bias=bias, softcap=9.0
    )
    full = [x[tree.table] for x in (q, k, v)]
    unfolded = kernels.attention(
        full, tree.lengths, causal=True, window=window, bias=bias, softcap=9.0
    )
    assert folded.shape == q.shape
    assert folded[tree.table].equal(unfolded)


def test_rows_of_no_sequence_yield_zeros(kernels: Kernels) -> None:
    tree = Folded([[1, 2, 3], [1, 2, 4]])
    q, k, v = (seeded(7, 2, 16, seed=n) for n in range(3))
    rows = torch.tensor([*tree.rows, 6, 6])
    found = kernels.attention((q, k, v), tree.lengths, rows=rows, causal=True)
    assert found[4:].eq(0).all()
    assert found[:4].ne(0).all()


def test_a_sequence_without_rows_of_its_own_computes_nothing(kernels: Kernels) -> None:
    tree = Folded([[1, 2, 3], [1, 2], [1, 2, 3], [5]])
    q, k, v = (tree.stored(2, 16, seed=n) for n in range(3))
    found = kernels.attention((q, k, v), tree.lengths, rows=tree.table, causal=True)
    full = [x[tree.table] for x in (q, k, v)]
    unfolded = kernels.attention(full, tree.lengths, causal=True)
    assert found[tree.table].equal(unfolded)


def test_the_identity_table_changes_nothing(kernels: Kernels) -> None:
    q, k, v = (seeded(90, 2, 32, seed=n) for n in range(3))
    plain = kernels.attention((q, k, v), [50, 40])
    assert kernels.attention((q, k, v), [50, 40], rows=torch.arange(90)).equal(plain)


@pytest.mark.parametrize(
    "rows",
    [[0, 1, 3, 4], [1, 0, 2, 3], [0, 1, -1, 2], [0, 1, 2, 0]],
    ids=["a gap", "out of order", "negative", "shared behind its own"],
)
def test_another_kind_of_table_is_refused(kernels: Kernels, rows: list[int]) -> None:
    q, k, v = (seeded(5, 2, 16, seed=n) for n in range(3))
    with pytest.raises(RuntimeError):
        kernels.attention((q, k, v), [2, 2], rows=torch.tensor(rows), causal=True)


def test_rows_of_another_dtype_are_refused(kernels: Kernels) -> None:
    q, k, v = (seeded(4, 2, 16, seed=n) for n in range(3))
    with pytest.raises(RuntimeError):
        kernels.attention((q, k, v), [4], rows=torch.arange(4, dtype=torch.int32))


@pytest.mark.parametrize("mode", list(POOL_MODES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_folded_pooling_is_the_unfolded_one(
    kernels: Kernels, mode: PoolingMode, dtype: torch.dtype
) -> None:
    tree = random_tree(11)
    hidden = tree.stored(48, seed=1, dtype=dtype)
    folded = kernels.pool(hidden, tree.lengths, mode, tree.table)
    assert folded.equal(kernels.pool(hidden[tree.table], tree.lengths, mode))


def test_pooling_refuses_rows_that_are_not_there(kernels: Kernels) -> None:
    with pytest.raises(RuntimeError):
        kernels.pool(seeded(3, 8), [3], PoolingMode.MEAN, torch.tensor([0, 1, 3]))
