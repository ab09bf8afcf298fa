"""Every mutation of a valid artifact that the format forbids is refused by name, exit code 3."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_artifact import make_manifest, make_target, write_fake_artifact
from infinity_v3.artifacts.codec import encode_manifest
from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import Backend
from infinity_v3.artifacts.store import open_artifact

Document = dict[str, object]
Steps = tuple[str | int, ...]

AVX2 = "targets/cpu-x86_64-avx2-f32"
HEX = "0" * 64
CHAT = {
    "file": "tokenizer/tokenizer.json",
    "variables": {},
    "takes_text": True,
    "takes_parts": False,
}
ABSENT = object()


def refusal_of(path: Path, **options: object) -> str:
    with pytest.raises(RefusedError) as caught:
        open_artifact(path, **options)  # type: ignore[arg-type]  # options by name
    assert caught.value.exit_code == 3
    return str(caught.value)


def put(document: object, path: Steps, value: object) -> None:
    """Set, or with ABSENT delete, the value at a path such as ("targets", 0, "name")."""
    for step in path[:-1]:
        document = document[step]  # type: ignore[index]  # parsed JSON
    if value is ABSENT:
        del document[path[-1]]  # type: ignore[attr-defined]
    else:
        document[path[-1]] = value  # type: ignore[index]


def canonical(document: object) -> bytes:
    return (
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        + b"\n"
    )


MANIFEST_MUTATIONS: list[tuple[Steps, object, str]] = [
    # unknown and missing keys
    (("surprise",), 1, "artifact.json: surprise: unknown key"),
    (("targets", 1, "requires", "gpu"), None, "targets[1].requires.gpu: unknown key"),
    (("files", 0, "mode"), 1, "files[0].mode: unknown key"),
    (("a b",), 1, "artifact.json: ['a b']: unknown key"),
    (("name",), ABSENT, "artifact.json: name: missing key"),
    (("decision",), ABSENT, "artifact.json: decision: missing key"),
    (("format",), ABSENT, "artifact.json: format: missing key"),
    (("format_version",), ABSENT, "artifact.json: format_version: missing key"),
    (("targets", 0, "parity", "passed"), ABSENT, "targets[0].parity.passed: missing key"),
    (("files", 0, "bytes"), ABSENT, "files[0].bytes: missing key"),
    # format and version
    (("format",), "other", "format: expected 'infinity-artifact', found 'other'"),
    (("format",), 1, "format: expected 'infinity-artifact', found 1"),
    (("format_version",), 2, "reads format 1 only: use infinity_v3 '3.0.0' that wrote it"),
    (("format_version",), 2, "or compile the checkpoint again"),
    (("format_version",), 0, "format_version: expected 1, found 0"),
    (("format_version",), True, "format_version: expected an integer, found a boolean: true"),
    (("format_version",), "1", "format_version: expected an integer, found a string: '1'"),
    # wrong types
    (("name",), 3, "name: expected a string, found an integer: 3"),
    (("name",), None, "name: expected a string, found null"),
    (("model",), [], "model: expected an object, found an array"),
    (("targets",), {}, "targets: expected an array, found an object"),
    (("targets", 0), "x", "targets[0]: expected an object, found a string: 'x'"),
    (("decision",), {}, "decision.protocol: missing key"),
    (("kind",), "decision", "decision: expected an object for kind decision, found null"),
    (("model", "causal"), 0, "model.causal: expected a boolean, found an integer: 0"),
    (("model", "hidden_size"), True, "model.hidden_size: expected an integer, found a boolean"),
    (("model", "hidden_size"), 8.0, "model.hidden_size: expected an integer, found a number"),
    (("files", 0, "bytes"), False, "files[0].bytes: expected an integer, found a boolean"),
    (("prompts", "named", "query"), 1, "prompts.named.query: expected a string"),
    (("prompts", "named"), [], "prompts.named: expected an object, found an array"),
    (("graph", "inputs", 0, "dims", 0), True, "dims[0]: expected an integer or a string"),
    (("graph", "inputs", 0, "dims", 0), None, "dims[0]: expected an integer or a string"),
    (
        ("targets", 0, "parity", "bounds", "max_abs"),
        1,
        "targets[0].parity.bounds.max_abs: expected a number with a fraction or exponent",
    ),
    (("targets", 0, "parity", "bounds", "max_abs"), "1", "bounds.max_abs: expected a number"),
    # enums
    (("kind",), "poem", "kind: expected one of embedding, sparse,"),
    (("kind",), ["embedding"], "kind: expected one of"),
    (
        ("targets", 0, "backend"),
        "magic",
        "targets[0].backend: expected one of aoti, tensorrt, onnx",
    ),
    (("targets", 0, "device"), "tpu", "targets[0].device: expected one of cpu, cuda"),
    (("targets", 0, "precision"), "int4", "targets[0].precision: expected one of float32"),
    (("heads", "pooling", "modes", 0), "sum", "heads.pooling.modes[0]: expected one of cls, mean"),
    (("heads", "activation"), "relu", "heads.activation: expected one of sigmoid, softmax, none"),
    # names
    (("name",), "", "name: expected a name"),
    (("name",), "-x", "name: expected a name"),
    (("name",), "a/b", "name: expected a name"),
    (("name",), "a\n", "name: expected a name"),
    (("name",), "é", "name: expected a name"),
    (("name",), "a" * 101, "name: expected a name"),
    (("targets", 0, "name"), "../up", "targets[0].name: expected a name"),
    (("targets", 0, "requires", "arch"), "", "targets[0].requires.arch: expected a name"),
    (("targets", 0, "requires", "isa", 0), "a b", "targets[0].requires.isa[0]: expected a name"),
    (("targets", 0, "requires", "torch"), "2.13.0", "requires.torch: expected a torch minor"),
    (("targets", 0, "requires", "torch"), "two", "requires.torch: expected a torch minor"),
    # paths
    (
        ("files", 0, "path"),
        "/etc/passwd",
        "files[0].path: expected a relative path with '/', found",
    ),
    (("files", 0, "path"), "/etc/passwd", "an absolute path"),
    (("files", 0, "path"), "targets/../../x", "files[0].path: expected a relative path"),
    (("files", 0, "path"), "targets/../../x", "a '..' part"),
    (("files", 0, "path"), "targets\\x", "a backslash"),
    (("files", 0, "path"), "targets//x", "an empty or '.' part"),
    (("files", 0, "path"), "./targets/x", "an empty or '.' part"),
    (("files", 0, "path"), "targets/x/", "an empty or '.' part"),
    (("files", 0, "path"), "", "an empty path"),
    (("files", 0, "path"), "targets/a\u0000b", "an unprintable character"),
    (("files", 0, "path"), "artifact.json", "files[0].path: expected a path below tokenizer,"),
    (("files", 0, "path"), "build.json", "files[0].path: expected a path below tokenizer,"),
    (
        ("files", 1, "path"),
        f"{AVX2}/libinfinity-kernels-0123456789ab.so",
        "files[1].path: duplicate",
    ),
    (("files", 0, "path"), "weights/z", "files[1].path: expected files sorted by path"),
    (
        ("targets", 1, "files", 0, "path"),
        "..",
        "targets[1].files[0].path: expected a relative path",
    ),
    (
        ("source", "files", 0, "path"),
        "/root/config.json",
        "source.files[0].path: expected a relative",
    ),
    # digests and sizes
    (("files", 0, "sha256"), "abc", "files[0].sha256: expected 64 hex digits, found 'abc'"),
    (("files", 0, "sha256"), "G" * 64, "files[0].sha256: expected 64 hex digits"),
    (("files", 0, "sha256"), "A" * 64, "files[0].sha256: expected 64 hex digits"),
    (("files", 0, "sha256"), HEX + "\n", "files[0].sha256: expected 64 hex digits"),
    (
        ("targets", 1, "files", 0, "sha256"),
        "sha256:" + HEX,
        "artifact.json: targets[1].files[0].sha256: expected 64 hex digits, found 'sha256:000",
    ),
    (("source", "files", 0, "sha256"), "", "source.files[0].sha256: expected 64 hex digits"),
    (("files", 0, "bytes"), -1, "files[0].bytes: expected at least 0, found -1"),
    # references between parts
    (("targets",), [], "targets: expected at least one target, found none"),
    (("targets", 1, "files", 0, "sha256"), HEX, "targets[1].files[0].sha256: expected '"),
    (("targets", 1, "files", 0, "bytes"), 7, "targets[1].files[0].bytes: expected"),
    (("targets", 1, "files"), [], "targets[1].entry: expected a path of this target's 'files'"),
    (("targets", 1, "entry"), "model.so", "targets[1].entry: expected a path of this target's"),
    (("targets", 0, "weights"), None, "weights[0]: no target uses these weights"),
    (("targets", 1, "weights"), "int8", "targets[1].weights: expected a precision of 'weights'"),
    (("weights",), [], "targets[0].weights: expected a precision of 'weights', found 'float32'"),
    (("weights", 0, "path"), "weights/x.safetensors", "weights[0].path: expected 'weights/float32"),
    (("tokenizer", "file"), "tokenizer/none.json", "tokenizer.file: expected a path of 'files'"),
    (("tokenizer", "truncation_side"), "up", "tokenizer.truncation_side: expected one of left"),
    (("tokenizer", "special_tokens"), "some", "tokenizer.special_tokens: expected one of template"),
    (("tokenizer", "chat_template"), "tokenizer/x", "chat_template: expected an object"),
    (
        ("tokenizer", "chat_template"),
        {**CHAT, "file": "tokenizer/none.jinja"},
        "tokenizer.chat_template.file: expected a path of 'files'",
    ),
    (
        ("tokenizer", "chat_template"),
        {**CHAT, "file": "weights/float32.safetensors"},
        "tokenizer.chat_template.file: expected a path below 'tokenizer/'",
    ),
    (
        ("tokenizer", "chat_template"),
        {**CHAT, "takes_text": False},
        "tokenizer.chat_template.takes_parts: expected true",
    ),
    (
        ("tokenizer", "chat_template"),
        {**CHAT, "variables": {"tools": []}},
        "tokenizer.chat_template.variables.tools: expected",
    ),
    (("tokenizer", "length", "max_tokens"), 0, "tokenizer.length.max_tokens: expected at least 1"),
    (("prompts", "default"), "none", "prompts.default: expected a key of 'named', found 'none'"),
    (
        ("program",),
        [{"precision": "float32", "files": ["weights/float32.safetensors"]}],
        "program[0].files[0]: expected a path below 'program/float32/'",
    ),
    (
        ("program",),
        [{"precision": "float32", "files": ["program/float32/graph.json"]}],
        "program[0].files[0]: expected a path of 'files'",
    ),
    # numbers
    (("model", "vocab_size"), 0, "model.vocab_size: expected at least 1, found 0"),
    (("model", "position_offset"), -1, "model.position_offset: expected at least 0, found -1"),
    (("heads", "dimensions"), 0, "heads.dimensions: expected at least 1"),
    (("heads", "pooling", "modes"), [], "heads.pooling.modes: expected at least one mode"),
    (("heads", "opposite_label"), "no", "heads.opposite_label: expected one label that it is"),
    (("graph", "outputs"), [], "graph.outputs: expected at least one tensor"),
    (("graph", "inputs", 1, "name"), "input_ids", "graph.inputs[1].name: duplicate tensor"),
    (("graph", "inputs", 0, "dims", 0), 0, "graph.inputs[0].dims[0]: expected a name or"),
    (
        ("graph", "inputs", 0, "dims", 0),
        "N",
        "graph.inputs[0].dims: expected [T] for 'input_ids', ",
    ),
    (("graph", "inputs", 0, "dims"), [], "dims: expected [T] for 'input_ids', found []"),
    (("graph", "inputs", 0, "dims"), ["T", 1], "expected [T] for 'input_ids', found [T, 1]"),
    (("graph", "inputs", 1, "dims", 0), "B", "inputs[1].dims: expected [B+1] for 'cu_seqlens', "),
    (
        ("targets", 0, "limits", "max_tokens"),
        0,
        "targets[0].limits.max_tokens: expected at least 1",
    ),
    (("targets", 0, "limits", "max_sequences"), 0, "limits.max_sequences: expected at least 1"),
    (("targets", 0, "parity", "probe_count"), -1, "parity.probe_count: expected at least 0"),
]


RULES = {
    "query_prefix_id": 1,
    "document_prefix_id": 99,
    "query_length": 32,
    "document_length": None,
    "query_expansion_id": 4,
    "attends_to_expansion": False,
    "skipped_ids": [0, 5, 99],
}
LATE_INTERACTION_MUTATIONS: list[tuple[str, object, str]] = [
    ("query_prefix_id", -1, "query_prefix_id: expected a token id from 0 to 99, found -1"),
    ("document_prefix_id", 100, "document_prefix_id: expected a token id from 0 to 99, found 100"),
    ("query_expansion_id", 10**9, "query_expansion_id: expected a token id from 0 to 99"),
    ("query_length", 0, "query_length: expected at least 1, found 0"),
    ("document_length", -3, "document_length: expected at least 1, found -3"),
    ("skipped_ids", [-1], "skipped_ids[0]: expected a token id from 0 to 99, found -1"),
    ("skipped_ids", [3, 100], "skipped_ids[1]: expected a token id from 0 to 99, found 100"),
    ("skipped_ids", [5, 4, 9], "skipped_ids[1]: expected ascending ids, found 4 after 5"),
    ("skipped_ids", [1, 7, 7], "skipped_ids[2]: expected ascending ids, found 7 after 7"),
    ("skipped_ids", None, "skipped_ids: expected an array, found null"),
    ("skipped_ids", ABSENT, "skipped_ids: missing key"),
    ("query_length", "32", "query_length: expected an integer, found a string: '32'"),
    ("attends_to_expansion", None, "attends_to_expansion: expected a boolean, found null"),
]


@pytest.mark.parametrize(("key", "value", "message"), LATE_INTERACTION_MUTATIONS)
def test_late_interaction_that_cannot_be_served_is_refused(
    artifact_dir: Path, key: str, value: object, message: str
) -> None:
    document = json.loads((artifact_dir / "artifact.json").read_bytes())
    document["heads"]["late_interaction"] = dict(RULES)
    rewrite(artifact_dir, document)
    assert open_artifact(artifact_dir).manifest.heads.late_interaction is not None
    put(document, ("heads", "late_interaction", key), value)
    rewrite(artifact_dir, document)
    assert f"artifact.json: heads.late_interaction.{message}" in refusal_of(artifact_dir)


def rewrite(root: Path, document: object) -> None:
    (root / "artifact.json").write_bytes(canonical(document))


@pytest.mark.parametrize("output", ["logits", "token_logits"])
def test_labels_are_as_many_as_the_logits(artifact_dir: Path, output: str) -> None:
    document = json.loads((artifact_dir / "artifact.json").read_bytes())
    document["graph"]["outputs"] = [{"name": output, "dtype": "float32", "dims": ["B", 3]}]
    for labels in ([], ["a", "b", "c"], ["same", "same", "same"]):
        document["heads"]["labels"] = labels
        rewrite(artifact_dir, document)
        assert list(open_artifact(artifact_dir).manifest.heads.labels) == labels
    for labels in (["a"], ["a", "b", "c", "d"]):
        document["heads"]["labels"] = labels
        rewrite(artifact_dir, document)
        message = refusal_of(artifact_dir)
        assert (
            f"heads.labels: expected 3, one for each of '{output}', found {len(labels)}" in message
        )


def test_an_opposite_belongs_to_one_label(artifact_dir: Path) -> None:
    document = json.loads((artifact_dir / "artifact.json").read_bytes())
    document["heads"] |= {"labels": ["yes"], "opposite_label": "no"}
    rewrite(artifact_dir, document)
    assert open_artifact(artifact_dir).manifest.heads.opposite_label == "no"
    document["heads"]["labels"] = ["yes", "maybe"]
    rewrite(artifact_dir, document)
    assert "heads.opposite_label: expected one label" in refusal_of(artifact_dir)


FOLDED_INPUTS = [
    {"name": "input_ids", "dtype": "int64", "dims": ["N"]},
    {"name": "position_ids", "dtype": "int64", "dims": ["N"]},
    {"name": "cu_seqlens", "dtype": "int32", "dims": ["B+1"]},
    {"name": "rows", "dtype": "int64", "dims": ["T"]},
    {"name": "key_counts", "dtype": "int32", "dims": ["B"]},
]


@pytest.mark.parametrize(
    ("index", "dims", "message"),
    [
        (0, ["T"], "inputs[0].dims: expected [N] for 'input_ids', found [T]"),
        (1, ["T"], "inputs[1].dims: expected [N] for 'position_ids', found [T]"),
        (3, ["N"], "inputs[3].dims: expected [T] for 'rows', found [N]"),
        (3, ["T", 1], "inputs[3].dims: expected [T] for 'rows', found [T, 1]"),
        (4, ["B+1"], "inputs[4].dims: expected [B] for 'key_counts', found [B+1]"),
        (4, [], "inputs[4].dims: expected [B] for 'key_counts', found []"),
    ],
)
def test_sizes_of_a_graph_that_shares_tokens(
    artifact_dir: Path, index: int, dims: list[object], message: str
) -> None:
    document = json.loads((artifact_dir / "artifact.json").read_bytes())
    document["graph"]["inputs"] = [dict(spec) for spec in FOLDED_INPUTS]
    rewrite(artifact_dir, document)
    assert len(open_artifact(artifact_dir).manifest.graph.inputs) == len(FOLDED_INPUTS)
    document["graph"]["inputs"][index]["dims"] = dims
    rewrite(artifact_dir, document)
    assert f"artifact.json: graph.{message}" in refusal_of(artifact_dir)


@pytest.mark.parametrize(("path", "value", "message"), MANIFEST_MUTATIONS)
def test_manifest_mutation_is_refused_by_name(
    artifact_dir: Path, path: Steps, value: object, message: str
) -> None:
    manifest_file = artifact_dir / "artifact.json"
    document = json.loads(manifest_file.read_bytes())
    put(document, path, value)
    manifest_file.write_bytes(canonical(document))

    refusal = refusal_of(artifact_dir)
    assert message in refusal
    assert refusal.startswith(f"{artifact_dir.resolve()}: artifact.json: ")


def _duplicate_target(document: Document) -> None:
    targets = document["targets"]
    assert isinstance(targets, list)
    targets.append(targets[0])


def _foreign_target_file(document: Document) -> None:
    targets = document["targets"]
    assert isinstance(targets, list)
    targets[0]["files"], targets[0]["entry"] = targets[1]["files"], targets[1]["entry"]


def _file_of_no_target(document: Document) -> None:
    targets = document["targets"]
    assert isinstance(targets, list)
    targets[0]["files"] = targets[0]["files"][1:]


def _unsorted_target_files(document: Document) -> None:
    targets = document["targets"]
    assert isinstance(targets, list)
    targets[0]["files"].reverse()


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (_duplicate_target, "targets[2].name: duplicate target 'cpu-x86_64-avx2-f32'"),
        (
            _foreign_target_file,
            "targets[0].files[0].path: expected a path below 'targets/cpu-x86_64",
        ),
        (_file_of_no_target, "files[0].path: no part of the manifest names 'targets/"),
        (_unsorted_target_files, "targets[0].files[1].path: expected files sorted by path"),
    ],
)
def test_inconsistent_manifest_is_refused_by_name(
    artifact_dir: Path, mutate: Callable[[Document], None], message: str
) -> None:
    manifest_file = artifact_dir / "artifact.json"
    document = json.loads(manifest_file.read_bytes())
    mutate(document)
    manifest_file.write_bytes(canonical(document))

    assert message in refusal_of(artifact_dir)


def _pretty(data: bytes) -> bytes:
    return json.dumps(json.loads(data), indent=1).encode()


def _unsorted(data: bytes) -> bytes:
    document = dict(sorted(json.loads(data).items(), reverse=True))
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


NOT_CANONICAL = "artifact.json: expected canonical JSON"


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (_pretty, NOT_CANONICAL),
        (_unsorted, NOT_CANONICAL),
        (lambda data: data[:-1], NOT_CANONICAL),
        (lambda data: data + b"\n", NOT_CANONICAL),
        (lambda data: b" " + data, NOT_CANONICAL),
        (lambda data: data.replace(b'"query: "', b'"qu\\u0065ry: "'), NOT_CANONICAL),
        (lambda data: data.replace(b"2e-05", b"0.00002"), NOT_CANONICAL),
        (lambda data: data.replace(b'_size":8,', b'_size":8,"hidden_size":8,'), "duplicate key"),
        (
            lambda data: data.replace(b'{"decision"', b'{"name":"x","decision"'),
            "artifact.json: name: duplicate key",
        ),
        (
            lambda data: data.replace(b'"query":"query: "', b'"query":"a","query":"b"'),
            "artifact.json: prompts.named.query: duplicate key",
        ),
        (lambda data: data.replace(b"2e-05", b"NaN"), "expected finite numbers, found NaN"),
        (lambda data: data.replace(b"2e-05", b"Infinity"), "expected finite numbers, found"),
        (lambda data: data.replace(b"2e-05", b"1e999"), "max_abs: expected a finite number"),
        (lambda data: data.replace(b'_size":8,', b'_size":' + b"9" * 5000 + b","), "integer with"),
        (lambda data: data.replace(b"query: ", b"\xff"), "expected UTF-8, found an invalid byte"),
        (lambda data: data.replace(b"query: ", b"\\ud800"), "expected valid Unicode"),
        (lambda data: b"\xef\xbb\xbf" + data, "artifact.json: expected JSON"),
        (lambda data: data[: len(data) // 2], "artifact.json: expected JSON, found an error at"),
        (lambda data: b"", "artifact.json: expected JSON"),
        (lambda data: b"[]\n", "artifact.json: expected an object, found an array"),
        (lambda data: b"null\n", "artifact.json: expected an object, found null"),
        (lambda data: b"[" * 200_000, "deeply nested"),
    ],
)
def test_other_bytes_are_refused_by_name(
    artifact_dir: Path, mutate: Callable[[bytes], bytes], message: str
) -> None:
    manifest_file = artifact_dir / "artifact.json"
    before = manifest_file.read_bytes()
    after = mutate(before)
    assert after != before
    manifest_file.write_bytes(after)

    assert message in refusal_of(artifact_dir)


MODEL = f"{AVX2}/model.so"


def _link_file(root: Path) -> None:
    outside = root.parent / "outside.so"
    (root / MODEL).rename(outside)
    (root / MODEL).symlink_to(outside)


def _link_directory(root: Path) -> None:
    outside = root.parent / "outside"
    (root / AVX2).rename(outside)
    (root / AVX2).symlink_to(outside)


def _link_manifest(root: Path) -> None:
    outside = root.parent / "outside.json"
    (root / "artifact.json").rename(outside)
    (root / "artifact.json").symlink_to(outside)


def _link_profile(root: Path) -> None:
    (root / "profile.json").symlink_to("/dev/null")


def _flip_bit(root: Path) -> None:
    data = bytearray((root / MODEL).read_bytes())
    data[3] ^= 1
    (root / MODEL).write_bytes(data)


def _pipe(root: Path) -> None:
    (root / MODEL).unlink()
    os.mkfifo(root / MODEL)


def _socket(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(root)  # the path of a socket is limited to 107 bytes
        server.bind("socket")
        os.chdir(before)


def _directory_for_file(root: Path) -> None:
    (root / MODEL).unlink()
    (root / MODEL).mkdir()


def _undecodable(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_bytes(b"")


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (_link_file, f"{MODEL}: expected regular files and directories only, found a link"),
        (_link_directory, f"{AVX2}: expected regular files and directories only, found a link"),
        (
            _link_manifest,
            "artifact.json: expected regular files and directories only, found a link",
        ),
        (_link_profile, "profile.json: expected regular files and directories only, found a link"),
        (_pipe, f"{MODEL}: expected regular files and directories only, found a named pipe"),
        (_socket, "socket: expected regular files and directories only, found a socket"),
        (lambda root: (root / "extra").write_bytes(b""), "extra: not listed in artifact.json"),
        (lambda root: (root / AVX2 / "x.so").write_bytes(b""), f"{AVX2}/x.so: not listed in"),
        (lambda root: (root / ".hidden").write_bytes(b""), ".hidden: not listed in artifact.json"),
        (lambda root: (root / "empty").mkdir(), "empty/: directory without a listed file"),
        (lambda root: (root / MODEL).unlink(), f"{MODEL}: listed in artifact.json, but absent"),
        (_directory_for_file, f"{MODEL}/: directory without a listed file"),
        (lambda root: (root / MODEL).write_bytes(b"x"), f"{MODEL}: expected 29 bytes, found 1"),
        (_flip_bit, f"{MODEL}: expected sha256 "),
        (lambda root: (root / "artifact.json").unlink(), "expected an artifact directory"),
        (_undecodable, "its name has an unprintable character"),
        (lambda root: root.chmod(0o775), ".: group or others can write to it"),
        (lambda root: (root / AVX2).chmod(0o757), f"{AVX2}: group or others can write to it"),
        (lambda root: (root / MODEL).chmod(0o664), f"{MODEL}: group or others can write to it"),
    ],
)
def test_directory_mutation_is_refused_by_name(
    artifact_dir: Path, mutate: Callable[[Path], object], message: str
) -> None:
    open_artifact(artifact_dir)
    mutate(artifact_dir)

    assert message in refusal_of(artifact_dir)


@pytest.mark.parametrize("name", ["absent", "file", "file/below"])
def test_what_is_no_directory_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")

    assert "expected an artifact directory with artifact.json" in refusal_of(tmp_path / name)


def test_manifest_of_another_artifact_is_refused(artifact_dir: Path) -> None:
    other = make_manifest(targets=make_manifest().targets[1:])
    (artifact_dir / "artifact.json").write_bytes(encode_manifest(other))

    assert "not listed in artifact.json" in refusal_of(artifact_dir)


def test_nothing_is_hashed_before_the_set_of_files_is_right(
    artifact_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("a file was opened")

    (artifact_dir / "extra").write_bytes(b"")
    monkeypatch.setattr("infinity_v3.artifacts.integrity.sha256_beneath", fail)

    assert "extra: not listed" in refusal_of(artifact_dir, digests=DigestPolicy.ALWAYS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(("path", "named"), [(".", ": .: "), (MODEL, f": {MODEL}: ")])
def test_native_code_of_another_user_is_refused(artifact_dir: Path, path: str, named: str) -> None:
    os.chown(artifact_dir / path, 4321, -1)

    assert f"{named}owned by uid 4321" in refusal_of(artifact_dir)
    assert open_artifact(artifact_dir, allow_shared=True).manifest.name == "fake-encoder"


def test_shared_directory_is_opened_on_request(artifact_dir: Path) -> None:
    artifact_dir.chmod(0o775)

    assert open_artifact(artifact_dir, allow_shared=True).manifest.name == "fake-encoder"


def test_shared_directory_without_native_code_is_opened(tmp_path: Path) -> None:
    targets = (make_target("onnx-f32", backend=Backend.ONNX),)
    path = write_fake_artifact(tmp_path / "onnx", {"targets": targets})
    path.chmod(0o777)

    assert open_artifact(path).manifest.targets == targets


def test_files_outside_the_identity_are_allowed_and_do_not_change_it(artifact_dir: Path) -> None:
    before = open_artifact(artifact_dir)
    (artifact_dir / "profile.json").write_bytes(b"{}")
    (artifact_dir / "build.json").write_bytes(b"anything")

    assert open_artifact(artifact_dir).artifact_id == before.artifact_id


def test_root_may_be_reached_through_a_link(artifact_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(artifact_dir)

    assert open_artifact(tmp_path / "current").path == artifact_dir.resolve()
