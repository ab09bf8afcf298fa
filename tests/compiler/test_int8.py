"""8-bit layers: packed weights, what calibration sees, joint products, fused functions, ranking."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.int8.calibration import watch_linears
from infinity_v3.compiler.int8.fusion import fuse_activations
from infinity_v3.compiler.int8.linear import balance, replace_linears
from infinity_v3.compiler.int8.ranking import MIN_AGREEMENT, judge_ranking, rank_agreement
from infinity_v3.compiler.int8.reference import int8_linear_reference
from infinity_v3.compiler.int8.texts import calibration_texts, subject_texts
from infinity_v3.compiler.int8.weights import LARGEST, ZERO, pack_weights, unpack_values
from infinity_v3.compiler.operators import define_operators
from kernel_calls import seeded

WIDTH, HIDDEN = 64, 128


@given(
    columns=st.integers(1, 200),
    steps=st.integers(1, 20),
    seed=st.integers(0, 1000),
    zero=st.booleans(),
)
def test_packed_weights_are_the_rounded_ones(
    columns: int, steps: int, seed: int, zero: bool
) -> None:
    weight = seeded(columns, 4 * steps, seed=seed)
    if zero:
        weight[0] = 0.0
    packed = pack_weights(weight)
    numbers = unpack_values(packed.values, columns, 4 * steps)
    assert numbers.abs().max() <= LARGEST
    assert torch.equal(packed.sums, numbers.int().sum(1, dtype=torch.int32) * ZERO)
    error = (numbers.double() * packed.scales.double()[:, None] - weight.double()).abs()
    # Half a step, and what float32 division adds.
    assert (error <= packed.scales.double()[:, None] * 0.50001).all()


def test_the_reference_is_the_layer() -> None:
    x, weight, bias = seeded(20, 32), seeded(70, 32, seed=1), seeded(70, seed=2)
    packed = pack_weights(weight)
    found = int8_linear_reference(
        x, None, packed.values, packed.sums, packed.scales, bias, Activation.GELU
    )
    exact = nn.functional.gelu(x @ weight.T + bias)
    assert nn.functional.cosine_similarity(found.float(), exact).min() >= 0.9995


class Block(nn.Module):
    """Three layers of one input, one of another, and one that is too small."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH)
        self.small = nn.Linear(WIDTH, 3)
        for seed, weight in enumerate(self.parameters()):
            weight.data = seeded(*weight.shape, seed=seed) * WIDTH**-0.5
        self.to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.query(x) * self.key(x) + self.value(x)
        small: Tensor = self.small(x + self.down(nn.functional.gelu(self.up(x + mixed))))
        return small


def quantized_block(x: Tensor) -> Block:
    block = Block().eval()
    groups = watch_linears(block, [lambda: block(x)])
    replace_linears(block, groups)
    return block


def test_layers_of_one_input_are_one_group() -> None:
    block, x = Block(), seeded(2, 9, WIDTH, dtype=torch.bfloat16)
    groups = watch_linears(block, [lambda: block(x), lambda: block(3 * x)])
    members = [
        {name for name, m in block.named_modules() if m in group.linears} for group in groups
    ]
    assert members == [{"query", "key", "value"}, {"up"}, {"down"}]
    expected = (3 * x).abs().reshape(-1, WIDTH).amax(0).float()
    assert torch.equal(groups[0].largest_inputs, expected)


def test_a_block_keeps_its_numbers() -> None:
    define_operators()
    x = seeded(2, 9, WIDTH, dtype=torch.bfloat16)
    with torch.no_grad():
        exact, found = Block()(x).float(), quantized_block(x)(x).float()
    assert nn.functional.cosine_similarity(found.flatten(), exact.flatten(), dim=0) >= 0.999


def test_parts_of_a_joint_layer_belong_to_what_they_are_asked_for() -> None:
    define_operators()
    x, y = (seeded(5, WIDTH, seed=seed, dtype=torch.bfloat16) for seed in (3, 4))
    block, exact = quantized_block(x), Block()
    with torch.no_grad():
        # In an order that no model has.
        found = [block.query(x), block.key(y), block.query(y), block.value(x), block.value(y)]
        expected = [exact.query(x), exact.key(y), exact.query(y), exact.value(x), exact.value(y)]
    for left, right in zip(found, expected, strict=True):
        assert nn.functional.cosine_similarity(left.float(), right.float()).min() >= 0.998


def test_outliers_are_shared_between_inputs_and_weights() -> None:
    weight, inputs = seeded(40, 16), torch.ones(16)
    inputs[3] = 100.0
    divisors = balance(weight, inputs)
    spread = inputs / divisors
    assert spread.max() / spread.median() < 0.2 * inputs.max() / inputs.median()
    assert torch.equal(balance(torch.zeros(4, 16), inputs), torch.ones(16))


def test_functions_go_into_products() -> None:
    define_operators()
    x = seeded(2, 9, WIDTH, dtype=torch.bfloat16)
    program = torch.export.export(quantized_block(x), (x,), strict=False)
    with torch.no_grad():
        before = program.module()(x)
        assert fuse_activations(program) == 1
        after = program.module()(x)
    kinds = [node.args[6] for node in program.graph.nodes if "int8_linear" in str(node.target)]
    assert sorted(kinds) == [Activation.NONE, Activation.NONE, Activation.GELU]
    assert not [node for node in program.graph.nodes if "gelu" in str(node.target)]
    # Rounded once less, before numbers are quantized again.
    assert nn.functional.cosine_similarity(after.flatten(), before.flatten(), dim=0) >= 0.999


def test_texts_are_many_and_different() -> None:
    texts = subject_texts()
    assert len(texts) == len(set(texts)) == 72
    assert len(calibration_texts()) >= 40


def test_the_same_order_agrees_wholly() -> None:
    vectors = seeded(30, 16).numpy()
    assert rank_agreement(vectors * np.float32(3.0), vectors) == pytest.approx(1.0, abs=1e-12)
    assert judge_ranking("pooled", 1.0) == []


def test_another_order_is_told() -> None:
    vectors, others = seeded(40, 16).numpy(), seeded(40, 16, seed=1).numpy()
    agreement = rank_agreement(others, vectors)
    assert 0.0 <= agreement < 0.6
    (sentence,) = judge_ranking("pooled", agreement)
    assert f"needed is {MIN_AGREEMENT}" in sentence


@given(seed=st.integers(0, 100), noise=st.floats(0.0, 1.0))
def test_agreement_is_a_share_and_falls_with_noise(seed: int, noise: float) -> None:
    vectors = seeded(25, 8, seed=seed).numpy()
    change = seeded(25, 8, seed=seed + 1).numpy()
    noisy = vectors + np.float32(noise * 1e-4) * change
    assert 0.95 <= rank_agreement(noisy.astype(np.float32), vectors) <= 1.0 + 1e-12
