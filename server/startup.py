"""Takes models from configuration to ready: resolve, open, choose a target, load, warm up.

Blocking, so it runs in a thread; services are made on the event loop. Knows nothing of HTTP.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Manifest, PoolingMode
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.target import Selection
from infinity_v3.server.children import Children, artifact_cache
from infinity_v3.server.config import Configuration, ModelConfig
from infinity_v3.server.decision_options import check_protocol
from infinity_v3.server.engine_threads import wanted_threads
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.model_source import find_source
from infinity_v3.server.pulled import ArtifactUse, PulledArtifact
from infinity_v3.server.registry_options import check_registry_options, check_watched
from infinity_v3.server.resolve import Resolved, Resolver
from infinity_v3.server.signature import check_key, check_signature
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
        use: of an artifact that a registry gave; ended by whoever closes the engine.
    """

    name: str
    config: ModelConfig
    loaded: "LoadedModel"
    selection: Selection
    seconds: Mapping[str, float]
    use: ArtifactUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A model whose artifact is open and whose target is chosen; nothing of it is loaded."""

    name: str
    config: ModelConfig
    artifact: "Artifact"
    selection: Selection
    seconds: Mapping[str, float]
    use: ArtifactUse | None


class ModelStarter:
    """Loads all models, one after the other, and later what takes over from one of them."""

    def __init__(
        self, configuration: Configuration, children: Children, report: PhaseReport
    ) -> None:
        self._configuration = configuration
        self._children = children
        self._report = report

    @cached_property
    def _resolver(self) -> Resolver:
        cache = artifact_cache(self._configuration.serve)
        return Resolver(cache, detect_host(), self._children)

    def load_all(self) -> tuple[StartedModel, ...]:
        """Load every model once all of them are known to be loadable; blocking.

        Raises:
            InfinityError: the first model that cannot be served, or a public name given twice.
        """
        serve, resolver = self._configuration.serve, self._resolver
        if serve.require_signature is not None:
            check_key(serve.require_signature)
        found = [find_source(config.model_id, config.revision) for config in serve.models]
        sources = [
            resolver.check(source, config)
            for config, source in zip(serve.models, found, strict=True)
        ]
        for config, source in zip(serve.models, sources, strict=True):
            check_registry_options(config, source, serve.require_signature)
        prepared: list[_Prepared] = []
        for config, source in zip(serve.models, sources, strict=True):
            resolved = resolver.resolve(source, config)
            if resolved.use is not None:
                check_watched(config, resolved.use.artifact)
            prepared.append(self._prepare(config, resolved))
            _check_unique(prepared)
        return tuple(self._load_first(one) for one in prepared)

    def load_beside(self, current: StartedModel, pulled: PulledArtifact) -> StartedModel:
        """Load what is to take over from a model, under its name and with its options; blocking.

        Raises:
            InfinityError: it cannot be served in its place.
        """
        use = self._resolver.hold(pulled)
        try:
            resolved = Resolved(path=pulled.path, use=use)
            prepared = replace(self._prepare(current.config, resolved), name=current.name)
            _check_same_kind(current, prepared.artifact.manifest)
            return self._load(prepared)
        except BaseException:
            use.end()
            raise

    def _prepare(self, config: ModelConfig, resolved: Resolved) -> _Prepared:
        serve, host = self._configuration.serve, self._resolver.host
        begun_s = time.perf_counter()
        artifact = open_artifact(
            resolved.path,
            digests=DigestPolicy(serve.verify_digests),
            allow_shared=serve.allow_shared_artifacts,
        )
        if serve.require_signature is not None and resolved.use is None:
            # What was pulled was verified where its signatures lie.
            check_signature(artifact, serve.require_signature)
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
            use=resolved.use,
        )

    def _load_first(self, prepared: _Prepared) -> StartedModel:
        self._report(_known_name(prepared.config), Phase.WARMING)
        return self._load(prepared)

    def _load(self, prepared: _Prepared) -> StartedModel:
        loaded = self._load_target(prepared.artifact, prepared.selection, prepared.config)
        return StartedModel(
            name=prepared.name,
            config=prepared.config,
            loaded=loaded,
            selection=prepared.selection,
            seconds={**prepared.seconds, **loaded.seconds},
            use=prepared.use,
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
            num_replicas=config.cpu_replicas,
        )
        return load_model(artifact, selection.target, settings)


def _known_name(config: ModelConfig) -> str:
    """What a model goes by until its artifact has been read."""
    return config.served_model_name or config.model_id


def _check_same_kind(current: StartedModel, manifest: Manifest) -> None:
    kind = current.loaded.info.kind
    if manifest.kind is not kind:
        raise RefusedError(
            f"expected an artifact of kind {kind.value}, as is served, found "
            f"{manifest.kind.value}; its routes are others: restart the server to serve it"
        )


def _check_unique(prepared: list[_Prepared]) -> None:
    *earlier, last = prepared
    if any(model.name == last.name for model in earlier):
        raise UsageError(
            f"two models would be served as {last.name!r}; tell them apart with --served-model-name"
        )
