"""The tiny decision model that servers of several tests share. Knows nothing of what is asked."""

from pathlib import Path

from compiled import CompiledArtifacts, compile_checkpoint
from tiny_artifacts import FLOAT32_TARGET
from tiny_laya import LAYA_RECIPES, make_laya_checkpoint

LAYA = next(recipe for recipe in LAYA_RECIPES if recipe.key == "laya-2048")
NAME = "tiny-laya"


def laya_checkpoint(compiled: CompiledArtifacts) -> Path:
    """Its checkpoint."""
    return compiled(f"{LAYA.key}.checkpoint", lambda path: make_laya_checkpoint(path, LAYA))


def laya_artifact(compiled: CompiledArtifacts) -> Path:
    """Its artifact, compiled once per run for float32, with the program kept."""
    checkpoint = laya_checkpoint(compiled)
    return compiled(
        LAYA.key,
        lambda path: compile_checkpoint(
            checkpoint, path, "--target", FLOAT32_TARGET, "--name", NAME, "--keep-program"
        ),
    )
