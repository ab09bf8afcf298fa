"""What the inputs of linear layers look like: the model reads texts, and the layers are watched.

Knows nothing of how numbers are quantized.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infinity_v3.compiler.int8.weights import PANEL, STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearGroup:
    """Linear layers that read the same tensor.

    Attributes:
        largest_inputs: (K,) float32, the largest absolute value of each input that was seen.
    """

    linears: tuple[nn.Linear, ...]
    largest_inputs: Tensor


def watch_linears(model: nn.Module, runs: Sequence[Callable[[], object]]) -> list[LinearGroup]:
    """Run a model and group the linear layers that gain by 8-bit products.

    Args:
        model: whose layers are watched.
        runs: each runs the whole model on one batch.
    """
    watch = _Watch()
    with watch.on(module for module in model.modules() if _gains(module)):
        for run in runs:
            run()
            watch.forget_tensors()
    return watch.groups()


def _gains(module: nn.Module) -> bool:
    """Exactly a linear layer: a subclass computes something else. Small ones are all overhead."""
    if type(module) is not nn.Linear:
        return False
    return module.in_features % STEP == 0 and module.out_features >= PANEL


class _Watch:
    """Notes inputs; layers are grouped by what they read in the first run."""

    def __init__(self) -> None:
        self._largest: dict[nn.Module, Tensor] = {}
        self._members: list[list[nn.Linear]] = []
        # Kept for the length of a run, so that no two of them have one identity.
        self._tensors: dict[int, tuple[Tensor, list[nn.Linear]]] = {}

    @contextmanager
    def on(self, linears: Iterator[nn.Module]) -> Iterator[None]:
        hooks = [linear.register_forward_pre_hook(self._note) for linear in linears]
        try:
            with torch.no_grad():
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _note(self, linear: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(linear, nn.Linear), "only linear layers are watched; this is a bug"
        (x,) = inputs
        largest = x.detach().abs().reshape(-1, x.shape[-1]).amax(dim=0).float()
        if linear in self._largest:
            self._largest[linear] = torch.maximum(self._largest[linear], largest)
            return
        self._largest[linear] = largest
        if id(x) not in self._tensors:
            self._tensors[id(x)] = (x, [])
            self._members.append(self._tensors[id(x)][1])
        self._tensors[id(x)][1].append(linear)

    def forget_tensors(self) -> None:
        self._tensors.clear()

    def groups(self) -> list[LinearGroup]:
        return [
            LinearGroup(
                linears=tuple(members),
                largest_inputs=torch.stack([self._largest[linear] for linear in members]).amax(0),
            )
            for members in self._members
        ]
