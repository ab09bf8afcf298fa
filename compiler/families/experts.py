"""Mixture of experts in a form that exports with a dynamic number of tokens.

Each expert computes only the tokens that were routed to it. Knows nothing of families.
"""

from typing import cast

import torch
from torch import Tensor, nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

EXPERTS_NAME = "infinity_split"


def register_experts() -> None:
    """Make EXPERTS_NAME usable as `experts_implementation` of transformers' models."""
    ALL_EXPERTS_FUNCTIONS.register(EXPERTS_NAME, _split_experts)


class Routing:
    """Which rows go to which expert, sorted once for all products of a mixture.

    Args:
        chosen: (T, K) int64, indices of experts.
        num_experts: E.
    """

    def __init__(self, chosen: Tensor, num_experts: int) -> None:
        pairs = chosen.flatten()
        self._order = pairs.argsort(stable=True)
        counts = (pairs[:, None] == torch.arange(num_experts, device=chosen.device)).sum(0)
        self._ends = counts.cumsum(0).to(torch.int32)
        self._shape = chosen.shape

    def gather(self, tokens: Tensor) -> Tensor:
        """(T, D) -> (T * K, D), by expert."""
        return tokens[self._order // self._shape[1]]

    def multiply(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Rows by expert (T * K, D), weights (E, D, N) -> (T * K, N)."""
        product: Tensor = torch.ops.infinity.grouped_mm(rows, weights, self._ends)
        return product

    def weigh(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Rows by expert (T * K, D), weights (T, K) -> sums of each token (T, D)."""
        outputs = rows[self._order.argsort()].reshape(*self._shape, -1)
        return (outputs * weights[..., None]).sum(1)


def _split_experts(
    module: nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    """The experts function of transformers, for gated experts without bias; (T, D) -> (T, D)."""
    _refuse_other_layouts(module)
    routing = Routing(top_k_index, int(module.num_experts))  # type: ignore[arg-type]
    gate_up, down = (
        cast("Tensor", w).transpose(1, 2) for w in (module.gate_up_proj, module.down_proj)
    )
    inner = routing.multiply(routing.gather(hidden_states), gate_up)
    outputs = routing.multiply(module._apply_gate(inner), down)  # type: ignore[operator]
    return routing.weigh(outputs, top_k_weights).to(hidden_states.dtype)


def _refuse_other_layouts(module: nn.Module) -> None:
    wanted = {"has_gate": True, "has_bias": False, "is_transposed": False}
    wanted["has_post_expert_norm"] = False
    other = [name for name, value in wanted.items() if getattr(module, name) != value]
    if other:
        raise NotImplementedError(
            f"{type(module).__name__} needs experts with another {', '.join(other)}"
        )
