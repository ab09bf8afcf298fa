"""Moves the function that follows an 8-bit layer into its kernel, which has the sums in registers.

Works on exported graphs. Knows nothing of models.
"""

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from infinity_v3.compiler.int8.reference import Activation
from infinity_v3.compiler.operators import INT8_LINEAR, define_operators

_ACTIVATION = 6
"""Place among the arguments."""


def fuse_activations(program: ExportedProgram) -> int:
    """Change the graph in place; gives how many functions went into layers."""
    operator = define_operators()[INT8_LINEAR]
    products = [node for node in program.graph.nodes if node.target is operator]
    fused = sum(_fuse(node) for node in products if node.args[_ACTIVATION] == Activation.NONE)
    program.graph.lint()
    return fused


def _fuse(product: Node) -> bool:
    follower = _only_user(product)
    while follower is not None and _keeps_numbers(follower):
        follower = _only_user(follower)
    if follower is None or (activation := _activation_of(follower)) is None:
        return False
    product.update_arg(_ACTIVATION, int(activation))
    before = follower.args[0]
    assert isinstance(before, Node), "a function of one tensor; this is a bug"
    follower.replace_all_uses_with(before)
    follower.graph.erase_node(follower)
    return True


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _keeps_numbers(node: Node) -> bool:
    """Whether a node gives all the numbers it is given, in another shape."""
    aten = torch.ops.aten
    return node.target in (aten.reshape.default, aten.view.default)


def _activation_of(node: Node) -> Activation | None:
    aten = torch.ops.aten
    if node.target is aten.gelu.default:
        is_exact = node.kwargs.get("approximate", "none") == "none"
        return Activation.GELU if is_exact else Activation.GELU_TANH
    if node.target is aten.silu.default:
        return Activation.SILU
    return Activation.RELU if node.target is aten.relu.default else None
