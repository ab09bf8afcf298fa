"""NomicBERT with mixture-of-experts layers, as nomic-embed-text-v2-moe is published.

Modules carry the published tensor names, so weights load as they are. Checked against llama.cpp
(architecture nomic-bert-moe), which leaves the bias of the experts out. Knows nothing of targets.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from infinity_v3.compiler.families.attention import attend, eager_attention
from infinity_v3.compiler.families.experts import Routing
from infinity_v3.compiler.families.nomic_bert_config import NomicMoeConfig


class NomicMoeEmbeddings(nn.Module):
    """Word and type embeddings."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.type_vocab_size > 0:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.has_types = config.type_vocab_size > 0

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        embedded: Tensor = self.word_embeddings(input_ids)
        if not self.has_types:
            return embedded
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        summed: Tensor = embedded + self.token_type_embeddings(types)
        return summed


class NomicMoeAttention(nn.Module):
    """Attention of one layer, queries and keys rotated by position."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.config = config
        self.is_causal = False
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden: Tensor,
        rotation: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        **options: Any,  # noqa: ANN401
    ) -> Tensor:
        heads = self.Wqkv(hidden).unflatten(2, (3, self.config.num_attention_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        query, key = _rotate(query, *rotation), _rotate(key, *rotation)
        implementation = str(self.config._attn_implementation)
        function = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention)
        mixed = attend(self, function, query, key, value, attention_mask, **options)
        output: Tensor = self.out_proj(mixed)
        return output


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair of one lane and the lane half a head further: (B, H, S, D)."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class NomicMoeMLP(nn.Module):
    """Feed-forward part of a dense layer."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act = nn.GELU()

    def forward(self, hidden: Tensor) -> Tensor:
        output: Tensor = self.fc2(self.act(self.fc1(hidden)))
        return output


class NomicMoeRouter(nn.Module):
    """Chooses experts; their weights are not made to sum to one."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.layer = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.top_k = config.moe_top_k

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(T, D) -> weights (T, K) in the dtype of tokens, experts (T, K) int64."""
        scores = self.layer(tokens).softmax(-1, dtype=torch.float32)
        weights, chosen = scores.topk(self.top_k, dim=-1)
        return weights.to(tokens.dtype), chosen


class NomicMoeExpertWeights(nn.Module):
    """Both matrices of all experts, one expert's rows (I, D) after the other's."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        rows = config.num_experts * config.intermediate_size
        self.w1 = nn.Parameter(torch.empty(rows, config.hidden_size))
        self.w2 = nn.Parameter(torch.empty(rows, config.hidden_size))
        self.act = nn.GELU()
        self.num_experts = config.num_experts

    def forward(self, tokens: Tensor, routing: Routing) -> Tensor:
        """(T, D) -> a row for each token and expert, by expert."""
        up, down = (w.reshape(self.num_experts, -1, w.shape[1]) for w in (self.w1, self.w2))
        inner = routing.multiply(routing.gather(tokens), up.transpose(1, 2))
        return routing.multiply(self.act(inner), down)


class NomicMoeExperts(nn.Module):
    """The experts and the one bias that they share."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.mlp = NomicMoeExpertWeights(config)
        self.bias = nn.Parameter(torch.zeros(config.hidden_size))

    def forward(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        routing = Routing(chosen, self.mlp.num_experts)
        return routing.weigh(self.mlp(tokens, routing), weights) + self.bias


class NomicMoeMixture(nn.Module):
    """Feed-forward part of a layer with experts."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.router = NomicMoeRouter(config)
        self.experts = NomicMoeExperts(config)

    def forward(self, hidden: Tensor) -> Tensor:
        tokens = hidden.flatten(0, 1)
        return self.experts(tokens, *self.router(tokens)).view_as(hidden)  # type: ignore[no-any-return]


class NomicMoeLayer(nn.Module):
    """One layer, norms after the residuals."""

    def __init__(self, config: NomicMoeConfig, number: int) -> None:
        super().__init__()
        has_experts = number % config.moe_every_n_layers == 1
        self.attn = NomicMoeAttention(config)
        self.mlp = NomicMoeMixture(config) if has_experts else NomicMoeMLP(config)
        self.norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.norm2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor, *attention: Any, **options: Any) -> Tensor:  # noqa: ANN401
        middle = self.norm1(hidden + self.attn(hidden, *attention, **options))
        output: Tensor = self.norm2(middle + self.mlp(middle))
        return output


class NomicMoeEncoder(nn.Module):
    """All layers, with the rotation that they share."""

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [NomicMoeLayer(config, number) for number in range(config.num_hidden_layers)]
        )
        self.theta = config.rope_theta
        self.head_width = config.hidden_size // config.num_attention_heads

    def forward(
        self,
        hidden: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | None,
        **options: Any,  # noqa: ANN401
    ) -> Tensor:
        rotation = self._rotation(position_ids, hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, rotation, attention_mask, **options)
        return hidden

    def _rotation(self, position_ids: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine, each (B, 1, S, D / 2)."""
        lanes = torch.arange(0, self.head_width, 2, device=position_ids.device)
        frequencies = self.theta ** (-lanes.float() / self.head_width)
        angles = (position_ids[..., None].float() * frequencies)[:, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)


class NomicMoeModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """The encoder."""

    config_class = NomicMoeConfig
    base_model_prefix = "bert"
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: NomicMoeConfig) -> None:
        super().__init__(config)
        self.embeddings = NomicMoeEmbeddings(config)
        self.emb_ln = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.encoder = NomicMoeEncoder(config)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.word_embeddings = value  # type: ignore[assignment]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        **options: Any,  # noqa: ANN401 - passed to the attention function
    ) -> BaseModelOutput:
        """(B, S) int64 each, or one packed row and `cu_seq_lens_q` -> hidden (B, S, D)."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        hidden = self.emb_ln(self.embeddings(input_ids, token_type_ids))
        mask = create_bidirectional_mask(self.config, hidden, attention_mask)
        hidden = self.encoder(hidden, position_ids, mask, **options)
        return BaseModelOutput(last_hidden_state=hidden)
