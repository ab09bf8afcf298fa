"""Rerankers that answer yes or no: a causal language model whose score is that of two words.

Score = softmax over the two words' logits after the last token, which equals the sigmoid of their
difference (Qwen3 Embedding technical report, 2025, section 2). Only the two rows of the language
model head are compiled.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import Heads, PairTemplate, PoolingMode, ScoreActivation
from infinity_v3.compiler.heads import pool
from infinity_v3.compiler.packing import Packing
from infinity_v3.compiler.parity import Outputs
from infinity_v3.compiler.reference import (
    ModelClass,
    ModelSource,
    Reference,
    encoder_of,
    load_model,
    output_projection,
)
from infinity_v3.compiler.tasks.task import LoadedTask, Probe
from infinity_v3.model_specs.yes_no_head import YesNoHead


class YesNoScore(nn.Module):
    """logit(yes) - logit(no) after the last token, in float32: (N, D) -> (B, 1).

    Args:
        rows: (2, D), the rows of "yes" and "no" of the language model head; (1, D) where the score
            is the logit of "yes" alone.
        bias: (2,) or (1,) of the same rows, if the head has one.
        softcap: logits become softcap * tanh(logits / softcap); None = they stay.
    """

    def __init__(self, rows: Tensor, bias: Tensor | None, softcap: float | None) -> None:
        super().__init__()
        self.register_buffer("rows", rows.float().clone())
        self.register_buffer("bias", None if bias is None else bias.float().clone())
        self.softcap = softcap

    def forward(self, hidden: Tensor, packing: Packing) -> tuple[Tensor]:
        """Log-odds (B, 1) float32."""
        last = pool(hidden, packing, PoolingMode.LAST_TOKEN)
        logits = nn.functional.linear(last, self.rows, self.bias)  # type: ignore[arg-type]
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return (logits if logits.shape[1] == 1 else logits[:, :1] - logits[:, 1:],)


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNoTask:
    """See tasks.task.Task."""

    source: ModelSource
    head: YesNoHead
    has_key_counts: bool = False

    @property
    def pair_template(self) -> PairTemplate | None:
        return self.head.pair_template

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.head.warnings

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("logits",)

    @property
    def heads(self) -> Heads:
        return Heads(
            labels=(self.head.yes,),
            opposite_label=self.head.no,
            activation=ScoreActivation.SIGMOID,
        )

    def load(self, dtype: torch.dtype) -> LoadedTask:
        model = load_model(self.source, ModelClass.CAUSAL_LM, dtype=dtype, is_packed=True)
        projection = output_projection(model)
        chosen = [self.head.yes_id]
        if self.head.no_id is not None:
            chosen.append(self.head.no_id)
        bias: Tensor | None = getattr(projection, "bias", None)
        softcap = getattr(model.config, "final_logit_softcapping", None)
        head = YesNoScore(
            projection.weight[chosen], None if bias is None else bias[chosen], softcap
        )
        return LoadedTask(encoder=encoder_of(model), head=head)

    def reference(self) -> Callable[[Probe], Outputs]:
        model = Reference(self.source, ModelClass.CAUSAL_LM)

        def run(probe: Probe) -> Outputs:
            logits = model.run(probe).logits[0, -1]
            taken_off = 0.0 if self.head.no_id is None else logits[self.head.no_id]
            return {"logits": (logits[self.head.yes_id] - taken_off)[None].numpy()}

        return run
