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
from infinity_v3.artifacts.target import Selection
from infinity_v3.artifacts.user_cache import user_cache
from infinity_v3.server.compile_child import CompileChild
from infinity_v3.server.config import Configuration, ModelConfig
from infinity_v3.server.decision_options import check_protocol
from infinity_v3.server.engine_threads import wanted_threads
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.model_source import find_source
from infinity_v3.server.resolve import Resolved, Resolver
from infinity_v3.server.target_options import choose_target

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A model whose artifact is open and whose target is chosen; nothing of it is loaded."""

    name: str
    config: ModelConfig
    artifact: "Artifact"
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
        """Load every model once all of them are known to be loadable; blocking.

        Raises:
            InfinityError: the first model that cannot be served, or a public name given twice.
        """
        serve = self._configuration.serve
        host = detect_host()
        sources = [find_source(config.model_id, config.revision) for config in serve.models]
        resolver = Resolver(serve.artifact_cache or user_cache(os.environ), host, self._child)
        for config, source in zip(serve.models, sources, strict=True):
            resolver.check(source, config)
        prepared: list[_Prepared] = []
        for config, source in zip(serve.models, sources, strict=True):
            prepared.append(self._prepare(config, resolver.resolve(source, config), host))
            _check_unique(prepared)
        return tuple(self._load(one) for one in prepared)

    def _prepare(
        self, config: ModelConfig, resolved: Resolved, host: HostCapabilities
    ) -> _Prepared:
        serve = self._configuration.serve
        begun_s = time.perf_counter()
        artifact = open_artifact(
            resolved.path,
            digests=DigestPolicy(serve.verify_digests),
            allow_shared=serve.allow_shared_artifacts,
        )
        check_protocol(config.decision_protocol, artifact.manifest)
        selection = choose_target(
            config, artifact.manifest, host, allow_newer_torch=serve.allow_newer_torch
        )
        return _Prepared(
            name=config.served_model_name or artifact.manifest.name or config.model_id,
            config=config,
            artifact=artifact,
            selection=selection,
            seconds={
                "resolve": resolved.resolve_s + time.perf_counter() - begun_s,
                "compile": resolved.compile_s,
            },
        )

    def _load(self, prepared: _Prepared) -> StartedModel:
        self._report(_known_name(prepared.config), Phase.WARMING)
        loaded = self._load_target(prepared.artifact, prepared.selection, prepared.config)
        return StartedModel(
            name=prepared.name,
            config=prepared.config,
            loaded=loaded,
            selection=prepared.selection,
            seconds={**prepared.seconds, **loaded.seconds},
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
            num_replicas=config.cpu_replicas or 1,
        )
        return load_model(artifact, selection.target, settings)


def _known_name(config: ModelConfig) -> str:
    """What a model goes by until its artifact has been read."""
    return config.served_model_name or config.model_id


def _check_unique(prepared: list[_Prepared]) -> None:
    *earlier, last = prepared
    if any(model.name == last.name for model in earlier):
        raise UsageError(
            f"two models would be served as {last.name!r}; tell them apart with --served-model-name"
        )
