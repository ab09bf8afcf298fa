"""The command line of `build`: what is refused before anything is built, and exit codes."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from infinity_v3.compiler.builds.pool import Command
from infinity_v3.compiler.cli import main

MODELS = (
    '[[model]]\ncheckpoint = "./one"\nname = "one"\n[[model]]\ncheckpoint = "./two"\nname = "two"\n'
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("INFINITY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.toml").write_text(MODELS)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"name": name}))
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["infinity-compile", "build", "models.toml", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def failing_with(monkeypatch: pytest.MonkeyPatch, codes: dict[str, int]) -> None:
    """Let every compile end with a code, by the name of its model."""

    def command(entry: object, *_args: object, **_keywords: object) -> Command:
        name = getattr(entry, "name")  # noqa: B009  any entry
        script = f"echo error: {name} broke >&2; exit {codes[name]}"
        return Command(step="compile", arguments=("/bin/sh", "-c", script))

    monkeypatch.setattr("infinity_v3.compiler.builds.job.compile_command", command)


def test_check_builds_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert call(monkeypatch, "--check") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        f"model  version  checkpoint\n"
        f"one    {{key}}    {folder}/one\n"
        f"two    {{key}}    {folder}/two\n"
        "models.toml: no mistakes found, nothing was built\n"
    )
    assert sorted(folder.rglob("*")) == before


def test_check_as_json(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--check", "--json", "--only", "two", "--registry", "r") == 0
    assert json.loads(capsys.readouterr().out) == {
        "registry": "r",
        "out": "artifacts",
        "models": [
            {
                "name": "two",
                "version": "{key}",
                "checkpoint": f"{folder}/two",
                "push_to": None,
            }
        ],
    }


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--only", "tow"), 2, "--only: models.toml has no model 'tow'; did you mean two?; it has"),
        (("--junit", "none/x.xml"), 2, "--junit: none/x.xml: expected a file in a folder that "),
        (("--sign-key", "none.pem"), 2, "--sign-key: none.pem: no such key file"),
        (("--sign-key", "one"), 2, "--sign-key: cannot read one"),
        (("--sign-key", "models.toml"), 2, "--sign-key: models.toml: expected an Ed25519 private "),
        (("--jobs", "0"), 2, "invalid value for '--jobs'"),
        (("--registry", "none"), 3, "expected a registry with registry.json, found none"),
    ],
)
def test_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    sentence: str,
) -> None:
    assert call(monkeypatch, *arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.startswith("error: ")


def test_a_missing_checkpoint_stops_no_other_and_the_table_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_with(monkeypatch, {"two": 3})
    shutil.rmtree(folder / "one")
    assert call(monkeypatch, "--junit", "x.xml", "--jobs", "2") == 3
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[1].split()[:3] == ["one", "{key}", "failed"]
    assert lines[2].split()[0] == "two"
    assert lines[2].split()[2] == "refused"
    assert "two broke" in out
    assert err.splitlines()[-1].endswith(": two broke, and 1 more above")
    assert (folder / "x.xml").read_text().count("<testsuite ") == 2


@pytest.mark.parametrize(("arguments", "begun"), [((), 2), (("--fail-fast",), 1)])
def test_fail_fast(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    begun: int,
) -> None:
    failing_with(monkeypatch, {"one": 1, "two": 2})
    assert call(monkeypatch, "--json", *arguments) == (2 if begun == 2 else 1)
    document = json.loads(capsys.readouterr().out)
    results = [model["result"] for model in document["models"]]
    assert results == (["failed", "failed"] if begun == 2 else ["failed", "left out"])
    assert not (folder / "artifacts").exists()


def test_fail_fast_while_inputs_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_with(monkeypatch, {"two": 3})
    shutil.rmtree(folder / "one")
    assert call(monkeypatch, "--json", "--fail-fast") == 2
    document = json.loads(capsys.readouterr().out)
    assert [model["result"] for model in document["models"]] == ["failed", "left out"]


def test_the_registry_of_the_environment_wins_over_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "models.toml").write_text('[build]\nregistry = "of-file"\n' + MODELS)
    assert call(monkeypatch, "--check", "--json") == 0
    assert json.loads(capsys.readouterr().out)["registry"] == "of-file"
    monkeypatch.setenv("INFINITY_REGISTRY", "s3://of-env/r")
    assert call(monkeypatch, "--check", "--json") == 0
    assert json.loads(capsys.readouterr().out)["registry"] == "s3://of-env/r"
    assert call(monkeypatch, "--check", "--json", "--registry", "of-flag") == 0
    assert json.loads(capsys.readouterr().out)["registry"] == "of-flag"
