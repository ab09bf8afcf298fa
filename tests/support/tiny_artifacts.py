"""Tiny checkpoints of every family and what the real program compiles from them, once per run.

Together they hold every pooling mode, concatenated modes, two dense modules, named and default
prompts and alternatives. Knows nothing of what tests do with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiled import CompiledArtifacts, compile_checkpoint
from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Precision
from infinity_v3.compiler.cpu_targets import CPU_TARGETS, CpuTarget
from tiny_checkpoints import IDENTITY, TinyDense, make_tiny_checkpoint

HOST_TARGETS: tuple[CpuTarget, ...] = tuple(
    target
    for target in CPU_TARGETS
    if target.cpu.fits(detect_host().isa) and not target.cpu.is_asked_for
)
"""Every CPU target that this host runs, best first."""

FLOAT32_TARGET = next(
    target.name for target in HOST_TARGETS if target.precision is Precision.FLOAT32
)
AVX2_TARGET = "cpu-x86_64-avx2-f32"
PROMPTS = {"query": "query: ", "passage": "passage text : "}
ALTERNATIVES = ("cls", "max", "mean-sqrt-len", "weighted-mean", "last-token")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one tiny artifact is made.

    Attributes:
        key: name of checkpoint and artifact; one key, one content.
        traits: keywords of `make_tiny_checkpoint`.
        targets: names of the targets to build.
        options: further options of `infinity-compile model`.
    """

    key: str
    family: str
    traits: Mapping[str, Any] = field(default_factory=dict)
    targets: Sequence[str] = (FLOAT32_TARGET,)
    options: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class TinyArtifact:
    """A checkpoint and the artifact compiled from it; both are shared, so nobody changes them."""

    recipe: Recipe
    checkpoint: Path
    artifact: Path


BERT = Recipe(
    key="tiny-bert",
    family="bert",
    traits={"prompts": PROMPTS},
    targets=tuple(target.name for target in HOST_TARGETS),
    options=("--pooling", "mean", *(word for mode in ALTERNATIVES for word in ("--pooling", mode))),
)
ROBERTA = Recipe(key="tiny-roberta", family="roberta", traits={"pooling": ("mean", "max")})
XLM_ROBERTA = Recipe(
    key="tiny-xlm-roberta",
    family="xlm-roberta",
    traits={
        "pooling": ("cls",),
        "dense": (
            TinyDense(out_features=48),
            TinyDense(out_features=24, activation=IDENTITY, bias=False),
        ),
    },
)
CAMEMBERT = Recipe(
    key="tiny-camembert",
    family="camembert",
    traits={
        "pooling": ("weighted-mean",),
        "prompts": PROMPTS,
        "default_prompt_name": "query",
        "new_names": True,
    },
)
DISTILBERT = Recipe(
    key="tiny-distilbert",
    family="distilbert",
    traits={"pooling": ("cls", "mean-sqrt-len", "last-token"), "normalize": False},
)
FAMILY_RECIPES = (BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT)

_SMALL: Mapping[str, Any] = {"max_positions": 32, "num_layers": 1}
SMALL = Recipe(key="tiny-small", family="distilbert", traits=_SMALL)
SMALL_OTHER_SEED = Recipe(key="tiny-small-1", family="distilbert", traits={**_SMALL, "seed": 1})
SMALL_SHARED = Recipe(
    key="tiny-small-shared", family="distilbert", traits=_SMALL, options=("--embed-limit-mb", "0")
)
"""As SMALL, with its weights beside the engine instead of in it."""
SMALL_KEPT = Recipe(
    key="tiny-small-kept",
    family="distilbert",
    traits=_SMALL,
    options=("--embed-limit-mb", "0", "--keep-program", "--name", "tiny-small"),
)
"""As SMALL_SHARED, with its program."""
SMALL_AVX2 = Recipe(
    key="tiny-small-avx2",
    family="distilbert",
    traits=_SMALL,
    targets=(AVX2_TARGET,),
    options=("--embed-limit-mb", "0", "--name", "tiny-small"),
)
"""As SMALL_SHARED, for another class of hosts, and under the name of SMALL_KEPT."""


def make_artifact(compiled: CompiledArtifacts, recipe: Recipe) -> TinyArtifact:
    """Give the checkpoint and the artifact of a recipe, making them if this run has not yet."""
    checkpoint = compiled(
        f"{recipe.key}.checkpoint",
        lambda path: make_tiny_checkpoint(recipe.family, path, **recipe.traits),
    )
    artifact = compiled(recipe.key, lambda path: _compile(recipe, checkpoint, path))
    return TinyArtifact(recipe=recipe, checkpoint=checkpoint, artifact=artifact)


def _compile(recipe: Recipe, checkpoint: Path, out: Path) -> None:
    targets = [word for name in recipe.targets for word in ("--target", name)]
    compile_checkpoint(checkpoint, out, *targets, *recipe.options)
