"""Dense modules are read from files that hold exactly their weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.heads import load_dense
from infinity_v3.model_specs.dense_config import DenseLayer
from infinity_v3.model_specs.hub_config import read_hub_config
from tiny_checkpoints import TinyDense, make_tiny_checkpoint


@pytest.fixture
def layer(tmp_path: Path) -> DenseLayer:
    dense = (TinyDense(out_features=16),)
    (found,) = read_hub_config(make_tiny_checkpoint("bert", tmp_path / "bert", dense=dense)).dense
    return found


def refusal(layer: DenseLayer) -> str:
    with pytest.raises(UsageError) as caught:
        load_dense(layer)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_it_computes_what_its_file_says(layer: DenseLayer) -> None:
    stored = load_file(layer.weights)
    vector = torch.linspace(-1, 1, 32)
    expected = torch.tanh(stored["linear.weight"] @ vector + stored["linear.bias"])
    assert torch.allclose(load_dense(layer)(vector), expected, atol=1e-6)


def test_other_tensors(layer: DenseLayer) -> None:
    assert "expected the tensors" in refusal(replace(layer, out_features=8))


def test_values_that_are_not_finite(layer: DenseLayer) -> None:
    stored = load_file(layer.weights)
    stored["linear.bias"][2] = float("nan")
    save_file(stored, layer.weights)
    assert refusal(layer).startswith(
        f"{layer.weights}: tensor linear.bias: expected finite numbers, found 1 of 16"
    )


def test_whole_numbers(layer: DenseLayer) -> None:
    stored = load_file(layer.weights)
    save_file(stored | {"linear.bias": torch.arange(16)}, layer.weights)
    assert refusal(layer).startswith(
        f"{layer.weights}: tensor linear.bias: expected a floating-point dtype, found I64"
    )
