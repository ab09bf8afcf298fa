"""The command line of `infinity-compile`: arguments, help, exit codes, imports."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler import commands
from infinity_v3.compiler.cli import cli, main
from infinity_v3.compiler.options import compile_options
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.request import CompileRequest

HEAVY = ("torch", "transformers", "numpy", "huggingface_hub", "safetensors", "tokenizers")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("INFINITY_")]:
        monkeypatch.delenv(name)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["infinity-compile", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def refusal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
    code: int = 2,
) -> str:
    assert call(monkeypatch, *arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    return shown.err.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (),
            "expected a command: model, inspect, verify, targets, build, catalog, merge, registry, "
            "retarget, tune, upgrade; see ",
        ),
        (("modle",), "no such command: modle; did you mean model?; commands: "),
        (
            ("zzz",),
            "no such command: zzz; commands: build, catalog, inspect, merge, model, registry, "
            "retarget, targets, tune, upgrade, verify",
        ),
        (("--verzion",), "no such option: --verzion; did you mean --version?"),
        (("model", "x", "--taget", "y"), "no such option: --taget; did you mean --target?"),
        (("model", "x", "--out"), "'--out' requires an argument"),
        (("model", "a", "b", "--out", "o"), "unexpected extra argument (b)"),
        (("model", "x"), "out: expected a value, found none; give --out DIR, INFINITY_COMPILE_OUT"),
        (
            ("model", "--out", "o"),
            "checkpoint: expected a value, found none; give the CHECKPOINT argument",
        ),
        (
            ("model", "x", "--out", "o", "--threads", "two"),
            "--threads: expected a whole number, found 'two'",
        ),
        (
            ("model", "x", "--out", "o", "--threads", "99999"),
            "--threads: expected a whole number from 1 to 4096, found 99999",
        ),
        (
            ("model", "x", "--out", "o", "--task", "rerank"),
            "--task: expected one of embedding, sparse, late_interaction, reranker, classifier, ",
        ),
        (
            ("model", "x", "--out", "o", "--task", "embedding", "--pooling", "splade"),
            "--pooling: splade makes sparse vectors and stands alone",
        ),
        (("model", "x", "--out", "o", "--target", "cpu"), "--target: unknown target 'cpu'"),
        (
            ("model", "x", "--out", "o", "--target", "cpu-x86_64-avx2-f23"),
            "did you mean cpu-x86_64-avx2-f32?; this release builds cpu-x86_64-amx-bf16, ",
        ),
        (("inspect",), "missing argument 'ARTIFACT'"),
        (("verify", "x", "--checkpoint", "/no/such"), "--checkpoint: /no/such is no directory"),
        (("targets", "extra"), "unexpected extra argument (extra)"),
    ],
)
def test_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refusal(monkeypatch, capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for out in (tmp_path, tmp_path / "link"):
        message = refusal(monkeypatch, capsys, "model", "x", "--out", str(out))
        assert f"{out}: already exists" in message


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_is_no_artifact(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
) -> None:
    message = refusal(monkeypatch, capsys, command, str(tmp_path), "--json", code=3)
    assert "expected an artifact directory with artifact.json" in message


class Compiled:
    """Stands in for the pipeline and keeps the request it was given."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.request: CompileRequest | None = None

    def __call__(self, request: CompileRequest, progress: Progress) -> Artifact:
        self.request = request
        with progress.stage("export"):
            progress.note("warning: cls assumed")
        return self.artifact


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, sample_artifact: Artifact) -> Compiled:
    compiled = Compiled(sample_artifact)
    monkeypatch.setattr("infinity_v3.compiler.pipeline.compile_model", compiled)
    monkeypatch.setattr(commands, "silence_libraries", lambda: None)
    return compiled


@pytest.fixture
def unread_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that is nowhere is not to be looked for on the hub."""
    monkeypatch.setattr("infinity_v3.compiler.preflight.check_configuration", lambda _: None)


@pytest.mark.usefixtures("unread_configuration")
def test_every_flag_reaches_the_request(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pipeline: Compiled,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("infinity_v3.compiler.preflight.runnable_targets", lambda _: ())
    config = tmp_path / "c.toml"
    config.write_text("threads = 2\nname = 'low'")
    out = str(tmp_path / "out")
    arguments = ["model", "ckpt", "--out", out, "--target", "a", "--target", "b", "--name", "n"]
    arguments += ["--revision", "r", "--task", "embedding", "--pooling", "mean", "--pooling=cls"]
    arguments += [
        "--max-sequence-length",
        "128",
        "--label",
        "k=v",
        "--label",
        "l=w",
        "--kernel-cache",
        str(tmp_path / "k"),
    ]
    arguments += ["--embed-limit-mb", "0", "--config", str(config)]
    arguments += ["--yes-token", "true", "--no-token", "false", "--keep-program"]
    assert call(monkeypatch, *arguments) == 0
    assert pipeline.request == CompileRequest(
        checkpoint="ckpt",
        out=Path(out),
        targets=("a", "b"),
        name="n",
        revision="r",
        task=Kind.EMBEDDING,
        pooling=(PoolingMode.MEAN, PoolingMode.CLS),
        yes_token="true",
        no_token="false",
        max_sequence_length=128,
        labels={"k": "v", "l": "w"},
        kernel_cache=tmp_path / "k",
        embed_limit_mb=0,
        keep_program=True,
        threads=2,
    )
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == str(pipeline.artifact.path)
    assert pipeline.artifact.artifact_id in shown.out
    assert "  export\n" in shown.err
    assert "warning: cls assumed\n" in shown.err
    assert "total" in shown.err


@pytest.mark.usefixtures("unread_configuration")
def test_json_is_one_document_and_no_progress(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pipeline: Compiled,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("INFINITY_COMPILE_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("INFINITY_COMPILE_NAMES", "x")
    assert call(monkeypatch, "model", "ckpt", "--json") == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert shown.out.count("\n") == 1
    assert document["id"] == pipeline.artifact.artifact_id
    assert document["path"] == str(pipeline.artifact.path)
    assert document["targets"] == ["cpu-x86_64-avx2-f32"]
    assert [row["stage"] for row in document["stages"]] == ["load torch", "export"]
    assert shown.err == (
        "warning: INFINITY_COMPILE_NAMES is not a variable of infinity-compile and was ignored; "
        "did you mean INFINITY_COMPILE_NAME?\n"
    )


def test_targets_says_what_this_host_can_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "targets", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in document["targets"]]
    assert call(monkeypatch, "targets") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == names
    for row, line in zip(document["targets"], lines[1:], strict=True):
        assert line.split()[1:3] == [
            "yes" if row["runs"] else "no",
            "yes" if row["builds"] else "no",
        ]
        assert row["builds"] == (row["reasons"] == [])


def test_inspect_prints_a_table_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sample_artifact: Artifact
) -> None:
    assert call(monkeypatch, "inspect", str(sample_artifact.path)) == 0
    assert sample_artifact.artifact_id in capsys.readouterr().out
    assert call(monkeypatch, "inspect", str(sample_artifact.path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["id"] == sample_artifact.artifact_id


def test_json_is_unicode_where_the_path_is_not(sample_artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(sample_artifact.path, path)
    program = Path(sys.executable).with_name("infinity-compile")
    done = subprocess.run([program, "inspect", path, "--json"], capture_output=True, check=True)
    assert json.loads(done.stdout.decode("ascii"))["path"] == str(path)


def test_help_names_every_option_and_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "model", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for option in compile_options():
        if option.key != "checkpoint":
            assert f"--{option.key} {option.metavar}" in text
            assert f"[env: {option.env}]" in text
    for command in cli.commands:
        assert call(monkeypatch, command, "--help") == 0


def run(*command: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | (env or {}),
    )


def imported_by(*arguments: str) -> tuple[int, set[str]]:
    script = (
        "import json, sys\n"
        "from infinity_v3.compiler.cli import main\n"
        f"sys.argv = ['infinity-compile', *{arguments!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n"
        "    print(json.dumps([end.code, sorted(sys.modules)]), file=sys.stderr)\n"
    )
    done = run(sys.executable, "-c", script)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return code, set(modules)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), 0),
        (("--version",), 0),
        (("model", "--help"), 0),
        (("targets",), 0),
        (("inspect", "/no/such"), 2),
        (("model", "x", "--out", "/no/such/out", "--target", "nope"), 2),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(
    arguments: tuple[str, ...], code: int
) -> None:
    found, modules = imported_by(*arguments)
    assert found == code
    assert "infinity_v3.compiler.cli" in modules
    assert not modules & set(HEAVY)


def test_inspecting_an_artifact_imports_nothing_heavy(sample_artifact: Artifact) -> None:
    code, modules = imported_by("inspect", str(sample_artifact.path))
    assert code == 0
    assert not modules & set(HEAVY)


def test_the_module_runs_as_a_program() -> None:
    done = run(sys.executable, "-m", "infinity_v3.compiler.cli", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("infinity-compile 3.")


@pytest.mark.parametrize("package", ["transformers", "safetensors", "huggingface_hub"])
def test_a_missing_extra_is_named_with_its_install_line(package: str, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from infinity_v3.compiler.cli import main\n"
        f"sys.argv = ['infinity-compile', 'model', '.', '--out', {str(tmp_path / 'out')!r}]\n"
        "main()\n"
    )
    done = run(sys.executable, "-c", script)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"the compile extra is missing ({package})" in done.stderr
    assert "pip install 'infinity-v3[compile]'" in done.stderr


def test_verify_without_the_extra_still_checks_every_digest(sample_artifact: Artifact) -> None:
    script = (
        "import sys\n"
        "sys.modules['transformers'] = None\n"
        "from infinity_v3.compiler.cli import main\n"
        f"sys.argv = ['infinity-compile', 'verify', {str(sample_artifact.path)!r}, '--json']\n"
        "main()\n"
    )
    done = run(sys.executable, "-c", script)
    assert done.returncode == 2
    assert done.stderr.startswith("error: every digest matches, but engines cannot be checked here")
    assert "pip install 'infinity-v3[compile]'" in done.stderr


def test_a_missing_compiler_is_named_before_anything_starts(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("infinity-compile")
    env = {"CXX": "no-such-compiler"}
    done = run(str(program), "model", str(tmp_path), "--out", str(tmp_path / "out"), env=env)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no C++ compiler: no-such-compiler not found" in done.stderr
    assert "apt-get install g++" in done.stderr


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_missing_artifact(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
) -> None:
    message = refusal(monkeypatch, capsys, command, str(tmp_path / "absent"))
    assert message == f"{tmp_path / 'absent'}: no such artifact; give the directory of one"


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize("name", ["profile.json", "build.json"])
def test_junk_outside_the_identity(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sample_artifact: Artifact,
    tmp_path: Path,
    command: str,
    name: str,
) -> None:
    path = Path(shutil.copytree(sample_artifact.path, tmp_path / "copy"))
    (path / name).write_text("junk")
    message = refusal(monkeypatch, capsys, command, str(path), "--json", code=3)
    assert str(path) in message
    assert name in message


def test_verify_may_be_told_that_an_artifact_is_shared(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sample_artifact: Artifact,
    tmp_path: Path,
) -> None:
    path = Path(shutil.copytree(sample_artifact.path, tmp_path / "copy"))
    path.chmod(0o775)
    message = refusal(monkeypatch, capsys, "verify", str(path), "--json", code=3)
    assert "--allow-shared-artifacts" in message
    monkeypatch.setattr(
        "infinity_v3.compiler.toolchain.find_reference_obstacles", lambda: ("no torch",)
    )
    message = refusal(
        monkeypatch, capsys, "verify", str(path), "--allow-shared-artifacts", "--json"
    )
    assert message.startswith("every digest matches")


def test_a_malformed_configuration_is_refused_before_torch_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pipeline: Compiled,
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text("{junk")
    message = refusal(monkeypatch, capsys, "model", str(tmp_path), "--out", str(tmp_path / "out"))
    assert "config.json: expected JSON" in message
    assert pipeline.request is None


def test_a_kernel_cache_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    cache = str(tmp_path / "file" / "k")
    message = refusal(
        monkeypatch, capsys, "model", "x", "--out", str(tmp_path / "o"), "--kernel-cache", cache
    )
    assert message.startswith(f"--kernel-cache: {cache} cannot be used: {tmp_path / 'file'} is no")


def test_a_reason_common_to_all_targets_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert call(monkeypatch, "targets") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("none builds: no C++ compiler: no-such-compiler")
    assert sum("no-such-compiler" in line for line in lines) == 1


def test_interrupt_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("infinity_v3.compiler.config_sources.resolve_request", interrupted)
    message = refusal(monkeypatch, capsys, "model", "x", "--out", str(tmp_path / "o"), code=130)
    assert message == "interrupted"


def test_a_checkpoint_that_is_nowhere_is_refused_before_torch_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("infinity_v3.compiler.preflight.runnable_targets", lambda _: ())
    missing = tmp_path / "missing"
    assert call(monkeypatch, "model", str(missing), "--out", str(tmp_path / "out")) == 2
    assert capsys.readouterr().err == (
        f"error: {missing}: no such directory, and not a hub id (org/name)\n"
    )
