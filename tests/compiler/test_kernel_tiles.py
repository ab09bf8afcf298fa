"""Attention by tiles of the matrix unit: sizes around theirs, and systems that refuse them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import refused_tiles
from infinity_v3.compiler.attention_reference import attention_reference
from infinity_v3.compiler.bf16.weights import pack_weights
from kernel_calls import HOST_TARGETS, Kernels, assert_close, cu_seqlens, seeded

AMX = "cpu-x86_64-amx-bf16"
AVX512 = "cpu-x86_64-avx512-bf16"
LENGTHS = [1, 15, 16, 17, 31, 32, 33, 48, 255, 256, 257, 272, 600]
BF16_ATOL = 1.5e-2


@pytest.fixture(scope="module")
def kernels_by_name(kernel_cache: Path) -> dict[str, Kernels]:
    """The libraries of the AMX target and of the one that its fallback is made of."""
    targets = {target.name: target for target in HOST_TARGETS if target.name in (AMX, AVX512)}
    if AMX not in targets:
        pytest.skip("needs a CPU with amx_tile and amx_bf16")
    return {name: Kernels(target, kernel_cache) for name, target in targets.items()}


@pytest.fixture
def tiles(kernels_by_name: dict[str, Kernels]) -> Kernels:
    return kernels_by_name[AMX]


def random_qkv(
    lengths: list[int], heads: int, kv_heads: int, dim: int, v_dim: int | None = None
) -> list[Tensor]:
    shapes = ((heads, dim), (kv_heads, dim), (kv_heads, v_dim or dim))
    return [
        seeded(sum(lengths), *shape, seed=seed, dtype=torch.bfloat16)
        for seed, shape in enumerate(shapes)
    ]


def reference(qkv: list[Tensor], lengths: list[int], *, causal: bool, window: int) -> Tensor:
    q, k, v = (x.float() for x in qkv)
    scale = q.shape[-1] ** -0.5
    return attention_reference(
        q, k, v, cu_seqlens(lengths), None, None, None, causal, window, scale, 0.0
    )


@pytest.mark.parametrize(
    ("dim", "v_dim"), [(8, 8), (20, 20), (32, 32), (64, 48), (80, 80), (96, 128), (256, 256)]
)
@pytest.mark.parametrize(("causal", "window"), [(False, -1), (True, -1), (False, 20), (True, 270)])
def test_sizes_around_those_of_tiles(
    tiles: Kernels, dim: int, v_dim: int, causal: bool, window: int
) -> None:
    qkv = random_qkv(LENGTHS, 4, 2, dim, v_dim)
    found = tiles.attention(qkv, LENGTHS, causal=causal, window=window)
    expected = reference(qkv, LENGTHS, causal=causal, window=window)
    assert_close(found, expected, atol=BF16_ATOL)


@pytest.mark.parametrize("length", [1, 16, 17, 33, 48, 64, 129, 250])
def test_many_heads_share_the_room_for_keys(tiles: Kernels, length: int) -> None:
    lengths = [length, 3 * length]
    qkv = random_qkv(lengths, 40, 40, 32)
    found = tiles.attention(qkv, lengths)
    assert_close(found, reference(qkv, lengths, causal=False, window=-1), atol=BF16_ATOL)


@pytest.mark.parametrize(("causal", "window"), [(False, -1), (True, -1), (False, 20), (True, 270)])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_text_has_the_same_numbers_in_any_batch(
    tiles: Kernels, causal: bool, window: int, threads: int
) -> None:
    q, k, v = random_qkv(LENGTHS, 12, 4, 32)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    packed = tiles.attention((q, k, v), LENGTHS, causal=causal, window=window)
    torch.set_num_threads(before)
    for rows, *alone in zip(*(torch.split(x, LENGTHS) for x in (packed, q, k, v)), strict=True):
        assert tiles.attention(alone, [len(rows)], causal=causal, window=window).equal(rows)


def test_what_lies_around_a_text_does_not_matter(tiles: Kernels) -> None:
    q, k, v = (torch.full((80, 2, 32), float("nan"), dtype=torch.bfloat16) for _ in range(3))
    inner = random_qkv([19], 2, 2, 32)
    for outer, given in zip((q, k, v), inner, strict=True):
        outer[40:59] = given
    found = tiles.attention((q, k, v), [40, 19, 21])[40:59]
    assert found.equal(tiles.attention(inner, [19]))


def test_a_system_that_refuses_the_tiles_gets_vectors(
    kernels_by_name: dict[str, Kernels], kernel_cache: Path, tmp_path: Path
) -> None:
    qkv, lengths = random_qkv([5, 40, 300], 2, 2, 32), [5, 40, 300]
    rows = seeded(300, 64, dtype=torch.bfloat16)
    layers = [
        (pack_weights(seeded(columns, depth, dtype=torch.bfloat16)), None, columns)
        for columns, depth in ((96, 64), (70, 96))
    ]
    given, written = tmp_path / "given.pt", tmp_path / "written.pt"
    torch.save((qkv, lengths, rows, *layers), given)
    environment = os.environ | {"PYTHONPATH": str(Path(refused_tiles.__file__).parent)}
    subprocess.run(
        [sys.executable, refused_tiles.__file__, kernel_cache, given, written],
        check=True,
        env=environment,
    )
    attention, mlp = torch.load(written)
    assert attention.equal(kernels_by_name[AVX512].attention(qkv, lengths))
    assert not attention.equal(kernels_by_name[AMX].attention(qkv, lengths))
    assert mlp.equal(kernels_by_name[AVX512].bf16_mlp(rows, *layers))
