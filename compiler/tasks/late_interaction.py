"""Late interaction (ColBERT; Khattab and Zaharia, 2020): a narrow vector of every token."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import Heads
from infinity_v3.compiler.packing import Packing
from infinity_v3.compiler.parity import Outputs
from infinity_v3.compiler.reference import ModelClass, ModelSource, Reference, load_model
from infinity_v3.compiler.tasks.projection import StoredMatrix, load_projection
from infinity_v3.compiler.tasks.task import LoadedTask, Probe
from infinity_v3.model_specs.late_interaction import LateInteractionHead


class TokenProjection(nn.Module):
    """The projection over every token's vector, in float32: (N, D) -> (T, D')."""

    def __init__(self, projection: nn.Module) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, hidden: Tensor, packing: Packing) -> tuple[Tensor]:
        """Vectors (T, D') float32, not normalised."""
        return (packing.unfolded(self.projection(hidden.float())),)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateInteractionTask:
    """See tasks.task.Task. `matrix` is Stanford's projection, `dimensions` the vectors' width."""

    source: ModelSource
    head: LateInteractionHead
    matrix: StoredMatrix | None
    dimensions: int
    pair_template: None = None
    warnings: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("token_vectors",)

    @property
    def heads(self) -> Heads:
        return Heads(
            dimensions=self.dimensions,
            normalize=self.head.normalize,
            similarity=self.head.similarity,
            late_interaction=self.head.rules,
        )

    @property
    def has_key_counts(self) -> bool:
        rules = self.head.rules
        return rules.query_expansion_id is not None and not rules.attends_to_expansion

    def load(self, dtype: torch.dtype) -> LoadedTask:
        encoder = load_model(self.source, ModelClass.ENCODER, dtype=dtype, is_packed=True)
        projection = load_projection(self.head, self.matrix)
        return LoadedTask(encoder=encoder, head=TokenProjection(projection))

    def reference(self) -> Callable[[Probe], Outputs]:
        model = Reference(self.source, ModelClass.ENCODER)
        projection = load_projection(self.head, self.matrix)

        def run(probe: Probe) -> Outputs:
            hidden = model.run(probe).last_hidden_state[0]
            with torch.inference_mode():
                return {"token_vectors": projection(hidden).numpy()}

        return run
