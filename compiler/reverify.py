"""Reference and probes of a published artifact, from its own manifest. Knows no engine."""

import json
from dataclasses import replace
from pathlib import Path

from infinity_v3.artifacts.codec import encode_manifest
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.manifest import Kind, Manifest, PoolingMode, Precision
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.checkpoint import open_checkpoint
from infinity_v3.compiler.cpu_targets import CPU_TARGETS
from infinity_v3.compiler.decision_probes import ask
from infinity_v3.compiler.int8.texts import subject_texts
from infinity_v3.compiler.manifest_parts import model_facts, tokenizer_facts
from infinity_v3.compiler.packed import KEY_COUNTS
from infinity_v3.compiler.pipeline import CompilePlan, make_plan
from infinity_v3.compiler.probes import make_probes
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.reference_outputs import ReferenceOutputs, compute_reference
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.length_limit import OPTION


def probes_of(artifact: Artifact) -> ReferenceOutputs:
    """Probes without a reference: engines are compared with themselves, alone against batched."""
    manifest = artifact.manifest
    inputs = {spec.name for spec in manifest.graph.inputs}
    probes = make_probes(
        artifact.path / manifest.tokenizer.file,
        vocab_size=manifest.model.vocab_size,
        num_parameters=manifest.model.num_parameters,
        max_tokens=manifest.model.max_input_tokens,
        avoid=frozenset(),
        has_token_types="token_type_ids" in inputs and manifest.decision is None,
        has_key_counts=KEY_COUNTS in inputs,
        ranked_texts=subject_texts() if _is_ranked(manifest) else (),
    )
    if manifest.decision is not None:
        probes = ask(probes, manifest.decision)
    return ReferenceOutputs(name="none: no checkpoint was given", probes=probes, outputs=())


def reference_of(artifact: Artifact, checkpoint: Path, progress: Progress) -> ReferenceOutputs:
    """Run the checkpoint that the artifact was compiled from.

    Raises:
        RefusedError: the checkpoint's files are not those that the artifact was compiled from, or
            the manifest says something else of it than they do.
    """
    opened = open_checkpoint(
        CompileRequest(checkpoint=str(checkpoint), out=artifact.path), progress
    )
    _refuse_other_checkpoint(artifact, {file.path: file.sha256 for file in opened.files})
    built = {target.name for target in artifact.manifest.targets}
    plan = make_plan(
        opened,
        read_hub_config(opened.path),
        _request_of(artifact, checkpoint),
        targets=tuple(target for target in CPU_TARGETS if target.name in built),
    )
    _refuse_other_record(artifact, plan)
    return compute_reference(plan, progress)


def _is_ranked(manifest: Manifest) -> bool:
    return any(target.precision is Precision.INT8 for target in manifest.targets)


def _request_of(artifact: Artifact, checkpoint: Path) -> CompileRequest:
    """The request that leads to the same task again."""
    manifest = artifact.manifest
    is_chosen = manifest.tokenizer.length.source == OPTION
    yes, no = _words(manifest)
    return CompileRequest(
        checkpoint=str(checkpoint),
        out=artifact.path,
        task=manifest.kind,
        pooling=_poolings(manifest),
        yes_token=yes,
        no_token=no,
        max_sequence_length=manifest.model.max_input_tokens if is_chosen else None,
    )


def _poolings(manifest: Manifest) -> tuple[PoolingMode, ...]:
    """Modes that a user may have asked for; concatenated ones are the checkpoint's own."""
    pooling = manifest.heads.pooling
    if manifest.kind is not Kind.EMBEDDING or pooling is None or len(pooling.modes) > 1:
        return ()
    return (*pooling.modes, *pooling.alternatives)


def _words(manifest: Manifest) -> tuple[str | None, str | None]:
    """The answers of a generative reranker; one with a trained head has no use for its label."""
    heads = manifest.heads
    is_scored = manifest.kind is Kind.RERANKER and len(heads.labels) == 1
    return (heads.labels[0] if is_scored else None), heads.opposite_label


def _refuse_other_checkpoint(artifact: Artifact, found: dict[str, str]) -> None:
    for file in artifact.manifest.source.files:
        if found.get(file.path) != file.sha256:
            raise RefusedError(
                f"{file.path}: expected the checkpoint that {artifact.manifest.name} was compiled "
                f"from (sha256 {file.sha256[:12]}), found "
                f"{found.get(file.path, 'no such file')[:12]}; give the original checkpoint"
            )


def _refuse_other_record(artifact: Artifact, plan: CompilePlan) -> None:
    """Engines may be right and still be asked wrongly: with other special tokens, say."""
    expected = replace(
        artifact.manifest,
        model=model_facts(plan),
        heads=plan.task.heads,
        prompts=plan.config.prompts,
        tokenizer=tokenizer_facts(plan),
        decision=plan.decision,
    )
    wanted, found = (json.loads(encode_manifest(one)) for one in (expected, artifact.manifest))
    different = _first_difference(wanted, found)
    if different is not None:
        path, stated, written = different
        raise RefusedError(
            f"{MANIFEST_FILE}: {'.'.join(path)}: expected {stated!r}, which the checkpoint says, "
            f"found {written!r}; compile the checkpoint again"
        )


def _first_difference(
    wanted: object, found: object, path: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], object, object] | None:
    """The place of two documents where they part, and what each says there."""
    if not (isinstance(wanted, dict) and isinstance(found, dict)):
        return None if wanted == found else (path, wanted, found)
    for key in {**wanted, **found}:
        different = _first_difference(wanted.get(key), found.get(key), (*path, key))
        if different is not None:
            return different
    return None
