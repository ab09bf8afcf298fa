"""JinaBERT v2: a BERT with symmetric ALiBi in place of positions, and a gated feed-forward part.

Two published layouts: that of jina-embeddings-v2, jina-reranker-v1 and jina-colbert-v1, and the one
with layer norms on queries and keys of jina-embeddings-v2-base-code. Modules carry the published
tensor names, so weights load as they are. Checked against llama.cpp (architecture jina-bert-v2).
Knows nothing of targets.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from infinity_v3.compiler.families.attention import attend, eager_attention
from infinity_v3.compiler.families.jina_bert_config import JinaBertConfig

_ACTIVATIONS: Mapping[str, type[nn.Module]] = {"geglu": nn.GELU, "reglu": nn.ReLU}
"""Activations of the gate by `feed_forward_type`."""
_FIRST_SLOPE_EXPONENT = 8.0


def alibi_slopes(num_heads: int) -> list[float]:
    """Slope of each head (Press et al. 2022): a geometric series where `num_heads` is 2 ** n.

    Else the series of the next smaller power of two, then every other slope of the next larger one.
    """
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [_slope(power, head) for head in range(power)]
    return slopes + [_slope(2 * power, 2 * head) for head in range(num_heads - power)]


def _slope(num_heads: int, head: int) -> float:
    return float(2.0 ** (-_FIRST_SLOPE_EXPONENT * (head + 1) / num_heads))


class JinaBertEmbeddings(nn.Module):
    """Word and type embeddings; positions are left to the attention."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        summed = self.word_embeddings(input_ids) + self.token_type_embeddings(types)
        embedded: Tensor = self.LayerNorm(summed)
        return embedded


class JinaBertSelfAttention(nn.Module):
    """Projections and attention of one layer."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        self.config = config
        self.is_causal = False
        width, eps = config.hidden_size, config.layer_norm_eps
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        if config.query_key_norm:
            self.layer_norm_q = nn.LayerNorm(width, eps=eps)
            self.layer_norm_k = nn.LayerNorm(width, eps=eps)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **options: Any) -> Tensor:  # noqa: ANN401
        query, key, value = self.query(hidden), self.key(hidden), self.value(hidden)
        if self.config.query_key_norm:
            query, key = self.layer_norm_q(query), self.layer_norm_k(key)
        heads = (self.config.num_attention_heads, -1)
        query, key, value = (x.unflatten(2, heads).transpose(1, 2) for x in (query, key, value))
        implementation = str(self.config._attn_implementation)
        function = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention)
        return attend(self, function, query, key, value, attention_mask, **options)


class JinaBertSelfOutput(nn.Module):
    """Output projection, residual and norm."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, mixed: Tensor, hidden: Tensor) -> Tensor:
        output: Tensor = self.LayerNorm(self.dense(mixed) + hidden)
        return output


class JinaBertAttention(nn.Module):
    """Attention of one layer with its residual."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        self.self = JinaBertSelfAttention(config)
        self.output = JinaBertSelfOutput(config)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **options: Any) -> Tensor:  # noqa: ANN401
        output: Tensor = self.output(self.self(hidden, attention_mask, **options), hidden)
        return output


class JinaBertGatedMLP(nn.Module):
    """Feed-forward part of the first layout: the gate comes first, the norm lies within."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gated_layers = nn.Linear(width, 2 * inner, bias=False)
        self.act = _ACTIVATIONS[config.feed_forward_type]()
        self.wo = nn.Linear(inner, width)
        self.layernorm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        gate, up = self.gated_layers(hidden).chunk(2, dim=-1)
        output: Tensor = self.layernorm(self.wo(self.act(gate) * up) + hidden)
        return output


class JinaBertNormedMLP(nn.Module):
    """Feed-forward part of the second layout: the gate comes last, the norm lies in the layer."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.up_gated_layer = nn.Linear(width, 2 * inner, bias=False)
        self.act = _ACTIVATIONS[config.feed_forward_type]()
        self.down_layer = nn.Linear(inner, width)

    def forward(self, hidden: Tensor) -> Tensor:
        up, gate = self.up_gated_layer(hidden).chunk(2, dim=-1)
        output: Tensor = self.down_layer(up * self.act(gate))
        return output


class JinaBertLayer(nn.Module):
    """One layer of the first layout."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        self.attention = JinaBertAttention(config)
        self.mlp = JinaBertGatedMLP(config)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **options: Any) -> Tensor:  # noqa: ANN401
        output: Tensor = self.mlp(self.attention(hidden, attention_mask, **options))
        return output


class JinaBertNormedLayer(nn.Module):
    """One layer of the second layout, which adds the layer's input a second time."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.attention = JinaBertAttention(config)
        self.mlp = JinaBertNormedMLP(config)
        self.layer_norm_1 = nn.LayerNorm(width, eps=eps)
        self.layer_norm_2 = nn.LayerNorm(width, eps=eps)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **options: Any) -> Tensor:  # noqa: ANN401
        attended = self.attention(hidden, attention_mask, **options)
        middle = self.layer_norm_1(hidden + attended)
        output: Tensor = self.layer_norm_2(middle + self.mlp(middle))
        return output


class JinaBertEncoder(nn.Module):
    """All layers, with the distances that they share.

    Attributes:
        slopes: of ALiBi, one for each head.
    """

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        layer = JinaBertNormedLayer if config.query_key_norm else JinaBertLayer
        self.layer = nn.ModuleList([layer(config) for _ in range(config.num_hidden_layers)])
        self.reach = config.max_position_embeddings
        self.slopes = alibi_slopes(config.num_attention_heads)

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Tensor | None,
        cu_seq_lens_q: Tensor | None,
        **options: Any,  # noqa: ANN401
    ) -> Tensor:
        if cu_seq_lens_q is None:
            options["attention_mask"] = self._mask(hidden, attention_mask)
        else:
            distances = torch.arange(-self.reach, self.reach + 1, device=hidden.device)
            options |= {"attention_mask": None, "cu_seq_lens_q": cu_seq_lens_q}
            options["distance_bias"] = self._bias(distances)
        for layer in self.layer:
            hidden = layer(hidden, **options)
        return hidden

    def _mask(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        """What is added to the scores of padded texts: (B or 1, H, S, S)."""
        places = torch.arange(hidden.shape[1], device=hidden.device)
        mask = self._bias(places[None, :] - places[:, None])[None].to(hidden.dtype)
        if attention_mask is None:
            return mask
        lowest = torch.finfo(hidden.dtype).min
        return mask.masked_fill(attention_mask[:, None, None, :] == 0, lowest)

    def _bias(self, distances: Tensor) -> Tensor:
        """Distances of any shape -> (H, *shape) float32."""
        slopes = torch.tensor(self.slopes, dtype=torch.float32, device=distances.device)
        return -slopes.reshape(-1, *[1] * distances.dim()) * distances.abs()


class JinaBertPooler(nn.Module):
    """First token, projected."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = nn.Tanh()

    def forward(self, hidden: Tensor) -> Tensor:
        pooled: Tensor = self.activation(self.dense(hidden[:, 0]))
        return pooled


class JinaBertPreTrainedModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """What transformers needs to know to load the family."""

    config_class = JinaBertConfig
    base_model_prefix = "bert"
    _supports_sdpa = True
    _supports_attention_backend = True


class JinaBertModel(JinaBertPreTrainedModel):  # type: ignore[no-untyped-call]
    """The encoder."""

    def __init__(self, config: JinaBertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = JinaBertEmbeddings(config)
        self.encoder = JinaBertEncoder(config)
        self.pooler = JinaBertPooler(config) if add_pooling_layer else None
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
        cu_seq_lens_q: Tensor | None = None,
        **options: Any,  # noqa: ANN401 - passed to the attention function
    ) -> BaseModelOutputWithPooling:
        """(B, S) int64 each, or one packed row with `cu_seq_lens_q` -> hidden (B, S, D).

        `position_ids` are taken and not used: ALiBi sees distances alone.
        """
        embedded = self.embeddings(input_ids, token_type_ids)
        hidden = self.encoder(embedded, attention_mask, cu_seq_lens_q, **options)
        pooled = None if self.pooler is None else self.pooler(hidden)
        return BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=pooled)


class JinaBertForSequenceClassification(JinaBertPreTrainedModel):  # type: ignore[no-untyped-call]
    """The encoder with a linear head on its pooler, as the rerankers are published."""

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__(config)
        self.bert = JinaBertModel(config)
        self.classifier = nn.Linear(config.hidden_size, int(config.num_labels or 0))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor | None = None,
        **inputs: Any,  # noqa: ANN401 - what the encoder takes
    ) -> SequenceClassifierOutput:
        """As the encoder; logits (B, L)."""
        given = inputs if input_ids is None else {"input_ids": input_ids, **inputs}
        output = self.bert(**given)
        return SequenceClassifierOutput(logits=self.classifier(output.pooler_output))
