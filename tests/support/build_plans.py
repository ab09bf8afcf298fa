"""Entries, plans and built artifacts for tests of builds: everything but a compile."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fake_artifact import make_manifest, make_target, write_fake_files
from infinity_v3.artifacts.manifest import Source, SourceFile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.writer import ArtifactWriter
from infinity_v3.compiler.builds.entry import LABEL, ModelEntry
from infinity_v3.compiler.builds.plan import ModelPlan
from infinity_v3.compiler.builds.sources import SourceState
from infinity_v3.compiler.request import CompileRequest

TARGET = "cpu-x86_64-avx2-f32"
KEY = "0123456789abcdef" * 4
CONFIG_DIGEST = hashlib.sha256(b"c").hexdigest()
FIGURES = {
    "pooled_mean.max_abs": 4e-6,
    "pooled_mean.min_cosine": 0.99999,
    "pooled_mean.batch_max_abs": 1e-6,
    "pooled_mean.batch_min_cosine": 0.999999,
}
SOURCE = SourceState(
    repository="local", revision=None, files={"config.json": CONFIG_DIGEST}, license=None
)


def make_entry(checkpoint: str = "org/one", **overrides: object) -> ModelEntry:
    """An entry named "one", version "1.0"; `request` is made of the fields under that key."""
    fields = dict(overrides.pop("request", {}))  # type: ignore[call-overload]  # a mapping
    request = CompileRequest(checkpoint=checkpoint, out=Path("out"), **fields)
    values: dict[str, object] = {
        "place": "models.toml: [[model]] 1 (one)",
        "name": "one",
        "version": "1.0",
        "request": request,
        "options": {},
        **overrides,
    }
    return ModelEntry(**values)  # type: ignore[arg-type]  # fields by name


def make_plan(out: Path, **overrides: object) -> ModelPlan:
    """A plan that compiles "one==1.0" into `out`."""
    values: dict[str, object] = {
        "entry": make_entry(),
        "version": "1.0",
        "key": KEY,
        "source": SOURCE,
        "out": out,
        "published": None,
        "elsewhere": None,
        "is_there": False,
        **overrides,
    }
    return ModelPlan(**values)  # type: ignore[arg-type]  # fields by name


def write_built(
    out: Path,
    *,
    key: str | None = KEY,
    figures: Mapping[str, float] | None = None,
    config_digest: str = CONFIG_DIGEST,
) -> Artifact:
    """Publish what a compile of `make_plan` would: an artifact of one target."""
    manifest = make_manifest(
        name="one",
        targets=(make_target(TARGET),),
        source=Source(
            repository="local",
            revision=None,
            files=(SourceFile(path="config.json", sha256=config_digest),),
            license=None,
        ),
    )
    build = {
        "labels": {} if key is None else {LABEL: key},
        "parity": {TARGET: dict(FIGURES if figures is None else figures)},
    }
    with ArtifactWriter(out) as writer:
        write_fake_files(writer.stage, manifest)
        return writer.commit(manifest, profile={}, build=build)
