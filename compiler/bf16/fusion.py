"""Puts our bfloat16 linear operator in place of the linear layers of an exported program.

Layers of one input, such as those for queries, keys and values, are one product. The function
behind a layer and what is added to it go into the product, and two products that only follow one
another are one operator. Knows nothing of models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from infinity_v3.compiler.activation_fusion import fuse_activation
from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.bf16.weights import PANEL, pack_weights
from infinity_v3.compiler.operators import BF16_LINEAR, BF16_MLP, define_operators
from infinity_v3.compiler.program_editor import (
    ProgramEditor,
    added_tensors,
    editing,
    keeps_numbers,
    only_user,
    static_shape,
)

_MIN_COLUMNS = 64
"""Of a layer: smaller ones are worth no packing."""
_COLUMNS, _RESIDUAL, _ACTIVATION = 2, 4, 5
"""Places among the operator's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """A linear layer of the graph with (M, K) weights and (M,) bias."""

    node: Node
    weight: Node
    weight_value: Tensor
    bias: Tensor | None

    @property
    def x(self) -> Node:
        """The tensor that it reads: another one when the layer before was replaced."""
        x = self.node.args[0]
        assert isinstance(x, Node), "tensors are nodes; this is a bug"
        return x

    @property
    def columns(self) -> int:
        return int(self.weight_value.shape[0])


def pack_linears(program: ExportedProgram) -> int:
    """Change the program in place; gives how many layers were replaced.

    The unpacked weights leave the program unless something else uses them.
    """
    with editing(program) as editor:
        layers = [layer for node in editor.graph.nodes if (layer := _layer(editor, node))]
        groups: dict[Node, list[_Layer]] = {}
        for layer in layers:
            groups.setdefault(layer.x, []).append(layer)
        packed: dict[tuple[Node, ...], Node] = {}
        for product in [_replace(editor, group, packed) for group in groups.values()]:
            fuse_activation(product, _ACTIVATION)
            _fuse_residual(editor, product)
        _join_pairs(editor)
    return len(layers)


def _layer(editor: ProgramEditor, node: Node) -> _Layer | None:
    if node.target is not torch.ops.aten.linear.default:
        return None
    x, weight, bias = (*node.args, None)[:3]
    weight_value = editor.constant(weight)
    bias_value = None if bias is None else editor.constant(bias)
    if weight_value is None or (bias is not None and bias_value is None):
        return None
    assert isinstance(x, Node), "tensors are nodes; this is a bug"
    assert isinstance(weight, Node), "tensors are nodes; this is a bug"
    columns, depth = weight_value.shape
    fits = weight_value.dtype == torch.bfloat16 and columns >= _MIN_COLUMNS and depth % 2 == 0
    if not fits or static_shape(x) is None:
        return None
    return _Layer(
        node=node,
        weight=weight,
        weight_value=weight_value.detach(),
        bias=None if bias_value is None else bias_value.detach(),
    )


def _replace(
    editor: ProgramEditor, layers: Sequence[_Layer], packed: dict[tuple[Node, ...], Node]
) -> Node:
    """Put one product in place of layers that read the same tensor.

    Args:
        packed: weights by the nodes of the unpacked ones; what is packed here is added.
    """
    first, aten = layers[0], torch.ops.aten
    name = f"{editor.constant_name(first.weight)}_packed"
    key = tuple(layer.weight for layer in layers)
    if key not in packed:
        joint = torch.cat([layer.weight_value for layer in layers])
        packed[key] = editor.add_constant(name, pack_weights(joint))
    bias_value = _joint_bias(layers)
    bias = None if bias_value is None else editor.add_constant(f"{name}_bias", bias_value)
    shape, columns = static_shape(first.x), sum(layer.columns for layer in layers)
    assert shape is not None, "such layers were left out; this is a bug"
    with editor.graph.inserting_before(first.node):
        rows = editor.reshaped(first.x, [-1, shape[-1]])
        operator = define_operators()[BF16_LINEAR]
        product = editor.call(
            operator, rows, packed[key], columns, bias, None, int(Activation.NONE)
        )
        whole = editor.reshaped(product, [*shape[:-1], columns])
        start = 0
        for layer in layers:
            end = start + layer.columns
            part = whole
            if len(layers) > 1:
                part = editor.call(aten.slice.Tensor, whole, len(shape) - 1, start, end)
                _let_strides_differ(layer.node)
            layer.node.replace_all_uses_with(part)
            start = end
    for layer in layers:
        editor.graph.erase_node(layer.node)
    return product


def _let_strides_differ(node: Node) -> None:
    """Its rows will lie apart: a view asks for what a reshape does not."""
    for user in node.users:
        if user.target is torch.ops.aten.view.default:
            user.target = torch.ops.aten.reshape.default


def _joint_bias(layers: Sequence[_Layer]) -> Tensor | None:
    if all(layer.bias is None for layer in layers):
        return None
    return torch.cat(
        [
            torch.zeros(layer.columns) if layer.bias is None else layer.bias.float()
            for layer in layers
        ]
    )


def _fuse_residual(editor: ProgramEditor, product: Node) -> None:
    """Let the product add what is added to it, rounding once instead of twice."""
    last, adder = product, only_user(product)
    while adder is not None and keeps_numbers(adder):
        last, adder = adder, only_user(adder)
    if adder is None or (other := _other_operand(adder, last)) is None:
        return
    shape, columns = static_shape(last), product.args[_COLUMNS]
    assert shape is not None, "a product that was put here; this is a bug"
    assert isinstance(columns, int), "a whole number in the schema; this is a bug"
    # Where the sum was: only there the other operand is known to exist.
    with editor.graph.inserting_before(adder):
        residual = editor.reshaped(other, [-1, columns])
        arguments = [*product.args]
        arguments[_RESIDUAL] = residual
        fused = editor.call(product.target, *arguments)
        adder.replace_all_uses_with(editor.reshaped(fused, shape))
    editor.graph.erase_node(adder)
    while last is not product:
        before = last.args[0]
        assert isinstance(before, Node), "a chain of reshapes; this is a bug"
        editor.graph.erase_node(last)
        last = before
    editor.graph.erase_node(product)


def _other_operand(adder: Node, product: Node) -> Node | None:
    """What a node adds to a product, if it is a tensor like that."""
    operands = added_tensors(adder)
    if operands is None or operands[0] is operands[1]:
        return None
    other = operands[1] if operands[0] is product else operands[0]
    return other if other.meta["val"].stride(-1) == 1 else None


def _join_pairs(editor: ProgramEditor) -> None:
    """Let two products be one operator where only the second one reads what the first one gives."""
    operators = define_operators()
    for down in [node for node in editor.graph.nodes if node.target is operators[BF16_LINEAR]]:
        chain = _chain_of(down)
        up = chain[-1]
        is_pair = up.target is operators[BF16_LINEAR] and all(only_user(node) for node in chain)
        if not is_pair or not _may_stay_within(up, chain[0]):
            continue
        x, weights, hidden, bias, _, activation = up.args
        _, *layer, residual, _ = down.args
        with editor.graph.inserting_before(down):
            joint = editor.call(
                operators[BF16_MLP], x, weights, hidden, bias, activation, *layer, residual
            )
        down.replace_all_uses_with(joint)
        for node in (down, *chain):
            editor.graph.erase_node(node)


def _chain_of(product: Node) -> list[Node]:
    """What gives a product its rows, back to the first node that does more than reshape them."""
    nodes = []
    node = product.args[0]
    while True:
        assert isinstance(node, Node), "tensors are nodes; this is a bug"
        nodes.append(node)
        if not keeps_numbers(node):
            return nodes
        node = node.args[0]


def _may_stay_within(up: Node, rows: Node) -> bool:
    """Whether a product is read row by row, fills whole panels, and has nothing added to it."""
    columns = up.args[_COLUMNS]
    assert isinstance(columns, int), "a whole number in the schema; this is a bug"
    is_same = bool(rows.meta["val"].shape[-1] == columns)
    return is_same and columns % PANEL == 0 and up.args[_RESIDUAL] is None
