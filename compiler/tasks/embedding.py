"""Embedding models: pooled vectors, and the vector of every token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import Heads, Pooling, PoolingMode
from infinity_v3.compiler.heads import PoolingHead, load_dense, pool_single
from infinity_v3.compiler.parity import Outputs
from infinity_v3.compiler.reference import ModelClass, ModelSource, Reference, load_model
from infinity_v3.compiler.tasks.task import LoadedTask, Probe
from infinity_v3.model_specs.embedding_head import EmbeddingHead


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingTask:
    """See tasks.task.Task. `similarity` is what the checkpoint compares vectors with."""

    source: ModelSource
    head: EmbeddingHead
    similarity: str | None
    pair_template: None = None
    has_key_counts: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("pooled", *(f"pooled_{mode.value}" for mode in self.head.alternatives), "hidden")

    @property
    def heads(self) -> Heads:
        return Heads(
            pooling=Pooling(modes=self.head.modes, alternatives=self.head.alternatives),
            dimensions=self.head.dimensions,
            normalize=self.head.normalize,
            similarity=self.similarity or "cosine",
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.head.warnings

    def load(self, dtype: torch.dtype) -> LoadedTask:
        encoder = load_model(self.source, ModelClass.ENCODER, dtype=dtype, is_packed=True)
        poolings = (self.head.modes, *((mode,) for mode in self.head.alternatives))
        dense = [load_dense(layer) for layer in self.head.dense]
        return LoadedTask(encoder=encoder, head=PoolingHead(poolings, dense))

    def reference(self) -> Callable[[Probe], Outputs]:
        model = Reference(self.source, ModelClass.ENCODER)
        dense = [load_dense(layer) for layer in self.head.dense]

        def run(probe: Probe) -> Outputs:
            hidden = model.run(probe).last_hidden_state[0]
            rows = {"pooled": _vector(hidden, self.head.modes, dense)}
            for mode in self.head.alternatives:
                rows[f"pooled_{mode.value}"] = _vector(hidden, (mode,), dense)
            return rows | {"hidden": hidden.numpy()}

        return run


def _vector(
    hidden: Tensor, modes: Sequence[PoolingMode], dense: Sequence[nn.Module]
) -> NDArray[np.float32]:
    vector = torch.cat([pool_single(hidden, mode) for mode in modes])
    with torch.inference_mode():
        for layer in dense:
            vector = layer(vector)
    return vector.numpy().astype(np.float32)
