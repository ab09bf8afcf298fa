"""Programs kept in an artifact: what is written, what is refused, and that they say the same."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import KeptProgram, Limits, Manifest, Precision
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.typed_json import Location, canonical_bytes
from infinity_v3.compiler.export import ExportedModel
from infinity_v3.compiler.kernel_library import KERNEL_ABI
from infinity_v3.compiler.probes import Probes
from infinity_v3.compiler.programs.document import (
    ProgramFacts,
    decode_facts,
    decode_graph,
    encode_facts,
)
from infinity_v3.compiler.programs.eager import EagerProgram, attention_windows
from infinity_v3.compiler.programs.kept import keep_program, load_program
from infinity_v3.compiler.programs.verify_program import judge_program
from tiny_artifacts import FLOAT32_TARGET, TinyArtifact

AT = Location("graph.json")
FOLDER = "program/float32"
FACTS = ProgramFacts(
    precision=Precision.FLOAT32,
    kernel_abi=KERNEL_ABI,
    torch=torch.__version__,
    limits=Limits(max_tokens=64, max_sequences=8),
)


class TiedModel(nn.Module):
    """Two names for one matrix, one that does not lie row by row, a constant, and an operator."""

    added: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.arange(12.0).reshape(3, 4))
        self.second = self.first
        self.turned = nn.Parameter(torch.arange(12.0).reshape(3, 4).t())
        self.register_buffer("added", torch.ones(3), persistent=False)

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        return (
            tokens @ self.first.t() + tokens @ self.turned + self.added,
            tokens @ self.second.t(),
        )


@pytest.fixture(scope="module")
def exported() -> ExportedModel:
    example = torch.ones(5, 4)
    shapes = ({0: torch.export.Dim("T", min=2, max=64)},)
    program = torch.export.export(TiedModel().eval(), (example,), dynamic_shapes=shapes)
    return ExportedModel(
        program=program,
        graph=cast(Any, SimpleNamespace(inputs=(), outputs=())),
        precision=Precision.FLOAT32,
        limits=FACTS.limits,
    )


def read_back(root: Path, exported: ExportedModel) -> ExportedModel:
    files = tuple(f"{FOLDER}/{path.name}" for path in sorted((root / FOLDER).iterdir()))
    manifest = cast(Manifest, SimpleNamespace(weights=(), graph=exported.graph))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("infinity_v3.compiler.programs.kept._graph", lambda graph, _: graph)
        return load_program(root, KeptProgram(precision=Precision.FLOAT32, files=files), manifest)


def test_a_program_comes_back_as_it_was(exported: ExportedModel, tmp_path: Path) -> None:
    keep_program(exported, tmp_path, has_shared_weights=False)
    back = read_back(tmp_path, exported)
    assert back.limits == exported.limits
    assert [str(n.target) for n in back.program.graph.nodes] == [
        str(n.target) for n in exported.program.graph.nodes
    ]
    state = back.program.state_dict
    assert state["second"] is state["first"], "tied weights are one tensor again"
    assert state["turned"].stride() == (1, 4)
    given = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    for mine, theirs in zip(
        back.program.module()(given), exported.program.module()(given), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_a_program_is_json_and_safetensors(exported: ExportedModel, tmp_path: Path) -> None:
    keep_program(exported, tmp_path, has_shared_weights=False)
    files = {path.name: path.read_bytes() for path in (tmp_path / FOLDER).iterdir()}
    assert files.keys() == {
        "example.safetensors",
        "graph.json",
        "program.json",
        "weights.safetensors",
    }
    for name in ("example.safetensors", "weights.safetensors"):
        length = int.from_bytes(files[name][:8], "little")
        assert json.loads(files[name][8 : 8 + length])
    assert str(Path.cwd()).encode() not in files["graph.json"]
    assert b"site-packages" not in files["graph.json"]


def test_a_program_without_weights_has_none_of_its_own(
    exported: ExportedModel, tmp_path: Path
) -> None:
    keep_program(exported, tmp_path, has_shared_weights=True)
    assert not (tmp_path / FOLDER / "weights.safetensors").exists()


def test_other_operators_are_refused(exported: ExportedModel, tmp_path: Path) -> None:
    keep_program(exported, tmp_path, has_shared_weights=False)
    facts = encode_facts(replace(FACTS, kernel_abi="0"))
    (tmp_path / FOLDER / "program.json").write_bytes(facts)
    with pytest.raises(RefusedError, match=f"kept for kernel ABI 0, this release has {KERNEL_ABI}"):
        read_back(tmp_path, exported)


def test_a_graph_that_torch_cannot_read_is_refused(exported: ExportedModel, tmp_path: Path) -> None:
    keep_program(exported, tmp_path, has_shared_weights=False)
    path = tmp_path / FOLDER / "graph.json"
    document = json.loads(path.read_bytes())
    document["graph"]["nodes"][0]["target"] = "torch.ops.aten.no_such_operator.default"
    path.write_bytes(canonical_bytes(document, AT))
    with pytest.raises(RefusedError, match=r"program/float32: kept by torch .* cannot be read"):
        read_back(tmp_path, exported)


def graph_of(exported: ExportedModel, folder: Path) -> dict[str, Any]:
    keep_program(exported, folder, has_shared_weights=True)
    found: dict[str, Any] = json.loads((folder / FOLDER / "graph.json").read_bytes())
    return found


def set_node(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["graph"]["nodes"][0][key] = value

    return change


def set_size(expression: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        sizes = next(iter(document["graph"]["tensor_values"].values()))["sizes"]
        sizes[0] = {"as_expr": {"expr_str": expression, "hint": None}}

    return change


HOSTILE = {
    "module": (set_node("target", "torch.load"), r"nodes\[0\]\.target: expected an operator"),
    "builtin": (set_node("target", "os.system"), r"nodes\[0\]\.target: expected an operator"),
    "caller": (set_node("target", "_operator.call"), "expected an operator"),
    "namespace": (set_node("target", "torch.ops.prim.Print.default"), "expected an operator"),
    "name": (set_node("name", "x):\n  import os"), r"nodes\[0\]\.name: expected a name"),
    "metadata": (set_node("metadata", {"from_node": "[]"}), "metadata: expected an empty object"),
    "object": (set_node("as_custom_obj", {}), "holds no such value"),
    "call": (set_size("__import__('os')"), "expr_str: expected a size made of symbols"),
    "attribute": (set_size("Symbol('s1').func"), "expr_str: expected a size made of symbols"),
    "word": (set_size("exec(s)"), "expr_str: expected a size made of symbols"),
    "key": (lambda document: document.update(guards_code=["1"]), "guards_code: unknown key"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_graph_is_refused_before_torch_reads_it(
    exported: ExportedModel, tmp_path: Path, case: str
) -> None:
    change, message = HOSTILE[case]
    document = graph_of(exported, tmp_path)
    decode_graph(canonical_bytes(document, AT), AT)
    changed = deepcopy(document)
    change(changed)
    with pytest.raises(RefusedError, match=message):
        decode_graph(canonical_bytes(changed, AT), AT)


def test_a_graph_with_other_bytes_is_refused(exported: ExportedModel, tmp_path: Path) -> None:
    document = graph_of(exported, tmp_path)
    with pytest.raises(RefusedError, match="expected canonical JSON"):
        decode_graph(json.dumps(document).encode(), AT)


@given(st.text(alphabet="'s1Symbol(),=. _[]Add0-\n", max_size=30))
def test_an_expression_has_no_way_out(expression: str) -> None:
    document: dict[str, object] = {
        key: {} for key in ("opset_version", "range_constraints", "schema_version", "signature")
    }
    data = canonical_bytes({**document, "graph": {"expr_str": expression}}, AT)
    try:
        decode_graph(data, AT)
    except RefusedError:
        return
    assert not set("._[]\n") & set(expression)


def test_facts_of_another_format_are_refused() -> None:
    data = encode_facts(FACTS)
    assert decode_facts(data, AT) == FACTS
    later = data.replace(b'"format_version":1', b'"format_version":2')
    with pytest.raises(RefusedError, match="format_version: expected 1, found 2"):
        decode_facts(later, AT)


def probes_of(ids: list[np.ndarray[Any, np.dtype[np.int64]]]) -> Probes:
    count = len(ids)
    return Probes(
        ids=tuple(ids),
        types=(None,) * count,
        key_counts=(None,) * count,
        batches=(),
        referenced=count,
    )


def test_a_program_that_says_something_else_fails() -> None:
    probes = probes_of([np.arange(3), np.arange(4)])
    outputs = [{"pooled": np.array([1.0, 0.0], np.float32)} for _ in probes.ids]
    assert judge_program(outputs, outputs, probes, "reference").passed
    wrong = [outputs[0], {"pooled": np.array([1.0, 1e-3], np.float32)}]
    report = judge_program(wrong, outputs, probes, "reference")
    assert report.failures == (
        "pooled: difference from the reference is 0.001 on probe 1, allowed is 2e-05",
    )


@pytest.fixture(scope="module")
def kept_model(kept: TinyArtifact) -> tuple[Manifest, ExportedModel]:
    manifest = open_artifact(kept.artifact).manifest
    (program,) = manifest.program
    return manifest, load_program(kept.artifact, program, manifest)


@pytest.mark.slow
def test_keeping_a_program_changes_no_engine(kept: TinyArtifact, shared: TinyArtifact) -> None:
    with_it, without = (open_artifact(tiny.artifact).manifest for tiny in (kept, shared))
    assert with_it.targets == without.targets
    assert with_it.weights == without.weights
    assert without.program == ()
    (program,) = with_it.program
    assert program.precision is Precision.FLOAT32
    # Its weights are those that the engines map.
    assert [path.removeprefix(f"{FOLDER}/") for path in program.files] == [
        "example.safetensors",
        "graph.json",
        "program.json",
    ]


@pytest.mark.slow
def test_a_kept_program_was_held_to_the_reference(kept: TinyArtifact) -> None:
    build = json.loads((kept.artifact / "build.json").read_bytes())
    figures = build["parity"][FOLDER]
    assert 0 < figures["pooled.max_abs"] <= 2e-5
    assert figures.keys() <= build["parity"][FLOAT32_TARGET].keys()


@pytest.mark.slow
def test_a_kept_program_reads_one_text_as_the_other(
    kept_model: tuple[Manifest, ExportedModel],
) -> None:
    manifest, model = kept_model
    program = EagerProgram(model, manifest.model.position_offset)
    ids = np.array([2, 5, 7, 3])
    whole = program.run(ids, None, None)
    assert whole["hidden"].shape == (4, manifest.model.hidden_size)
    mean = whole["hidden"].mean(axis=0)
    assert np.abs(whole["pooled"] - mean).max() < 1e-6
    one = program.run(ids[:1], None, None)
    assert np.abs(one["pooled"] - one["hidden"][0]).max() < 1e-6
    assert attention_windows(model.program) == ()
