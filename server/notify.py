"""Tells a service manager what the server is doing, if one asked (systemd's Type=notify).

Knows nothing of HTTP, models or signals. Does nothing without `NOTIFY_SOCKET` in the environment.
"""

import logging
import socket
from collections.abc import Mapping

_log = logging.getLogger("infinity_v3")
_SOCKET_VARIABLE = "NOTIFY_SOCKET"
_SEND_TIMEOUT_S = 1.0


def notify_ready(environ: Mapping[str, str], status: str) -> bool:
    """Say that every model is ready.

    Args:
        environ: the process environment.
        status: one line for `systemctl status`.

    Returns:
        Whether a service manager was told.
    """
    return _notify(environ, f"READY=1\nSTATUS={_one_line(status)}")


def notify_stopping(environ: Mapping[str, str], status: str) -> bool:
    """Say that the server answers what it accepted and then ends; see `notify_ready`."""
    return _notify(environ, f"STOPPING=1\nSTATUS={_one_line(status)}")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _notify(environ: Mapping[str, str], message: str) -> bool:
    address = environ.get(_SOCKET_VARIABLE, "")
    if not address:
        return False
    if address[0] not in "/@":
        _log.warning("%s=%s: expected a path or @name; not told", _SOCKET_VARIABLE, address)
        return False
    # A leading @ stands for the zero byte of Linux's abstract names.
    target = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(_SEND_TIMEOUT_S)
            sender.sendto(message.encode(), target)
    except OSError as error:
        _log.warning(
            "%s=%s: the service manager was not told: %s", _SOCKET_VARIABLE, address, error
        )
        return False
    return True
