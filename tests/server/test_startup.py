"""From options to models: the target they leave, and what is refused before one is loaded."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_artifact import make_manifest, make_target, write_fake_artifact
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.manifest import (
    Backend,
    Device,
    Manifest,
    Precision,
    Requirements,
)
from infinity_v3.server.cache_key import CompileOrder
from infinity_v3.server.children import Children
from infinity_v3.server.compile_child import CompileChild
from infinity_v3.server.config_merge import load_configuration
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.model_config import ModelConfig
from infinity_v3.server.startup import ModelStarter
from infinity_v3.server.target_options import choose_target
from infinity_v3.server.tool import Tool

ANYWHERE = Requirements(arch="x86_64", torch="2.13")
CPU = make_target("cpu", requires=ANYWHERE)
GPU = replace(CPU, name="gpu", device=Device.CUDA, precision=Precision.BFLOAT16)
GPU_FP8 = replace(GPU, name="gpu-fp8", precision=Precision.FP8_DYNAMIC)
GPU_TRT = replace(GPU, name="gpu-trt", backend=Backend.TENSORRT, precision=Precision.FLOAT16)
HOST = HostCapabilities(arch="x86_64", isa=frozenset({"avx2"}), torch_version="2.13.0")
GPU_HOST = replace(HOST, devices=frozenset(Device), backends=frozenset(Backend))


def chosen(manifest: Manifest, host: HostCapabilities = HOST, **options: Any) -> str:  # noqa: ANN401  # fields by name
    config = ModelConfig(model_id="m", **options)
    return choose_target(config, manifest, host, allow_newer_torch=False).target.name


@pytest.mark.parametrize(
    ("options", "typed", "wanted"),
    [
        ({"torch_device": "cuda"}, "--torch-device cuda", "device cuda"),
        ({"device_id": 0}, "--device-id 0", "device cuda"),
        ({"backend_device_ids": "0,1"}, "--backend-device-ids 0,1", "device cuda"),
        ({"enable_fp8_dynamic": True}, "--enable-fp8-dynamic", "dtype fp8-dynamic, device cuda"),
        ({"dtype": "float16"}, "--dtype float16", "dtype float16"),
        ({"backend": "tensorrt"}, "--backend tensorrt", "backend tensorrt"),
        ({"backend": "onnx"}, "--backend onnx", "backend onnx"),
        (
            {"dtype": "float16", "device_id": 1},
            "--dtype float16 --device-id 1",
            "dtype float16, device cuda",
        ),
    ],
)
def test_a_target_that_was_not_compiled(
    options: Mapping[str, Any], typed: str, wanted: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        chosen(make_manifest(targets=(CPU,)), **options)
    assert str(caught.value) == (
        f"{typed}: fake-encoder: no target was compiled for {wanted}; "
        "targets present: cpu (float32, cpu, aoti)"
    )
    assert caught.value.exit_code == 3


def test_a_target_for_a_device_that_this_host_lacks() -> None:
    with pytest.raises(RefusedError) as caught:
        chosen(make_manifest(targets=(CPU, GPU, GPU_FP8)), enable_fp8_dynamic=True)
    assert str(caught.value) == (
        "--enable-fp8-dynamic: fake-encoder: no target fits this host: "
        "gpu-fp8 needs device cuda, this release and host offer cpu"
    )


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({}, "gpu-trt"),
        ({"torch_device": "cpu"}, "cpu"),
        ({"torch_device": "cuda"}, "gpu-trt"),
        ({"device_id": 0}, "gpu-trt"),
        ({"backend_device_ids": "auto", "backend": "libtorch"}, "gpu"),
        ({"enable_fp8_dynamic": True}, "gpu-fp8"),
        ({"enable_fp8_dynamic": True, "device_id": 1}, "gpu-fp8"),
        ({"dtype": "float16"}, "gpu-trt"),
        ({"dtype": "float32"}, "cpu"),
    ],
)
def test_what_options_choose_where_there_are_gpus(options: Mapping[str, Any], target: str) -> None:
    manifest = make_manifest(targets=(CPU, GPU, GPU_FP8, GPU_TRT))
    assert chosen(manifest, GPU_HOST, **options) == target


@pytest.mark.parametrize("options", [{}, {"torch_device": "auto", "dtype": "auto"}])
def test_auto_takes_the_cpu_where_no_gpu_is(options: Mapping[str, Any]) -> None:
    assert chosen(make_manifest(targets=(CPU, GPU, GPU_FP8)), **options) == "cpu"


def test_a_backend_that_is_none() -> None:
    with pytest.raises(UsageError) as caught:
        chosen(make_manifest(targets=(CPU, GPU_TRT)), backend="candle")
    assert str(caught.value) == (
        "--backend candle: unknown engine format; model m has: aoti, tensorrt"
    )


class RecordingChild(CompileChild):
    """Compiles nothing."""

    def __init__(self) -> None:
        super().__init__(None, Tool())
        self.orders: list[CompileOrder] = []

    def run(self, order: CompileOrder, out: Path) -> None:
        self.orders.append(order)
        raise AssertionError("compiled in vain")


def start(child: CompileChild, **flags: Any) -> None:  # noqa: ANN401  # option -> values
    given = {name.replace("_", "-"): values for name, values in flags.items()}
    children = Children(compiler=child)
    ModelStarter(load_configuration(given, {}), children, lambda *_: None).load_all()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"model_id": ["/nonexistent"]}, "--model-id /nonexistent: no such directory"),
        (
            {"model_id": ["org/name"], "dtype": ["auto", "float16"]},
            "--model-id org/name: nothing that infinity-compile builds on this host fits "
            "--dtype float16; targets it builds here: ",
        ),
        (
            {"model_id": ["org/name"], "backend": ["auto", "candle"]},
            "--backend candle: unknown engine format; model org/name has: aoti",
        ),
    ],
)
def test_a_wrong_second_model_is_refused_before_the_first_is_compiled(
    checkpoint: str, tmp_path: Path, flags: dict[str, list[str]], sentence: str
) -> None:
    child = RecordingChild()
    given = {**flags, "model_id": [checkpoint, *flags["model_id"]]}
    with pytest.raises((UsageError, RefusedError)) as caught:
        start(child, **given, artifact_cache=[str(tmp_path / "cache")])
    assert str(caught.value).startswith(sentence)
    assert child.orders == []


def test_a_revision_belongs_to_hub_ids_only(tmp_path: Path) -> None:
    path = write_fake_artifact(tmp_path / "artifact")
    with pytest.raises(UsageError) as caught:
        start(RecordingChild(), model_id=[str(path)], revision=["main"])
    assert str(caught.value) == (
        f"--revision main: only a hub id has revisions, but --model-id {path} is an artifact "
        "directory; drop it or write 'none'"
    )


def test_one_name_for_two_models_is_refused_before_either_is_loaded(tmp_path: Path) -> None:
    """The engines in these artifacts cannot be loaded, so an attempt would end otherwise."""
    overrides = {"targets": (make_target("cpu", requires=_this_host()),)}
    paths = [str(write_fake_artifact(tmp_path / name, overrides)) for name in ("a", "b")]
    with pytest.raises(UsageError) as caught:
        start(RecordingChild(), model_id=paths)
    assert str(caught.value) == (
        "two models would be served as 'fake-encoder'; tell them apart with --served-model-name"
    )


@pytest.mark.parametrize(("flags", "name"), [({"served_model_name": ["x"]}, "x"), ({}, None)])
def test_a_model_goes_by_one_name_while_it_loads(
    tmp_path: Path, flags: dict[str, list[str]], name: str | None
) -> None:
    overrides = {"targets": (make_target("cpu", requires=_this_host()),)}
    path = str(write_fake_artifact(tmp_path / "a", overrides))
    reported: list[tuple[str, Phase]] = []
    given = {"model-id": [path], **{key.replace("_", "-"): v for key, v in flags.items()}}
    children = Children(compiler=RecordingChild())
    starter = ModelStarter(
        load_configuration(given, {}), children, lambda *said: reported.append(said)
    )
    with pytest.raises(RefusedError):
        starter.load_all()
    assert reported == [(name or path, Phase.WARMING)]


def _this_host() -> Requirements:
    from infinity_v3.artifacts.host import detect_host

    host = detect_host()
    return Requirements(arch=host.arch, torch=host.torch_minor)
