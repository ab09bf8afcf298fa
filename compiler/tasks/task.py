"""The seam between the pipeline and a kind of artifact."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from infinity_v3.artifacts.manifest import Heads, PairTemplate
from infinity_v3.compiler.parity import Outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One input of the comparison with the reference.

    Attributes:
        ids: (S,) int64.
        types: (S,) int64, None = all zeros.
        key_count: how many leading tokens are seen by the others; None = all.
        readouts: (K,) int64, positions of the tokens that are read; None = none is named.
    """

    ids: NDArray[np.int64]
    types: NDArray[np.int64] | None = None
    key_count: int | None = None
    readouts: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTask:
    """What a packed model is made of.

    Attributes:
        encoder: called with packed rows, gives last_hidden_state (1, N, D).
        head: (hidden (N, D), Packing) -> the outputs, in order.
    """

    encoder: nn.Module
    head: nn.Module


class Task(Protocol):
    """One checkpoint under one task."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs, in order; see parity.output_kind."""
        ...

    @property
    def heads(self) -> Heads:
        """What post-processing needs."""
        ...

    @property
    def pair_template(self) -> PairTemplate | None:
        """How pairs become texts; None = as the tokenizer has it."""
        ...

    @property
    def has_key_counts(self) -> bool:
        """Whether tokens of an input may be hidden from the others."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the user."""
        ...

    def load(self, dtype: torch.dtype) -> LoadedTask:
        """Load the model for packing.

        Raises:
            UsageError: the weights are not those that the configuration announces.
        """
        ...

    def reference(self) -> Callable[[Probe], Outputs]:
        """Load the checkpoint's own model in float32, to be run on one input at a time."""
        ...
