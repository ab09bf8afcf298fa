"""Sequence classifiers and rerankers with a trained head: one row of logits per text.

The head is the checkpoint's own, as transformers implements it. It is run on the one vector that
it reads per text, which stands in for the whole encoder.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import Heads, PairTemplate, PoolingMode
from infinity_v3.compiler.heads import pool
from infinity_v3.compiler.packing import Packing
from infinity_v3.compiler.parity import Outputs
from infinity_v3.compiler.reference import (
    ModelClass,
    ModelSource,
    Reference,
    allow_batches,
    encoder_of,
    load_model,
    replace_encoder,
)
from infinity_v3.compiler.tasks.task import LoadedTask, Probe
from infinity_v3.model_specs.classifier_head import ClassifierHead
from infinity_v3.model_specs.spec import ClassifierPooling

_MODES = {
    ClassifierPooling.CLS: PoolingMode.CLS,
    ClassifierPooling.LAST_TOKEN: PoolingMode.LAST_TOKEN,
    ClassifierPooling.MEAN: PoolingMode.MEAN,
}


class GivenHidden(nn.Module):
    """Stands in for an encoder: gives back the vectors that it is called with, each as a text.

    Args:
        pooler: what the encoder itself does to the first token's vector; None = nothing.
    """

    def __init__(self, pooler: nn.Module | None) -> None:
        super().__init__()
        self.pooler = pooler

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> "GivenOutput":
        """(B, 1, D) -> the same, and what the pooler makes of it."""
        pooled = None if self.pooler is None else self.pooler(inputs_embeds)
        return GivenOutput(inputs_embeds, pooled)


class GivenOutput(tuple[Tensor, "Tensor | None"]):
    """Output of an encoder, by position and by name, as heads read it."""

    __slots__ = ()

    def __new__(cls, hidden: Tensor, pooled: Tensor | None) -> "GivenOutput":
        return super().__new__(cls, (hidden, pooled))

    @property
    def last_hidden_state(self) -> Tensor:
        return self[0]

    @property
    def pooler_output(self) -> Tensor | None:
        return self[1]

    hidden_states = None
    attentions = None
    cache = None
    past_key_values = None
    router_logits = None


class SequenceHead(nn.Module):
    """The head over the vector that it reads, in float32: (N, D) -> (B, C)."""

    def __init__(self, classifier: nn.Module, head: ClassifierHead) -> None:
        super().__init__()
        self.classifier = classifier
        self.pooling = head.pooling
        self.temperature = head.temperature

    def forward(self, hidden: Tensor, packing: Packing) -> tuple[Tensor]:
        """Logits (B, C) float32."""
        if self.pooling is ClassifierPooling.LATE:
            return (pool(self._logits(hidden.float()), packing, PoolingMode.MEAN),)
        return (self._logits(pool(hidden, packing, _MODES[self.pooling])),)

    def _logits(self, vectors: Tensor) -> Tensor:
        logits: Tensor = self.classifier(inputs_embeds=vectors[:, None]).logits
        return logits if self.temperature == 1.0 else logits / self.temperature


def classifier_heads(head: ClassifierHead) -> Heads:
    """What post-processing needs of a classification head, of texts or of tokens."""
    return Heads(labels=head.labels, problem_type=head.problem_type, activation=head.activation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationTask:
    """See tasks.task.Task."""

    source: ModelSource
    head: ClassifierHead
    pair_template: PairTemplate | None
    warnings: tuple[str, ...] = ()
    has_key_counts: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("logits",)

    @property
    def heads(self) -> Heads:
        return classifier_heads(self.head)

    def load(self, dtype: torch.dtype) -> LoadedTask:
        model = load_model(self.source, ModelClass.SEQUENCE_CLASSIFIER, dtype=dtype, is_packed=True)
        encoder = encoder_of(model)
        pooler = getattr(encoder, "pooler", None)
        replace_encoder(model, GivenHidden(pooler))
        if pooler is not None:
            setattr(encoder, "pooler", None)  # noqa: B010 - no attribute that torch knows
        model.float()  # type: ignore[no-untyped-call]
        allow_batches(model)
        return LoadedTask(encoder=encoder, head=SequenceHead(model, self.head))

    def reference(self) -> Callable[[Probe], Outputs]:
        model = Reference(self.source, ModelClass.SEQUENCE_CLASSIFIER)

        def run(probe: Probe) -> Outputs:
            return {"logits": model.run(probe).logits[0].numpy()}

        def run_mean(probe: Probe) -> Outputs:
            mean = model.run_encoder(probe).last_hidden_state[0].mean(0)
            return {"logits": (model.module("score")(mean) / self.head.temperature).numpy()}

        # transformers' class of these decoders reads the last token, the published one the mean.
        is_own = self.source.sees_both_ways and self.head.pooling is ClassifierPooling.MEAN
        return run_mean if is_own else run
