"""Exports each precision once and builds every target of it.

Knows nothing of manifests and parity.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from infinity_v3.artifacts.manifest import Precision
from infinity_v3.compiler.backends.aoti import BuiltEngine, build_cpu_engine, constant_tensors
from infinity_v3.compiler.bf16.fusion import pack_linears
from infinity_v3.compiler.bf16.norms import place_norms
from infinity_v3.compiler.export import TORCH_DTYPES, ExportedModel, export_packed
from infinity_v3.compiler.int8.fusion import fuse_activations
from infinity_v3.compiler.int8.model import quantize_encoder
from infinity_v3.compiler.kernel_cache import kernel_cache
from infinity_v3.compiler.kernel_library import build_kernel_library
from infinity_v3.compiler.packed import (
    CU_SEQLENS,
    KEY_COUNTS,
    READOUTS,
    ROWS,
    PackedModel,
    install_packed_attention,
)
from infinity_v3.compiler.programs.kept import keep_program, save_weights
from infinity_v3.compiler.tokenizer import open_plain_tokenizer

if TYPE_CHECKING:
    from infinity_v3.compiler.cpu_targets import CpuTarget
    from infinity_v3.compiler.pipeline import CompilePlan
    from infinity_v3.compiler.progress import Progress
    from infinity_v3.compiler.request import CompileRequest

TARGETS_FOLDER = "targets"
WEIGHTS_FOLDER = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltTargets:
    """All engines, each precision's exported graph, and the precisions whose weights are shared."""

    engines: tuple[BuiltEngine, ...]
    exported: Mapping[Precision, ExportedModel]
    shared: tuple[Precision, ...]
    threads: int


def limit_threads(asked: int | None) -> int:
    """Give torch the threads that were asked for, else all that this process may use."""
    threads = asked or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    return threads


def build_targets(
    plan: CompilePlan, request: CompileRequest, stage: Path, progress: Progress
) -> BuiltTargets:
    """Build every target of the plan into `stage`.

    Raises:
        RefusedError: the model's attention cannot be packed.
        RunFailedError: a build step failed.
    """
    threads = limit_threads(request.threads)
    install_packed_attention()
    with kernel_cache(request.kernel_cache, progress) as cache:
        engines, exported, shared = _build_all(plan, request, stage, progress, cache)
    return BuiltTargets(
        engines=tuple(engines), exported=exported, shared=tuple(shared), threads=threads
    )


def _build_all(
    plan: CompilePlan, request: CompileRequest, stage: Path, progress: Progress, cache: Path
) -> tuple[list[BuiltEngine], dict[Precision, ExportedModel], list[Precision]]:
    engines: list[BuiltEngine] = []
    exported: dict[Precision, ExportedModel] = {}
    shared: list[Precision] = []
    for precision in dict.fromkeys(target.precision for target in plan.targets):
        with progress.stage(f"export {precision.value}"):
            exported[precision] = _export(plan, precision)
        is_shared = exceeds_embed_limit(exported[precision], request.embed_limit_mb)
        if is_shared:
            shared.append(precision)
            save_weights(exported[precision].program, stage / weights_path(precision))
        if request.keep_program:
            keep_program(exported[precision], stage, has_shared_weights=is_shared)
        targets = [target for target in plan.targets if target.precision is precision]
        engines += build_engines(
            exported[precision], targets, stage, progress, cache, share_weights=is_shared
        )
    if request.keep_program and Precision.FLOAT32 not in exported:
        # The reference that later targets are compared with.
        with progress.stage(f"export {Precision.FLOAT32.value}"):
            keep_program(_export(plan, Precision.FLOAT32), stage, has_shared_weights=False)
    return engines, exported, shared


def build_engines(
    exported: ExportedModel,
    targets: Sequence[CpuTarget],
    stage: Path,
    progress: Progress,
    cache: Path,
    *,
    share_weights: bool,
) -> list[BuiltEngine]:
    """Build targets of one precision into `stage`.

    Raises:
        RunFailedError: a build step failed.
    """
    engines = []
    for target in targets:
        with progress.stage(f"build {target.name}"):
            kernel = build_kernel_library(target, Path(torch.__file__).parent, cache)
            folder = stage / TARGETS_FOLDER / target.name
            engines.append(
                build_cpu_engine(exported, target, kernel, folder, share_weights=share_weights)
            )
    return engines


def exceeds_embed_limit(exported: ExportedModel, embed_limit_mb: int) -> bool:
    """Whether the weights are more than engines embed."""
    num_bytes = sum(tensor.nbytes for tensor in constant_tensors(exported.program).values())
    return num_bytes > embed_limit_mb * 1_000_000


def weights_path(precision: Precision) -> str:
    """Path of the shared weights of one precision inside an artifact."""
    return f"{WEIGHTS_FOLDER}/{precision.value}.safetensors"


def _export(plan: CompilePlan, precision: Precision) -> ExportedModel:
    exported = export_packed(
        load_packed(plan, precision),
        precision=precision,
        output_names=plan.task.outputs,
        num_layers=plan.num_attention_layers,
        num_positions=plan.limit.rule.max_tokens,
    )
    if precision is Precision.INT8:
        fuse_activations(exported.program)
    if precision is not Precision.FLOAT32:
        pack_linears(exported.program)
        place_norms(exported.program)
    return exported


def load_packed(plan: CompilePlan, precision: Precision) -> PackedModel:
    """Load encoder and head in one precision, in packed form."""
    loaded = plan.task.load(TORCH_DTYPES[precision])
    packed = PackedModel(loaded.encoder, loaded.head, input_names(plan)).eval()
    if precision is Precision.INT8:
        quantize_encoder(
            packed,
            open_plain_tokenizer(plan.config.tokenizer.tokenizer),
            vocab_size=plan.config.model.vocab_size,
            max_tokens=plan.limit.rule.max_tokens,
            position_offset=plan.limit.position_offset,
        )
    return packed


def input_names(plan: CompilePlan) -> tuple[str, ...]:
    """Names of the graph's inputs in order."""
    wanted = {
        "input_ids": True,
        "position_ids": True,
        "token_type_ids": plan.has_token_types,
        CU_SEQLENS: True,
        ROWS: plan.is_causal,
        KEY_COUNTS: plan.task.has_key_counts,
        READOUTS: plan.decision is not None,
    }
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)
