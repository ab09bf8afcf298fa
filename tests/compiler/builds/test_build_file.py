"""A build file is read strictly: what is wrong is named by file, entry and key."""

import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.compiler.builds.build_file import (
    check_entries,
    model_keys,
    read_build_file,
    registry_location,
    select_models,
)
from infinity_v3.compiler.builds.entry import GateBounds, ModelEntry
from infinity_v3.compiler.options import compile_options

HEX = "a" * 64
MODEL = '[[model]]\ncheckpoint = "org/one"\nname = "one"\n'
KEYS = ", ".join(model_keys())

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_text(text: str) -> Path:
        path = tmp_path / "models.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_text


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_build_file(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "models.toml")


def test_a_whole_file(write: Write, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "two"
    checkpoint.mkdir(parents=True)
    file = read_build_file(
        write(f"""
[build]
registry = "registry"
out = "made"
jobs = 3

[build.defaults]
version = "2026-{{key}}"
target = ["cpu-x86_64-avx2-f32"]
threads = 2
push-to = "staging"
label = {{ team = "search" }}
gates = {{ min-cosine = 0.999, max-size-mb = 100 }}

[[model]]
checkpoint = "org/one"
revision = "abc"
name = "one"
pooling = ["cls", "mean"]
embed-limit-mb = 7
expect = {{ "model.safetensors" = "{HEX}" }}
expect-id = "sha256:{HEX}"

[[model]]
checkpoint = "checkpoints/two"
name = "two"
version = "1.0"
task = "reranker"
push-to = "canary"
gates = {{ max-abs = 1e-5, required-targets = ["a", "b"] }}
""")
    )
    assert (file.registry, file.out, file.jobs) == (
        str(tmp_path / "registry"),
        tmp_path / "made",
        3,
    )
    one, two = file.models
    assert (one.name, one.version, one.is_templated) == ("one", "2026-{key}", True)
    assert (one.request.checkpoint, one.request.revision) == ("org/one", "abc")
    assert one.request.pooling == (PoolingMode.CLS, PoolingMode.MEAN)
    assert (one.request.threads, one.request.embed_limit_mb) == (2, 7)
    assert one.options == {
        "target": ("cpu-x86_64-avx2-f32",),
        "pooling": ("cls", "mean"),
        "embed-limit-mb": 7,
    }
    assert one.expected_files == {"model.safetensors": HEX}
    assert one.expected_id == f"sha256:{HEX}"
    assert one.gates == GateBounds(min_cosine=0.999, max_size_mb=100)
    assert (one.push_to, one.request.labels) == ("staging", {"team": "search"})
    assert (two.title, two.is_templated) == ("two==1.0", False)
    assert two.request.checkpoint == str(checkpoint)
    assert two.request.task is Kind.RERANKER
    # What is nearer replaces the default as a whole.
    assert two.gates == GateBounds(max_abs=1e-5, required_targets=("a", "b"))
    assert two.push_to == "canary"


def test_the_least_file(write: Write, tmp_path: Path) -> None:
    file = read_build_file(write(MODEL))
    assert (file.registry, file.out, file.jobs) == (None, tmp_path / "artifacts", 1)
    assert file.models[0].version == "{key}"


def test_every_option_of_model_is_a_key() -> None:
    options = {option.key for option in compile_options()}
    own = {"version", "expect", "expect-id", "gates", "push-to"}
    assert set(model_keys()) == options - {"out"} | own


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "models.toml: expected one [[model]] or more, found none"),
        ("model = 3", "models.toml: expected one [[model]] or more, found a whole number"),
        ("[modell]", "models.toml: modell: unknown key; did you mean model?"),
        ("x = 1", "models.toml: x: unknown key; known here: build, model"),
        ("build = 1", "models.toml: [build]: expected a table, found a whole number"),
        ("[build]\njob = 2", "models.toml: [build]: job: unknown key; did you mean jobs?"),
        (
            "[build]\njobs = 0\n" + MODEL,
            "models.toml: [build]: jobs: expected a whole number from 1, found 0",
        ),
        (
            "[build]\njobs = true\n" + MODEL,
            "models.toml: [build]: jobs: expected a whole number from 1, found True",
        ),
        (
            '[build]\nregistry = ""\n' + MODEL,
            "models.toml: [build]: registry: expected a string, found ''",
        ),
        (
            "[build.defaults]\npoolling = 'cls'\n" + MODEL,
            "models.toml: [build.defaults]: poolling: unknown key; did you mean pooling?",
        ),
        (
            '[build.defaults]\nname = "x"\n' + MODEL,
            "models.toml: [build.defaults]: name: belongs to one model; put it into its [[model]]",
        ),
        (
            '[[model]]\nname = "one"',
            "models.toml: [[model]] 1 (one): checkpoint: expected a value, found none; every model "
            "has one",
        ),
        (
            MODEL + '[[model]]\ncheckpoint = "x"',
            "models.toml: [[model]] 2: name: expected a value, found none; every model has one",
        ),
        (
            MODEL + 'targets = ["x"]',
            "models.toml: [[model]] 1 (one): targets: unknown key; did you mean target?",
        ),
        (
            MODEL + 'zzz = ["x"]',
            f"models.toml: [[model]] 1 (one): zzz: unknown key; known here: {KEYS}",
        ),
        (
            MODEL + 'out = "x"',
            "models.toml: [[model]] 1 (one): out: is decided by the build: <out>/<name>/<version>",
        ),
        (
            MODEL + "threads = 0",
            "models.toml: [[model]] 1 (one): threads: expected a whole number from 1 to 4096, "
            "found 0",
        ),
        (
            MODEL + 'threads = "2"',
            "models.toml: [[model]] 1 (one): threads: expected a whole number, found a string",
        ),
        (
            MODEL + 'pooling = "clss"',
            "models.toml: [[model]] 1 (one): pooling: expected one of cls, mean, max, "
            "mean-sqrt-len, weighted-mean, last-token, splade, found 'clss'; did you mean cls?",
        ),
        (
            MODEL + 'label = { build-key = "x" }',
            "models.toml: [[model]] 1 (one): label: build-key: is set by the build itself; choose "
            "another label",
        ),
        (
            MODEL + 'version = "1/2"',
            "models.toml: [[model]] 1 (one): version: expected 1 to 100 of A-Z a-z 0-9 . _ + -, "
            "the first one a letter or a digit, in which {key} stands for 12 digits of the build "
            "key; found '1/2'",
        ),
        (
            MODEL + f'expect = {{ "config.json" = "{HEX[:-1]}" }}',
            "models.toml: [[model]] 1 (one): expect: config.json: expected a sha256 of 64 "
            f"lower-case hex digits, found '{HEX[:-1]}'",
        ),
        (
            MODEL + f'expect-id = "{HEX}"',
            "models.toml: [[model]] 1 (one): expect-id: expected an artifact id, sha256:<64 hex "
            f"digits>; found '{HEX}'",
        ),
        (
            MODEL + "gates = { min-cosin = 1 }",
            "models.toml: [[model]] 1 (one): gates: min-cosin: unknown key; did you mean "
            "min-cosine?",
        ),
        (
            MODEL + "gates = { min-cosine = 1.5 }",
            "models.toml: [[model]] 1 (one): gates: min-cosine: expected a cosine from 0 to 1, "
            "found 1.5",
        ),
        (
            MODEL + "gates = { max-abs = nan }",
            "models.toml: [[model]] 1 (one): gates: max-abs: expected a number from 0, found nan",
        ),
        (
            MODEL + "gates = { max-p50-slowdown = 1.1 }",
            "models.toml: [[model]] 1 (one): gates: max-p50-slowdown: is a gate of a channel, "
            "which `registry promote` checks; put it into the registry's policy.toml. A build "
            "checks min-cosine, max-abs, required-targets, max-size-mb",
        ),
        (
            MODEL + "gates = { required-targets = [] }",
            "models.toml: [[model]] 1 (one): gates: required-targets: expected an array of names, "
            "found an array",
        ),
        *(
            (
                MODEL + f'expect = {{ "{file}" = "{HEX}" }}',
                f"models.toml: [[model]] 1 (one): expect: '{file}': expected the path of a file "
                'inside the checkpoint, such as "model.safetensors"',
            )
            for file in ("../x", "a/../../x", "/etc/passwd", "", ".", "./config.json", "a//b")
        ),
        (
            MODEL + "label = { a = '1' }\n" + MODEL + "threads = 2",
            "models.toml: [[model]] 2 (one): version: one=={key} is already that of another entry "
            "([[model]] 1 (one)); give each its own name or version",
        ),
        (
            MODEL + 'version = "1"\n' + MODEL + 'version = "1"',
            "models.toml: [[model]] 2 (one): version: one==1 is already that of another entry "
            "([[model]] 1 (one)); give each its own name or version",
        ),
    ],
)
def test_what_is_wrong_is_said(write: Write, text: str, expected: str) -> None:
    assert refusal(write(text)) == expected


def test_what_is_no_toml(write: Write, tmp_path: Path) -> None:
    assert refusal(write("[build")).startswith("models.toml: not valid TOML: ")
    missing = tmp_path / "absent.toml"
    with pytest.raises(UsageError, match=r"absent\.toml: cannot be read: no such file"):
        read_build_file(missing)


def test_one_name_may_have_several_versions(write: Write) -> None:
    file = read_build_file(write(MODEL + 'version = "1"\n' + MODEL + 'version = "2"'))
    assert [entry.title for entry in file.models] == ["one==1", "one==2"]


def test_one_name_may_have_several_inputs(write: Write) -> None:
    others = ('pooling = "cls"', 'revision = "b"', 'target = "cpu-x86_64-avx2-f32"')
    file = read_build_file(write(MODEL + "".join(f"{MODEL}{other}\n" for other in others)))
    assert [entry.title for entry in file.models] == ["one=={key}"] * 4


def test_only_some_models(write: Write) -> None:
    other = MODEL.replace('"one"', '"two"')
    file = read_build_file(write(MODEL + other))
    assert [entry.name for entry in select_models(file, ())] == ["one", "two"]
    assert [entry.name for entry in select_models(file, ("two",))] == ["two"]
    with pytest.raises(
        UsageError, match=r"has no model 'tow'; did you mean two\?; it has one, two"
    ):
        select_models(file, ("tow",))


def test_check_finds_absent_checkpoints_and_unknown_targets(write: Write) -> None:
    absent = read_build_file(write('[[model]]\ncheckpoint = "./none"\nname = "one"\n'))
    with pytest.raises(UsageError, match=r"\(one\): checkpoint: .*/none: no such directory"):
        check_entries(absent.models)
    wrong = read_build_file(write(MODEL + 'target = "cpu-x86_64-avx2-f23"'))
    with pytest.raises(
        UsageError, match=r"'cpu-x86_64-avx2-f23'; did you mean cpu-x86_64-avx2-f32"
    ):
        check_entries(wrong.models)
    check_entries(read_build_file(write(MODEL)).models)


def test_check_finds_folders_without_a_checkpoint(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = read_build_file(write('[[model]]\ncheckpoint = "./folder"\nname = "one"\n'))
    with pytest.raises(UsageError, match=r"\(one\): checkpoint: .*/folder: the directory is empty"):
        check_entries(file.models)
    (folder / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"\(one\): checkpoint: .*/folder"):
        check_entries(file.models)
    (folder / "model.safetensors").write_bytes(b"weights")
    check_entries(file.models)


@pytest.mark.parametrize(
    ("targets", "required", "is_built"),
    [
        ('target = "cpu-x86_64-avx2-f32"\n', "cpu-x86_64-avx2-f32", True),
        ('target = "cpu-x86_64-avx2-f32"\n', "cpu-x86_64-avx512-f32", False),
        ("", "cpu-x86_64-avx512-f32", True),
        ("", "cpu-x86_64-avx512-f23", False),
    ],
)
def test_check_finds_required_targets_that_are_not_built(
    write: Write, targets: str, required: str, is_built: bool
) -> None:
    text = f'{MODEL}{targets}gates = {{ required-targets = "{required}" }}'
    entries = read_build_file(write(text)).models
    if is_built:
        check_entries(entries)
        return
    with pytest.raises(UsageError, match=r"\(one\): gates: required-targets: expected targets th"):
        check_entries(entries)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/registry", "s3://bucket/registry"),
        ("file:///srv/registry", "file:///srv/registry"),
        ("registry", "/folder/registry"),
        ("/srv/registry", "/srv/registry"),
    ],
)
def test_registries_beside_the_file(text: str, expected: str) -> None:
    assert registry_location(text, Path("/folder")) == expected


_WORDS = st.text(string.ascii_letters + string.digits + '-_."\\\n é{}=', max_size=12)
_VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-5, 5), st.floats(), _WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(_WORDS, inner, max_size=2)
    ),
    max_leaves=4,
)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return str(value).lower()


@given(st.dictionaries(st.sampled_from((*model_keys(), "out", "zzz")), _VALUES, max_size=4))
def test_no_value_ends_in_anything_but_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    lines = [f"{key} = {_toml(value)}" for key, value in table.items()]
    path.write_text("[[model]]\n" + "\n".join(lines), encoding="utf-8")
    found = outcome(path)
    if isinstance(found, str):
        assert found.startswith(f"{path}: [[model]] 1")
        assert any(f": {key}" in found for key in (*table, "checkpoint", "name"))
    else:
        assert found.name == table["name"]
        assert "zzz" not in table


def outcome(path: Path) -> ModelEntry | str:
    try:
        return read_build_file(path).models[0]
    except UsageError as error:
        return str(error)
