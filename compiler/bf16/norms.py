"""Puts our normalisation operators in place of the LayerNorms of an exported bfloat16 program.

A sum of two tensors that only a LayerNorm reads goes into it, and so do the embeddings of tokens
that are added up in front of one. Knows nothing of models.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from infinity_v3.compiler.operators import EMBEDDING_NORM, LAYER_NORM, define_operators
from infinity_v3.compiler.program_editor import (
    ProgramEditor,
    added_tensors,
    editing,
    only_user,
    static_shape,
)

_MOST_TABLES = 3
"""That the operator reads."""
_EPSILON = 1e-5
"""Of a LayerNorm that names none, as torch has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Norm:
    """A LayerNorm over the last dimension of x, which has one row for each token."""

    node: Node
    shape: list[int]
    weight: Node
    bias: Node | None
    epsilon: float

    @property
    def x(self) -> Node:
        """The tensor that it reads: another one when what gave it was replaced."""
        x = self.node.args[0]
        assert isinstance(x, Node), "tensors are nodes; this is a bug"
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lookup:
    """Rows of a table (R, D), by ids of the same dimensions as the tokens have."""

    table: Node
    ids: Node


def place_norms(program: ExportedProgram) -> int:
    """Change the program in place; gives how many LayerNorms were replaced."""
    with editing(program) as editor:
        norms = [norm for node in editor.graph.nodes if (norm := _norm(node))]
        for norm in norms:
            lookups = _lookups(norm.x, norm.node)
            with editor.graph.inserting_before(norm.node):
                rows = (
                    _of_rows(editor, norm) if lookups is None else _of_tables(editor, norm, lookups)
                )
                norm.node.replace_all_uses_with(editor.reshaped(rows, norm.shape))
            _erase_unread(editor, norm.node)
    return len(norms)


def _norm(node: Node) -> _Norm | None:
    if node.target is not torch.ops.aten.layer_norm.default:
        return None
    x, sizes, weight, bias, epsilon = (*node.args, *(None, None, _EPSILON)[len(node.args) - 2 :])[
        :5
    ]
    assert isinstance(x, Node), "tensors are nodes; this is a bug"
    assert isinstance(sizes, list | tuple), "sizes are a list in the schema; this is a bug"
    assert isinstance(epsilon, float), "a number in the schema; this is a bug"
    shape = static_shape(x)
    if len(sizes) != 1 or shape is None or not _has_token_rows(shape) or not _is_readable(x):
        return None
    if not isinstance(weight, Node) or not (bias is None or isinstance(bias, Node)):
        return None
    return _Norm(node=node, shape=shape, weight=weight, bias=bias, epsilon=epsilon)


def _has_token_rows(shape: list[int]) -> bool:
    """Whether the only size but the last that is not 1 is unknown: how many tokens there are."""
    return -1 in shape and all(size in (-1, 1) for size in shape[:-1])


def _is_readable(node: Node) -> bool:
    value = node.meta["val"]
    return value.dtype == torch.bfloat16 and bool(value.stride(-1) == 1)


def _of_rows(editor: ProgramEditor, norm: _Norm) -> Node:
    """The operator over x, or over the two tensors that x is the sum of."""
    terms = added_tensors(norm.x) if only_user(norm.x) is norm.node else None
    is_fused = terms is not None and all(_is_readable(term) for term in terms)
    width = norm.shape[-1]
    rows = [
        editor.reshaped(term, [-1, width]) for term in (terms if terms and is_fused else (norm.x,))
    ]
    x, other = (*rows, None)[:2]
    operator = define_operators()[LAYER_NORM]
    return editor.call(operator, x, other, norm.weight, norm.bias, norm.epsilon)


def _of_tables(editor: ProgramEditor, norm: _Norm, lookups: list[_Lookup]) -> Node:
    """The operator over rows of tables; the largest table first, whose rows are fetched early."""
    arguments: list[Node | None] = []
    for lookup in sorted(lookups, key=lambda one: -int(one.table.meta["val"].shape[0])):
        arguments += [lookup.table, editor.reshaped(lookup.ids, [-1])]
    arguments += [None] * (2 * _MOST_TABLES - len(arguments))
    operator = define_operators()[EMBEDDING_NORM]
    return editor.call(operator, *arguments, norm.weight, norm.bias, norm.epsilon)


def _lookups(node: Node, reader: Node) -> list[_Lookup] | None:
    """What a tensor is the sum of, if these are embeddings of tokens that nobody else reads."""
    found = list(_leaves(node, reader))
    lookups = [lookup for leaf in found if (lookup := _lookup(leaf))]
    return lookups if len(lookups) == len(found) <= _MOST_TABLES else None


def _leaves(node: Node, reader: Node) -> Iterator[Node | None]:
    """Terms of a sum of sums, in order; None for one that is read elsewhere, too."""
    if only_user(node) is not reader:
        yield None
        return
    terms = added_tensors(node)
    if terms is None:
        yield node
        return
    for term in terms:
        yield from _leaves(term, node)


def _lookup(node: Node | None) -> _Lookup | None:
    if node is None or node.target is not torch.ops.aten.embedding.default:
        return None
    table, ids = node.args[:2]
    assert isinstance(table, Node), "tensors are nodes; this is a bug"
    assert isinstance(ids, Node), "tensors are nodes; this is a bug"
    is_known = ids.meta["val"].dtype == torch.int64 and _is_readable(table)
    return _Lookup(table=table, ids=ids) if is_known else None


def _erase_unread(editor: ProgramEditor, node: Node) -> None:
    """Erase a node, and what it alone read."""
    sources = [source for source in node.all_input_nodes if source.op == "call_function"]
    editor.graph.erase_node(node)
    for source in sources:
        if not source.users and isinstance(source.meta["val"], Tensor):
            _erase_unread(editor, source)
