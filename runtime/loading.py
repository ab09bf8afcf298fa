"""Artifact and target in, model ready to run out: engine, tokenizer and the facts about them.

Knows nothing of requests, queues or HTTP.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from infinity_v3.artifacts.errors import RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.manifest import Heads, Kind, Manifest, PoolingMode, Target
from infinity_v3.artifacts.profile import read_profile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.runtime.batch import EncodedText, pack
from infinity_v3.runtime.batch_sizes import (
    BatchSizes,
    SizeSettings,
    check_least_length,
    resolve_sizes,
)
from infinity_v3.runtime.capabilities import capabilities_of
from infinity_v3.runtime.chat_template import ChatRenderer
from infinity_v3.runtime.engine import (
    Engine,
    EngineError,
    EngineLoadError,
    EngineSettings,
    load_engine,
)
from infinity_v3.runtime.engines.spinning import check_spin_count
from infinity_v3.runtime.errors import InferenceError
from infinity_v3.runtime.late_interaction import SIDE_PROMPTS
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.outputs import HIDDEN_OUTPUT, MainOutput, has_output, resolve_output
from infinity_v3.runtime.placement import place
from infinity_v3.runtime.prompts import PromptTable, resolve_prompts
from infinity_v3.runtime.team import TeamSizes
from infinity_v3.runtime.timing import PhaseTimer
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation

WARMUP_TOKENS = 64

EngineLoader = Callable[[Artifact, Target, EngineSettings], Engine]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What the user decides about one model; None = the artifact's or the host's default.

    Attributes:
        pooling: one of the poolings compiled in.
        default_prompt: literal prefix for requests that name no prompt; "" = none.
        default_prompt_name: key of the artifact's prompt table; excludes `default_prompt`.
        num_threads: threads of one engine call; None = as measured, else all CPUs of this process,
            shared out among replicas.
        num_replicas: engine calls at the same time, None = as measured, else 1; more than one are
            pinned to CPUs of their own.
    """

    sizes: SizeSettings = field(default_factory=SizeSettings)
    pooling: PoolingMode | None = None
    default_prompt: str | None = None
    default_prompt_name: str | None = None
    num_threads: int | None = None
    num_replicas: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that can run. Whoever holds it closes the engine, once.

    Attributes:
        replica_cpus: see `Placement.cpus`.
        team: threads of one engine call; None = as the engine was loaded.
        main_output: engine output that answers the model's main task.
        heads: how that output is read.
        measured_tokens_per_s: throughput of the target as its profile records it, if it does.
        notes: one sentence for each default that had to give way; for the start-up log.
        seconds: start-up seconds by phase, "load" and "warmup".
    """

    engine: Engine
    tokenizer: TextTokenizer
    prompts: PromptTable
    info: ModelInfo
    position_offset: int
    main_output: str
    heads: Heads
    replica_cpus: tuple[frozenset[int], ...] = (frozenset(),)
    team: TeamSizes | None = None
    measured_tokens_per_s: float | None = None
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float]


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
            a length that the special tokens or the default prompt use up.
        RefusedError: the engine or the tokenizer cannot be opened on this host, or the artifact
            lacks what its kind needs.
        RunFailedError: the warm-up call failed.
    """
    manifest = artifact.manifest
    measured = read_profile(artifact.path).of(target.name)
    sizes = resolve_sizes(manifest, target, settings.sizes, measured)
    output = resolve_output(manifest, settings.pooling)
    prompts = _resolve_prompts(manifest, settings)
    placement = place(settings.num_replicas, settings.num_threads, measured)
    spin_count, spin_notes = check_spin_count(measured.spin_count)
    timer = PhaseTimer()
    with timer.phase("load"):
        engine_settings = EngineSettings(
            num_threads=placement.num_threads,
            num_replicas=placement.num_replicas,
            spin_count=spin_count,
        )
        engine, tokenizer = _open(artifact, target, sizes, engine_settings, engine_loader)
        try:
            _check_default_prompt(prompts, tokenizer, sizes.max_input_tokens)
        except UsageError:
            engine.close()
            raise
    with timer.phase("warmup"):
        _warm_up(engine, manifest, sizes, target.name)
    return LoadedModel(
        engine=engine,
        tokenizer=tokenizer,
        prompts=prompts,
        info=_describe(artifact, target, sizes, output, prompts),
        position_offset=manifest.model.position_offset,
        main_output=output.name,
        heads=manifest.heads,
        replica_cpus=placement.cpus,
        team=placement.team,
        measured_tokens_per_s=measured.tokens_per_s,
        notes=(*sizes.notes, *output.notes, *placement.notes, *spin_notes),
        seconds=timer.seconds,
    )


def _open(
    artifact: Artifact,
    target: Target,
    sizes: BatchSizes,
    settings: EngineSettings,
    engine_loader: EngineLoader,
) -> tuple[Engine, TextTokenizer]:
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="infinity-load") as pool:
        reading = pool.submit(_read_tokenizer, artifact, sizes.max_input_tokens)
        try:
            engine = engine_loader(artifact, target, settings)
        except EngineLoadError as error:
            raise RefusedError(f"target {target.name} cannot be loaded: {error}") from error
        try:
            tokenizer = reading.result()
            check_least_length(sizes, _num_fixed_tokens(artifact.manifest, tokenizer) + 1)
        except (RefusedError, UsageError):
            engine.close()
            raise
        return engine, tokenizer


def _read_tokenizer(artifact: Artifact, max_input_tokens: int) -> TextTokenizer:
    manifest = artifact.manifest
    path, chat = artifact.path / manifest.tokenizer.file, _read_chat_template(artifact)
    try:
        return TextTokenizer.from_file(
            path,
            vocab_size=manifest.model.vocab_size,
            max_input_tokens=max_input_tokens,
            pair_template=manifest.tokenizer.pair_template,
            chat=chat,
        )
    except Exception as error:  # the tokenizers library raises no narrower type
        raise RefusedError(f"{path}: expected a tokenizer.json, found: {error}") from error


def _read_chat_template(artifact: Artifact) -> ChatRenderer | None:
    facts = artifact.manifest.tokenizer.chat_template
    if facts is None:
        return None
    try:
        return ChatRenderer.from_file(artifact.path, facts)
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"{artifact.path / facts.file}: expected a chat template, found: {error}"
        ) from None


def _num_fixed_tokens(manifest: Manifest, tokenizer: TextTokenizer) -> int:
    if manifest.decision is not None:
        return manifest.decision.limits.head_max_len
    if manifest.kind is not Kind.RERANKER:
        return tokenizer.num_special_tokens
    try:
        return max(tokenizer.num_special_tokens, tokenizer.num_pair_tokens)
    except InferenceError as error:
        raise RefusedError(
            f"artifact {manifest.name}: tokenizer.pair_template: {error.message}; compile it again"
        ) from error


def _resolve_prompts(manifest: Manifest, settings: LoadSettings) -> PromptTable:
    prompts = manifest.prompts
    if manifest.kind is Kind.LATE_INTERACTION:
        # Their names choose a side also where no text comes with it.
        prompts = replace(prompts, named={**dict.fromkeys(SIDE_PROMPTS, ""), **prompts.named})
    return resolve_prompts(
        prompts,
        default_prompt=settings.default_prompt,
        default_prompt_name=settings.default_prompt_name,
    )


def _check_default_prompt(
    prompts: PromptTable, tokenizer: TextTokenizer, max_input_tokens: int
) -> None:
    """Refuse a prompt that leaves no room for a text: all vectors would be the same."""
    if not prompts.default:
        return
    cut = Truncation(max_tokens=max_input_tokens)
    (encoded,) = tokenizer.encode([prompts.default], cut)
    if encoded.num_tokens >= max_input_tokens:
        raise UsageError(
            f"the default prompt: expected fewer than {max_input_tokens} tokens, the longest "
            "input, as texts come behind it; shorten --default-prompt, name another "
            "--default-prompt-name or raise --max-sequence-length"
        )


def _warm_up(engine: Engine, manifest: Manifest, sizes: BatchSizes, target_name: str) -> None:
    """Run two short inputs once, so that the first request finds pages and threads in place."""
    num_tokens = min(WARMUP_TOKENS // 2, sizes.max_input_tokens)
    count = min(2, engine.limits.max_sequences, sizes.max_batch_tokens // num_tokens)
    text = EncodedText(
        input_ids=np.zeros(num_tokens, dtype=np.int64),
        readout_positions=np.zeros(1, dtype=np.int64),
    )
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
    output: MainOutput,
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
        width=output.width,
        pooling=output.pooling,
        labels=output.labels,
        problem_type=manifest.heads.problem_type,
        decision=manifest.decision,
        prompt_names=prompts.names,
        capabilities=capabilities_of(
            manifest.kind, has_token_output=has_output(manifest, HIDDEN_OUTPUT)
        ),
        has_chat_template=manifest.tokenizer.chat_template is not None,
        source_revision=manifest.source.revision,
    )
