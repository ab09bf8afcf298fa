"""Compiles that cannot succeed or are cut short, as real processes.

Each ends in one sentence and the right exit code, and leaves nothing behind.
"""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from infinity_v3.artifacts.store import open_artifact
from tiny_checkpoints import (
    make_generative_checkpoint,
    make_tiny_checkpoint,
    remove_tokenizer,
    set_json_key,
    truncate_safetensors,
)

TARGET = "cpu-x86_64-avx2-f32"
PROGRAM = Path(sys.executable).with_name("infinity-compile")
STAGE_TIMEOUT_S = 300
RUN_TIMEOUT_S = 900
BUILD_STAGE = f"build {TARGET}"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint("bert", tmp_path_factory.mktemp("checkpoint") / "bert")


@pytest.fixture
def checkpoint(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "checkpoint"))


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """The directory that artifacts are put into; nothing else is in it."""
    path = tmp_path / "shelf"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Caches of this run: nothing is written to the user's own, and kernels are built once."""
    return {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture
def env(caches: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INFINITY_")}
    return kept | caches | {"HF_HUB_OFFLINE": "1"}


class Compile:
    """A running `infinity-compile model`, in a process group of its own as under a shell."""

    def __init__(self, env: dict[str, str], *arguments: str | Path) -> None:
        self._process = subprocess.Popen(
            [PROGRAM, "model", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        self.stderr = ""
        self.group = self._process.pid

    def wait_for_stage(self, name: str) -> None:
        """Read stderr until the line that says a stage began."""
        assert self._process.stderr is not None
        descriptor = self._process.stderr.fileno()
        deadline = time.monotonic() + STAGE_TIMEOUT_S
        while f"  {name}" not in self.stderr:
            left_s = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([descriptor], [], [], left_s)
            chunk = os.read(descriptor, 65536) if ready else b""
            assert chunk, f"stage {name!r} never began:\n{self.stderr}"
            self.stderr += chunk.decode()

    def send(self, number: signal.Signals) -> None:
        """Send to the process alone."""
        self._process.send_signal(number)

    def send_to_group(self, number: signal.Signals) -> None:
        """Send to the process and its children, as a terminal does."""
        os.killpg(self._process.pid, number)

    def wait(self) -> int:
        """Wait for the end; a second call gives the same code."""
        _, err = self._process.communicate(timeout=RUN_TIMEOUT_S)
        self.stderr += err.decode()
        return self._process.returncode

    def close(self) -> None:
        """End whatever is left of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def compiling(env: dict[str, str], *arguments: str | Path) -> Iterator[Compile]:
    running = Compile(env, *arguments)
    try:
        yield running
    finally:
        running.close()


def refused(env: dict[str, str], *arguments: str | Path, code: int) -> str:
    """Run to the end; the one sentence of a compile that was refused."""
    with compiling(env, *arguments) as running:
        assert running.wait() == code, running.stderr
    return the_sentence(running.stderr)


def the_sentence(stderr: str) -> str:
    """Give the error, checking that it is the last line and the only complaint."""
    *before, last = stderr.splitlines()
    assert last.startswith("error: "), stderr
    # What stands before it are lines of progress ("at     1.2 s  export float32").
    assert [line for line in before if not re.match(r"at +\d+\.\d s  ", line)] == []
    return last.removeprefix("error: ")


def test_a_killed_compile_hinders_nobody(
    env: dict[str, str], checkpoint: Path, shelf: Path
) -> None:
    arguments = (checkpoint, "--out", shelf / "artifact", "--target", TARGET)
    with compiling(env, *arguments) as first:
        first.wait_for_stage(BUILD_STAGE)
        first.send(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
    assert not (shelf / "artifact").exists()
    assert list(shelf.iterdir()) != [], "the kill came too early to leave anything"

    with compiling(env, *arguments) as second:
        assert second.wait() == 0, second.stderr
    assert [path.name for path in shelf.iterdir()] == ["artifact"]
    assert [target.name for target in open_artifact(shelf / "artifact").manifest.targets] == [
        TARGET
    ]


@pytest.mark.parametrize(
    ("stage", "number", "code", "sentence"),
    [
        (BUILD_STAGE, signal.SIGINT, 130, "interrupted"),
        (BUILD_STAGE, signal.SIGTERM, 143, "terminated"),
        ("load torch", signal.SIGINT, 130, "interrupted"),
        ("export float32", signal.SIGINT, 130, "interrupted"),
    ],
)
def test_an_interrupted_compile_leaves_nothing(  # noqa: PLR0913  fixtures and one row of the table
    env: dict[str, str],
    checkpoint: Path,
    shelf: Path,
    stage: str,
    number: signal.Signals,
    code: int,
    sentence: str,
) -> None:
    with compiling(env, checkpoint, "--out", shelf / "artifact", "--target", TARGET) as running:
        running.wait_for_stage(stage)
        running.send_to_group(number)
        assert running.wait() == code, running.stderr
    assert the_sentence(running.stderr) == sentence
    assert list(shelf.iterdir()) == []


def test_a_signal_to_the_process_alone_ends_it(
    env: dict[str, str], checkpoint: Path, shelf: Path
) -> None:
    with compiling(env, checkpoint, "--out", shelf / "artifact", "--target", TARGET) as running:
        running.wait_for_stage(BUILD_STAGE)
        running.send(signal.SIGTERM)
        assert running.wait() == 143, running.stderr
    assert the_sentence(running.stderr) == "terminated"
    assert list(shelf.iterdir()) == []


def in_group(number: int) -> list[bytes]:
    """Command lines of the running processes of a process group."""
    lines = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if entry.name.isdecimal() and os.getpgid(int(entry.name)) == number:
                lines.append((entry / "cmdline").read_bytes())  # empty once it has ended
    return [line for line in lines if line]


def wait_for_process(group: int, part: bytes) -> None:
    deadline_s = time.monotonic() + STAGE_TIMEOUT_S
    while not any(part in line for line in in_group(group)):
        assert time.monotonic() < deadline_s, f"no process with {part!r} was started"
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("step", "number"),
    [(b"varlen_attention.cpp", signal.SIGTERM), (b"c++-header", signal.SIGINT)],
)
def test_no_compiler_and_nothing_of_it_survives(
    env: dict[str, str], checkpoint: Path, tmp_path: Path, number: signal.Signals, step: bytes
) -> None:
    # A cache of its own, so that both steps are taken; the signal reaches the process alone.
    temporary, cache = tmp_path / "temporary", tmp_path / "cache"
    temporary.mkdir()
    env = env | {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache)}
    arguments = (checkpoint, "--out", tmp_path / "artifact", "--target", TARGET)
    with compiling(env, *arguments) as running:
        running.wait_for_stage(BUILD_STAGE)
        wait_for_process(running.group, step)
        wait_for_process(running.group, b"cc1plus\0")
        running.send(number)
        assert running.wait() == 128 + number, running.stderr
        assert in_group(running.group) == []
    assert list(temporary.iterdir()) == []
    assert list(cache.rglob("*.gch")) == [], "a header that may be cut short fails every compile"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "checkpoint", "temporary"]


def test_two_compiles_to_one_path(env: dict[str, str], checkpoint: Path, shelf: Path) -> None:
    arguments = (checkpoint, "--out", shelf / "artifact", "--target", TARGET)
    with compiling(env, *arguments) as first:
        first.wait_for_stage("hash checkpoint")
        first.send(signal.SIGSTOP)  # else it may be done before the other has looked
        message = refused(env, *arguments, code=2)
        assert f"{shelf / 'artifact'}: another process is writing to this path" in message
        first.send(signal.SIGCONT)
        first.send(signal.SIGTERM)
        assert first.wait() == 143, first.stderr
    assert list(shelf.iterdir()) == []


@contextmanager
def small_disk(path: Path, num_kib: int) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small tmpfs can be mounted by root only")
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={num_kib}k", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


# Used up by the tokenizer, by generated code, by the C++ compiler.
@pytest.mark.parametrize("num_kib", [8, 128, 400])
def test_a_full_disk(env: dict[str, str], checkpoint: Path, tmp_path: Path, num_kib: int) -> None:
    with small_disk(tmp_path / "disk", num_kib) as disk:
        message = refused(env, checkpoint, "--out", disk / "artifact", "--target", TARGET, code=1)
        assert list(disk.iterdir()) == []
    assert "no space left on device" in message
    assert str(disk) in message


def test_a_truncated_weight_file(env: dict[str, str], checkpoint: Path, shelf: Path) -> None:
    truncate_safetensors(checkpoint)
    message = refused(env, checkpoint, "--out", shelf / "artifact", code=2)
    assert "model.safetensors: truncated: its tensors need" in message
    assert list(shelf.iterdir()) == []


def test_a_checkpoint_without_tokenizer(env: dict[str, str], checkpoint: Path, shelf: Path) -> None:
    remove_tokenizer(checkpoint)
    message = refused(env, checkpoint, "--out", shelf / "artifact", code=2)
    assert "tokenizer.json" in message
    assert list(shelf.iterdir()) == []


def test_a_generative_checkpoint_without_task(
    env: dict[str, str], tmp_path: Path, shelf: Path
) -> None:
    generative = make_generative_checkpoint(tmp_path / "llama")
    message = refused(env, generative, "--out", shelf / "artifact", code=2)
    assert "--task" in message
    assert list(shelf.iterdir()) == []


def test_an_unsupported_architecture(env: dict[str, str], checkpoint: Path, shelf: Path) -> None:
    set_json_key(checkpoint / "config.json", "model_type", "bertt")
    set_json_key(checkpoint / "config.json", "architectures", ["BerttModel"])
    message = refused(env, checkpoint, "--out", shelf / "artifact", code=2)
    assert "bertt" in message
    assert "bert" in message.replace("bertt", "")
    assert list(shelf.iterdir()) == []


def test_a_broken_tokenizer_is_refused_before_torch_is_loaded(
    env: dict[str, str], checkpoint: Path, shelf: Path
) -> None:
    set_json_key(checkpoint / "tokenizer.json", "normalizer", {"type": "Bogus"})
    with compiling(env, checkpoint, "--out", shelf / "artifact") as running:
        assert running.wait() == 2, running.stderr
    expected = f"error: {checkpoint / 'tokenizer.json'}: expected a tokenizer"
    assert running.stderr.startswith(expected)
    assert running.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("hidden_act", "nope", "hidden_act: expected an activation of transformers"),
        ("num_hidden_layers", 1, "expected as many layers as the weights are of"),
    ],
)
def test_what_only_transformers_can_judge_is_refused_before_the_build(
    env: dict[str, str], checkpoint: Path, shelf: Path, key: str, value: object, found: str
) -> None:
    set_json_key(checkpoint / "config.json", key, value)
    with compiling(env, checkpoint, "--out", shelf / "artifact", "--target", TARGET) as running:
        assert running.wait() == 2, running.stderr
    assert the_sentence(running.stderr).startswith(f"{checkpoint / 'config.json'}: {found}")
    assert BUILD_STAGE not in running.stderr
    assert list(shelf.iterdir()) == []


def test_an_existing_output(env: dict[str, str], checkpoint: Path, shelf: Path) -> None:
    out = shelf / "artifact"
    out.mkdir()
    (out / "kept").write_text("mine")
    assert "already exists" in refused(env, checkpoint, "--out", out, code=2)
    assert [path.name for path in shelf.rglob("*")] == ["artifact", "kept"]


def test_an_unknown_target(env: dict[str, str], checkpoint: Path, shelf: Path) -> None:
    message = refused(env, checkpoint, "--out", shelf / "artifact", "--target", "cpu-avx", code=2)
    assert "unknown target 'cpu-avx'" in message
    assert TARGET in message
    assert list(shelf.iterdir()) == []


def test_a_checkpoint_that_is_not_there(env: dict[str, str], shelf: Path) -> None:
    message = refused(env, "./no-such-directory", "--out", shelf / "artifact", code=2)
    assert message == "./no-such-directory: no such directory, and not a hub id (org/name)"
    message = refused(env, "org/name", "--out", shelf / "artifact", code=1)
    assert message.startswith("org/name: no directory of that name exists here")
    assert "the hub is offline (HF_HUB_OFFLINE)" in message
    assert list(shelf.iterdir()) == []


def test_an_output_that_cannot_be_written(env: dict[str, str], checkpoint: Path) -> None:
    message = refused(env, checkpoint, "--out", "/proc/no/artifact", code=1)
    assert "cannot write" in message
