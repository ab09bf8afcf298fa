"""Where a compile's options come from, which source wins, and what malformed ones are told."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.compiler.config_sources import ResolvedRequest, resolve_request
from infinity_v3.compiler.request import CompileRequest

Flags = dict[str, tuple[str, ...]]
REQUIRED: Flags = {"checkpoint": ("ckpt",), "out": ("out",)}
KINDS = "embedding, sparse, late_interaction, reranker, classifier, token_classifier, decision"


def resolve(
    flags: Flags | None = None, environ: dict[str, str] | None = None, config: Path | None = None
) -> ResolvedRequest:
    return resolve_request(flags=REQUIRED | (flags or {}), environ=environ or {}, config=config)


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "compile.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(
    flags: Flags | None = None, environ: dict[str, str] | None = None, config: Path | None = None
) -> str:
    with pytest.raises(UsageError) as caught:
        resolve(flags, environ, config)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_those_of_the_request() -> None:
    resolved = resolve()
    assert resolved.request == CompileRequest(checkpoint="ckpt", out=Path("out"))
    assert resolved.warnings == ()


def test_each_source_overrides_the_one_below(tmp_path: Path) -> None:
    config = toml(
        tmp_path,
        'name = "top"\nrevision = "top"\nmax-sequence-length = 1\nthreads = 1\n'
        '[compile]\nrevision = "table"\nmax-sequence-length = 2\nthreads = 2\n',
    )
    environ = {"INFINITY_COMPILE_MAX_SEQUENCE_LENGTH": "3", "INFINITY_COMPILE_THREADS": "3"}
    request = resolve({"threads": ("4",)}, environ, config).request
    assert (request.name, request.revision) == ("top", "table")
    assert (request.max_sequence_length, request.threads) == (3, 4)


def test_a_higher_list_replaces_a_lower_one(tmp_path: Path) -> None:
    config = toml(tmp_path, 'target = ["a", "b"]\n[compile.label]\nteam = "search"\n')
    request = resolve({"target": ("c",), "label": ("run=7",)}, {}, config).request
    assert request.targets == ("c",)
    assert request.labels == {"run": "7"}


def test_all_keys_of_a_file(tmp_path: Path) -> None:
    config = toml(
        tmp_path,
        'checkpoint = "other"\nout = "o"\n[compile]\ntarget = ["t"]\nname = "n"\nrevision = "r"\n'
        'task = "embedding"\npooling = "cls"\nmax-sequence-length = 9\nlabel = {k = "v"}\n'
        'kernel-cache = "/k"\nthreads = 3\nkeep-program = true\n',
    )
    request = resolve_request(flags={}, environ={}, config=config).request
    assert request == CompileRequest(
        checkpoint="other",
        out=Path("o"),
        targets=("t",),
        name="n",
        revision="r",
        task=Kind.EMBEDDING,
        pooling=(PoolingMode.CLS,),
        max_sequence_length=9,
        labels={"k": "v"},
        kernel_cache=Path("/k"),
        threads=3,
        keep_program=True,
    )


@pytest.mark.parametrize(("text", "is_kept"), [("true", True), ("1", True), ("false", False)])
def test_a_choice_of_two_from_the_environment(text: str, is_kept: bool) -> None:
    environ = {"INFINITY_COMPILE_KEEP_PROGRAM": text}
    assert resolve({}, environ).request.keep_program is is_kept


def test_a_variable_takes_a_choice_of_a_file_back(tmp_path: Path) -> None:
    config = toml(tmp_path, "keep-program = true\n")
    assert resolve({}, {}, config).request.keep_program
    environ = {"INFINITY_COMPILE_KEEP_PROGRAM": "0"}
    assert not resolve({}, environ, config).request.keep_program


def test_all_variables() -> None:
    environ = {
        "INFINITY_COMPILE_CHECKPOINT": "other",
        "INFINITY_COMPILE_OUT": "o",
        "INFINITY_COMPILE_TARGET": "t;u",
        "INFINITY_COMPILE_POOLING": "mean;cls",
        "INFINITY_COMPILE_LABEL": "k=v;l=a=b",
        "INFINITY_COMPILE_NAME": "",
    }
    request = resolve_request(flags={}, environ=environ, config=None).request
    assert (request.checkpoint, request.out, request.name) == ("other", Path("o"), None)
    assert request.targets == ("t", "u")
    assert request.pooling == (PoolingMode.MEAN, PoolingMode.CLS)
    assert request.labels == {"k": "v", "l": "a=b"}


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    config = toml(tmp_path, 'name = "from-file"\n')
    environ = {"INFINITY_COMPILE_CONFIG": str(config)}
    assert resolve(environ=environ).request.name == "from-file"


def test_tables_of_sibling_programs_are_skipped(tmp_path: Path) -> None:
    config = toml(
        tmp_path,
        '[serve]\nport = 1\n[cli]\nx = 1\n[[model]]\nmodel-id = "m"\n[compile]\nname = "n"\n',
    )
    assert resolve(config=config).request.name == "n"


def test_an_unknown_variable_is_a_warning_with_the_nearest_name() -> None:
    environ = {"INFINITY_COMPILE_TARGETS": "x", "INFINITY_PORT": "1"}
    (warning,) = resolve(environ=environ).warnings
    assert warning.startswith("INFINITY_COMPILE_TARGETS")
    assert warning.endswith("did you mean INFINITY_COMPILE_TARGET?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('nam = "x"', "compile.toml: nam: unknown key; did you mean name?"),
        (
            "[compile]\ntargets = []",
            "compile.toml: [compile] targets: unknown key; did you mean target?",
        ),
        ("[compile]\nmax_sequence_length = 1", "unknown key; did you mean max-sequence-length?"),
        ("[compil]\nx = 1", "compil: unknown key"),
        ("[zzzzzz]\nx = 1", "compile.toml: zzzzzz: unknown key"),
        ('config = "x"', "config: not allowed inside a file"),
        ("compile = 3", "compile: expected a table, found a whole number"),
        (
            '[compile]\nmax-sequence-length = "9"',
            "compile.toml: [compile] max-sequence-length: expected a whole number, found a string",
        ),
        (
            "max-sequence-length = true",
            "max-sequence-length: expected a whole number, found a boolean",
        ),
        (
            "max-sequence-length = 9.0",
            "max-sequence-length: expected a whole number, found a float",
        ),
        ("name = 3", "name: expected a string, found a whole number"),
        ("keep-program = 1", "keep-program: expected true or false, found a whole number"),
        ("target = 3", "target: expected an array of strings, found a whole number"),
        (
            'target = ["a", 3]',
            "target: expected an array of strings, found an array that holds a whole number",
        ),
        ('label = "k=v"', "label: expected a table of strings, found a string"),
        ("label = {k = 1}", "label: expected a table of strings, found a table"),
        ("name = 2020-01-01", "name: expected a string, found a date or time"),
        ("name =", "is not valid TOML"),
        ('name = "a"\nname = "b"', "is not valid TOML"),
        (
            'task = "embeddings"',
            f"task: expected one of {KINDS}, found 'embeddings'; did you mean embedding?",
        ),
        ("port = 7997", "compile.toml: port: unknown key\n"),
        (
            'task = "rerank"',
            f"task: expected one of {KINDS}, found 'rerank'; did you mean reranker?",
        ),
        ('task = "zzz"', f"task: expected one of {KINDS}, found 'zzz'\n"),
        ('pooling = "meen"', "'meen'; did you mean mean?"),
        ('pooling = ["splade", "cls"]', "--pooling: splade makes sparse vectors and stands alone"),
        (
            'task = "embedding"\npooling = ["splade"]',
            "--pooling: splade makes sparse vectors and stands alone",
        ),
        ('pooling = ["cls", "cls"]', "--pooling: cls is given twice"),
        (
            "max-sequence-length = 0",
            "--max-sequence-length: expected a whole number from 1, found 0",
        ),
        ('out = ""', "out: expected a directory, found an empty string"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, message: str) -> None:
    told = (refusal(config=toml(tmp_path, text)), without_flags(tmp_path))
    assert any(message in f"{sentence}\n" for sentence in told)


@pytest.mark.parametrize("kind", KINDS.split(", "))
def test_every_kind_that_is_compiled_may_be_asked_for(tmp_path: Path, kind: str) -> None:
    request = resolve(config=toml(tmp_path, f'task = "{kind}"')).request
    assert request.task is not None
    assert request.task.value == kind
    assert request.asked_kind is request.task


def test_splade_asks_for_sparse_vectors(tmp_path: Path) -> None:
    request = resolve(config=toml(tmp_path, 'pooling = ["splade"]')).request
    assert (request.task, request.asked_kind) == (None, Kind.SPARSE)
    request = resolve(config=toml(tmp_path, 'pooling = ["splade"]\ntask = "sparse"')).request
    assert request.asked_kind is Kind.SPARSE


def test_the_words_of_a_reranker_may_be_given_anywhere(tmp_path: Path) -> None:
    config = toml(tmp_path, 'yes-token = "true"\nno-token = "false"')
    environ = {"INFINITY_COMPILE_NO_TOKEN": "wrong"}
    request = resolve(config=config, environ=environ).request
    assert (request.yes_token, request.no_token) == ("true", "wrong")


def without_flags(tmp_path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        resolve_request(flags={}, environ={}, config=tmp_path / "compile.toml")
    return str(caught.value)


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "compile.toml"
    path.write_bytes(b'name = "\xff"')
    assert "is not valid TOML" in refusal(config=path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot be read: no such file" in refusal(config=tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        (
            {"max-sequence-length": ("x",)},
            {},
            "--max-sequence-length: expected a whole number, found 'x'",
        ),
        (
            {"max-sequence-length": ("1_0",)},
            {},
            "--max-sequence-length: expected a whole number, found '1_0'",
        ),
        ({"threads": ("-1",)}, {}, "--threads: expected a whole number from 1 to 4096, found -1"),
        ({"threads": ("9" * 5000,)}, {}, "--threads: expected a whole number of at most 18 digits"),
        ({"label": ("novalue",)}, {}, "--label: expected KEY=VALUE, found 'novalue'"),
        ({"label": ("k=1", "k=2")}, {}, "--label: 'k' is given twice"),
        ({"label": ("a b=1",)}, {}, "--label: expected a name"),
        ({"name": ("../up",)}, {}, "--name: expected a name"),
        ({"name": ("a\n",)}, {}, "--name: expected a name"),
        ({"target": ("a/b",)}, {}, "--target: expected a name"),
        ({"target": ("a", "a")}, {}, "--target: a is given twice"),
        ({"out": ("",)}, {}, "--out: expected a directory, found an empty string"),
        ({"checkpoint": (" ",)}, {}, "checkpoint: expected a value"),
        (
            {},
            {"INFINITY_COMPILE_KEEP_PROGRAM": "yes"},
            "INFINITY_COMPILE_KEEP_PROGRAM: expected true or false, found 'yes'",
        ),
        (
            {},
            {"INFINITY_COMPILE_THREADS": "two"},
            "INFINITY_COMPILE_THREADS: expected a whole number, found 'two'",
        ),
        (
            {},
            {"INFINITY_COMPILE_TARGET": "a;;b"},
            "INFINITY_COMPILE_TARGET: expected values separated by ';'",
        ),
        (
            {},
            {"INFINITY_COMPILE_POOLING": "top"},
            "INFINITY_COMPILE_POOLING: expected one of cls, mean",
        ),
    ],
)
def test_what_flags_and_variables_may_not_say(
    flags: Flags, environ: dict[str, str], message: str
) -> None:
    assert message in refusal(flags, environ)


@pytest.mark.parametrize("missing", ["checkpoint", "out"])
def test_required_values_are_asked_for(missing: str) -> None:
    flags = {key: value for key, value in REQUIRED.items() if key != missing}
    with pytest.raises(
        UsageError,
        match=rf"{missing}: expected a value, found none.*INFINITY_COMPILE_{missing.upper()}",
    ):
        resolve_request(flags=flags, environ={}, config=None)


def test_a_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve({"out": ("~/x",)}).request.out == Path("/home/someone/x")
