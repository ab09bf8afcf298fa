"""What the checkpoint's own model says to every probe, in float32. Knows no engine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.decision_probes import ask
from infinity_v3.compiler.int8.texts import subject_texts
from infinity_v3.compiler.model_config import VERSION
from infinity_v3.compiler.parity import Outputs
from infinity_v3.compiler.probes import Probes, make_probes
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.tasks.task import Probe
from infinity_v3.model_specs.hub_config import HubConfig

if TYPE_CHECKING:
    from infinity_v3.compiler.pipeline import CompilePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOutputs:
    """Probes and the reference's outputs for the first `probes.referenced` of them."""

    name: str
    probes: Probes
    outputs: tuple[Outputs, ...]


def compute_reference(plan: "CompilePlan", progress: Progress) -> ReferenceOutputs:
    """Run the checkpoint's own model, one input at a time.

    Raises:
        UsageError: the checkpoint's weights are not complete, or its numbers give no model that can
            be run and says something finite.
    """
    config = plan.config
    padding = config.model.pad_token_id
    window = config.model.window
    probes = make_probes(
        config.tokenizer.tokenizer,
        vocab_size=config.model.vocab_size,
        num_parameters=plan.checkpoint.num_parameters,
        max_tokens=plan.limit.rule.max_tokens,
        windows=() if window is None else (window // 2, window),
        avoid=frozenset() if padding is None else frozenset({padding}),
        has_token_types=plan.has_token_types,
        has_key_counts=plan.task.has_key_counts,
        ranked_texts=subject_texts() if plan.is_ranked else (),
    )
    if plan.decision is not None:
        probes = ask(probes, plan.decision)
    with progress.stage("reference outputs", probes.referenced) as stage:
        run = plan.task.reference()
        outputs = []
        for position in range(probes.referenced):
            output = run(
                Probe(
                    ids=probes.ids[position],
                    types=probes.types[position],
                    key_count=probes.key_counts[position],
                    readouts=probes.readouts[position] if probes.readouts else None,
                )
            )
            _refuse_not_finite(config, output)
            outputs.append(output)
            stage.advance()
    return ReferenceOutputs(
        name=f"transformers {VERSION} float32 eager", probes=probes, outputs=tuple(outputs)
    )


def _refuse_not_finite(config: HubConfig, output: Outputs) -> None:
    for name, values in output.items():
        if not np.isfinite(values).all():
            raise UsageError(
                f"{config.model.file}: expected a model that gives finite numbers, found NaN or "
                f"infinity in its {name}; a number in the file or a weight is wrong: correct it or "
                "fetch the checkpoint again"
            )
