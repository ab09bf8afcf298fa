"""Token classifiers: one row of logits per token."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import Heads
from infinity_v3.compiler.packing import Packing
from infinity_v3.compiler.parity import Outputs
from infinity_v3.compiler.reference import (
    ModelClass,
    ModelSource,
    Reference,
    encoder_of,
    load_model,
    replace_encoder,
)
from infinity_v3.compiler.tasks.classification import GivenHidden, classifier_heads
from infinity_v3.compiler.tasks.task import LoadedTask, Probe
from infinity_v3.model_specs.classifier_head import ClassifierHead


class TokenHead(nn.Module):
    """The checkpoint's own head over every token, in float32: (N, D) -> (T, C)."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, hidden: Tensor, packing: Packing) -> tuple[Tensor]:
        """Logits (T, C) float32."""
        logits: Tensor = self.classifier(inputs_embeds=hidden.float()[None]).logits
        return (packing.unfolded(logits[0]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClassificationTask:
    """See tasks.task.Task."""

    source: ModelSource
    head: ClassifierHead
    pair_template: None = None
    warnings: tuple[str, ...] = ()
    has_key_counts: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("token_logits",)

    @property
    def heads(self) -> Heads:
        return classifier_heads(self.head)

    def load(self, dtype: torch.dtype) -> LoadedTask:
        model = load_model(self.source, ModelClass.TOKEN_CLASSIFIER, dtype=dtype, is_packed=True)
        encoder = encoder_of(model)
        replace_encoder(model, GivenHidden(None))
        model.float()  # type: ignore[no-untyped-call]
        return LoadedTask(encoder=encoder, head=TokenHead(model))

    def reference(self) -> Callable[[Probe], Outputs]:
        model = Reference(self.source, ModelClass.TOKEN_CLASSIFIER)

        def run(probe: Probe) -> Outputs:
            return {"token_logits": model.run(probe).logits[0].numpy()}

        return run
