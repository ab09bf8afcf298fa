"""What of a Laya checkpoint is refused, naming file and key, before anything is built."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from infinity_v3.artifacts.decision import DecisionProtocol
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.compiler.pipeline import CompilePlan, plan_compile
from infinity_v3.compiler.preflight import check_configuration
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.tasks.laya import LayaTask
from tiny_checkpoints import make_tiny_checkpoint
from tiny_json import remove_json_key, set_json_key
from tiny_laya import LayaRecipe, make_laya_checkpoint

RECIPE = LayaRecipe(key="laya", num_layers=1)
Spoil = Callable[[Path], object]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return make_laya_checkpoint(tmp_path / "laya", RECIPE)


def request_of(checkpoint: Path) -> CompileRequest:
    return CompileRequest(checkpoint=str(checkpoint), out=checkpoint.parent / "out")


def plan_of(request: CompileRequest) -> CompilePlan:
    return plan_compile(request, SilentProgress())


def change(key: str, value: object) -> Spoil:
    return lambda path: set_json_key(path / "rl_agent_config.json", key, value)


def change_tensors(edit: Callable[[dict[str, torch.Tensor]], object]) -> Spoil:
    def spoil(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        edit(tensors)
        save_file(tensors, path / "model.safetensors")

    return spoil


def test_a_checkpoint_is_read_into_its_metadata(checkpoint: Path) -> None:
    set_json_key(
        checkpoint / "rl_agent_config.json",
        "temperature_by_options",
        {"choice:11+": 0.1006, "noul:2": True, "score:3-5": 9, "choice:other": 1.0},
    )
    set_json_key(checkpoint / "rl_agent_config.json", "lang_temperatures", {"de": {}})
    check_configuration(request_of(checkpoint))
    plan = plan_of(request_of(checkpoint))
    assert plan.kind is Kind.DECISION
    assert plan.decision is not None
    temperature = plan.decision.temperature
    assert temperature.by_bucket == {"choice:11+": 0.5, "noul:2": 1.0, "score:3-5": 5.0}
    assert temperature.raw_by_bucket == {"choice:11+": 0.1006, "noul:2": None, "score:3-5": 9.0}
    limits = plan.decision.limits
    assert (limits.max_len, limits.head_max_len, limits.option_tokens) == (512, 192, 48)
    names = {tensor.name for tensor in plan.decision.readout}
    assert "type_emb.weight" in names
    assert not any(name.startswith(("encoder.", "act_head.")) for name in names)
    assert {"rl_agent_config.json", "encoder/config.json", "tokenizer/tokenizer.json"} <= {
        file.path for file in plan.checkpoint.files
    }
    assert sum("rl_agent_config.json" in warning for warning in plan.warnings) == 3
    assert any("choice:other" in warning for warning in plan.warnings)


def test_defaults_of_a_configuration_that_says_little(checkpoint: Path) -> None:
    file = checkpoint / "rl_agent_config.json"
    for key in list(json.loads(file.read_text())):
        remove_json_key(file, key)
    plan = plan_of(request_of(checkpoint))
    assert plan.config.decision is not None
    assert plan.config.decision.head_layers == 2
    assert plan.decision is not None
    assert plan.decision.temperature.by_type == (1.0, 1.0, 1.0)
    assert (plan.decision.limits.max_len, plan.decision.limits.head_max_len) == (512, 192)


CONFIGURATIONS: dict[str, tuple[Spoil, str]] = {
    "parallel": (change("option_layout", "parallel"), "option_layout: expected sequential"),
    "two temperatures": (change("temperature", [1.0, 1.0]), "temperature: expected a list of 3"),
    "no temperature": (change("temperature", None), "temperature: expected a list of 3"),
    "layers": (change("head_layers", 9), "head_layers: expected a whole number from 0 to 8"),
    "long": (change("max_len", 8193), "max_len: expected a whole number from 17 to 8192"),
    "head": (change("head_max_len", 512), "head_max_len: expected a whole number from 16 to 511"),
    "buckets": (change("temperature_by_options", [1.0]), "temperature_by_options: expected an"),
    "no encoder": (lambda path: (path / "encoder/config.json").unlink(), "encoder/config.json"),
    "no tokenizer": (
        lambda path: (path / "tokenizer/tokenizer.json").unlink(),
        "tokenizer/tokenizer.json",
    ),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_wrong_configurations_are_refused_at_once(checkpoint: Path, name: str) -> None:
    spoil, message = CONFIGURATIONS[name]
    spoil(checkpoint)
    with pytest.raises(UsageError) as refusal:
        check_configuration(request_of(checkpoint))
    assert message in str(refusal.value)


TENSORS: dict[str, tuple[Spoil, str]] = {
    "missing head": (
        change_tensors(lambda t: t.pop("head.layers.1.linear2.bias")),
        "absent, the first is head.layers.1.linear2.bias",
    ),
    "missing encoder": (
        change_tensors(lambda t: t.pop("encoder.final_norm.weight")),
        "absent, the first is encoder.final_norm.weight",
    ),
    "surplus": (
        change_tensors(lambda t: t.update({"head.extra": torch.zeros(1)})),
        "have no place in a Laya model of this configuration, the first is head.extra",
    ),
    "fewer layers": (change("head_layers", 1), "the first is head.layers.1.linear1.bias"),
    "shape": (
        change_tensors(lambda t: t.update({"scorer.1.weight": torch.zeros(64, 32)})),
        "tensor scorer.1.weight: expected the shape [64, 64], found [64, 32]",
    ),
    "actions": (change("act_costs", {}), "tensor act_head.2.bias: expected the shape [1]"),
    "whole numbers": (
        change_tensors(lambda t: t.update({"scorer.3.bias": torch.zeros(1, dtype=torch.int64)})),
        "tensor scorer.3.bias: expected a floating-point dtype, found I64",
    ),
    "not finite": (
        change_tensors(lambda t: t["type_emb.weight"].fill_(np.nan)),
        "tensor type_emb.weight: expected finite numbers",
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_wrong_tensors_are_refused_by_name(checkpoint: Path, name: str) -> None:
    spoil, message = TENSORS[name]
    spoil(checkpoint)
    task = plan_of(request_of(checkpoint)).task
    assert isinstance(task, LayaTask)
    with pytest.raises(UsageError) as refusal:
        task.reference()
    assert message in str(refusal.value)


def test_options_that_contradict_the_checkpoint_are_refused(checkpoint: Path) -> None:
    request = request_of(checkpoint)
    assert plan_of(replace(request, decision_protocol=DecisionProtocol.LAYA)).decision
    wrong = {
        "shows a checkpoint of laya": replace(request, decision_protocol=DecisionProtocol.ONEJEV),
        "pools nothing": replace(request, pooling=(PoolingMode.CLS,)),
        "is a decision checkpoint": replace(request, task=Kind.EMBEDDING),
        "expected 193 to 8192": replace(request, max_sequence_length=192),
    }
    for message, asked in wrong.items():
        with pytest.raises(UsageError) as refusal:
            plan_of(asked)
        assert message in str(refusal.value)
    longer = plan_of(replace(request, max_sequence_length=1024)).decision
    assert longer is not None
    assert longer.limits.max_len == 1024


def test_other_checkpoints_are_no_decision_models(tmp_path: Path) -> None:
    plain = make_tiny_checkpoint("bert", tmp_path / "bert")
    request = request_of(plain)
    wrong = {
        "expected rl_agent_config.json": replace(request, task=Kind.DECISION),
        "--decision-protocol laya: expected rl_agent_config.json": replace(
            request, decision_protocol=DecisionProtocol.LAYA
        ),
        "the protocol rune, which this release does not": replace(
            request, decision_protocol=DecisionProtocol.RUNE
        ),
    }
    for message, asked in wrong.items():
        with pytest.raises(UsageError) as refusal:
            check_configuration(asked)
        assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("file", "protocols"),
    [("joint_head_config.json", "clef"), ("decision_config.json", "pplx or d3")],
)
def test_checkpoints_of_other_protocols_are_refused_by_name(
    tmp_path: Path, file: str, protocols: str
) -> None:
    plain = make_tiny_checkpoint("bert", tmp_path / "bert")
    (plain / file).write_text("{}")
    with pytest.raises(UsageError) as refusal:
        check_configuration(request_of(plain))
    assert f"a decision checkpoint of the protocol {protocols}" in str(refusal.value)
