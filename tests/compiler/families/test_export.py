"""Every packed family exports with a dynamic number of tokens and texts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from transformers import (
    AutoModel,
    DebertaV2Config,
    DebertaV2Model,
    MPNetConfig,
    MPNetModel,
)

from infinity_v3.compiler.families import adopt, pack
from infinity_v3.compiler.reference import PACKED_ATTENTION
from packed_calls import packed_inputs, random_texts, spread_weights
from published_checkpoints import (
    make_jina_bert_checkpoint,
    make_nomic_moe_checkpoint,
    read_config,
)

TOLERANCE = 1e-5
SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"vocab_size": 64, "intermediate_size": 64, "max_position_embeddings": 64}


def mpnet(_: Path) -> nn.Module:
    return spread_weights(MPNetModel(MPNetConfig(**SIZES), add_pooling_layer=False))


def deberta(_: Path) -> nn.Module:
    options: dict[str, Any] = {"relative_attention": True, "share_att_key": True}
    options |= {"pos_att_type": ["c2p", "p2c"], "position_buckets": 16}
    options |= {"conv_kernel_size": 3, "conv_act": "gelu"}
    return spread_weights(DebertaV2Model(DebertaV2Config(**SIZES, **options)))


def jina_bert(path: Path) -> nn.Module:
    return load(make_jina_bert_checkpoint(path))


def nomic_moe(path: Path) -> nn.Module:
    return load(make_nomic_moe_checkpoint(path))


def load(checkpoint: Path) -> nn.Module:
    model = AutoModel.from_pretrained(
        checkpoint,
        config=adopt(read_config(checkpoint)),
        attn_implementation=PACKED_ATTENTION,
    )
    loaded: nn.Module = model.eval().requires_grad_(False)
    return loaded


FAMILIES: Mapping[str, Callable[[Path], nn.Module]] = {
    "mpnet": mpnet,
    "deberta": deberta,
    "jina-bert": jina_bert,
    "nomic-moe": nomic_moe,
}


class Hidden(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, cu_seq_lens_q: torch.Tensor
    ) -> torch.Tensor:
        output = self.encoder(
            input_ids=input_ids, position_ids=position_ids, cu_seq_lens_q=cu_seq_lens_q
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden


@pytest.mark.parametrize("family", FAMILIES)
def test_the_exported_graph_takes_other_sizes(family: str, tmp_path: Path) -> None:
    encoder = FAMILIES[family](tmp_path)
    pack(encoder)
    model = Hidden(encoder)
    example, other = (
        packed_inputs(random_texts(lengths, vocab_size=64), first_position=2)
        for lengths in ((9, 20, 4), (1, 30, 2, 17))
    )
    tokens = Dim("T", min=2, max=32768)
    shapes = {name: {1: tokens} for name in ("input_ids", "position_ids")}
    shapes["cu_seq_lens_q"] = {0: Dim("B1", min=3, max=4097)}

    program = torch.export.export(
        model,
        (),
        kwargs=example,
        dynamic_shapes=shapes,
        strict=False,
        prefer_deferred_runtime_asserts_over_guards=True,
    )

    want, got = model(**other), program.module()(**other)
    assert (got - want).abs().max() < TOLERANCE
