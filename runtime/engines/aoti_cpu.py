"""Runs an AOTInductor library on the CPU, without Python torch in the process.

Owns the engine's native objects. Knows nothing of texts, requests or threads.
"""

import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import Precision, Target, TensorSpec
from infinity_v3.artifacts.native import NativeFile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.runtime.batch import Batch
from infinity_v3.runtime.engine import EngineOutput, EngineSettings
from infinity_v3.runtime.engine_errors import EngineLoadError
from infinity_v3.runtime.engines.batch_checks import check_bounds
from infinity_v3.runtime.engines.filling import MIN_TOKENS, fill_up, rounded_tokens
from infinity_v3.runtime.engines.kernel_library import load_kernel_library
from infinity_v3.runtime.engines.libtorch import (
    CompiledModel,
    Handle,
    LibTorch,
    find_torch_libraries,
)
from infinity_v3.runtime.engines.shared_weights import SharedWeights
from infinity_v3.runtime.engines.spinning import limit_spinning


class AotiCpuEngine:
    """One loaded CPU target; see runtime.engine.Engine for who may call."""

    def __init__(self, artifact: Artifact, target: Target, settings: EngineSettings) -> None:
        """Load libraries, model and shared weights.

        Raises:
            EngineLoadError: a library refused to load, or its signature is not the manifest's.
        """
        self.graph = artifact.manifest.graph
        self.limits = target.limits
        self._input_names = frozenset(spec.name for spec in self.graph.inputs)
        self._facts = artifact.manifest.model
        self._num_threads = settings.num_threads
        self._num_replicas = settings.num_replicas
        # float32 products go to a library that keeps nothing per shape.
        self._rounds_tokens = target.precision is not Precision.FLOAT32
        self._outputs = tuple(_as_target_declares(spec, target) for spec in self.graph.outputs)
        limit_spinning(settings.spin_count, os.environ)
        self._torch = LibTorch(find_torch_libraries())
        self._resources = ExitStack()
        try:
            self._load(artifact, target)
        except BaseException:
            self._resources.close()
            raise

    def _load(self, artifact: Artifact, target: Target) -> None:
        for entry in target.files:
            if Path(entry.path).name.startswith("libinfinity-kernels-"):
                load_kernel_library(self._open(artifact, entry.path).path, entry)
        folder = (artifact.path / target.entry).parent
        self._model = CompiledModel(
            self._open(artifact, target.entry).path, folder, num_instances=self._num_replicas
        )
        self._resources.callback(self._model.close)
        self._check_signature(target)
        if target.weights is not None:
            self._map_weights(artifact, target)

    def _open(self, artifact: Artifact, relative_path: str) -> NativeFile:
        return self._resources.enter_context(artifact.open_native(relative_path))

    def _check_signature(self, target: Target) -> None:
        found = (self._model.count("Inputs"), self._model.count("Outputs"))
        expected = (len(self.graph.inputs), len(self.graph.outputs))
        if found != expected:
            raise EngineLoadError(
                f"target {target.name}: expected {expected[0]} inputs and {expected[1]} outputs, "
                f"found {found[0]} and {found[1]}; compile the artifact again"
            )

    def _map_weights(self, artifact: Artifact, target: Target) -> None:
        """Supply constants before the first run: a model without them would crash the process."""
        path = next(
            entry.path for entry in artifact.manifest.weights if entry.precision is target.weights
        )
        self._weights = weights = SharedWeights(artifact.path / path)
        names = self._model.constant_names()
        absent = sorted(set(names) - set(weights.tensors))
        if absent:
            raise EngineLoadError(
                f"target {target.name}: {path} lacks the weight {absent[0]}; "
                "compile the artifact again"
            )
        mapped = {name: weights.tensors[original] for original, name in names.items()}
        constants = {
            name: self._torch.wrap_constant(tensor.address, tensor.shape, tensor.dtype)
            for name, tensor in mapped.items()
        }
        for handle in constants.values():
            self._resources.callback(self._torch.release, handle)
        # The model is closed before its constants are released: last in, first out.
        self._resources.callback(self._model.close)
        self._model.use_constants(constants)

    def run(
        self, batch: Batch, outputs: frozenset[str], *, num_threads: int | None = None
    ) -> EngineOutput:
        """Run one batch.

        Raises:
            EngineError: the batch breaks a bound of the model or the engine, or the model failed.
        """
        check_bounds(batch, self._facts, self.limits, self._input_names)
        self._torch.set_num_threads(num_threads or self._num_threads)
        padded = self._fill_up(batch)
        arrays = [getattr(padded, spec.name) for spec in self.graph.inputs]
        inputs: list[Handle] = []
        for array in arrays:
            inputs.append(self._torch.wrap_vector(array))
        handles = self._model.run(inputs, len(self._outputs))
        try:
            return self._collect(batch, padded, handles, outputs)
        finally:
            for handle in handles:
                self._torch.release(handle)

    def release_threads(self) -> None:
        """End the threads that wait for calls of the calling thread."""
        self._torch.release_threads()

    def _fill_up(self, batch: Batch) -> Batch:
        """Bring the batch to sizes that the graph takes well."""
        return fill_up(
            batch,
            num_stored=self._engine_size(batch.num_stored_tokens),
            num_tokens=self._engine_size(batch.num_tokens),
            position_offset=self._facts.position_offset,
        )

    def _engine_size(self, num_tokens: int) -> int:
        if not self._rounds_tokens:
            return max(MIN_TOKENS, num_tokens)
        return min(rounded_tokens(num_tokens), self.limits.max_tokens)

    def _collect(
        self, batch: Batch, padded: Batch, handles: list[Handle], outputs: frozenset[str]
    ) -> EngineOutput:
        tensors: dict[str, NDArray[np.float32]] = {}
        for spec, handle in zip(self._outputs, handles, strict=True):
            if spec.name in outputs:
                rows, wanted = (_num_rows(spec, filled) for filled in (padded, batch))
                tensors[spec.name] = self._torch.copy_matrix(
                    handle, rows, int(spec.dims[1]), spec.dtype
                )[:wanted]
        return EngineOutput(tensors=tensors)

    def close(self) -> None:
        """Free the model; no run may be under way."""
        self._resources.close()


def _num_rows(spec: TensorSpec, batch: Batch) -> int:
    sizes = {"T": batch.num_tokens, "M": len(batch.readout_positions)}
    return sizes.get(str(spec.dims[0]), batch.num_sequences)


def _as_target_declares(spec: TensorSpec, target: Target) -> TensorSpec:
    """Token outputs leave the graph as the engine has them; everything else is float32."""
    if spec.name != "hidden":
        return spec
    dtype = "float32" if target.precision is Precision.FLOAT32 else "bfloat16"
    return TensorSpec(name=spec.name, dtype=dtype, dims=spec.dims)
