"""Laya's decision model: an encoder, layers that know the question's type, a score per option.

The packed side and the reference are written apart from each other: the reference is torch's own
transformer layer over transformers' own encoder, one question at a time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from infinity_v3.artifacts.manifest import Heads
from infinity_v3.compiler.checkpoint_files import find_files
from infinity_v3.compiler.decision_metadata import ENCODER_PREFIX
from infinity_v3.compiler.loaded_weights import refuse_not_finite
from infinity_v3.compiler.packed import packed_attention
from infinity_v3.compiler.packing import Packing
from infinity_v3.compiler.parity import OPTION_LOGITS, Outputs
from infinity_v3.compiler.reference import (
    SDPA_FROM_TOKENS,
    build_encoder,
    encoder_shapes,
)
from infinity_v3.compiler.safetensors_header import (
    FLOAT_DTYPES,
    CheckpointError,
    read_tensor_headers,
)
from infinity_v3.compiler.tasks.task import LoadedTask, Probe
from infinity_v3.model_specs.laya_config import LayaConfig

_NUM_TYPES = 3
_HEAD_WIDTH = 64
_ACT_WIDTH, _ACT_EXTRAS = 256, 4
_EPS = 1e-5

Shapes = Mapping[str, tuple[int, ...]]


class Hidden(NamedTuple):
    """What an encoder gives, as PackedModel reads it."""

    last_hidden_state: Tensor


class HeadLayer(nn.Module):
    """A pre-norm transformer layer over packed rows; parameters are named as torch names them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_heads = max(1, width // _HEAD_WIDTH)
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)
        self.linear1 = nn.Linear(width, 4 * width)
        self.linear2 = nn.Linear(4 * width, width)
        self.norm1 = nn.LayerNorm(width, eps=_EPS)
        self.norm2 = nn.LayerNorm(width, eps=_EPS)

    def forward(self, hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
        """(1, N, D) -> the same."""
        rows = self.in_proj(self.norm1(hidden))
        # (1, N, 3 * D) -> three of (1, H, N, D / H)
        query, key, value = rows.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed, _ = packed_attention(
            self, query, key, value, None, is_causal=False, cu_seq_lens_q=cu_seqlens
        )
        hidden = hidden + self.out_proj(mixed.flatten(2))
        wide = functional.relu(self.linear1(self.norm2(hidden)))
        added: Tensor = hidden + self.linear2(wide)
        return added


class LayaEncoder(nn.Module):
    """Encoder, type embedding and head layers: everything that sees a whole question."""

    def __init__(self, encoder: nn.Module, width: int, num_layers: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.type_emb = nn.Embedding(_NUM_TYPES, width)
        self.layers = nn.ModuleList(HeadLayer(width) for _ in range(num_layers))

    def forward(
        self, *, token_type_ids: Tensor, cu_seq_lens_q: Tensor, **inputs: Tensor | bool | None
    ) -> Hidden:
        """Packed rows (1, N) -> (1, N, D); `token_type_ids` are those of the questions."""
        found = self.encoder(cu_seq_lens_q=cu_seq_lens_q, **inputs)
        hidden: Tensor = found.last_hidden_state + self.type_emb(token_type_ids)
        for layer in self.layers:
            hidden = layer(hidden, cu_seq_lens_q)
        return Hidden(hidden)


class OptionScorer(nn.Module):
    """One logit for every token that is read, in float32."""

    def __init__(self, scorer: nn.Module) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, hidden: Tensor, packing: Packing) -> tuple[Tensor]:
        """(N, D) -> (M, 1) float32."""
        assert packing.readout_positions is not None, "no token is to be read; this is a bug"
        return (self.scorer(hidden[packing.readout_positions].float()),)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayaTask:
    """See tasks.task.Task.

    Attributes:
        path: the checkpoint.
        encoder_path: where the encoder's config.json lies.
        width: of a token vector.
    """

    path: Path
    encoder_path: Path
    config: LayaConfig
    width: int
    warnings: tuple[str, ...] = ()
    pair_template: None = None
    has_key_counts: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        return (OPTION_LOGITS,)

    @property
    def heads(self) -> Heads:
        return Heads()

    def load(self, dtype: torch.dtype) -> LoadedTask:
        weights = self._weights()
        encoder = build_encoder(
            self.encoder_path, _below(weights, ENCODER_PREFIX), dtype=dtype, is_packed=True
        )
        whole = LayaEncoder(encoder, self.width, self.config.head_layers)
        whole.type_emb.load_state_dict(_below(weights, "type_emb."))
        for index, layer in enumerate(whole.layers):
            layer.load_state_dict(_as_linears(_below(weights, f"head.layers.{index}.")))
        for part in (whole.type_emb, whole.layers):
            part.to(dtype)
        return LoadedTask(
            encoder=whole.eval().requires_grad_(False),
            head=OptionScorer(_scorer(weights, self.width)).eval().requires_grad_(False),
        )

    def reference(self) -> Callable[[Probe], Outputs]:
        weights = self._weights()
        encoders = {
            name: build_encoder(
                self.encoder_path,
                _below(weights, ENCODER_PREFIX),
                dtype=torch.float32,
                attention=name,
            )
            for name in ("eager", "sdpa")
        }
        layers = [
            _reference_layer(_below(weights, f"head.layers.{index}."), self.width)
            for index in range(self.config.head_layers)
        ]
        scorer, types = _scorer(weights, self.width), weights["type_emb.weight"].float()

        def run(probe: Probe) -> Outputs:
            assert probe.types is not None, "a probe that is no question; this is a bug"
            assert probe.readouts is not None, "a probe that nothing is read of; this is a bug"
            encoder = encoders["eager" if len(probe.ids) < SDPA_FROM_TOKENS else "sdpa"]
            ids = torch.from_numpy(probe.ids)[None]
            with torch.inference_mode():
                found = encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
                hidden = found.last_hidden_state + types[int(probe.types[0])]
                for layer in layers:
                    hidden = layer(hidden)
                read = hidden[0, torch.from_numpy(probe.readouts)]
                return {OPTION_LOGITS: scorer(read).numpy()}

        return run

    def _weights(self) -> dict[str, Tensor]:
        """Every tensor of the checkpoint, in float32, checked against what there has to be."""
        files = [self.path / name for name in find_files(self.path).weights]
        headers = {header.name: header for file in files for header in read_tensor_headers(file)}
        _refuse_others(self.path, {name: h.shape for name, h in headers.items()}, self._shapes())
        for name, header in headers.items():
            if header.dtype not in FLOAT_DTYPES:
                raise CheckpointError(
                    f"{self.path}: tensor {name}: expected a floating-point dtype, found "
                    f"{header.dtype}; use the checkpoint in float32, float16 or bfloat16"
                )
        weights = {name: t.float() for file in files for name, t in load_file(file).items()}
        refuse_not_finite(self.path, weights.items())
        return weights

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        encoder = {
            f"{ENCODER_PREFIX}{name}": shape
            for name, shape in encoder_shapes(self.encoder_path).items()
        }
        return encoder | _head_shapes(self.width, self.config)


def _head_shapes(width: int, config: LayaConfig) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"temperature": (_NUM_TYPES,)}
    shapes["type_emb.weight"] = (_NUM_TYPES, width)
    for index in range(config.head_layers):
        at = f"head.layers.{index}."
        shapes |= _linear_shapes(f"{at}self_attn.in_proj_", 3 * width, width)
        shapes |= _linear_shapes(f"{at}self_attn.out_proj.", width, width)
        shapes |= _linear_shapes(f"{at}linear1.", 4 * width, width)
        shapes |= _linear_shapes(f"{at}linear2.", width, 4 * width)
        shapes |= _norm_shapes(f"{at}norm1.", width) | _norm_shapes(f"{at}norm2.", width)
    shapes |= _norm_shapes("scorer.0.", width) | _linear_shapes("scorer.1.", width, width)
    shapes |= _linear_shapes("scorer.3.", 1, width)
    shapes |= _linear_shapes("act_head.0.", _ACT_WIDTH, width + _ACT_EXTRAS)
    return shapes | _linear_shapes("act_head.2.", config.num_actions, _ACT_WIDTH)


def _linear_shapes(prefix: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}weight": (rows, columns), f"{prefix}bias": (rows,)}


def _norm_shapes(prefix: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}weight": (width,), f"{prefix}bias": (width,)}


def _refuse_others(path: Path, found: Shapes, expected: Shapes) -> None:
    """Refuse missing tensors, surplus ones and other shapes, each by name.

    Raises:
        CheckpointError: naming the first.
    """
    missing = sorted(expected.keys() - found.keys())
    if missing:
        raise CheckpointError(
            f"{path}: {len(missing)} tensors that a Laya checkpoint of this configuration has are "
            f"absent, the first is {missing[0]}; fetch the checkpoint again"
        )
    surplus = sorted(found.keys() - expected.keys())
    if surplus:
        raise CheckpointError(
            f"{path}: {len(surplus)} tensors have no place in a Laya model of this configuration, "
            f"the first is {surplus[0]}; configuration and weights must come from one checkpoint"
        )
    for name, shape in sorted(expected.items()):
        if found[name] != shape:
            raise CheckpointError(
                f"{path}: tensor {name}: expected the shape {list(shape)}, found "
                f"{list(found[name])}; configuration and weights must come from one checkpoint"
            )


def _below(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in weights.items()
        if name.startswith(prefix)
    }


def _as_linears(layer: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names of torch's attention as those of plain linear layers."""
    names = {name: name.replace("self_attn.", "").replace("proj_", "proj.") for name in layer}
    return {names[name]: tensor for name, tensor in layer.items()}


def _scorer(weights: Mapping[str, Tensor], width: int) -> nn.Module:
    scorer = nn.Sequential(
        nn.LayerNorm(width, eps=_EPS), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
    )
    scorer.load_state_dict(_below(weights, "scorer."))
    return scorer


def _reference_layer(weights: Mapping[str, Tensor], width: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        width,
        max(1, width // _HEAD_WIDTH),
        4 * width,
        dropout=0.0,
        activation="relu",
        layer_norm_eps=_EPS,
        batch_first=True,
        norm_first=True,
    )
    layer.load_state_dict(dict(weights))
    return layer.eval().requires_grad_(False)
