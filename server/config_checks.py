"""Refuses options that contradict each other; the origin of each value is named.

Knows nothing of sources, artifacts or the host.
"""

import ipaddress
import re

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.reference import is_marked, parse_reference
from infinity_v3.server.config import Configuration, all_options
from infinity_v3.server.config_report import shown_value

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"


def check_configuration(configuration: Configuration) -> None:
    """Check what no single option can.

    Raises:
        UsageError: no model is named, or two values cannot both hold.
    """
    serve = configuration.serve
    if not serve.models and serve.print_config == "false":
        raise UsageError(
            "--model-id is missing; give an artifact directory, a registry reference, a checkpoint "
            "or a hub id"
        )
    _check_hostname(configuration)
    _check_ports(configuration)
    _check_names(configuration)
    for index in range(len(serve.models)):
        _check_exclusive(configuration, index, "default-prompt", "default-prompt-name")
        _check_exclusive(configuration, index, "device-id", "backend-device-ids")
        _check_device(configuration, index)
        _check_lengths(configuration, index)
        _check_reference(configuration, index)


def _sourced(configuration: Configuration, name: str, index: int) -> str:
    """`--name value (origin)` of one model."""
    option = next(option for option in all_options() if option.name == name)
    value = shown_value(option, getattr(configuration.serve.models[index], option.field))
    return f"--{name} {value} ({configuration.origins[name][index]})"


def _whose(configuration: Configuration, index: int) -> str:
    """Which model is meant, where there are several."""
    models = configuration.serve.models
    return f" for model #{index + 1} ({models[index].model_id})" if len(models) > 1 else ""


def _check_hostname(configuration: Configuration) -> None:
    hostname = configuration.serve.hostname
    try:
        ipaddress.ip_address(hostname)
    except ValueError:
        is_numeric = re.fullmatch(r"[0-9.]+", hostname) is not None
        is_name = re.fullmatch(rf"{_LABEL}(?:\.{_LABEL})*", hostname) is not None
        if is_numeric or not is_name or len(hostname) > 253:
            origin = configuration.origins["hostname"][0]
            raise UsageError(
                f"--hostname {hostname} ({origin}): expected an IPv4 or IPv6 address or a host name"
            ) from None


def _check_ports(configuration: Configuration) -> None:
    """A default metrics port gives way to the main one; two explicit ones must differ."""
    serve, origins = configuration.serve, configuration.origins
    is_explicit = configuration.is_explicit("prometheus-port")
    if is_explicit and serve.port and serve.port == serve.prometheus_port:
        raise UsageError(
            f"--prometheus-port {serve.prometheus_port} ({origins['prometheus-port'][0]}): the "
            f"same as --port ({origins['port'][0]}); choose another, or 0 for no metrics listener"
        )


def _check_names(configuration: Configuration) -> None:
    first: dict[str, int] = {}
    for index, model in enumerate(configuration.serve.models):
        name = model.served_model_name
        if name is None:
            continue
        if name in first:
            origins = configuration.origins["served-model-name"]
            raise UsageError(
                f"--served-model-name {name}: given to two models, #{first[name] + 1} "
                f"({origins[first[name]]}) and #{index + 1} ({origins[index]}); every model needs "
                "its own name"
            )
        first[name] = index


def _check_exclusive(configuration: Configuration, index: int, one: str, other: str) -> None:
    model = configuration.serve.models[index]
    values = [getattr(model, name.replace("-", "_")) for name in (one, other)]
    if None not in values:
        origins = configuration.origins
        raise UsageError(
            f"--{one} ({origins[one][index]}) and --{other} ({origins[other][index]}) exclude each "
            f"other{_whose(configuration, index)}; drop one"
        )


def _check_device(configuration: Configuration, index: int) -> None:
    model = configuration.serve.models[index]
    if model.torch_device != "cpu":
        return
    for name, is_set in (
        ("device-id", model.device_id is not None),
        ("backend-device-ids", model.backend_device_ids is not None),
        ("enable-fp8-dynamic", model.enable_fp8_dynamic),
    ):
        if is_set:
            raise UsageError(
                f"{_sourced(configuration, name, index)}: asks for a GPU, but "
                f"{_sourced(configuration, 'torch-device', index)}{_whose(configuration, index)}; "
                "drop one"
            )


def _check_lengths(configuration: Configuration, index: int) -> None:
    model = configuration.serve.models[index]
    length, budget = model.max_sequence_length, model.max_batch_tokens
    if length is not None and budget is not None and length > budget:
        raise UsageError(
            f"{_sourced(configuration, 'max-sequence-length', index)}: a batch holds only "
            f"{_sourced(configuration, 'max-batch-tokens', index)}; lower it or raise the other"
        )


def _check_reference(configuration: Configuration, index: int) -> None:
    """What is watched names a channel; what it is, is known from the text where it has a mark."""
    model = configuration.serve.models[index]
    if not model.watch_channel or "/" in model.model_id or not is_marked(model.model_id):
        return
    reference = parse_reference(model.model_id)
    if reference.version is not None or reference.id is not None:
        raise UsageError(
            f"{_sourced(configuration, 'watch-channel', index)}: follows a channel, but "
            f"{_sourced(configuration, 'model-id', index)} names one artifact for good; write "
            f"{reference.name}:CHANNEL, or drop one"
        )
