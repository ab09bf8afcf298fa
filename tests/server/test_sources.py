"""What `--model-id` accepts, and the cache of compiled checkpoints."""

import os
import shlex
import stat
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infinity_v3.artifacts.cpu_class import CPU_CLASSES
from infinity_v3.artifacts.errors import InfinityError, RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.host import HostCapabilities, detect_host
from infinity_v3.server import compile_child
from infinity_v3.server.cache_key import CompileOrder, cache_key, compile_order
from infinity_v3.server.children import Children
from infinity_v3.server.compile_child import CompileChild
from infinity_v3.server.config import ModelConfig
from infinity_v3.server.model_source import SourceKind, find_source
from infinity_v3.server.resolve import Resolved, Resolver
from infinity_v3.server.tool import Tool, scrubbed_environment


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostCapabilities:
    """This host; digests are remembered in a fresh cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return detect_host()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A directory that looks like a checkpoint."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "weights.bin").write_bytes(b"w")
    return folder


def resolve(resolver: Resolver, config: ModelConfig) -> Resolved:
    return resolver.resolve(find_source(config.model_id, config.revision), config)


def make_artifact(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "artifact.json").write_text("{}", encoding="utf-8")
    return folder


def test_artifact_wins_over_checkpoint(checkpoint: Path) -> None:
    assert find_source(str(checkpoint), None).kind is SourceKind.CHECKPOINT
    (checkpoint / "artifact.json").write_text("{}", encoding="utf-8")
    assert find_source(str(checkpoint), None).kind is SourceKind.ARTIFACT


@pytest.mark.parametrize("model_id", ["org/name", "name", "Org-1/na.me_2"])
def test_hub_ids(model_id: str) -> None:
    source = find_source(model_id, "main")
    assert (source.kind, source.revision) == (SourceKind.HUB, "main")


@pytest.mark.parametrize(
    ("model_id", "fragment"),
    [
        ("/nonexistent/model", "no such directory"),
        ("./nonexistent", "no such directory"),
        ("../nonexistent", "no such directory"),
        ("~/nonexistent-model", "no such directory"),
        ("name:", "a name is 1 to 100 of"),
        ("org/name:prod", "a name is 1 to 100 of"),
        ("name==", "a name is 1 to 100 of"),
        ("name@sha256:00", "behind the @"),
        ("a/b/c", "hub id"),
        ("a b", "hub id"),
        ("~nobody-of-that-name/x", "no such directory"),
        ("x" * 5000, "File name too long"),
        ("/\0", "no such directory"),
    ],
)
def test_sources_that_are_refused(model_id: str, fragment: str) -> None:
    with pytest.raises(UsageError, match=fragment):
        find_source(model_id, None)


def test_directory_with_neither_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither"):
        find_source(str(tmp_path), None)


def test_revision_needs_a_hub_id(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="only a hub id has revisions"):
        find_source(str(checkpoint), "main")
    (checkpoint / "artifact.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="is an artifact directory; drop it"):
        find_source(str(checkpoint), "main")


def key_of(config: ModelConfig, host: HostCapabilities) -> str:
    order = compile_order(find_source(config.model_id, config.revision), config, host)
    return cache_key(order, host)


def test_key_follows_everything_that_matters(checkpoint: Path, host: HostCapabilities) -> None:
    config = ModelConfig(model_id=str(checkpoint))
    first = key_of(config, host)
    assert key_of(config, host) == first
    assert key_of(replace(config, pooling="cls"), host) != first
    assert key_of(config, replace(host, isa=host.isa | {"new-flag"})) != first
    assert key_of(config, replace(host, torch_version="9.9.0")) != first
    (checkpoint / ".hidden").write_text("x", encoding="utf-8")
    assert key_of(config, host) == first
    (checkpoint / "weights.bin").write_bytes(b"other")
    assert key_of(config, host) != first


ISA = {cpu.name: set(cpu.isa) for cpu in CPU_CLASSES}


@pytest.mark.parametrize(
    ("isa", "dtype", "target"),
    [
        (ISA["cpu-x86_64-amx-bf16"], "auto", "cpu-x86_64-amx-bf16"),
        (ISA["cpu-x86_64-amx-bf16"], "float32", "cpu-x86_64-avx512-f32"),
        (ISA["cpu-x86_64-avx512-bf16"], "auto", "cpu-x86_64-avx512-bf16"),
        (ISA["cpu-x86_64-avx512-f32"], "auto", "cpu-x86_64-avx512-f32"),
        (ISA["cpu-x86_64-avx2-f32"], "auto", "cpu-x86_64-avx2-f32"),
        (ISA["cpu-x86_64-avx512-int8"], "auto", "cpu-x86_64-avx512-bf16"),
        (ISA["cpu-x86_64-avx512-int8"], "int8", "cpu-x86_64-avx512-int8"),
        (ISA["cpu-x86_64-amx-int8"], "auto", "cpu-x86_64-amx-bf16"),
        (ISA["cpu-x86_64-amx-int8"], "int8", "cpu-x86_64-amx-int8"),
    ],
)
def test_one_target_is_compiled(
    host: HostCapabilities, isa: set[str], dtype: str, target: str
) -> None:
    simulated = replace(host, arch="x86_64", isa=frozenset(isa))
    config = ModelConfig(model_id="org/name", dtype=dtype)
    order = compile_order(find_source("org/name", None), config, simulated)
    assert order.target == target


@pytest.mark.parametrize(
    ("options", "wished"),
    [
        ({"dtype": "bfloat16"}, "--dtype bfloat16"),
        ({"dtype": "float16"}, "--dtype float16"),
        ({"torch_device": "cuda"}, "--torch-device cuda"),
        ({"device_id": 0}, "--device-id 0"),
        ({"backend_device_ids": "0,1"}, "--backend-device-ids 0,1"),
        ({"enable_fp8_dynamic": True}, "--enable-fp8-dynamic"),
        ({"backend": "tensorrt", "dtype": "float32"}, "--dtype float32 --backend tensorrt"),
    ],
)
def test_nothing_is_compiled_in_vain(
    host: HostCapabilities, options: dict[str, Any], wished: str
) -> None:
    simulated = replace(host, arch="x86_64", isa=frozenset(ISA["cpu-x86_64-avx2-f32"]))
    config = ModelConfig(model_id="org/name", **options)
    with pytest.raises(RefusedError) as caught:
        compile_order(find_source("org/name", None), config, simulated)
    assert str(caught.value) == (
        "--model-id org/name: nothing that infinity-compile builds on this host fits "
        f"{wished}; targets it builds here: cpu-x86_64-avx2-f32 (float32)"
    )


@pytest.mark.parametrize("backend", ["auto", "aoti", "libtorch"])
def test_names_of_the_one_backend(host: HostCapabilities, backend: str) -> None:
    simulated = replace(host, arch="x86_64", isa=frozenset(ISA["cpu-x86_64-avx2-f32"]))
    config = ModelConfig(model_id="org/name", backend=backend)
    order = compile_order(find_source("org/name", None), config, simulated)
    assert order.target == "cpu-x86_64-avx2-f32"


def test_an_unknown_backend_is_wrong_usage(host: HostCapabilities) -> None:
    config = ModelConfig(model_id="org/name", backend="candle")
    with pytest.raises(UsageError, match=r"--backend candle: unknown engine format.* has: aoti$"):
        compile_order(find_source("org/name", None), config, host)


class RecordingChild(CompileChild):
    """Writes an artifact instead of compiling one."""

    def __init__(self) -> None:
        super().__init__(None, Tool())
        self.orders: list[CompileOrder] = []

    def run(self, order: CompileOrder, out: Path) -> None:
        self.orders.append(order)
        make_artifact(out)


def test_a_checkpoint_is_compiled_once(
    checkpoint: Path, tmp_path: Path, host: HostCapabilities
) -> None:
    child = RecordingChild()
    resolver = Resolver(tmp_path / "cache", host, Children(compiler=child))
    config = ModelConfig(model_id=str(checkpoint))
    found = [resolve(resolver, config) for _ in range(2)]
    assert found[0].path == found[1].path
    assert found[1].compile_s == 0.0
    assert len(child.orders) == 1
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_two_servers_compile_once(checkpoint: Path, tmp_path: Path, host: HostCapabilities) -> None:
    child = RecordingChild()
    config = ModelConfig(model_id=str(checkpoint))
    threads = [
        threading.Thread(
            target=resolve,
            args=(Resolver(tmp_path / "cache", host, Children(compiler=child)), config),
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(child.orders) == 1


def test_artifacts_are_served_as_they_are(tmp_path: Path, host: HostCapabilities) -> None:
    child = RecordingChild()
    path = make_artifact(tmp_path / "a")
    resolver = Resolver(tmp_path / "cache", host, Children(compiler=child))
    resolved = resolve(resolver, ModelConfig(model_id=str(path)))
    assert (resolved.path, resolved.compile_s) == (path, 0.0)
    assert not (tmp_path / "cache").exists()


def test_another_owners_cache_is_refused(
    checkpoint: Path, tmp_path: Path, host: HostCapabilities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(RefusedError, match="directory of your own"):
        resolve(
            Resolver(tmp_path / "cache", host, Children(compiler=RecordingChild())),
            ModelConfig(model_id=str(checkpoint)),
        )


def test_environment_of_the_compiler_holds_no_secret() -> None:
    environ = {
        "PATH": "/bin",
        "HF_TOKEN": "t",
        "INFINITY_API_KEY": "secret",
        "INFINITY_COMPILE_THREADS": "1",
        "https_proxy": "p",
        "LC_ALL": "C",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "OMP_NUM_THREADS": "1",
    }
    kept = scrubbed_environment(environ)
    assert kept == {"PATH": "/bin", "HF_TOKEN": "t", "https_proxy": "p", "LC_ALL": "C"}
    assert scrubbed_environment(environ, also="AWS_.*") == {
        **kept,
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


def order_for(checkpoint: Path) -> CompileOrder:
    source = find_source(str(checkpoint), None)
    return CompileOrder(source=source, target="cpu-x86_64-avx2-f32", pooling="cls")


def test_missing_extra_names_the_command(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_child, "_EXTRA_MODULES", ("surely_not_installed",))
    with pytest.raises(UsageError) as caught:
        CompileChild(None, Tool()).run(order_for(checkpoint), tmp_path / "out")
    text = str(caught.value)
    assert "pip install 'infinity-v3[compile]' && " in text
    command = shlex.split(text.partition("&& ")[2])
    assert command[:2] == ["infinity-compile", "model"]
    assert command[-4:] == ["--target", "cpu-x86_64-avx2-f32", "--pooling", "cls"]


def stand_in(tmp_path: Path, code: int) -> str:
    script = tmp_path / "stand-in"
    lines = ["#!/bin/sh", "echo building", "echo 'error: no way' >&2", f"exit {code}"]
    script.write_text("\n".join(lines), encoding="utf-8")
    script.chmod(0o700)
    return str(script)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, RunFailedError), (2, UsageError), (3, RefusedError), (130, RunFailedError)],
)
def test_failures_of_the_compiler_keep_their_exit_code(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kind: type[InfinityError],
) -> None:
    monkeypatch.setattr(sys, "executable", stand_in(tmp_path, code))
    with pytest.raises(kind, match="no way"):
        CompileChild(None, Tool()).run(order_for(checkpoint), tmp_path / "out")


def test_nothing_is_compiled_after_stop(checkpoint: Path, tmp_path: Path) -> None:
    tool = Tool()
    tool.stop()
    with pytest.raises(RunFailedError, match="going down"):
        CompileChild(None, tool).run(order_for(checkpoint), tmp_path / "out")


def test_without_a_home_only_checkpoints_need_a_cache(
    checkpoint: Path, tmp_path: Path, host: HostCapabilities
) -> None:
    resolver = Resolver(None, host, Children(compiler=RecordingChild()))
    artifact = make_artifact(tmp_path / "artifact")
    assert resolve(resolver, ModelConfig(model_id=str(artifact))).path == artifact
    with pytest.raises(UsageError, match=r"^--artifact-cache: .* no home directory"):
        resolve(resolver, ModelConfig(model_id=str(checkpoint)))
