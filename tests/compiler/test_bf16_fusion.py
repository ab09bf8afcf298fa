"""Exported programs with our bfloat16 operator in place of their linear layers."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.bf16.fusion import pack_linears
from infinity_v3.compiler.operators import BF16_LINEAR, BF16_MLP, define_operators
from kernel_calls import assert_close, seeded

WIDTH, HIDDEN, TOKENS = 64, 128, 9


class Attention(nn.Module):
    """Three layers of one input, one larger and without a bias; views of their parts."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, value = (layer(x).view(1, -1, 4, 16) for layer in (self.query, self.value))
        found: Tensor = (query * value).reshape(1, -1, WIDTH) + self.key(x)[..., WIDTH:]
        return found


class Feedforward(nn.Module):
    """A function behind one layer, and a sum behind another, in either order of its operands."""

    def __init__(self, *, layer_first: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.layer_first = layer_first

    def forward(self, x: Tensor) -> Tensor:
        up = nn.functional.gelu(self.up(x), approximate="tanh")
        y: Tensor = self.dropout(self.down(up))
        return y + x if self.layer_first else x + y


class Between(nn.Module):
    """Two layers of which the second needs more, or other rows, than what the first one gives."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        hidden = HIDDEN + 2 if kind == "narrow" else HIDDEN
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(WIDTH if kind == "other_rows" else hidden, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        up: Tensor = nn.functional.relu(self.up(x))
        if self.kind == "added":
            up = up + torch.cat([x, x], dim=-1)
        if self.kind == "other_rows":
            up = up.reshape(1, -1, WIDTH)
        found: Tensor = self.down(up)
        return found + up.sum() if self.kind == "read_twice" else found


class UsedTwice(nn.Module):
    """A function whose input is read elsewhere, and a sum whose operand is."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x)
        down: Tensor = self.down(nn.functional.relu(up) * up)
        return (down + x) * down


class Tied(nn.Module):
    """Weights that two layers share with each other and with an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(HIDDEN, WIDTH)
        self.first = nn.Linear(WIDTH, HIDDEN)
        self.second = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.first.weight = self.second.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.embedding.weight[3]
        found: Tensor = self.first(y) * self.second(y * y)
        return found


class Chain(nn.Module):
    """Layers right behind each other, and ones that are left alone: too small, or of odd depth."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 65)
        self.odd, self.small = nn.Linear(65, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.small(self.odd(self.second(self.first(x))))
        return found


def seed_weights(model: nn.Module) -> nn.Module:
    for seed, weight in enumerate(model.parameters()):
        weight.data = seeded(*weight.shape, seed=seed) * WIDTH**-0.5
    return model.eval().to(torch.bfloat16)


def export(model: nn.Module) -> ExportedProgram:
    define_operators()
    example = (seeded(1, TOKENS, WIDTH, dtype=torch.bfloat16),)
    shapes = ({1: Dim("T", min=2, max=64)},)
    return torch.export.export(model, example, dynamic_shapes=shapes, strict=False)


def products(program: ExportedProgram) -> list[Node]:
    operator = define_operators()[BF16_LINEAR]
    return [node for node in program.graph.nodes if node.target is operator]


def pairs(program: ExportedProgram) -> list[Node]:
    operator = define_operators()[BF16_MLP]
    return [node for node in program.graph.nodes if node.target is operator]


def named(program: ExportedProgram, operator: str) -> int:
    return sum(f"aten.{operator}." in str(node.target) for node in program.graph.nodes)


def check_numbers(model: nn.Module, program: ExportedProgram) -> None:
    for tokens in (TOKENS, 31):
        x = seeded(1, tokens, WIDTH, seed=tokens, dtype=torch.bfloat16)
        with torch.no_grad():
            expected = model(x)
            # A few roundings to 8 bits, on sums of small numbers.
            assert_close(program.module()(x), expected, atol=0.02 * float(expected.abs().max()))


def test_layers_of_one_input_are_one_product() -> None:
    model = seed_weights(Attention())
    program = export(model)
    assert pack_linears(program) == 3
    (product,) = products(program)
    assert product.args[2] == 2 * WIDTH + HIDDEN
    assert sorted(program.state_dict) == ["query.weight_packed", "query.weight_packed_bias"]
    check_numbers(model, program)


@pytest.mark.parametrize("layer_first", [True, False])
def test_what_follows_goes_into_the_product(layer_first: bool) -> None:
    model = seed_weights(Feedforward(layer_first=layer_first))
    program = export(model)
    assert pack_linears(program) == 2
    assert products(program) == [], "both went into one operator"
    (pair,) = pairs(program)
    assert (pair.args[2], pair.args[4], pair.args[6]) == (HIDDEN, Activation.GELU_TANH, WIDTH)
    assert isinstance(pair.args[8], Node)
    assert named(program, "gelu") == named(program, "add") == 0
    check_numbers(model, program)


@pytest.mark.parametrize("kind", ["read_twice", "added", "narrow", "other_rows"])
def test_layers_that_somebody_comes_between_stay_two(kind: str) -> None:
    model = seed_weights(Between(kind))
    program = export(model)
    assert pack_linears(program) == 2
    assert pairs(program) == []
    assert len(products(program)) == 2
    check_numbers(model, program)


def test_of_three_layers_two_are_one_operator() -> None:
    model = seed_weights(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))))
    program = export(model)
    assert pack_linears(program) == 3
    assert (len(pairs(program)), len(products(program))) == (1, 1)
    check_numbers(model, program)


def test_what_others_read_stays() -> None:
    model = seed_weights(UsedTwice())
    program = export(model)
    assert pack_linears(program) == 2
    assert [node.args[4:] for node in products(program)] == [(None, Activation.NONE)] * 2
    assert named(program, "relu") == named(program, "add") == 1
    check_numbers(model, program)


def test_weights_of_others_stay() -> None:
    model = seed_weights(Tied())
    program = export(model)
    assert pack_linears(program) == 2
    unpacked = [name for name in program.state_dict if "packed" not in name]
    assert unpacked, "the embedding still reads them"
    assert sum("packed" in name for name in program.state_dict) == 2, "one packed matrix, one bias"
    check_numbers(model, program)


def test_other_layers_are_left_alone() -> None:
    model = seed_weights(Chain())
    program = export(model)
    assert pack_linears(program) == 2
    assert named(program, "linear") == 2
    check_numbers(model, program)


def test_a_program_in_float32_stays_as_it_is() -> None:
    define_operators()
    model, x = Attention(), seeded(1, TOKENS, WIDTH)
    program = torch.export.export(model, (x,), strict=False)
    assert pack_linears(program) == 0
    assert products(program) == []
