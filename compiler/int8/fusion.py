"""Moves the functions that follow 8-bit layers into their kernel. Knows nothing of models."""

from torch.export import ExportedProgram

from infinity_v3.compiler.activation_fusion import fuse_activation
from infinity_v3.compiler.activations import Activation
from infinity_v3.compiler.operators import INT8_LINEAR, define_operators

_ACTIVATION = 6
"""Place among the arguments."""


def fuse_activations(program: ExportedProgram) -> int:
    """Change the graph in place; gives how many functions went into layers."""
    operator = define_operators()[INT8_LINEAR]
    products = [node for node in program.graph.nodes if node.target is operator]
    fused = sum(
        fuse_activation(node, _ACTIVATION)
        for node in products
        if node.args[_ACTIVATION] == Activation.NONE
    )
    program.graph.lint()
    return fused
