"""Errors that end a program, with the exit code each one carries.

Every message says what was expected, what was found and what to do. Knows nothing of where it is
printed.
"""


class InfinityError(Exception):
    """A failure that the user can act on; printed as one sentence, never as a traceback."""

    exit_code = 1


class RunFailedError(InfinityError):
    """Something failed at run time: I/O, disk, port, network, a build step, warm-up."""

    exit_code = 1


class UsageError(InfinityError):
    """Wrong option, configuration, unsupported architecture or existing output."""

    exit_code = 2


class RefusedError(InfinityError):
    """An artifact, a parity result or a host that must not be used; nothing was loaded."""

    exit_code = 3


class GateFailedError(InfinityError):
    """A promotion gate failed; nothing changed."""

    exit_code = 4
