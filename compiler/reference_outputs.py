"""What the checkpoint's own model says to every probe, in float32. Knows no engine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.compiler.heads import load_dense, pool_single
from infinity_v3.compiler.parity import Outputs
from infinity_v3.compiler.probes import Probes, make_probes
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.reference import VERSION, Reference
from infinity_v3.model_specs.embedding_head import EmbeddingHead
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.length_limit import LengthLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOutputs:
    """Probes and the reference's outputs for the first `probes.referenced` of them."""

    name: str
    probes: Probes
    outputs: tuple[Outputs, ...]


def compute_reference(
    config: HubConfig, head: EmbeddingHead, limit: LengthLimit, progress: Progress
) -> ReferenceOutputs:
    """Run the checkpoint's own model, one text at a time.

    Raises:
        UsageError: the checkpoint's weights are not complete.
    """
    padding = config.model.pad_token_id
    probes = make_probes(
        config.tokenizer.tokenizer,
        vocab_size=config.model.vocab_size,
        max_tokens=limit.rule.max_tokens,
        avoid=frozenset() if padding is None else frozenset({padding}),
    )
    with progress.stage("reference outputs", probes.referenced) as stage:
        reference = Reference(config.encoder_path)
        dense = [load_dense(layer) for layer in head.dense]
        outputs = []
        for ids in probes.ids[: probes.referenced]:
            outputs.append(_outputs(reference.hidden(torch.from_numpy(ids)), head, dense))
            stage.advance()
    return ReferenceOutputs(
        name=f"transformers {VERSION} float32 eager", probes=probes, outputs=tuple(outputs)
    )


def _outputs(hidden: Tensor, head: EmbeddingHead, dense: Sequence[nn.Module]) -> Outputs:
    rows: dict[str, NDArray[np.float32]] = {"pooled": _vector(hidden, head.modes, dense)}
    rows |= {f"pooled_{mode.value}": _vector(hidden, (mode,), dense) for mode in head.alternatives}
    return rows | {"hidden": hidden.numpy()}


def _vector(
    hidden: Tensor, modes: Sequence[PoolingMode], dense: Sequence[nn.Module]
) -> NDArray[np.float32]:
    vector = torch.cat([pool_single(hidden, mode) for mode in modes])
    with torch.inference_mode():
        for layer in dense:
            vector = layer(vector)
    return vector.numpy().astype(np.float32)
