"""Which engine output answers a model of each kind, and whether an artifact has what it takes.

Knows nothing of engines.
"""

from dataclasses import dataclass

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.manifest import Kind, Manifest, PoolingMode

POOLED_OUTPUT = "pooled"
HIDDEN_OUTPUT = "hidden"
MAIN_OUTPUTS = {
    Kind.EMBEDDING: POOLED_OUTPUT,
    Kind.SPARSE: "sparse",
    Kind.LATE_INTERACTION: "token_vectors",
    Kind.RERANKER: "logits",
    Kind.CLASSIFIER: "logits",
    Kind.TOKEN_CLASSIFIER: "token_logits",
    Kind.DECISION: "option_logits",
}
LOCAL_SOURCE = "local"
"""What a manifest records instead of a repository for a checkpoint directory."""

_LABELLED = frozenset({Kind.RERANKER, Kind.CLASSIFIER, Kind.TOKEN_CLASSIFIER})
_WITH_VECTORS = frozenset({Kind.EMBEDDING, Kind.LATE_INTERACTION})


@dataclass(frozen=True, slots=True, kw_only=True)
class MainOutput:
    """The output that answers a model's main task.

    Attributes:
        name: of the engine output.
        width: components of one vector; None where the model gives no vectors.
        pooling: modes in use, concatenated in this order; empty where nothing is pooled.
        labels: names of the logits, in their order.
        notes: a sentence for a wish that has no meaning here.
    """

    name: str
    width: int | None
    pooling: tuple[PoolingMode, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()


def resolve_output(manifest: Manifest, wanted: PoolingMode | None) -> MainOutput:
    """Find the output, and the labels of what it holds.

    Args:
        manifest: of the artifact.
        wanted: pooling asked for; None = the artifact's.

    Raises:
        UsageError: the pooling is not compiled in.
        RefusedError: the artifact lacks what its kind needs.
    """
    name, modes = _choose_pooling(manifest, wanted)
    width = _width_of(manifest, name)
    _check_width(manifest, name, width)
    is_labelled = manifest.kind in _LABELLED
    ignored = f"--pooling: has no meaning for this {_words(manifest.kind)} model; ignored"
    return MainOutput(
        name=name,
        width=width if manifest.kind in _WITH_VECTORS else None,
        pooling=modes,
        labels=_resolve_labels(manifest, name, width) if is_labelled else (),
        notes=(ignored,) if wanted is not None and not modes else (),
    )


def _words(kind: Kind) -> str:
    return kind.value.replace("_", " ")


def has_output(manifest: Manifest, name: str) -> bool:
    """Whether the graph gives an output of that name."""
    return any(spec.name == name for spec in manifest.graph.outputs)


def _choose_pooling(
    manifest: Manifest, wanted: PoolingMode | None
) -> tuple[str, tuple[PoolingMode, ...]]:
    """Name of the output and the modes behind it."""
    name, pooling = MAIN_OUTPUTS[manifest.kind], manifest.heads.pooling
    if pooling is None:
        if wanted is not None and manifest.kind not in _LABELLED:
            raise UsageError(f"--pooling {wanted.value}: artifact {manifest.name} pools nothing")
        return name, ()
    if wanted is None or pooling.modes == (wanted,):
        return name, pooling.modes
    other = f"{name}_{wanted.value}"
    if wanted not in pooling.alternatives or not has_output(manifest, other):
        raise UsageError(_missing_pooling(manifest, wanted))
    return other, (wanted,)


def _missing_pooling(manifest: Manifest, wanted: PoolingMode) -> str:
    pooling = manifest.heads.pooling
    assert pooling is not None, "a pooling was looked for where none is; this is a bug"
    names = ["+".join(mode.value for mode in pooling.modes)]
    names += [mode.value for mode in pooling.alternatives]
    repository = manifest.source.repository
    source = "CHECKPOINT" if repository == LOCAL_SOURCE else repository
    # Sparse vectors stand alone: the compiler takes splade beside no other mode.
    stands_alone = PoolingMode.SPLADE in (wanted, *pooling.modes)
    kept = "" if stands_alone else f"--pooling {names[0]} "
    return (
        f"--pooling {wanted.value}: expected one compiled into artifact {manifest.name} "
        f"({', '.join(names)}); compile it in: infinity-compile model {source} "
        f"{kept}--pooling {wanted.value} --out DIR"
    )


def _width_of(manifest: Manifest, name: str) -> int:
    for spec in manifest.graph.outputs:
        if spec.name == name and isinstance(spec.dims[-1], int):
            return spec.dims[-1]
    found = ", ".join(spec.name for spec in manifest.graph.outputs)
    raise RefusedError(
        f"artifact {manifest.name}: graph.outputs: expected {name!r} with a fixed width, as "
        f"{manifest.kind.value} models have, found {found}; compile it again"
    )


def _check_width(manifest: Manifest, name: str, width: int) -> None:
    stated = manifest.heads.dimensions
    if name == MAIN_OUTPUTS[manifest.kind] and stated not in {None, width}:
        raise _refuse_head(manifest, f"dimensions: expected {width} as {name} has, found {stated}")


def _resolve_labels(manifest: Manifest, name: str, count: int) -> tuple[str, ...]:
    heads = manifest.heads
    if manifest.kind is Kind.RERANKER and count != 1:
        raise _refuse_head(manifest, f"{name}: expected one logit of a reranker, found {count}")
    if manifest.kind is not Kind.TOKEN_CLASSIFIER and heads.activation is None:
        raise _refuse_head(manifest, "activation: expected sigmoid, softmax or none, found nothing")
    labels = heads.labels or tuple(f"LABEL_{index}" for index in range(count))
    if len(labels) != count:
        raise _refuse_head(manifest, f"labels: expected {count}, found {len(labels)}")
    return labels


def _refuse_head(manifest: Manifest, reason: str) -> RefusedError:
    return RefusedError(f"artifact {manifest.name}: heads: {reason}; compile it again")
