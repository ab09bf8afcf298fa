"""Turns a model's target options into what target selection takes. Knows nothing of hosts."""

from collections.abc import Iterable, Iterator

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.target import (
    BackendChoice,
    DeviceChoice,
    DtypeChoice,
    Selection,
    TargetRequest,
    select_target,
)
from infinity_v3.server.model_config import ModelConfig

_BACKEND_ALIASES = {"libtorch": "aoti"}


def asks_for_gpu(config: ModelConfig) -> bool:
    """Whether only a GPU will do: one was named, or what runs on GPUs only."""
    return (
        config.torch_device == "cuda"
        or config.device_id is not None
        or config.backend_device_ids is not None
        or config.enable_fp8_dynamic
    )


def narrowing_options(config: ModelConfig) -> tuple[str, ...]:
    """The options that narrow the choice of a target, as they would be typed."""
    return tuple(_narrowing(config))


def _narrowing(config: ModelConfig) -> Iterator[str]:
    for flag, word in (
        ("--torch-device", config.torch_device),
        ("--dtype", config.dtype),
        ("--backend", config.backend),
    ):
        if word != "auto":
            yield f"{flag} {word}"
    if config.device_id is not None:
        yield f"--device-id {config.device_id}"
    if config.backend_device_ids is not None:
        yield f"--backend-device-ids {config.backend_device_ids}"
    if config.enable_fp8_dynamic:
        yield "--enable-fp8-dynamic"


def choose_target(
    config: ModelConfig, manifest: Manifest, host: HostCapabilities, *, allow_newer_torch: bool
) -> Selection:
    """The target that the options and the host leave.

    Raises:
        UsageError: the backend is no engine format.
        RefusedError: none is left; the message names the options and lists the targets.
    """
    request = TargetRequest(
        device=DeviceChoice.CUDA if asks_for_gpu(config) else DeviceChoice(config.torch_device),
        dtype=DtypeChoice(config.dtype),
        backend=backend_choice(config, (one.backend.value for one in manifest.targets)),
        fp8_dynamic=config.enable_fp8_dynamic,
        allow_newer_torch=allow_newer_torch,
    )
    try:
        return select_target(manifest, host, request)
    except RefusedError as error:
        wishes = narrowing_options(config)
        raise RefusedError(f"{' '.join(wishes)}: {error}" if wishes else str(error)) from None


def backend_choice(config: ModelConfig, present: Iterable[str]) -> BackendChoice:
    """The engine format asked for; `present` are those to choose from.

    Raises:
        UsageError: it is none.
    """
    word = _BACKEND_ALIASES.get(config.backend, config.backend)
    if word not in {choice.value for choice in BackendChoice}:
        raise UsageError(
            f"--backend {config.backend}: unknown engine format; model {config.model_id} has: "
            f"{', '.join(sorted(set(present)))}"
        )
    return BackendChoice(word)
