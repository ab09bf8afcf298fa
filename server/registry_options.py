"""Refuses options about registries that contradict what a model is. Knows nothing of registries."""

from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.reference import DEFAULT_CHANNEL
from infinity_v3.server.config import ModelConfig
from infinity_v3.server.model_source import ModelSource, SourceKind
from infinity_v3.server.pulled import PulledArtifact

_SIGNED = (SourceKind.ARTIFACT, SourceKind.REFERENCE)


def check_registry_options(config: ModelConfig, source: ModelSource, key: Path | None) -> None:
    """Check one model.

    Args:
        config: its options.
        source: what its `--model-id` has turned out to be.
        key: of `--require-signature`.

    Raises:
        UsageError: names both options.
    """
    if config.watch_channel and source.kind is not SourceKind.REFERENCE:
        raise UsageError(
            f"--watch-channel: follows a channel of a registry, but --model-id {config.model_id} "
            f"is {source.described}; give name:channel, or drop it"
        )
    if key is not None and source.kind not in _SIGNED:
        raise UsageError(
            f"--require-signature {key}: --model-id {config.model_id} is {source.described}, which "
            "nobody signs; compile it, push and sign the artifact, and give its reference"
        )


def check_watched(config: ModelConfig, pulled: PulledArtifact) -> None:
    """Refuse to watch what no channel gave.

    Raises:
        UsageError: the name has one version and no channel.
    """
    if config.watch_channel and pulled.channel is None:
        raise UsageError(
            f"--watch-channel: {config.model_id} has no channel {DEFAULT_CHANNEL} yet and stands "
            f"for its only version {pulled.version}; promote it, give name:channel, or drop the "
            "option"
        )
