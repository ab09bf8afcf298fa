"""What the graph of a manifest must also satisfy: named tensors, and sizes that belong together.

Each function refuses with the path of the key at fault. Does no I/O.
"""

from collections.abc import Mapping

from infinity_v3.artifacts.manifest import Graph, TensorSpec
from infinity_v3.artifacts.typed_json import Location, show
from infinity_v3.artifacts.value_rules import check_unique

_STORED, _PACKED, _SEQUENCES, _BOUNDS, _READOUTS = "N", "T", "B", "B+1", "M"
_TOKEN_INPUTS = ("input_ids", "position_ids", "token_type_ids")
_PACKING: Mapping[str, str] = {
    "rows": _PACKED,
    "key_counts": _SEQUENCES,
    "cu_seqlens": _BOUNDS,
    "readout_positions": _READOUTS,
}


def check_graph(graph: Graph, at: Location) -> None:
    """Refuse a graph without inputs or outputs, or with sizes that contradict each other.

    Raises:
        RefusedError: names the first key that breaks a rule.
    """
    for key, tensors in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        if not tensors:
            raise at.key(key).refuse("expected at least one tensor, found none")
        check_unique((tensor.name for tensor in tensors), "tensor", at.key(key), "name")
        for index, tensor in enumerate(tensors):
            _check_dims(tensor, at.key(key).item(index).key("dims"))
    _check_sizes(graph.inputs, at.key("inputs"))


def _check_dims(tensor: TensorSpec, at: Location) -> None:
    for position, dim in enumerate(tensor.dims):
        if dim == "" or (isinstance(dim, int) and dim < 1):
            raise at.item(position).refuse(
                f"expected a name or a positive integer, found {show(dim)}"
            )


def _check_sizes(inputs: tuple[TensorSpec, ...], at: Location) -> None:
    """Tokens are stored once per row where there are rows, else once per packed token."""
    has_rows = any(tensor.name == "rows" for tensor in inputs)
    tokens = dict.fromkeys(_TOKEN_INPUTS, _STORED if has_rows else _PACKED)
    expected = {**_PACKING, **tokens}
    for index, tensor in enumerate(inputs):
        size = expected.get(tensor.name)
        if size is not None and tensor.dims != (size,):
            found = ", ".join(str(dim) for dim in tensor.dims)
            raise (
                at.item(index)
                .key("dims")
                .refuse(f"expected [{size}] for {show(tensor.name)}, found [{found[:40]}]")
            )
