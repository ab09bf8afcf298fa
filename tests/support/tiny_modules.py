"""Writes the modules that sentence-transformers puts behind a transformer.

Owns modules.json, the pooling's and the dense modules' folders. Knows nothing of transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from tiny_json import write_json

POOLING_FLAGS: Mapping[str, str] = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean-sqrt-len": "pooling_mode_mean_sqrt_len_tokens",
    "weighted-mean": "pooling_mode_weightedmean_tokens",
    "last-token": "pooling_mode_lasttoken",
}
"""Names of pooling modes on our side -> flags in `1_Pooling/config.json`."""

TANH = "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"

LEGACY_TYPES = {
    name: f"sentence_transformers.models.{name}"
    for name in ("Transformer", "Pooling", "Dense", "Normalize")
}
NEW_TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


@dataclass(frozen=True, kw_only=True)
class TinyDense:
    """One dense module; `activation` is the dotted class name that sentence-transformers stores."""

    out_features: int
    activation: str = TANH
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class TinyModules:
    """Where modules.json goes, and the names of its types."""

    path: Path
    types: Mapping[str, str]

    def write(
        self,
        pooling: Sequence[str],
        dense: Sequence[TinyDense],
        normalize: bool,
        *,
        width: int,
        seed: int,
        new_names: bool,
    ) -> None:
        """Write modules.json and a folder for each module behind the transformer.

        Args:
            pooling: names of `POOLING_FLAGS`.
            dense: dense modules after the pooling, in order.
            normalize: append a Normalize module.
            width: of the transformer.
            seed: decides the weights of the dense modules.
            new_names: write the pooling's config as sentence-transformers 6 does.
        """
        kinds = ["Transformer", "Pooling", *("Dense" for _ in dense), *(["Normalize"] * normalize)]
        rows = [
            {
                "idx": index,
                "name": str(index),
                "path": _module_folder(index, kind),
                "type": self.types[kind],
            }
            for index, kind in enumerate(kinds)
        ]
        write_json(self.path / "modules.json", rows)
        write_config = _write_new_pooling if new_names else _write_legacy_pooling
        write_config(self.path / "1_Pooling", pooling, width)
        self._write_dense_chain(dense, width * len(pooling), seed)
        if normalize:
            (self.path / _module_folder(len(kinds) - 1, "Normalize")).mkdir(exist_ok=True)

    def _write_dense_chain(self, dense: Sequence[TinyDense], width: int, seed: int) -> None:
        for index, layer in enumerate(dense, start=2):
            _write_dense(self.path / _module_folder(index, "Dense"), layer, width, seed + index)
            width = layer.out_features


def _module_folder(index: int, kind: str) -> str:
    return "" if kind == "Transformer" else f"{index}_{kind}"


def _write_legacy_pooling(folder: Path, pooling: Sequence[str], width: int) -> None:
    folder.mkdir(exist_ok=True)
    flags = {flag: mode in pooling for mode, flag in POOLING_FLAGS.items()}
    write_json(
        folder / "config.json", {"word_embedding_dimension": width, **flags, "include_prompt": True}
    )


def _write_new_pooling(folder: Path, pooling: Sequence[str], width: int) -> None:
    folder.mkdir(exist_ok=True)
    new_names = {"mean-sqrt-len": "mean_sqrt_len_tokens", "weighted-mean": "weightedmean"}
    new_names |= {"last-token": "lasttoken"}
    modes = [new_names.get(mode, mode) for mode in pooling]
    mode = modes[0] if len(modes) == 1 else modes
    write_json(
        folder / "config.json",
        {"embedding_dimension": width, "pooling_mode": mode, "include_prompt": True},
    )


def _write_dense(folder: Path, layer: TinyDense, in_features: int, seed: int) -> None:
    folder.mkdir(exist_ok=True)
    config = {"in_features": in_features, "out_features": layer.out_features, "bias": layer.bias}
    write_json(folder / "config.json", {**config, "activation_function": layer.activation})
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn((layer.out_features, in_features), generator=generator) * 0.2
    tensors = {"linear.weight": weight}
    if layer.bias:
        tensors["linear.bias"] = torch.randn((layer.out_features,), generator=generator) * 0.2
    save_file(tensors, folder / "model.safetensors")
