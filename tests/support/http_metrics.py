"""Reads the text of `/metrics` as a scraper does, without trusting it."""

import re
import time
from collections.abc import Mapping
from typing import Protocol

from server_process import Reply

Samples = Mapping[str, float]
"""Series as written, `name{label="value"}`, -> value."""

_SAMPLE = re.compile(
    r'(?P<series>[a-z_]+(?:\{[a-z_]+="[^"\n]*"(?:,[a-z_]+="[^"\n]*")*\})?) (?P<value>\S+)'
)
BUSY_SERIES = ("te_queue_size", "infinity_queue_tokens{", "infinity_requests_in_flight{")


class Asks(Protocol):
    """A client or a server process."""

    def get(self, path: str) -> Reply: ...


def read_metrics(server: Asks) -> Samples:
    """Every series with its value; a line of another form fails."""
    reply = server.get("/metrics")
    assert reply.status == 200
    samples: dict[str, float] = {}
    for line in reply.body.decode().splitlines():
        if line.startswith("#"):
            continue
        found = _SAMPLE.fullmatch(line)
        assert found is not None, f"no sample: {line!r}"
        assert found["series"] not in samples, f"twice: {found['series']}"
        samples[found["series"]] = float(found["value"])
    return samples


def series(samples: Samples, prefix: str) -> float:
    """Sum of the series whose text begins like this; at least one does."""
    values = [value for name, value in samples.items() if name.startswith(prefix)]
    assert values, f"no series {prefix!r} among {sorted(samples)}"
    return sum(values)


def wait_for(server: Asks, prefix: str, least: float, *, timeout_s: float = 30.0) -> None:
    """Wait until a sum of series has reached a value."""
    deadline = time.monotonic() + timeout_s
    while (value := series(read_metrics(server), prefix)) < least:
        assert time.monotonic() < deadline, f"{prefix} is {value} after {timeout_s} s, not {least}"
        time.sleep(0.005)


def wait_until_idle(server: Asks, *, timeout_s: float = 30.0) -> None:
    """Wait until nothing is queued, admitted or in flight any more."""
    deadline = time.monotonic() + timeout_s
    while True:
        samples = read_metrics(server)
        busy = {prefix: series(samples, prefix) for prefix in BUSY_SERIES}
        if not any(busy.values()):
            return
        assert time.monotonic() < deadline, f"still busy after {timeout_s} s: {busy}"
        time.sleep(0.02)
