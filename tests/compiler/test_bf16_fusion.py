"""Exported programs with our bfloat16 operator in place of their linear layers."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.bf16.fusion import pack_linears
from infinity_v3.compiler.operators import BF16_LINEAR, define_operators
from kernel_calls import assert_close, seeded

WIDTH, HIDDEN, TOKENS = 64, 128, 9


class Case(nn.Module):
    """Layers with seeded weights."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        for seed, weight in enumerate(self.parameters()):
            weight.data = seeded(*weight.shape, seed=seed) * WIDTH**-0.5
        self.eval().to(torch.bfloat16)


class Attention(Case):
    """Three layers of one input, one with another size, one without a bias; views of their parts."""

    def __init__(self) -> None:
        super().__init__(
            query=nn.Linear(WIDTH, WIDTH),
            key=nn.Linear(WIDTH, HIDDEN, bias=False),
            value=nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x: Tensor) -> Tensor:
        query, value = (layer(x).view(1, -1, 4, 16) for layer in (self.query, self.value))
        return (query * value).reshape(1, -1, WIDTH) + self.key(x)[..., WIDTH:]


class Feedforward(Case):
    """A function behind one layer, and a sum behind another, in either order of its operands."""

    def __init__(self, *, layer_first: bool) -> None:
        super().__init__(
            up=nn.Linear(WIDTH, HIDDEN), down=nn.Linear(HIDDEN, WIDTH), dropout=nn.Dropout(0.1)
        )
        self.layer_first = layer_first

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(self.down(nn.functional.gelu(self.up(x), approximate="tanh")))
        return y + x if self.layer_first else x + y


class UsedTwice(Case):
    """A function whose input is read elsewhere, and a sum whose operand is."""

    def __init__(self) -> None:
        super().__init__(up=nn.Linear(WIDTH, WIDTH), down=nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x)
        down = self.down(nn.functional.relu(up) * up)
        return (down + x) * down


class Tied(Case):
    """Weights that two layers share with each other and with an embedding."""

    def __init__(self) -> None:
        super().__init__(embedding=nn.Embedding(HIDDEN, WIDTH), first=nn.Linear(WIDTH, HIDDEN))
        self.second = nn.Linear(WIDTH, HIDDEN, bias=False).to(torch.bfloat16)
        self.first.weight = self.second.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.embedding.weight[3]
        found: Tensor = self.first(y) * self.second(y * y)
        return found


class Chain(Case):
    """Layers right behind each other, and ones that are left alone: too small, or of odd depth."""

    def __init__(self) -> None:
        super().__init__(
            first=nn.Linear(WIDTH, WIDTH),
            second=nn.Linear(WIDTH, 65),
            odd=nn.Linear(65, WIDTH),
            small=nn.Linear(WIDTH, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.small(self.odd(self.second(self.first(x))))
        return found


def export(model: nn.Module) -> ExportedProgram:
    define_operators()
    example = (seeded(1, TOKENS, WIDTH, dtype=torch.bfloat16),)
    shapes = ({1: Dim("T", min=2, max=64)},)
    return torch.export.export(model, example, dynamic_shapes=shapes, strict=False)


def products(program: ExportedProgram) -> list[Node]:
    operator = define_operators()[BF16_LINEAR]
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
    model = Attention()
    program = export(model)
    assert pack_linears(program) == 3
    (product,) = products(program)
    assert product.args[2] == 2 * WIDTH + HIDDEN
    assert sorted(program.state_dict) == ["query.weight_packed", "query.weight_packed_bias"]
    check_numbers(model, program)


@pytest.mark.parametrize("layer_first", [True, False])
def test_what_follows_goes_into_the_product(layer_first: bool) -> None:
    model = Feedforward(layer_first=layer_first)
    program = export(model)
    assert pack_linears(program) == 2
    up, down = products(program)
    assert (up.args[4], up.args[5]) == (None, Activation.GELU_TANH)
    assert isinstance(down.args[4], Node)
    assert named(program, "gelu") == named(program, "add") == 0
    check_numbers(model, program)


def test_what_others_read_stays() -> None:
    model = UsedTwice()
    program = export(model)
    assert pack_linears(program) == 2
    assert [node.args[4:] for node in products(program)] == [(None, Activation.NONE)] * 2
    assert named(program, "relu") == named(program, "add") == 1
    check_numbers(model, program)


def test_weights_of_others_stay() -> None:
    model = Tied()
    program = export(model)
    assert pack_linears(program) == 2
    unpacked = [name for name in program.state_dict if "packed" not in name]
    assert unpacked, "the embedding still reads them"
    assert sum("packed" in name for name in program.state_dict) == 2, "one packed matrix, one bias"
    check_numbers(model, program)


def test_other_layers_are_left_alone() -> None:
    model = Chain()
    program = export(model)
    assert pack_linears(program) == 2
    assert named(program, "linear") == 2
    check_numbers(model, program)


def test_a_program_in_float32_stays_as_it_is() -> None:
    define_operators()
    model, x = Attention().float(), seeded(1, TOKENS, WIDTH)
    program = torch.export.export(model, (x,), strict=False)
    assert pack_linears(program) == 0
    assert products(program) == []
