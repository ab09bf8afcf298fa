"""Which output a pooling asks for, and what is said where it is not compiled in."""

from dataclasses import replace

import pytest

from fake_artifact import make_manifest
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.manifest import (
    Graph,
    Heads,
    Kind,
    Manifest,
    Pooling,
    PoolingMode,
    ScoreActivation,
    TensorSpec,
)
from infinity_v3.runtime.outputs import resolve_output


def manifest_of(kind: Kind, *outputs: tuple[str, int], heads: Heads) -> Manifest:
    manifest = make_manifest()
    graph = Graph(
        inputs=manifest.graph.inputs,
        outputs=tuple(
            TensorSpec(name=name, dtype="float32", dims=("B", width)) for name, width in outputs
        ),
    )
    source = replace(manifest.source, repository="org/name")
    return replace(manifest, kind=kind, graph=graph, heads=heads, source=source)


EMBEDDING = manifest_of(
    Kind.EMBEDDING,
    ("pooled", 8),
    ("pooled_cls", 8),
    heads=Heads(pooling=Pooling(modes=(PoolingMode.MEAN,), alternatives=(PoolingMode.CLS,))),
)
SPARSE = manifest_of(
    Kind.SPARSE, ("sparse", 100), heads=Heads(pooling=Pooling(modes=(PoolingMode.SPLADE,)))
)


@pytest.mark.parametrize(
    ("manifest", "wanted", "name"),
    [
        (EMBEDDING, None, "pooled"),
        (EMBEDDING, PoolingMode.MEAN, "pooled"),
        (EMBEDDING, PoolingMode.CLS, "pooled_cls"),
        (SPARSE, None, "sparse"),
        (SPARSE, PoolingMode.SPLADE, "sparse"),
    ],
)
def test_a_pooling_that_is_compiled_in(
    manifest: Manifest, wanted: PoolingMode | None, name: str
) -> None:
    output = resolve_output(manifest, wanted)
    assert (output.name, output.notes) == (name, ())
    assert output.pooling == (wanted,) if wanted else output.pooling


@pytest.mark.parametrize(
    ("manifest", "wanted", "present", "options"),
    [
        (EMBEDDING, PoolingMode.MAX, "mean, cls", "--pooling mean --pooling max"),
        (EMBEDDING, PoolingMode.SPLADE, "mean, cls", "--pooling splade"),
        (SPARSE, PoolingMode.MEAN, "splade", "--pooling mean"),
    ],
)
def test_a_pooling_that_is_not_names_the_command_that_compiles_it_in(
    manifest: Manifest, wanted: PoolingMode, present: str, options: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_output(manifest, wanted)
    assert str(caught.value) == (
        f"--pooling {wanted.value}: expected one compiled into artifact fake-encoder ({present}); "
        f"compile it in: infinity-compile model org/name {options} --out DIR"
    )


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        (Kind.CLASSIFIER, "logits"),
        (Kind.RERANKER, "logits"),
        (Kind.TOKEN_CLASSIFIER, "token_logits"),
    ],
)
def test_models_with_labels_ignore_a_pooling_and_say_so(kind: Kind, output: str) -> None:
    heads = Heads(labels=("yes",), activation=ScoreActivation.SIGMOID)
    manifest = manifest_of(kind, (output, 1), heads=heads)
    assert resolve_output(manifest, None).notes == ()
    words = kind.value.replace("_", " ")
    assert resolve_output(manifest, PoolingMode.CLS).notes == (
        f"--pooling: has no meaning for this {words} model; ignored",
    )


def test_a_late_interaction_model_pools_nothing() -> None:
    manifest = manifest_of(Kind.LATE_INTERACTION, ("token_vectors", 8), heads=Heads())
    with pytest.raises(UsageError, match="--pooling cls: artifact fake-encoder pools nothing"):
        resolve_output(manifest, PoolingMode.CLS)


def test_a_width_that_contradicts_the_graph_is_refused() -> None:
    heads = replace(EMBEDDING.heads, dimensions=7)
    with pytest.raises(RefusedError, match="heads: dimensions: expected 8 as pooled has, found 7"):
        resolve_output(replace(EMBEDDING, heads=heads), None)
    right = replace(EMBEDDING, heads=replace(heads, dimensions=8))
    assert resolve_output(right, None).width == 8
