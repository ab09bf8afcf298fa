"""Mixture of experts in a form that exports with a dynamic number of tokens.

Each expert computes only the tokens that were routed to it: the exported graph splits them by sizes
known when it runs. Knows nothing of families.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

EXPERTS_NAME = "infinity_split"


def register_experts() -> None:
    """Make EXPERTS_NAME usable as `experts_implementation` of transformers' models."""
    ALL_EXPERTS_FUNCTIONS.register(EXPERTS_NAME, _split_experts)


def run_experts(
    hidden: Tensor,
    chosen: Tensor,
    num_experts: int,
    expert: Callable[[int, Tensor], Tensor],
) -> Tensor:
    """Send each token through the experts that were chosen for it.

    Args:
        hidden: (T, D).
        chosen: (T, K) int64, indices of experts.
        expert: expert number and its tokens (N, D) -> (N, D').

    Returns:
        (T, K, D'), unweighted.
    """
    pairs = chosen.flatten()
    order = pairs.argsort(stable=True)
    sizes = nn.functional.one_hot(pairs, num_experts).sum(0).tolist()
    for size in sizes:
        # What the exporter cannot see in numbers that are known at run time only.
        torch._check(size >= 0)  # type: ignore[no-untyped-call]
        torch._check(size <= pairs.shape[0])  # type: ignore[no-untyped-call]
    routed = torch.split(hidden[order // chosen.shape[1]], sizes)
    computed = torch.cat([expert(number, tokens) for number, tokens in enumerate(routed)])
    return computed[order.argsort()].reshape(*chosen.shape, -1)


def _split_experts(
    module: nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    """The experts function of transformers, for gated experts without bias; (T, D) -> (T, D)."""
    _refuse_other_layouts(module)
    gate_up, down = module.gate_up_proj, module.down_proj

    def expert(number: int, tokens: Tensor) -> Tensor:
        inner = module._apply_gate(nn.functional.linear(tokens, gate_up[number]))  # type: ignore[index, operator]
        return nn.functional.linear(inner, down[number])  # type: ignore[index]

    outputs = run_experts(hidden_states, top_k_index, int(module.num_experts), expert)  # type: ignore[arg-type]
    return (outputs * top_k_weights[..., None]).sum(1).to(hidden_states.dtype)


def _refuse_other_layouts(module: nn.Module) -> None:
    wanted = {"has_gate": True, "has_bias": False, "is_transposed": False}
    wanted["has_post_expert_norm"] = False
    other = [name for name, value in wanted.items() if getattr(module, name) != value]
    if other:
        raise NotImplementedError(
            f"{type(module).__name__} needs experts with another {', '.join(other)}"
        )
