"""Moves the function that follows a linear layer into its kernel, which has the sums in registers.

Works on exported graphs, for every operator of ours with an activation. Knows nothing of models.
"""

import torch
from torch.fx import Node

from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.program_editor import keeps_numbers, only_user


def fuse_activation(product: Node, place: int) -> bool:
    """Change the graph in place; gives whether a function went into the layer.

    Args:
        product: the call of a linear operator.
        place: of the activation among its arguments.
    """
    follower = only_user(product)
    while follower is not None and keeps_numbers(follower):
        follower = only_user(follower)
    if follower is None or (activation := _activation_of(follower)) is None:
        return False
    product.update_arg(place, int(activation))
    before = follower.args[0]
    assert isinstance(before, Node), "a function of one tensor; this is a bug"
    follower.replace_all_uses_with(before)
    follower.graph.erase_node(follower)
    return True


def _activation_of(node: Node) -> Activation | None:
    aten = torch.ops.aten
    if node.target is aten.gelu.default:
        is_exact = node.kwargs.get("approximate", "none") == "none"
        return Activation.GELU if is_exact else Activation.GELU_TANH
    if node.target is aten.silu.default:
        return Activation.SILU
    return Activation.RELU if node.target is aten.relu.default else None
