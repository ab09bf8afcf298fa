"""A registry in a directory, with artifacts of a few bytes in it, for tests of its gates."""

import json
from collections.abc import Mapping
from pathlib import Path

from fake_artifact import make_manifest, write_fake_files
from infinity_v3.artifacts.manifest import Prompts, Target
from infinity_v3.artifacts.registry.marker import create_registry
from infinity_v3.artifacts.registry.open_storage import open_storage
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.signing import Signer
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.writer import ArtifactWriter
from infinity_v3.compiler.gates.policy import ChannelPolicy
from infinity_v3.compiler.gates.promotion import Promotion, Side

NAME = "fake-encoder"
ACTOR = "unverified:alice"
Figures = Mapping[str, Mapping[str, float]]
"""Parity figures of build.json, by target and output."""


def make_registry(place: Path, policy: str = "[channels.prod]\n") -> Registry:
    """An empty registry with a policy."""
    storage = open_storage(str(place))
    create_registry(storage, policy)
    return Registry(storage)


def write_artifact(path: Path, build: Mapping[str, object], **overrides: object) -> Artifact:
    """A fake artifact with a build.json; `overrides` are fields of its manifest."""
    manifest = make_manifest(**overrides)
    with ArtifactWriter(path) as writer:
        write_fake_files(writer.stage, manifest)
        return writer.commit(manifest, profile={}, build=build)


def push_fake(
    registry: Registry,
    folder: Path,
    version: str,
    *,
    figures: Figures,
    signer: Signer | None = None,
    **overrides: object,
) -> Artifact:
    """Push a fake artifact that differs from those of other versions."""
    prompts = {"prompts": Prompts(named={"version": f"{version}: "}), **overrides}
    artifact = write_artifact(folder / version, {"parity": figures}, **prompts)
    registry.push(artifact, version, actor=ACTOR, signer=signer)
    return artifact


def make_side(
    version: str = "2.0", *, targets: tuple[Target, ...] = (), build: object = None
) -> Side:
    """A version as gates see it, without a registry."""
    manifest = make_manifest(**({"targets": targets} if targets else {}))
    content = None if build is None else json.loads(json.dumps(build))
    return Side(
        name=manifest.name,
        version=version,
        id=f"sha256:{version.replace('.', ''):0>64}",
        manifest=manifest,
        build=content,
    )


def make_promotion(
    policy: ChannelPolicy,
    *,
    candidate: Side | None = None,
    current: Side | None = None,
    actor: str = ACTOR,
) -> Promotion:
    """A promotion to `prod`."""
    return Promotion(
        channel="prod",
        policy=policy,
        candidate=candidate or make_side(),
        current=current,
        actor=actor,
    )


def rows(figures: tuple[GateFigure, ...]) -> list[tuple[str, str, str | None, bool]]:
    """What tests compare: gate, subject, candidate and verdict."""
    return [(f.gate, f.subject, f.candidate, f.passed) for f in figures]
