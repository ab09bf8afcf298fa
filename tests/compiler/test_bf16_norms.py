"""Exported programs with our normalisation operators in place of their LayerNorms."""

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node

from infinity_v3.compiler.bf16.fusion import pack_linears
from infinity_v3.compiler.bf16.norms import place_norms
from infinity_v3.compiler.operators import EMBEDDING_NORM, LAYER_NORM, define_operators
from kernel_calls import assert_close, seeded

WIDTH, TOKENS, VOCABULARY = 64, 9, 40
ROWS = (2, VOCABULARY, 20, 3)
"""Of tables of tokens."""


class Blocks(nn.Module):
    """A sum that only a LayerNorm reads, one that is read elsewhere, and a norm of a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH, eps=1e-3)
        self.third, self.fourth = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x + nn.functional.relu(x))
        total = inner + x
        found: Tensor = self.fourth(self.third(self.second(total))) + total
        return found


class LinearBlock(nn.Module):
    """A sum that goes into the product before it, and a norm of a part of a joint product."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.query_norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dense(x) + x)
        found: Tensor = self.query_norm(self.query(y)) * self.key(y)
        return found


class Other(nn.Module):
    """LayerNorms that are left alone: over two dimensions, without weights, of known rows."""

    def __init__(self) -> None:
        super().__init__()
        self.square = nn.LayerNorm((4, WIDTH // 4))
        self.plain = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.table = nn.Parameter(torch.empty(5, WIDTH))
        self.heads = nn.LayerNorm(WIDTH // 4)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.heads(self.square(x.view(1, -1, 4, WIDTH // 4))).flatten(-2)
        found: Tensor = self.plain(parts) + self.norm(self.table).sum(0)
        return found


class Embeddings(nn.Module):
    """Tables of tokens, one after the other added up and normalised.

    Args:
        shared: what else is read of them: nothing, the sum of the first two, or the words' table.
    """

    def __init__(self, num_tables: int, shared: str = "") -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH) for rows in ROWS[:num_tables])
        self.norm, self.shared = nn.LayerNorm(WIDTH), shared

    def forward(self, ids: Tensor) -> Tensor:
        rows = ROWS[: len(self.tables)]
        terms = [table(ids % number) for table, number in zip(self.tables, rows, strict=True)]
        total: Tensor = terms[0]
        for term in terms[1:]:
            total = total + term
        found: Tensor = self.norm(total)
        if self.shared == "sum":
            return found + total
        return (
            found * self.tables[1].get_parameter("weight")[3] if self.shared == "table" else found
        )


def seed_weights(model: nn.Module) -> nn.Module:
    for seed, weight in enumerate(model.parameters()):
        weight.data = seeded(*weight.shape, seed=seed)
    return model.eval().to(torch.bfloat16)


def example(model: nn.Module, tokens: int) -> Tensor:
    if isinstance(model, Embeddings):
        return torch.arange(tokens)[None] * 7 % VOCABULARY
    return seeded(1, tokens, WIDTH, seed=tokens, dtype=torch.bfloat16)


def export(model: nn.Module) -> ExportedProgram:
    define_operators()
    shapes = ({1: Dim("T", min=2, max=64)},)
    return torch.export.export(
        model, (example(model, TOKENS),), dynamic_shapes=shapes, strict=False
    )


def calls(program: ExportedProgram, name: str) -> list[Node]:
    operator = define_operators()[name]
    return [node for node in program.graph.nodes if node.target is operator]


def named(program: ExportedProgram, operator: str) -> int:
    return sum(f"aten.{operator}." in str(node.target) for node in program.graph.nodes)


def check_numbers(model: nn.Module, program: ExportedProgram) -> None:
    """On average no further from the numbers in float64 than the model itself is."""
    for tokens in (TOKENS, 31):
        x = example(model, tokens)
        with torch.no_grad():
            found, usual = program.module()(x), model(x)
            exact = model.double()(x if x.dtype == torch.int64 else x.double())
            model.bfloat16()
        error, usual_error = ((y.double() - exact).abs() for y in (found, usual))
        assert found.dtype == usual.dtype
        assert error.mean() <= usual_error.mean()
        # A few roundings to 8 bits.
        assert_close(found, exact, atol=0.02 * float(exact.abs().max()))


def test_a_sum_that_nobody_else_reads_goes_into_the_norm() -> None:
    model = seed_weights(Blocks())
    program = export(model)
    assert place_norms(program) == 4
    norms = calls(program, LAYER_NORM)
    assert [isinstance(norm.args[1], Node) for norm in norms] == [True, False, False, False]
    assert [norm.args[4] for norm in norms] == [1e-5, 1e-3, 1e-5, 1e-5]
    assert [isinstance(norm.args[3], Node) for norm in norms] == [True, True, False, True]
    assert named(program, "layer_norm") == 0
    assert named(program, "add") == 2
    check_numbers(model, program)


def test_norms_stand_behind_products() -> None:
    model = seed_weights(LinearBlock())
    program = export(model)
    pack_linears(program)
    assert place_norms(program) == 2
    assert [norm.args[1] for norm in calls(program, LAYER_NORM)] == [None, None]
    assert calls(program, LAYER_NORM)[1].args[0].meta["val"].stride() == (2 * WIDTH, 1)  # type: ignore[union-attr]
    check_numbers(model, program)


def test_other_norms_are_left_alone() -> None:
    model = seed_weights(Other())
    program = export(model)
    assert place_norms(program) == 0
    assert named(program, "layer_norm") == 4


@pytest.mark.parametrize("num_tables", [1, 2, 3])
def test_tables_of_tokens_go_into_the_norm(num_tables: int) -> None:
    model = seed_weights(Embeddings(num_tables))
    program = export(model)
    assert place_norms(program) == 1
    (norm,) = calls(program, EMBEDDING_NORM)
    rows = [table.meta["val"].shape[0] for table in norm.args[:6:2] if isinstance(table, Node)]
    assert rows == sorted(ROWS[:num_tables], reverse=True)
    assert named(program, "embedding") == named(program, "add") == 0
    assert calls(program, LAYER_NORM) == []
    check_numbers(model, program)


def test_more_tables_are_added_up_before() -> None:
    model = seed_weights(Embeddings(4))
    program = export(model)
    assert place_norms(program) == 1
    assert calls(program, EMBEDDING_NORM) == []
    (norm,) = calls(program, LAYER_NORM)
    assert isinstance(norm.args[1], Node)
    assert named(program, "embedding") == 4
    check_numbers(model, program)


@pytest.mark.parametrize(("shared", "operator"), [("sum", LAYER_NORM), ("table", EMBEDDING_NORM)])
def test_what_others_read_stays(shared: str, operator: str) -> None:
    model = seed_weights(Embeddings(2, shared))
    program = export(model)
    assert place_norms(program) == 1
    assert len(calls(program, operator)) == 1
    assert len(program.state_dict) == 4
    check_numbers(model, program)


def test_a_program_in_float32_stays_as_it_is() -> None:
    define_operators()
    model, x = Blocks(), seeded(1, TOKENS, WIDTH)
    program = torch.export.export(model, (x,), strict=False)
    assert place_norms(program) == 0
    assert named(program, "layer_norm") == 4
