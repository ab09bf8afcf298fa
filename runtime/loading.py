"""Artifact and target in, model ready to run out: engine, tokenizer and the facts about them.

Knows nothing of requests, queues or HTTP.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from infinity_v3.artifacts.errors import RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.manifest import Kind, Manifest, PoolingMode, Target
from infinity_v3.artifacts.profile import read_profile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.runtime.batch import EncodedText, pack
from infinity_v3.runtime.batch_sizes import (
    BatchSizes,
    SizeSettings,
    check_least_length,
    resolve_sizes,
)
from infinity_v3.runtime.engine import (
    Engine,
    EngineError,
    EngineLoadError,
    EngineSettings,
    load_engine,
)
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.prompts import PromptTable, resolve_prompts
from infinity_v3.runtime.timing import PhaseTimer
from infinity_v3.runtime.tokenizer import TextTokenizer

POOLED_OUTPUT = "pooled"
HIDDEN_OUTPUT = "hidden"
WARMUP_TOKENS = 64
LOCAL_SOURCE = "local"
"""What a manifest records instead of a repository for a checkpoint directory."""

EngineLoader = Callable[[Artifact, Target, EngineSettings], Engine]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What the user decides about one model; None = the artifact's or the host's default.

    Attributes:
        pooling: one of the poolings compiled in.
        default_prompt: literal prefix for requests that name no prompt; "" = none.
        default_prompt_name: key of the artifact's prompt table; excludes `default_prompt`.
        num_threads: threads of one engine call; None = as measured, else all CPUs of this process.
    """

    sizes: SizeSettings = field(default_factory=SizeSettings)
    pooling: PoolingMode | None = None
    default_prompt: str | None = None
    default_prompt_name: str | None = None
    num_threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that can run. Whoever holds it closes the engine, once.

    Attributes:
        pooled_output: engine output that holds one vector per input; None where the model has none.
        measured_tokens_per_s: throughput of the target as its profile records it, if it does.
        notes: one sentence for each default that had to give way; for the start-up log.
        seconds: start-up seconds by phase, "load" and "warmup".
    """

    engine: Engine
    tokenizer: TextTokenizer
    prompts: PromptTable
    info: ModelInfo
    position_offset: int
    pooled_output: str | None
    measured_tokens_per_s: float | None = None
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pooled:
    output: str
    width: int | None
    modes: tuple[PoolingMode, ...]


def load_model(
    artifact: Artifact,
    target: Target,
    settings: LoadSettings,
    *,
    engine_loader: EngineLoader = load_engine,
) -> LoadedModel:
    """Open one target of an artifact and run it once.

    Raises:
        UsageError: a setting contradicts the artifact. Found before anything is opened, but for
            a length that the tokenizer's special tokens use up.
        RefusedError: the engine or the tokenizer cannot be opened on this host.
        RunFailedError: the warm-up call failed.
    """
    manifest = artifact.manifest
    measured = read_profile(artifact.path).of(target.name)
    sizes = resolve_sizes(manifest, target, settings.sizes, measured)
    pooled = _resolve_pooling(manifest, settings.pooling)
    prompts = resolve_prompts(
        manifest.prompts,
        default_prompt=settings.default_prompt,
        default_prompt_name=settings.default_prompt_name,
    )
    timer = PhaseTimer()
    with timer.phase("load"):
        num_threads = settings.num_threads or measured.num_threads
        engine, tokenizer = _open(artifact, target, sizes, num_threads, engine_loader)
    with timer.phase("warmup"):
        _warm_up(engine, manifest, sizes, target.name)
    return LoadedModel(
        engine=engine,
        tokenizer=tokenizer,
        prompts=prompts,
        info=_describe(artifact, target, sizes, pooled, prompts),
        position_offset=manifest.model.position_offset,
        pooled_output=None if pooled is None else pooled.output,
        measured_tokens_per_s=measured.tokens_per_s,
        notes=sizes.notes,
        seconds=timer.seconds,
    )


def _open(
    artifact: Artifact,
    target: Target,
    sizes: BatchSizes,
    num_threads: int | None,
    engine_loader: EngineLoader,
) -> tuple[Engine, TextTokenizer]:
    engine_settings = EngineSettings(num_threads=num_threads or len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="infinity-load") as pool:
        reading = pool.submit(_read_tokenizer, artifact, sizes.max_input_tokens)
        try:
            engine = engine_loader(artifact, target, engine_settings)
        except EngineLoadError as error:
            raise RefusedError(f"target {target.name} cannot be loaded: {error}") from error
        try:
            tokenizer = reading.result()
            check_least_length(sizes, tokenizer.num_special_tokens + 1)
        except (RefusedError, UsageError):
            engine.close()
            raise
        return engine, tokenizer


def _read_tokenizer(artifact: Artifact, max_input_tokens: int) -> TextTokenizer:
    manifest = artifact.manifest
    path = artifact.path / manifest.tokenizer.file
    try:
        return TextTokenizer.from_file(
            path, vocab_size=manifest.model.vocab_size, max_input_tokens=max_input_tokens
        )
    except Exception as error:  # the tokenizers library raises no narrower type
        raise RefusedError(f"{path}: expected a tokenizer.json, found: {error}") from error


def _resolve_pooling(manifest: Manifest, wanted: PoolingMode | None) -> _Pooled | None:
    pooling = manifest.heads.pooling
    if pooling is None:
        if wanted is not None:
            raise UsageError(f"--pooling {wanted.value}: artifact {manifest.name} pools nothing")
        return None
    if wanted is None or pooling.modes == (wanted,):
        return _Pooled(output=POOLED_OUTPUT, width=manifest.heads.dimensions, modes=pooling.modes)
    output = f"{POOLED_OUTPUT}_{wanted.value}"
    width = _output_width(manifest, output)
    if wanted not in pooling.alternatives or width is None:
        raise UsageError(_missing_pooling(manifest, wanted))
    return _Pooled(output=output, width=width, modes=(wanted,))


def _missing_pooling(manifest: Manifest, wanted: PoolingMode) -> str:
    pooling = manifest.heads.pooling
    assert pooling is not None, "a pooling was looked for where none is; this is a bug"
    names = ["+".join(mode.value for mode in pooling.modes)]
    names += [mode.value for mode in pooling.alternatives]
    repository = manifest.source.repository
    source = "CHECKPOINT" if repository == LOCAL_SOURCE else repository
    return (
        f"--pooling {wanted.value}: expected one compiled into artifact {manifest.name} "
        f"({', '.join(names)}); compile it in: infinity-compile model {source} "
        f"--pooling {names[0]} --pooling {wanted.value} --out DIR"
    )


def _output_width(manifest: Manifest, name: str) -> int | None:
    for spec in manifest.graph.outputs:
        if spec.name == name and isinstance(spec.dims[-1], int):
            return spec.dims[-1]
    return None


def _warm_up(engine: Engine, manifest: Manifest, sizes: BatchSizes, target_name: str) -> None:
    """Run two short inputs once, so that the first request finds pages and threads in place."""
    num_tokens = min(WARMUP_TOKENS // 2, sizes.max_input_tokens)
    count = min(2, engine.limits.max_sequences, sizes.max_batch_tokens // num_tokens)
    text = EncodedText(input_ids=np.zeros(num_tokens, dtype=np.int64))
    batch = pack([text] * count, position_offset=manifest.model.position_offset)
    outputs = frozenset(spec.name for spec in engine.graph.outputs)
    try:
        engine.run(batch, outputs)
    except EngineError as error:
        engine.close()
        raise RunFailedError(f"target {target_name}: the warm-up call failed: {error}") from error


def _describe(
    artifact: Artifact,
    target: Target,
    sizes: BatchSizes,
    pooled: _Pooled | None,
    prompts: PromptTable,
) -> ModelInfo:
    manifest = artifact.manifest
    return ModelInfo(
        name=manifest.name,
        kind=manifest.kind,
        artifact_id=artifact.artifact_id,
        format_version=manifest.format_version,
        target_name=target.name,
        backend=target.backend,
        device=target.device,
        precision=target.precision,
        vocab_size=manifest.model.vocab_size,
        max_input_tokens=sizes.max_input_tokens,
        max_batch_tokens=sizes.max_batch_tokens,
        fill_tokens=sizes.fill_tokens,
        max_batch_items=target.limits.max_sequences,
        width=None if pooled is None else pooled.width,
        pooling=() if pooled is None else pooled.modes,
        prompt_names=prompts.names,
        capabilities=_capabilities(manifest),
        source_revision=manifest.source.revision,
    )


def _capabilities(manifest: Manifest) -> frozenset[str]:
    capabilities = {"tokenize"}
    if manifest.kind is Kind.EMBEDDING:
        capabilities.add("embed")
        if any(spec.name == HIDDEN_OUTPUT for spec in manifest.graph.outputs):
            capabilities.add("embed_all")
    return frozenset(capabilities)
