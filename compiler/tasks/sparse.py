"""Sparse models (SPLADE; Formal et al., 2021): a weight for every word of the vocabulary.

weight = max over tokens of log(1 + relu(logit)), over the logits of the masked language model;
some models take log(1 + weight) once more.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import Heads, Pooling, PoolingMode
from infinity_v3.compiler.operators import SPLADE
from infinity_v3.compiler.packing import Packing
from infinity_v3.compiler.parity import Outputs
from infinity_v3.compiler.reference import (
    ModelClass,
    ModelSource,
    Reference,
    encoder_of,
    load_model,
    output_projection,
    replace_encoder,
    replace_output_projection,
)
from infinity_v3.compiler.tasks.classification import GivenHidden
from infinity_v3.compiler.tasks.task import LoadedTask, Probe


class NoProjection(nn.Module):
    """Stands in for the last projection, whose bias some classes look at."""

    bias = None

    def forward(self, vectors: Tensor) -> Tensor:
        """Leave the vectors as they are."""
        return vectors


class SparseHead(nn.Module):
    """The masked language model's head, pooled while it is computed: (N, D) -> (B, V).

    Args:
        transform: the masked language model without encoder and last projection.
        projection: the last projection, (V, D) and a bias.
        is_log_doubled: take the logarithm twice.
    """

    def __init__(
        self, transform: nn.Module, projection: nn.Linear, *, is_log_doubled: bool
    ) -> None:
        super().__init__()
        self.is_log_doubled = is_log_doubled
        self.transform = transform
        self.projection = projection

    def forward(self, hidden: Tensor, packing: Packing) -> tuple[Tensor]:
        """Weights (B, V) float32, none below 0."""
        transformed = self.transform(inputs_embeds=hidden[None]).logits[0]
        pooled: Tensor = getattr(torch.ops.infinity, SPLADE)(
            transformed, self.projection.weight, self.projection.bias, packing.cu_seqlens
        )
        # The logarithm grows with its argument: it may follow the maximum.
        return (torch.log1p(pooled) if self.is_log_doubled else pooled,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseTask:
    """See tasks.task.Task."""

    source: ModelSource
    vocab_size: int
    is_log_doubled: bool = False
    pair_template: None = None
    warnings: tuple[str, ...] = ()
    has_key_counts: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("sparse",)

    @property
    def heads(self) -> Heads:
        return Heads(
            pooling=Pooling(modes=(PoolingMode.SPLADE,)),
            dimensions=self.vocab_size,
            similarity="dot",
        )

    def load(self, dtype: torch.dtype) -> LoadedTask:
        model = load_model(self.source, ModelClass.MASKED_LM, dtype=dtype, is_packed=True)
        projection, encoder = output_projection(model), encoder_of(model)
        replace_output_projection(model, NoProjection())
        replace_encoder(model, GivenHidden(None))
        head = SparseHead(model, projection, is_log_doubled=self.is_log_doubled)
        return LoadedTask(encoder=encoder, head=head)

    def reference(self) -> Callable[[Probe], Outputs]:
        model = Reference(self.source, ModelClass.MASKED_LM)

        def run(probe: Probe) -> Outputs:
            logits = model.run(probe).logits[0]
            weights = torch.log1p(torch.relu(logits))
            weights = torch.log1p(weights) if self.is_log_doubled else weights
            return {"sparse": weights.amax(0).numpy()}

        return run
