"""`infinity-compile build` as a real process: interrupted, killed, resumed, run twice."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from infinity_v3.artifacts.store import open_artifact
from tiny_artifacts import FLOAT32_TARGET
from tiny_checkpoints import make_tiny_checkpoint

PROGRAM = Path(sys.executable).with_name("infinity-compile")
WAIT_S = 300
FILE = f"""
[build]
out = "made"
jobs = 2

[build.defaults]
version = "1-{{key}}"
target = "{FLOAT32_TARGET}"
push-to = "staging"
gates = {{ max-abs = 2e-5, required-targets = "{FLOAT32_TARGET}", max-size-mb = 50 }}

[[model]]
checkpoint = "./checkpoints/zero"
name = "zero"

[[model]]
checkpoint = "./checkpoints/one"
name = "one"
label = {{ team = "search" }}
"""


class Build:
    """A running build; its stderr goes to a file that can be read meanwhile."""

    def __init__(self, folder: Path, env: Mapping[str, str], *arguments: str) -> None:
        self._log = folder / "build.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "build", "models.toml", *arguments],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out


def wait_for(claim: Callable[[], bool], build: Build | None = None) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, build.said if build else "it never came to be"
        if build is not None:
            assert build.process.poll() is None, build.said
        time.sleep(0.05)


def has_begun(build: Build, name: str, stage: str) -> bool:
    return any(f"  {name}==" in line and f"  {stage}" in line for line in build.said.splitlines())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("build")
    for seed, name in enumerate(("zero", "one")):
        make_tiny_checkpoint(
            "distilbert", root / "checkpoints" / name, seed=seed, max_positions=32, num_layers=1
        )
    (root / "models.toml").write_text(FILE)
    return root


@pytest.fixture(scope="module")
def env() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INFINITY_")}
    # A variable of `model` must not reach the children: it would change what they build.
    return kept | {"INFINITY_COMPILE_POOLING": "cls"}


def registry(folder: Path, env: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [PROGRAM, "registry", *arguments, "--registry", "registry"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries(folder: Path) -> list[str]:
    made = folder / "made"
    return sorted(str(path.relative_to(made)) for path in made.glob("*/*")) if made.exists() else []


def test_interrupted_killed_resumed_and_run_again(folder: Path, env: dict[str, str]) -> None:
    interrupted(folder, env)
    killed_behind_the_first(folder, env)
    registry(folder, env, "init")
    resumed(folder, env)
    run_again(folder, env)


def interrupted(folder: Path, env: dict[str, str]) -> None:
    build = Build(folder, env, "--junit", "interrupted.xml")
    wait_for(lambda: all(has_begun(build, name, "load torch") for name in ("zero", "one")), build)
    build.process.send_signal(signal.SIGINT)
    assert build.end() == (130, "")
    assert build.said.endswith("error: interrupted\n")
    assert entries(folder) == []
    root = ET.parse(folder / "interrupted.xml").getroot()
    assert (root.attrib["tests"], root.attrib["skipped"]) == ("2", "2")


def killed_behind_the_first(folder: Path, env: dict[str, str]) -> None:
    build = Build(folder, env, "--jobs", "1")
    wait_for(lambda: has_begun(build, "one", "load torch"), build)
    build.process.kill()
    build.end()
    # The child is told by the kernel, and cleans up.
    wait_for(lambda: not any(Path(name).name.startswith(".") for name in entries(folder)))
    (first,) = entries(folder)
    assert first.startswith("zero/1-")
    open_artifact(folder / "made" / first)


def resumed(folder: Path, env: dict[str, str]) -> None:
    build = Build(folder, env, "--registry", "registry", "--junit", "resumed.xml")
    code, out = build.end()
    assert code == 0, build.said
    rows = {line.split()[0]: line.split()[2] for line in out.splitlines()[1:3]}
    assert rows == {"zero": "skipped", "one": "built"}
    assert not has_begun(build, "zero", "compile")
    assert out.count("  infinity-compile registry promote ") == 2
    suites = {
        suite.attrib["name"].partition("==")[0]: suite
        for suite in ET.parse(folder / "resumed.xml").getroot()
    }
    assert [case.attrib["name"] for case in suites["one"].iterfind("testcase")] == [
        "build",
        f"required-targets {FLOAT32_TARGET}",
        f"max-abs {FLOAT32_TARGET}",
        "max-size-mb all files",
    ]
    assert suites["zero"].attrib["skipped"] == "1"
    listed = registry(folder, env, "list")
    assert "zero" in listed
    assert "one" in listed


def run_again(folder: Path, env: dict[str, str]) -> None:
    # Not even the out folder is needed: the registry has all of it.
    (folder / "made").rename(folder / "moved")
    code, out = Build(folder, env, "--registry", "registry", "--json").end()
    document = json.loads(out)
    assert (code, document["exit_code"]) == (0, 0)
    assert [model["result"] for model in document["models"]] == ["skipped", "skipped"]
    assert entries(folder) == []
    for model in document["models"]:
        (path,) = (folder / "moved" / model["name"]).iterdir()
        assert open_artifact(path).artifact_id == model["id"]
        labels = json.loads((path / "build.json").read_text())["labels"]
        assert labels["build-key"] == model["build_key"]
        assert path.name == f"1-{model['build_key'][:12]}"
