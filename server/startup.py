"""Takes models from configuration to ready: resolve, open, choose a target, load, warm up.

The blocking part runs in a thread; services are made on the event loop. Knows nothing of HTTP.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.host import HostCapabilities, detect_host
from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.target import (
    BackendChoice,
    DeviceChoice,
    DtypeChoice,
    Selection,
    TargetRequest,
    select_target,
)
from infinity_v3.artifacts.user_cache import user_cache
from infinity_v3.server.compile_child import CompileChild
from infinity_v3.server.config import Configuration, ModelConfig
from infinity_v3.server.engine_threads import wanted_threads
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.resolve import Resolver

if TYPE_CHECKING:
    from infinity_v3.artifacts.manifest import Manifest
    from infinity_v3.artifacts.store import Artifact
    from infinity_v3.runtime.loading import LoadedModel

PhaseReport = Callable[[str, Phase], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedModel:
    """A loaded model and how it came about.

    Attributes:
        name: public name.
        seconds: start-up seconds by phase.
    """

    name: str
    config: ModelConfig
    loaded: "LoadedModel"
    selection: Selection
    seconds: Mapping[str, float]


class ModelStarter:
    """Loads all models, one after the other."""

    def __init__(
        self, configuration: Configuration, child: CompileChild, report: PhaseReport
    ) -> None:
        self._configuration = configuration
        self._child = child
        self._report = report

    def load_all(self) -> tuple[StartedModel, ...]:
        """Load every model; blocking.

        Raises:
            InfinityError: the first model that cannot be served, or a public name given twice.
        """
        serve = self._configuration.serve
        host = detect_host()
        resolver = Resolver(serve.artifact_cache or user_cache(os.environ), host, self._child)
        started: list[StartedModel] = []
        for config in serve.models:
            started.append(self._load(config, host, resolver))
            _check_unique(started)
        return tuple(started)

    def _load(
        self, config: ModelConfig, host: HostCapabilities, resolver: Resolver
    ) -> StartedModel:
        serve = self._configuration.serve
        begun_s = time.perf_counter()
        resolved = resolver.resolve(config)
        artifact = open_artifact(
            resolved.path,
            digests=DigestPolicy(serve.verify_digests),
            allow_shared=serve.allow_shared_artifacts,
        )
        request = _target_request(config, artifact.manifest, allow_newer=serve.allow_newer_torch)
        selection = select_target(artifact.manifest, host, request)
        resolve_s = time.perf_counter() - begun_s - resolved.compile_s
        self._report(config.model_id, Phase.WARMING)
        loaded = self._load_target(artifact, selection, config)
        return StartedModel(
            name=config.served_model_name or artifact.manifest.name or config.model_id,
            config=config,
            loaded=loaded,
            selection=selection,
            seconds={
                "resolve": resolve_s,
                "compile": resolved.compile_s,
                **loaded.seconds,
            },
        )

    def _load_target(
        self, artifact: "Artifact", selection: Selection, config: ModelConfig
    ) -> "LoadedModel":
        from infinity_v3.runtime.batch_sizes import SizeSettings
        from infinity_v3.runtime.loading import LoadSettings, load_model

        settings = LoadSettings(
            sizes=SizeSettings(
                max_batch_tokens=config.max_batch_tokens,
                max_sequence_length=config.max_sequence_length,
                is_truncating=config.auto_truncate,
            ),
            pooling=None if config.pooling == "auto" else PoolingMode(config.pooling),
            default_prompt=config.default_prompt,
            default_prompt_name=config.default_prompt_name,
            num_threads=wanted_threads(config.cpu_threads_per_replica, os.environ),
        )
        return load_model(artifact, selection.target, settings)


def _target_request(
    config: ModelConfig, manifest: "Manifest", *, allow_newer: bool
) -> TargetRequest:
    backend = "aoti" if config.backend == "libtorch" else config.backend
    if backend not in {choice.value for choice in BackendChoice}:
        present = ", ".join(sorted({target.backend.value for target in manifest.targets}))
        raise UsageError(
            f"--backend {config.backend}: unknown engine format; the artifact has: {present}"
        )
    return TargetRequest(
        device=DeviceChoice(config.torch_device),
        dtype=DtypeChoice(config.dtype),
        backend=BackendChoice(backend),
        allow_newer_torch=allow_newer,
    )


def _check_unique(started: list[StartedModel]) -> None:
    *earlier, last = started
    if any(model.name == last.name for model in earlier):
        raise UsageError(
            f"two models would be served as {last.name!r}; tell them apart with --served-model-name"
        )
