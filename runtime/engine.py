"""The seam between batching and an engine format. Knows nothing of texts, requests or threads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import Backend, Device, Graph, Limits, Target
from infinity_v3.artifacts.store import Artifact
from infinity_v3.runtime.batch import Batch
from infinity_v3.runtime.engine_errors import EngineError, EngineLoadError

__all__ = [
    "Engine",
    "EngineError",
    "EngineLoadError",
    "EngineOutput",
    "EngineSettings",
    "load_engine",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOutput:
    """Outputs of one call by name, as the manifest's graph declares them.

    Arrays are C-contiguous and owned by the receiver. bfloat16 outputs arrive as float32.
    """

    tensors: Mapping[str, NDArray[np.float32]]


class Engine(Protocol):
    """One loaded target.

    Obligations: `run` is called by as many threads at a time as there are replicas; by the event
    loop's only for a short call while all others are idle. It releases the GIL while the model
    runs. It raises `EngineError` for a batch that failed, after which the engine must still be
    usable. `close` may be called once, from any thread, when no `run` is under way.
    """

    graph: Graph
    limits: Limits

    def run(
        self, batch: Batch, outputs: frozenset[str], *, num_threads: int | None = None
    ) -> EngineOutput:
        """Run one packed batch; only the outputs named are copied out.

        Args:
            batch: what is computed.
            outputs: names of those that are wanted.
            num_threads: of this call, where the engine has threads; None = as it was loaded.
        """
        ...

    def release_threads(self) -> None:
        """Give up what waits for calls of the calling thread, which will make none for a while."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Host-dependent choices.

    Attributes:
        num_threads: OpenMP team of one engine call.
        num_replicas: calls that may run at the same time, on one set of weights.
        spin_count: how often its idle threads look for work before they sleep; None = a default.
            Within one process the first engine decides, and the user's environment before it.
    """

    num_threads: int
    num_replicas: int = 1
    spin_count: int | None = None


def load_engine(artifact: Artifact, target: Target, settings: EngineSettings) -> Engine:
    """Open the engine of one target.

    Raises:
        EngineLoadError: the library refused the file, or a symbol or constant is missing.
    """
    if target.backend is Backend.AOTI and target.device is Device.CPU:
        from infinity_v3.runtime.engines.aoti_cpu import AotiCpuEngine

        return AotiCpuEngine(artifact, target, settings)
    raise EngineLoadError(
        f"target {target.name}: backend {target.backend.value} on {target.device.value} is not in "
        "this release; compile the artifact for a cpu target"
    )
