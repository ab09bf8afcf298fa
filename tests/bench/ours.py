"""Our engine: texts in, pooled and normalised vectors out. Loads no Python torch."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.target import DtypeChoice, TargetRequest, select_target
from infinity_v3.runtime.batch import EncodedText, pack
from infinity_v3.runtime.engine import EngineSettings, load_engine

Texts = tuple[NDArray[np.int64], ...]


def ours(
    path: Path, dtype: str, num_threads: int
) -> tuple[Callable[[Texts], NDArray[np.float32]], str]:
    """Open the target that the server would choose, with the threads that it would set up."""
    artifact = open_artifact(path)
    request = TargetRequest(dtype=DtypeChoice(dtype))
    target = select_target(artifact.manifest, detect_host(), request).target
    engine = load_engine(artifact, target, EngineSettings(num_threads=num_threads))
    offset = artifact.manifest.model.position_offset

    def encode(texts: Texts) -> NDArray[np.float32]:
        batch = pack([EncodedText(input_ids=ids) for ids in texts], position_offset=offset)
        pooled = engine.run(batch, frozenset({"pooled"})).tensors["pooled"]
        normalised: NDArray[np.float32] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return normalised

    return encode, f"{target.name}, torch {target.requires.torch}"
