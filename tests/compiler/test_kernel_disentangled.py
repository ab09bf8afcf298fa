"""Disentangled attention against the module of transformers' DeBERTa-v2."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DebertaV2Config
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DisentangledSelfAttention,
    build_relative_position,
)

from kernel_calls import Kernels, assert_close, seeded

LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 300]
HEADS, DIM = 3, 16
HIDDEN = HEADS * DIM
REACH = 511
TERMS = [["c2p", "p2c"], ["c2p"], ["p2c"], []]


def make_module(terms: list[str], buckets: int, positions: int) -> DisentangledSelfAttention:
    torch.manual_seed(1)
    settings: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "relative_attention": True,
        "position_buckets": buckets,
        "max_relative_positions": positions,
        "pos_att_type": terms,
    }
    config = DebertaV2Config(**settings)
    return DisentangledSelfAttention(config).eval()  # type: ignore[no-untyped-call]


def make_delta(module: DisentangledSelfAttention, reach: int) -> Tensor:
    """Position of each distance, from the module's own table for one long sequence."""
    tokens = torch.zeros(1, reach + 1, DIM)
    buckets, positions = module.position_buckets, module.max_relative_positions
    relative = build_relative_position(tokens, tokens, buckets, positions)[0]
    distances = torch.cat([relative[0].flip(0), relative[1:, 0]])
    span = module.pos_ebd_size
    return (distances + span).clamp(0, 2 * span - 1).to(torch.int32)


def run_module(
    module: DisentangledSelfAttention, hidden: Tensor, embeddings: Tensor, lengths: list[int]
) -> Tensor:
    found = []
    for tokens in torch.split(hidden, lengths):
        mask = torch.ones(1, 1, len(tokens), len(tokens))
        out, _ = module(tokens[None], mask, rel_embeddings=embeddings)
        found.append(out[0])
    return torch.cat(found).view(-1, HEADS, DIM)


def run_kernel(
    kernels: Kernels,
    module: DisentangledSelfAttention,
    hidden: Tensor,
    embeddings: Tensor,
    lengths: list[int],
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    def heads(x: Tensor) -> Tensor:
        return x.view(-1, HEADS, DIM).to(dtype)

    terms = module.pos_att_type
    return kernels.disentangled(
        [heads(p(hidden)) for p in (module.query_proj, module.key_proj, module.value_proj)],
        lengths,
        delta=make_delta(module, REACH),
        pos_key=heads(module.pos_key_proj(embeddings)) if "c2p" in terms else None,
        pos_query=heads(module.pos_query_proj(embeddings)) if "p2c" in terms else None,
        scale=(DIM * (1 + len(terms))) ** -0.5,
    )


@torch.no_grad()
@pytest.mark.parametrize("terms", TERMS, ids=lambda terms: "+".join(terms) or "neither")
@pytest.mark.parametrize(("buckets", "positions"), [(256, 512), (8, 64), (-1, 40), (-1, 512)])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 3e-6), (torch.bfloat16, 2e-2)])
def test_attention_is_that_of_the_module(
    kernels: Kernels,
    terms: list[str],
    buckets: int,
    positions: int,
    dtype: torch.dtype,
    atol: float,
) -> None:
    module = make_module(terms, buckets, positions)
    for projection in module.children():
        if isinstance(projection, torch.nn.Linear):
            torch.nn.init.normal_(projection.weight, std=HIDDEN**-0.5)
    hidden, embeddings = (
        seeded(sum(LENGTHS), HIDDEN),
        seeded(2 * module.pos_ebd_size, HIDDEN, seed=1),
    )
    expected = run_module(module, hidden, embeddings, LENGTHS)
    found = run_kernel(kernels, module, hidden, embeddings, LENGTHS, dtype)
    assert_close(found, expected, atol=atol)


@pytest.mark.parametrize("falls", [False, True])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("reach", [0, 5, 40, 310])
def test_any_monotonous_table_of_positions(
    kernels: Kernels, falls: bool, step: int, reach: int
) -> None:
    """Also steps that leave positions out, stretches of one position, and either direction."""
    lengths = [1, 9, 40, 300]
    steps = torch.randint(0, step + 1, (2 * reach,), generator=torch.Generator().manual_seed(reach))
    delta = torch.cat([torch.zeros(1), steps.cumsum(0)]).to(torch.int32) + 2
    delta = delta.flip(0).contiguous() if falls else delta
    count = int(delta.max()) + 3
    q, k, v = (seeded(sum(lengths), HEADS, DIM, seed=n) for n in range(3))
    pos_key, pos_query = (seeded(count, HEADS, DIM, seed=n) for n in (3, 4))
    expected, start = [], 0
    for length in lengths:
        i, j = torch.arange(length)[:, None], torch.arange(length)[None]
        row = delta[reach + (i - j).clamp(-reach, reach)].long()
        a, b, c = (x[start : start + length].double() for x in (q, k, v))
        scores = torch.einsum("ihd,jhd->hij", a, b)
        scores += torch.einsum("ihd,ijhd->hij", a, pos_key[row].double())
        scores += torch.einsum("jhd,ijhd->hij", b, pos_query[row].double())
        expected.append(torch.einsum("hij,jhd->ihd", (0.1 * scores).softmax(-1), c))
        start += length
    found = kernels.disentangled(
        (q, k, v), lengths, delta=delta, pos_key=pos_key, pos_query=pos_query, scale=0.1
    )
    assert_close(found, torch.cat(expected), atol=3e-6)


@torch.no_grad()
def test_switching_a_term_off_is_seen(kernels: Kernels) -> None:
    hidden, embeddings = seeded(33, HIDDEN), seeded(512, HIDDEN, seed=1)
    module = make_module(["c2p", "p2c"], 256, 512)
    found = run_kernel(kernels, module, hidden, embeddings, [33])
    for term in ("c2p", "p2c"):
        module.pos_att_type = [term]
        less = run_kernel(kernels, module, hidden, embeddings, [33])
        assert (less - found).abs().max() >= 1e-3


@torch.no_grad()
def test_empty_sequences_and_tokens_of_no_sequence(kernels: Kernels) -> None:
    module = make_module(["c2p", "p2c"], 8, 64)
    hidden, embeddings = seeded(12, HIDDEN), seeded(16, HIDDEN, seed=1)
    found = run_kernel(kernels, module, hidden, embeddings, [4, 0, 5, 0])
    expected = run_module(module, hidden[:9], embeddings, [4, 5])
    assert_close(found[:9], expected, atol=3e-6)
    assert found[9:].eq(0).all()


@pytest.mark.parametrize(
    ("delta", "pos_key"),
    [
        (torch.tensor([0, 2, 1], dtype=torch.int32), seeded(4, 2, 8)),
        (torch.tensor([0, 1, 4], dtype=torch.int32), seeded(4, 2, 8)),
        (torch.tensor([-1, 0, 1], dtype=torch.int32), seeded(4, 2, 8)),
        (torch.tensor([0, 1], dtype=torch.int32), seeded(4, 2, 8)),
        (torch.tensor([0, 1, 2]), seeded(4, 2, 8)),
        (torch.tensor([0, 1, 2], dtype=torch.int32), seeded(4, 1, 8)),
        (torch.tensor([0, 1, 2], dtype=torch.int32), seeded(4, 2, 8, dtype=torch.bfloat16)),
    ],
    ids=["unsorted", "too large", "negative", "even width", "int64", "heads", "dtype"],
)
def test_other_positions_are_refused(kernels: Kernels, delta: Tensor, pos_key: Tensor) -> None:
    q, k, v = (seeded(6, 2, 8, seed=n) for n in range(3))
    with pytest.raises(RuntimeError):
        kernels.disentangled((q, k, v), [6], delta=delta, pos_key=pos_key, scale=1.0)
