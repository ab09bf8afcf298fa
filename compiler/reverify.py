"""Reference and probes of a published artifact, from its own manifest. Knows no engine."""

from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.checkpoint import open_checkpoint
from infinity_v3.compiler.probes import make_probes
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.reference_outputs import ReferenceOutputs, compute_reference
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.model_specs.embedding_head import resolve_embedding_head
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.length_limit import length_limit
from infinity_v3.model_specs.registry import match


def probes_of(artifact: Artifact) -> ReferenceOutputs:
    """Probes without a reference: engines are compared with themselves, alone against batched."""
    manifest = artifact.manifest
    probes = make_probes(
        artifact.path / manifest.tokenizer.file,
        vocab_size=manifest.model.vocab_size,
        max_tokens=manifest.model.max_input_tokens,
        avoid=frozenset(),
    )
    return ReferenceOutputs(name="none: no checkpoint was given", probes=probes, outputs=())


def reference_of(artifact: Artifact, checkpoint: Path, progress: Progress) -> ReferenceOutputs:
    """Run the checkpoint that the artifact was compiled from.

    Raises:
        RefusedError: the checkpoint's files are not those that the artifact was compiled from.
    """
    manifest = artifact.manifest
    opened = open_checkpoint(
        CompileRequest(checkpoint=str(checkpoint), out=artifact.path), progress
    )
    _refuse_other_checkpoint(artifact, {file.path: file.sha256 for file in opened.files})
    config = read_hub_config(opened.path)
    spec = match(config, task=manifest.kind)
    pooling = manifest.heads.pooling
    chosen = pooling.modes[0] if pooling is not None and len(pooling.modes) == 1 else None
    head = resolve_embedding_head(
        config,
        spec,
        pooling=chosen,
        alternatives=pooling.alternatives if pooling is not None else (),
    )
    limit = length_limit(config, spec, manifest.model.max_input_tokens)
    return compute_reference(config, head, limit, progress)


def _refuse_other_checkpoint(artifact: Artifact, found: dict[str, str]) -> None:
    for file in artifact.manifest.source.files:
        if found.get(file.path) != file.sha256:
            raise RefusedError(
                f"{file.path}: expected the checkpoint that {artifact.manifest.name} was compiled "
                f"from (sha256 {file.sha256[:12]}), found "
                f"{found.get(file.path, 'no such file')[:12]}; give the original checkpoint"
            )
