"""Opening checkpoints: what is found and hashed, and how incomplete ones are refused."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.compiler.checkpoint import Checkpoint, is_hub_id, open_checkpoint
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.request import CompileRequest
from tiny_checkpoints import (
    TinyDense,
    keep_only_pytorch_bin,
    make_tiny_checkpoint,
    split_into_shards,
    truncate_safetensors,
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "bert"
    return make_tiny_checkpoint("bert", path, dense=(TinyDense(out_features=16),))


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "bert"))


def opened(checkpoint: str | Path, revision: str | None = None) -> Checkpoint:
    request = CompileRequest(checkpoint=str(checkpoint), out=Path("out"), revision=revision)
    return open_checkpoint(request, SilentProgress())


def refusal(checkpoint: str | Path, exit_code: int = 2, revision: str | None = None) -> str:
    with pytest.raises(InfinityError) as caught:
        opened(checkpoint, revision)
    assert caught.value.exit_code == exit_code
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tensors_are_those_of_the_reference_library(folder: Path) -> None:
    checkpoint = opened(folder)
    found = {
        (entry.file, name.removeprefix("2_Dense/")): (entry.dtype, entry.shape)
        for name, entry in checkpoint.tensors.items()
    }
    expected = {}
    for file in ("model.safetensors", "2_Dense/model.safetensors"):
        with safe_open(folder / file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  safe_open is no mapping
                view = tensors.get_slice(name)
                expected[file, name] = (view.get_dtype(), tuple(view.get_shape()))
    assert found == expected
    assert checkpoint.weight_files == ("model.safetensors",)
    assert (checkpoint.repository, checkpoint.revision) == ("local", None)
    assert checkpoint.path == folder.resolve()


def test_parameters_are_counted_without_integer_buffers(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    expected = sum(t.numel() for t in tensors.values() if t.is_floating_point())
    expected += sum(t.numel() for t in load_file(folder / "2_Dense/model.safetensors").values())
    save_file(tensors | {"position_ids": torch.arange(7)}, folder / "model.safetensors")
    assert opened(folder).num_parameters == expected


def test_every_file_that_may_be_read_is_hashed(folder: Path) -> None:
    for name in ("training_log.json", "notes.txt", "onnx/model.onnx"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("not part of the model")
    files = {file.path: file.sha256 for file in opened(folder).files}
    assert {
        "config.json",
        "model.safetensors",
        "modules.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
    } <= files.keys()
    assert not {"training_log.json", "notes.txt", "onnx/model.onnx"} & files.keys()
    assert list(files) == sorted(files)
    for name, digest in files.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()


def test_shards_are_read_as_one(folder: Path) -> None:
    whole = opened(folder)
    split_into_shards(folder)
    sharded = opened(folder)
    assert len(sharded.weight_files) == 2
    assert sharded.tensors.keys() == whole.tensors.keys()
    assert sharded.num_parameters == whole.num_parameters
    assert "model.safetensors.index.json" in {file.path for file in sharded.files}


def test_hashing_reports_every_byte(folder: Path) -> None:
    advanced: list[int] = []

    class Recording(SilentProgress):
        def _began(self, stage):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            self.total = stage.total
            stage.on_advance = lambda: advanced.append(stage.done)

    progress = Recording()
    request = CompileRequest(checkpoint=str(folder), out=Path("out"))
    checkpoint = open_checkpoint(request, progress)
    num_bytes = sum((folder / file.path).stat().st_size for file in checkpoint.files)
    assert progress.total == advanced[-1] == num_bytes


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        ("---\nlicense: apache-2.0\n---\ntext", "apache-2.0"),
        ("---\nlanguage: en\nlicense: 'mit' # yes\n---\n", "mit"),
        ("---\nlanguage: en\n---\nlicense: mit\n", None),
        ("license: mit", None),
        ("---\nlicense_name: x\n---", None),
        ("---\nlicense:\n- mit\n---", None),
        (None, None),
    ],
)
def test_the_license_is_that_of_the_model_card(
    folder: Path, readme: str | None, expected: str | None
) -> None:
    if readme is not None:
        (folder / "README.md").write_text(readme)
    assert opened(folder).license == expected


def test_the_model_card_does_not_change_what_is_hashed(folder: Path) -> None:
    before = opened(folder).files
    (folder / "README.md").write_text("new words")
    assert opened(folder).files == before


def test_a_truncated_weight_file(folder: Path) -> None:
    truncate_safetensors(folder)
    message = refusal(folder)
    assert "model.safetensors: truncated: its tensors need" in message
    assert message.endswith("fetch the file again")


def test_a_missing_shard(folder: Path) -> None:
    split_into_shards(folder, remove_shard=2)
    assert "names 2 files, of which 1 are missing: model-00002-of-00002.safetensors" in refusal(
        folder
    )


def test_shards_without_their_index(folder: Path) -> None:
    split_into_shards(folder)
    (folder / "model.safetensors.index.json").unlink()
    assert "model.safetensors.index.json is missing" in refusal(folder)


def edit_index(folder: Path, name: str, file: object) -> None:
    split_into_shards(folder)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][name] = file
    path.write_text(json.dumps(index))


def test_an_index_that_names_an_absent_tensor(folder: Path) -> None:
    edit_index(folder, "ghost", "model-00001-of-00002.safetensors")
    assert "says that tensor 'ghost' is in model-00001-of-00002.safetensors" in refusal(folder)


@pytest.mark.parametrize(
    "file", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin", 7]
)
def test_an_index_that_leaves_the_directory(folder: Path, file: object) -> None:
    edit_index(folder, "ghost", file)
    assert "expected a .safetensors file beside the index" in refusal(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"weight_map": {}}', '{"weight_map": 1}', "{}", "[" * 100_000]
)
def test_an_index_that_is_none(folder: Path, text: str) -> None:
    split_into_shards(folder)
    (folder / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json" in refusal(folder)


def test_a_tensor_in_two_shards(folder: Path) -> None:
    split_into_shards(folder)
    first, second = (folder / f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    name = next(iter(load_file(first)))
    save_file(load_file(second) | {name: torch.zeros(1)}, second)
    assert f"tensor '{name}' is in two files" in refusal(folder)


def test_a_pickle_is_never_opened(folder: Path) -> None:
    keep_only_pytorch_bin(folder)
    message = refusal(folder)
    assert "pytorch_model.bin" in message
    assert "convert them to safetensors" in message


def test_a_pickled_dense_module(folder: Path) -> None:
    keep_only_pytorch_bin(folder / "2_Dense")
    assert "2_Dense: its weights are a pickle" in refusal(folder)


def test_an_adapter_alone(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    assert "holds an adapter only; merge it" in refusal(folder)


def test_no_weights_at_all(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "holds no weights; expected model.safetensors" in refusal(folder)


def test_a_weight_file_without_tensors(folder: Path) -> None:
    save_file({}, folder / "model.safetensors")
    assert "hold no tensors" in refusal(folder)


def test_eight_bit_floats(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)}, folder / "model.safetensors")
    message = refusal(folder)
    assert f"tensor '{name}': 'F8_E4M3' weights are not compiled" in message


def test_no_configuration(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "config.json is missing" in refusal(folder)


def test_an_empty_directory(tmp_path: Path) -> None:
    assert "the directory is empty" in refusal(tmp_path)


def test_a_file_instead_of_a_directory(folder: Path) -> None:
    assert "is a file; expected a checkpoint directory" in refusal(folder / "config.json")


def test_a_revision_of_a_directory(folder: Path) -> None:
    assert "--revision main: belongs to a hub id" in refusal(folder, revision="main")


@pytest.mark.parametrize(
    "checkpoint",
    [
        "/no/such",
        "./model",
        "../model",
        "~/model",
        "~nobody/model",
        "a/b/c",
        "org/",
        "-x",
        "org/na me",
        ".",
        "a\n",
    ],
)
def test_a_path_is_never_looked_up_on_the_hub(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def fetch(*_: object) -> None:
        raise AssertionError(f"{checkpoint} was looked up on the hub")

    monkeypatch.setattr("infinity_v3.compiler.checkpoint.fetch_snapshot", fetch)
    with pytest.raises(InfinityError) as caught:
        opened(checkpoint)
    assert caught.value.exit_code == 2


def test_hub_ids() -> None:
    assert is_hub_id("sentence-transformers/all-MiniLM-L6-v2")
    assert is_hub_id("bert-base-uncased")
    assert not is_hub_id("./bert-base-uncased")


def test_an_unreadable_file_is_a_run_failure(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    (folder / "model.safetensors").unlink()
    index.mkdir()
    assert "holds no weights" in refusal(folder)
    index.rmdir()
    (folder / "model.safetensors").symlink_to("/proc/self/mem")
    assert "cannot be read" in refusal(folder, exit_code=1)
