"""Changes exported programs in place: new calls, new constants, none that nobody uses.

Knows nothing of models and of what the changes are for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from typing import Any

import torch
from torch import SymInt, Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node

_CONSTANT_KINDS = frozenset({InputKind.PARAMETER, InputKind.BUFFER})


class ProgramEditor:
    """One program under change. What is added knows its shape, as the rest of the graph does."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._specs = program.graph_signature.input_specs
        modes = (getattr(node.meta.get("val"), "fake_mode", None) for node in self._inputs)
        found: FakeTensorMode | None = next((mode for mode in modes if mode is not None), None)
        assert found is not None, "an exported program has inputs; this is a bug"
        self._mode = found

    @property
    def graph(self) -> Graph:
        """The program's graph."""
        graph: Graph = self._program.graph
        return graph

    def constant(self, node: object) -> Tensor | None:
        """The parameter or persistent buffer that a node stands for, None for other nodes."""
        name = self._constant_name(node)
        return None if name is None else self._program.state_dict.get(name)

    def constant_name(self, node: Node) -> str:
        """The name of a parameter or buffer."""
        name = self._constant_name(node)
        assert name is not None, f"{node} is no constant; this is a bug"
        return name

    def add_constant(self, name: str, value: Tensor) -> Node:
        """Add a buffer; gives the node that stands for it.

        Args:
            name: as in a state dict; where it is taken, a number is added to it.
        """
        names = chain((name,), (f"{name}_{number}" for number in count(2)))
        name = next(one for one in names if one not in self._program.state_dict)
        place = next((i for i, spec in enumerate(self._specs) if spec.kind is InputKind.USER_INPUT))
        with self.graph.inserting_before(self._inputs[place]):
            node = self.graph.placeholder("b_" + name.replace(".", "_"))
        with self._mode:
            node.meta["val"] = torch.empty(value.shape, dtype=value.dtype)
        argument = TensorArgument(name=node.name)
        spec = InputSpec(kind=InputKind.BUFFER, arg=argument, target=name, persistent=True)
        self._inputs.insert(place, node)
        self._specs.insert(place, spec)
        self._program.state_dict[name] = value
        return node

    def call(self, target: Any, *arguments: Any) -> Node:  # noqa: ANN401 - whatever a graph holds
        """Add a call of an operator at the graph's insertion point."""
        node = self.graph.call_function(target, arguments)
        with self._mode:
            node.meta["val"] = target(*(_value(argument) for argument in arguments))
        return node

    def reshaped(self, node: Node, shape: list[int]) -> Node:
        """The same numbers in another shape, at the graph's insertion point.

        Args:
            shape: with as many dimensions as the node has only if it is the node's own.
        """
        if len(node.meta["val"].shape) == len(shape):
            return node
        return self.call(torch.ops.aten.reshape.default, node, shape)

    def remove_unused_constants(self) -> None:
        """Drop parameters and buffers that no node reads, under all of their names."""
        unused = [
            i
            for i, (node, spec) in enumerate(zip(self._inputs, self._specs, strict=True))
            if spec.kind in _CONSTANT_KINDS and not node.users
        ]
        state = self._program.state_dict
        gone = set()
        for i in reversed(unused):
            name = self._specs.pop(i).target
            if name in state:
                gone.add(_place(state.pop(name)))
            self.graph.erase_node(self._inputs.pop(i))
        kept = {spec.target for spec in self._specs}
        for name in [n for n, tensor in state.items() if n not in kept and _place(tensor) in gone]:
            del state[name]

    def _constant_name(self, node: object) -> str | None:
        for known, spec in zip(self._inputs, self._specs, strict=True):
            if known is node:
                return spec.target if spec.kind in _CONSTANT_KINDS else None
        return None


@contextmanager
def editing(program: ExportedProgram) -> Iterator[ProgramEditor]:
    """Change a program, then drop what became unused and see that the graph is whole."""
    editor = ProgramEditor(program)
    yield editor
    editor.remove_unused_constants()
    program.graph.lint()
    program.graph_module.recompile()


def only_user(node: Node) -> Node | None:
    """The one node that reads another, None where there are none or several."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def keeps_numbers(node: Node) -> bool:
    """Whether a node gives all the numbers it is given, perhaps in another shape."""
    aten = torch.ops.aten
    if node.target is aten.dropout.default:
        return not node.args[2]  # not training
    return node.target in (aten.reshape.default, aten.view.default)


def static_shape(node: Node) -> list[int] | None:
    """A tensor's shape with -1 for its only unknown size, None where it has several."""
    sizes = [-1 if isinstance(size, SymInt) else int(size) for size in node.meta["val"].shape]
    return sizes if sizes.count(-1) <= 1 and sizes[-1] != -1 else None


def added_tensors(node: Node) -> tuple[Node, Node] | None:
    """The two tensors of one shape and dtype that a node adds up, None for other nodes."""
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs.get("alpha", 1) != 1:
        return None
    one, other = node.args[:2]
    if not isinstance(one, Node) or not isinstance(other, Node):
        return None
    first, second = one.meta["val"], other.meta["val"]
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        return None
    return (one, other) if first.dtype == second.dtype and first.shape == second.shape else None


def _value(argument: Any) -> Any:  # noqa: ANN401 - whatever a graph holds
    return argument.meta["val"] if isinstance(argument, Node) else argument


def _place(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.nbytes
