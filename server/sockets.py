"""Binds the ports before anything is loaded. Knows nothing of what will be served on them."""

import errno
import ipaddress
import socket
from dataclasses import dataclass

from infinity_v3.artifacts.errors import RunFailedError, UsageError
from infinity_v3.server.config import Configuration

BACKLOG = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Bound and listening sockets; `metrics` is None when there is no separate listener."""

    main: socket.socket
    metrics: socket.socket | None
    warnings: tuple[str, ...] = ()


def bind_listeners(configuration: Configuration) -> Listeners:
    """Bind the port and the metrics port.

    Raises:
        UsageError: the host name does not resolve.
        RunFailedError: a port is busy or the address is not ours. A busy *default* metrics port is
            only a warning.
    """
    serve = configuration.serve
    main = _bind(serve.hostname, serve.port, "--port")
    if serve.prometheus_port == 0:
        return Listeners(main=main, metrics=None)
    try:
        metrics = _bind(serve.hostname, serve.prometheus_port, "--prometheus-port")
    except RunFailedError as error:
        if configuration.is_explicit("prometheus-port"):
            main.close()
            raise
        return Listeners(main=main, metrics=None, warnings=(f"no metrics listener: {error}",))
    return Listeners(main=main, metrics=metrics)


def _bind(hostname: str, port: int, flag: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            hostname, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(
            f"--hostname {hostname}: {error.strerror or 'cannot be resolved'}; give an IP address "
            "of this host or a name that resolves to one"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        # Allows a restart while old connections linger; two servers on one port stay impossible.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise RunFailedError(_explain(error, hostname, port, flag)) from None
    return listener


def _explain(error: OSError, hostname: str, port: int, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{flag} {port}: in use on {hostname}; stop the other program or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"--hostname {hostname}: no address of this host; name one that it has, or 0.0.0.0 for "
            "all of them"
        )
    return f"{flag} {port}: cannot listen on {hostname}: {error.strerror}"


def is_reachable_from_outside(listener: socket.socket) -> bool:
    """Whether the address is another than a loopback one."""
    host = listener.getsockname()[0].partition("%")[0]
    return not ipaddress.ip_address(host).is_loopback


def shown_address(listener: socket.socket) -> str:
    """`host:port` as a URL writes it."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
