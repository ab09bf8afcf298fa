"""All gates of a channel, in order: those that read, then those that run the candidate.

Knows nothing of how a gate finds its figures.
"""

from dataclasses import dataclass

from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.gates.actors_gate import actor_figures
from infinity_v3.compiler.gates.golden_gate import golden_figures, golden_not_run
from infinity_v3.compiler.gates.parity_gate import parity_figures
from infinity_v3.compiler.gates.performance_gate import speed_figures, speed_not_run
from infinity_v3.compiler.gates.policy_files import GoldenFile
from infinity_v3.compiler.gates.promotion import Fetch, Promotion
from infinity_v3.compiler.gates.signature_gate import Trust, signature_figures
from infinity_v3.compiler.gates.targets_gate import target_figures
from infinity_v3.compiler.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInputs:
    """What gates are given beside the promotion.

    Attributes:
        trust: None = the policy asks for no signatures.
        golden: None = the policy names no golden requests.
        fetch: gives the directories of versions to the gates that run them.
    """

    trust: Trust | None
    golden: GoldenFile | None
    fetch: Fetch


def run_gates(
    promotion: Promotion, inputs: GateInputs, progress: Progress
) -> tuple[GateFigure, ...]:
    """Ask every gate of the channel's policy.

    Native code of a candidate runs only after its parity, its targets, its signatures and its
    promoter were found to be in order.

    Raises:
        RunFailedError: the registry cannot be read.
    """
    read = (
        *parity_figures(promotion),
        *target_figures(promotion),
        *signature_figures(promotion, inputs.trust),
        *actor_figures(promotion),
    )
    if not all(figure.passed for figure in read):
        not_run = (*golden_not_run(promotion, inputs.golden), *speed_not_run(promotion))
        return (*read, *not_run)
    golden = tuple(golden_figures(promotion, inputs.golden, inputs.fetch, progress))
    if not all(figure.passed for figure in golden):
        return (*read, *golden, *speed_not_run(promotion))
    return (*read, *golden, *speed_figures(promotion, inputs.fetch, progress))
