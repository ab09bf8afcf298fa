"""Keeps an exported model in an artifact without pickle, and reads it back.

The only file that knows how torch serialises a graph. Knows nothing of targets.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch._export.serde import schema
from torch._export.serde.serialize import (
    ExportedProgramDeserializer,
    SerializeError,
    _dict_to_dataclass,
    serialize,
)
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import Graph, KeptProgram, Manifest, Precision
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.typed_json import JsonObject, Location
from infinity_v3.compiler.backends.aligned_constants import LINE_BYTES
from infinity_v3.compiler.backends.aoti import constant_tensors
from infinity_v3.compiler.export import ExportedModel
from infinity_v3.compiler.kernel_library import KERNEL_ABI
from infinity_v3.compiler.operators import define_operators
from infinity_v3.compiler.programs.document import (
    ProgramFacts,
    decode_facts,
    decode_graph,
    encode_facts,
    encode_graph,
)

PROGRAM_FOLDER = "program"
FACTS_FILE = "program.json"
GRAPH_FILE = "graph.json"
EXAMPLE_FILE = "example.safetensors"
"""The inputs that it was exported with: the matrix library takes their sizes as a hint."""
WEIGHTS_FILE = "weights.safetensors"
"""Absent where the artifact has the weights of the precision in a file that targets share."""
_FILLED_UP = {"padding": ""}
"""Metadata that let the numbers begin where a cache line does, in memory, too: the header's length
is a multiple of 8, and a character more in it is a byte more."""
_UNREADABLE = (SerializeError, AssertionError, KeyError, RuntimeError, TypeError, ValueError)
"""What torch raises for a graph that it cannot make sense of."""


def program_folder(precision: Precision) -> str:
    """Path of a kept program inside an artifact."""
    return f"{PROGRAM_FOLDER}/{precision.value}"


def save_weights(program: ExportedProgram, path: Path) -> None:
    """Write every parameter, buffer and constant of a program, readable for all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # safetensors refuses tensors that share storage, as tied weights do.
    tensors = {
        name: tensor.clone().contiguous() for name, tensor in constant_tensors(program).items()
    }
    save_file(tensors, path, _FILLED_UP)
    if missing := -_header_bytes(path) % LINE_BYTES:
        save_file(tensors, path, {name: " " * missing for name in _FILLED_UP})
    path.chmod(0o644)


def _header_bytes(path: Path) -> int:
    """How many bytes of a safetensors file lie before its numbers: 8 of length, then so many."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def keep_program(exported: ExportedModel, stage: Path, *, has_shared_weights: bool) -> None:
    """Write an exported model into the artifact that is being built in `stage`.

    Args:
        exported: as it was exported: building a target from it may change it.
        stage: the artifact's directory.
        has_shared_weights: its tensors stand in the artifact's `weights/` already.

    Raises:
        RefusedError: its graph holds what a kept program may not.
    """
    program = exported.program
    folder = stage / program_folder(exported.precision)
    folder.mkdir(parents=True)
    serialized = serialize(
        program,
        serialize_state_dict=False,
        serialize_constants=False,
        serialize_example_inputs=False,
    )
    at = Location(f"{program_folder(exported.precision)}/{GRAPH_FILE}")
    graph = encode_graph(json.loads(serialized.exported_program), at)
    (folder / GRAPH_FILE).write_bytes(graph)
    (folder / FACTS_FILE).write_bytes(encode_facts(_facts(exported)))
    examples = program.example_inputs[0]
    named = {f"{index:02}": tensor.contiguous() for index, tensor in enumerate(examples)}
    save_file(named, folder / EXAMPLE_FILE)
    (folder / EXAMPLE_FILE).chmod(0o644)
    if not has_shared_weights:
        save_weights(program, folder / WEIGHTS_FILE)


def load_program(root: Path, kept: KeptProgram, manifest: Manifest) -> ExportedModel:
    """Read a kept program of an artifact whose digests were checked.

    Raises:
        RefusedError: it was kept for other operators, or cannot be read by this torch.
        RunFailedError: a file cannot be read.
    """
    prefix = program_folder(kept.precision)
    with os_errors_as_run_failed("read", root / prefix):
        facts = decode_facts(
            (root / prefix / FACTS_FILE).read_bytes(), Location(f"{prefix}/{FACTS_FILE}")
        )
        _refuse_other_operators(facts, prefix)
        document = decode_graph(
            (root / prefix / GRAPH_FILE).read_bytes(), Location(f"{prefix}/{GRAPH_FILE}")
        )
        tensors = _tensors(root, kept, facts, manifest)
        examples = load_file(root / prefix / EXAMPLE_FILE)
    define_operators()
    try:
        program = _program(document, tensors, tuple(examples[key] for key in sorted(examples)))
    except _UNREADABLE as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise RefusedError(
            f"{prefix}: kept by torch {facts.torch}, cannot be read by torch {torch.__version__}: "
            f"{reason}; use the release that kept it, or compile the checkpoint again"
        ) from error
    return ExportedModel(
        program=program,
        graph=_graph(manifest.graph, facts.precision),
        precision=facts.precision,
        limits=facts.limits,
    )


def _facts(exported: ExportedModel) -> ProgramFacts:
    tensors = constant_tensors(exported.program)
    first: dict[tuple[object, ...], str] = {}
    tied = {}
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and first.setdefault(place, name) != name:
            tied[name] = first[place]
    strides = {n: tuple(t.stride()) for n, t in tensors.items() if not t.is_contiguous()}
    return ProgramFacts(
        precision=exported.precision,
        kernel_abi=KERNEL_ABI,
        torch=torch.__version__,
        limits=exported.limits,
        tied=tied,
        strides=strides,
    )


def _graph(graph: Graph, precision: Precision) -> Graph:
    """The signature of a precision: the token output leaves an engine in its own."""
    dtype = "float32" if precision is Precision.FLOAT32 else "bfloat16"
    outputs = tuple(
        replace(spec, dtype=dtype) if spec.name == "hidden" else spec for spec in graph.outputs
    )
    return Graph(inputs=graph.inputs, outputs=outputs)


def _refuse_other_operators(facts: ProgramFacts, prefix: str) -> None:
    if facts.kernel_abi != KERNEL_ABI:
        raise RefusedError(
            f"{prefix}: kept for kernel ABI {facts.kernel_abi}, this release has {KERNEL_ABI}: use "
            "the release that kept it, or compile the checkpoint again"
        )


def _tensors(
    root: Path, kept: KeptProgram, facts: ProgramFacts, manifest: Manifest
) -> dict[str, Tensor]:
    own = f"{program_folder(kept.precision)}/{WEIGHTS_FILE}"
    shared = {weights.precision: weights.path for weights in manifest.weights}
    found = load_file(root / (own if own in kept.files else shared.get(kept.precision, own)))
    for name, strides in facts.strides.items():
        laid = torch.empty_strided(found[name].shape, strides, dtype=found[name].dtype)
        found[name] = laid.copy_(found[name])
    return found | {name: found[other] for name, other in facts.tied.items()}


def _program(
    document: JsonObject, tensors: Mapping[str, Tensor], examples: tuple[Tensor, ...]
) -> ExportedProgram:
    num_outputs = len(document["graph_module"]["graph"]["outputs"])  # type: ignore[index]
    torch_form = {
        **document,
        "graph_module": {
            **document["graph_module"],  # type: ignore[dict-item]
            "module_call_graph": [_call(len(examples), num_outputs)],
        },
        "verifiers": ["TRAINING"],
        "torch_version": torch.__version__,
        "guards_code": [],
    }
    serialized = _dict_to_dataclass(schema.ExportedProgram, torch_form)  # type: ignore[no-untyped-call]
    parts = _parts(serialized, tensors)
    return ExportedProgramDeserializer().deserialize(serialized, *parts, (examples, {}))


def _call(num_inputs: int, num_outputs: int) -> dict[str, object]:
    """How the whole graph is called: tensors in order, a tuple of tensors back."""
    return {
        "fqn": "",
        "signature": {
            "inputs": [],
            "outputs": [],
            "in_spec": pytree.treespec_dumps(pytree.tree_structure(((0,) * num_inputs, {}))),
            "out_spec": pytree.treespec_dumps(pytree.tree_structure((0,) * num_outputs)),
            "forward_arg_names": [f"tensors_{index}" for index in range(num_inputs)],
        },
    }


def _parts(
    serialized: schema.ExportedProgram, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The state and the constants, as the graph's signature tells them apart."""
    state: dict[str, Tensor] = {}
    constants: dict[str, Tensor] = {}
    parameters: dict[int, nn.Parameter] = {}  # tied ones are one
    for spec in serialized.graph_module.signature.input_specs:
        if spec.type == "parameter":
            name = spec.value.parameter_name
            own = nn.Parameter(tensors[name], requires_grad=False)
            state[name] = parameters.setdefault(id(tensors[name]), own)
        elif spec.type == "buffer":
            name = spec.value.buffer_name
            (state if spec.value.persistent else constants)[name] = tensors[name]
        elif spec.type == "tensor_constant":
            constants[spec.value.tensor_constant_name] = tensors[spec.value.tensor_constant_name]
    return state, constants
