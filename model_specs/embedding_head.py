"""How token vectors become the vector of an embedding model. Computes nothing."""

from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.dense_config import DenseLayer
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.spec import ModelSpec

_POOLINGS = tuple(mode for mode in PoolingMode if mode is not PoolingMode.SPLADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingHead:
    """The resolved head.

    Attributes:
        modes: poolings, concatenated in this order.
        alternatives: single poolings compiled in beside it; each gives vectors of the same width.
        dense: dense modules in order, applied to the pooled vector.
        normalize: the checkpoint ends with a normalisation; the graph leaves it to post-processing.
        dimensions: width of one vector.
        warnings: sentences for the user, in order.
    """

    modes: tuple[PoolingMode, ...]
    alternatives: tuple[PoolingMode, ...]
    dense: tuple[DenseLayer, ...]
    normalize: bool
    dimensions: int
    warnings: tuple[str, ...]


def resolve_embedding_head(
    config: HubConfig,
    spec: ModelSpec,
    *,
    pooling: PoolingMode | None = None,
    alternatives: tuple[PoolingMode, ...] = (),
) -> EmbeddingHead:
    """Resolve the head of an embedding model.

    Args:
        config: the checkpoint.
        spec: its family, whose default counts when the checkpoint stores no pooling.
        pooling: the user's choice instead of the stored pooling.
        alternatives: poolings to compile in beside the chosen one; the chosen one and repetitions
            are left out.

    Raises:
        UsageError: no pooling is known, one isn't supported, or widths don't fit together.
    """
    _refuse_unsupported((pooling, *alternatives))
    modes, warnings = ((pooling,), ()) if pooling is not None else _stored_modes(config, spec)
    _check_stored_width(config)
    width = config.model.hidden_size * len(modes)
    others = tuple(mode for mode in dict.fromkeys(alternatives) if (mode,) != modes)
    _check_alternatives(modes, others)
    return EmbeddingHead(
        modes=modes,
        alternatives=others,
        dense=config.dense,
        normalize=config.normalize,
        dimensions=_width_after_dense(config.dense, width, modes),
        warnings=warnings,
    )


def _refuse_unsupported(modes: tuple[PoolingMode | None, ...]) -> None:
    for mode in modes:
        if mode is not None and mode not in _POOLINGS:
            names = ", ".join(mode.value for mode in _POOLINGS)
            raise UsageError(
                f"--pooling: expected one of {names} for an embedding model, found {mode.value}"
            )


def _stored_modes(
    config: HubConfig, spec: ModelSpec
) -> tuple[tuple[PoolingMode, ...], tuple[str, ...]]:
    if config.pooling is not None:
        return config.pooling.modes, ()
    default = spec.default_pooling
    if default is None:
        names = ", ".join(mode.value for mode in _POOLINGS)
        raise UsageError(
            f"{config.path}: expected a stored pooling (1_Pooling/config.json), found none; "
            f"choose one with --pooling ({names})"
        )
    return (default,), (
        f"{config.path}: no pooling is stored, taking {default.value} as {spec.family} models do; "
        "--pooling chooses another",
    )


def _check_stored_width(config: HubConfig) -> None:
    pooling, hidden_size = config.pooling, config.model.hidden_size
    if pooling is not None and pooling.width not in (None, hidden_size):
        raise UsageError(
            f"{pooling.file}: expected token vectors of the encoder's width {hidden_size}, found "
            f"{pooling.width}"
        )


def _check_alternatives(modes: tuple[PoolingMode, ...], others: tuple[PoolingMode, ...]) -> None:
    if others and len(modes) > 1:
        raise UsageError(
            f"--pooling: {others[0].value} can't stand beside "
            f"{'+'.join(mode.value for mode in modes)}: its vectors are narrower; compile an "
            "artifact of its own"
        )


def _width_after_dense(
    dense: tuple[DenseLayer, ...], width: int, modes: tuple[PoolingMode, ...]
) -> int:
    names = "+".join(mode.value for mode in modes)
    for layer in dense:
        if layer.in_features != width:
            raise UsageError(
                f"{layer.folder}/config.json: in_features: expected {width} (pooling {names}), "
                f"found {layer.in_features}"
            )
        width = layer.out_features
    return width
