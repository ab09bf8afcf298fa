"""Checkpoints that cannot become what they say, or would silently become something else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PoolingMode, Precision
from infinity_v3.compiler.checkpoint import open_checkpoint
from infinity_v3.compiler.engines import input_names, load_packed
from infinity_v3.compiler.packed import CU_SEQLENS, ROWS, install_packed_attention
from infinity_v3.compiler.pipeline import CompilePlan, compile_model, make_plan
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.reference_outputs import compute_reference
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.model_specs.hub_config import read_hub_config
from published_checkpoints import make_nomic_moe_checkpoint
from tiny_checkpoints import make_tiny_checkpoint, remove_json_key, set_json_key, write_json
from tiny_families import SEQUENCE
from tiny_retrievers import make_splade_checkpoint


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One classifier of three labels, one reward model; read only."""
    root = tmp_path_factory.mktemp("templates")
    return {
        family: make_tiny_checkpoint(
            family, root / family, head=SEQUENCE, pooling=None, num_labels=count
        )
        for family, count in (("bert", 3), ("qwen3", 1))
    }


@pytest.fixture
def bert(templates: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(templates["bert"], tmp_path / "bert"))


@pytest.fixture
def qwen3(templates: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(templates["qwen3"], tmp_path / "qwen3"))


def plan_of(path: Path, **options: object) -> CompilePlan:
    request = CompileRequest(checkpoint=str(path), out=path / "out", **options)  # type: ignore[arg-type]
    checkpoint = open_checkpoint(request, SilentProgress())
    return make_plan(checkpoint, read_hub_config(path), request, targets=())


def refusal(path: Path) -> str:
    """The sentence with which a checkpoint is refused before anything is exported or built."""
    with pytest.raises(UsageError) as caught:
        compute_reference(plan_of(path), SilentProgress())
    message = str(caught.value)
    assert "\n" not in message
    return message


def edit_tensors(path: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(path / "model.safetensors")
    edit(tensors)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


def edit_tokenizer(path: Path, **values: object) -> None:
    file = path / "tokenizer.json"
    write_json(file, json.loads(file.read_text(encoding="utf-8")) | values)


def ending_in(word: str, number: int) -> dict[str, object]:
    """A post-processor that puts one token behind every text."""
    end = {"SpecialToken": {"id": word, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [first, end],
        "pair": [first, second, end],
        "special_tokens": {word: {"id": word, "ids": [number], "tokens": [word]}},
    }


def test_a_head_of_another_width_is_named_with_both_shapes(bert: Path) -> None:
    edit_tensors(bert, lambda stored: stored.update({"classifier.weight": torch.zeros(3, 30)}))
    message = refusal(bert)
    assert "classifier.weight: expected 3 x 32, found 3 x 30; config.json and" in message


@pytest.mark.parametrize("key", ["vocab_size", "type_vocab_size"])
def test_a_table_that_no_tensor_fills(bert: Path, key: str) -> None:
    set_json_key(bert / "config.json", key, 900_000_000)
    assert f"{key}: expected at most 512, the rows of the largest table" in refusal(bert)


def test_a_tensor_in_two_files_says_what_to_do(bert: Path) -> None:
    weights = load_file(bert / "model.safetensors")
    names = sorted(weights)
    (bert / "model.safetensors").unlink()
    members = {"a.safetensors": names[:9], "b.safetensors": names[8:]}
    for file, stored in members.items():
        save_file({name: weights[name] for name in stored}, bert / file, {"format": "pt"})
    index = {name: file for file, stored in members.items() for name in stored}
    write_json(bert / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})
    assert "expected each tensor once: remove the file that does not belong" in refusal(bert)


def test_special_tokens_beyond_the_table(bert: Path) -> None:
    edit_tokenizer(bert, post_processor=ending_in("[SEP]", 99_999))
    message = refusal(bert)
    assert "tokenizer.json: expected special tokens below config.json's vocab_size" in message
    assert "found 99999 around every text" in message


def test_a_tokenizer_that_knows_no_word(bert: Path) -> None:
    model = json.loads((bert / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    edit_tokenizer(bert, model=model | {"vocab": {}}, added_tokens=[], post_processor=None)
    assert "expected a tokenizer that tokenises any text" in refusal(bert)


def test_padding_at_the_end_of_texts_whose_last_token_is_read(qwen3: Path) -> None:
    padding = json.loads((qwen3 / "config.json").read_text(encoding="utf-8"))["pad_token_id"]
    edit_tokenizer(qwen3, post_processor=ending_in("<|endoftext|>", padding))
    assert f"found padding ({padding}) at the end of every text" in refusal(qwen3)


def test_padding_at_the_end_is_nothing_to_an_encoder(bert: Path) -> None:
    edit_tokenizer(bert, post_processor=ending_in("[PAD]", 0))
    assert plan_of(bert).warnings == ()


def packed_logits(plan: CompilePlan) -> torch.Tensor:
    """Of three texts of 3, 2 and 4 tokens, computed in one row."""
    install_packed_attention()
    inputs = {
        "input_ids": torch.arange(9) + 20,
        "position_ids": torch.tensor([0, 1, 2, 0, 1, 0, 1, 2, 3]),
        "token_type_ids": torch.zeros(9, dtype=torch.int64),
        CU_SEQLENS: torch.tensor([0, 3, 5, 9], dtype=torch.int32),
        ROWS: torch.arange(9),
    }
    packed = load_packed(plan, Precision.FLOAT32)
    (logits,) = packed(*(inputs[name] for name in input_names(plan)))
    assert isinstance(logits, torch.Tensor)
    return logits


def test_a_reward_model_without_padding_token(qwen3: Path) -> None:
    before = packed_logits(plan_of(qwen3))
    remove_json_key(qwen3 / "config.json", "pad_token_id")
    assert torch.equal(packed_logits(plan_of(qwen3)), before)


def test_a_feed_forward_layer_in_chunks_gives_the_same(bert: Path) -> None:
    before = packed_logits(plan_of(bert))
    set_json_key(bert / "config.json", "chunk_size_feed_forward", 8)
    assert torch.equal(packed_logits(plan_of(bert)), before)


def test_an_unknown_activation_of_a_pooler(tmp_path: Path) -> None:
    checkpoint = make_tiny_checkpoint("deberta-v2", tmp_path, head=SEQUENCE, pooling=None)
    set_json_key(checkpoint / "config.json", "pooler_hidden_act", "banana")
    assert "pooler_hidden_act: expected an activation of" in refusal(checkpoint)


@pytest.mark.parametrize("theta", [0, float("nan")])
def test_a_model_that_gives_no_numbers(qwen3: Path, theta: float) -> None:
    rope = {"rope_type": "default", "rope_theta": theta}
    set_json_key(qwen3 / "config.json", "rope_parameters", rope)
    assert "gives finite numbers, found NaN or infinity in its logits" in refusal(qwen3)


def test_what_cannot_be_computed_is_refused_before_the_build(qwen3: Path, tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 0}
    set_json_key(qwen3 / "config.json", "rope_parameters", rope)
    request = CompileRequest(checkpoint=str(qwen3), out=tmp_path / "out", threads=1)
    progress = SilentProgress()
    with pytest.raises(UsageError, match="gives finite numbers"):
        compile_model(request, progress)
    assert not [entry.name for entry in progress.times() if entry.name.startswith("export")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["qwen3"]


def test_a_pooling_of_another_task_is_told_to_be_ignored(tmp_path: Path) -> None:
    checkpoint = make_splade_checkpoint("bert", tmp_path)
    plan = plan_of(checkpoint, pooling=(PoolingMode.MEAN,))
    assert plan.warnings == ("--pooling: has no meaning for this sparse model; ignored",)
    assert plan_of(checkpoint, pooling=(PoolingMode.SPLADE,)).warnings == ()


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification"])
def test_a_head_that_the_family_has_no_class_for(tmp_path: Path, head: str) -> None:
    checkpoint = make_nomic_moe_checkpoint(tmp_path)
    set_json_key(checkpoint / "config.json", "architectures", [f"NomicBert{head}"])
    set_json_key(checkpoint / "config.json", "id2label", {"0": "a", "1": "b"})
    assert f"expected a family that has a class *{head}, found" in refusal(checkpoint)


def test_a_refused_compile_leaves_no_folder_of_torch(bert: Path, tmp_path: Path) -> None:
    set_json_key(bert / "config.json", "hidden_act", "banana")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    # The tests' own process has told torch where its cache is, and children would be told, too.
    env = {name: value for name, value in os.environ.items() if "INDUCTOR" not in name}
    done = subprocess.run(
        [Path(sys.executable).with_name("infinity-compile"), "model", bert, "--out", "never"],
        env=env | {"TMPDIR": str(temporary)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "hidden_act: expected an activation of transformers" in done.stderr
    assert list(temporary.iterdir()) == []
