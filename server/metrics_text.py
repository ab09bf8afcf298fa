"""Counters, gauges and histograms in the Prometheus text format. Knows nothing of what is measured.

Names are written as given: the usual client library appends `_total` to counters, which our
contract forbids, and importing it costs more than this file. Nothing here is locked: series belong
to one thread.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _label_text(labels: Mapping[str, str]) -> str:
    escaped = (
        (name, value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\""))
        for name, value in labels.items()
    )
    return ",".join(f'{name}="{value}"' for name, value in escaped)


def _sample(name: str, labels: str, value: float) -> str:
    shown = int(value) if value == int(value) else repr(value)
    return f"{name}{{{labels}}} {shown}\n" if labels else f"{name} {shown}\n"


class Counter:
    """One series that only grows."""

    def __init__(self) -> None:
        self._value = 0.0

    def add(self, amount: float = 1.0) -> None:
        self._value += amount

    @property
    def value(self) -> float:
        return self._value

    def render(self, name: str, labels: str) -> Iterator[str]:
        yield _sample(name, labels, self._value)


class Gauge:
    """One series that is set, or read from a function when scraped."""

    def __init__(self) -> None:
        self._read: Callable[[], float] = lambda: 0.0

    def set(self, value: float) -> None:
        self._read = lambda: value

    def follow(self, read: Callable[[], float]) -> None:
        self._read = read

    def render(self, name: str, labels: str) -> Iterator[str]:
        yield _sample(name, labels, self._read())


class Histogram:
    """One series of observations in fixed buckets."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def extend(self, bounds: Sequence[float]) -> None:
        """Add the buckets above the last one; observations made before stay beyond all of them."""
        more = tuple(bound for bound in bounds if bound > self._bounds[-1])
        self._bounds += more
        self._counts[-1:-1] = [0] * len(more)

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def render(self, name: str, labels: str) -> Iterator[str]:
        lead = f"{labels}," if labels else ""
        running = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            running += count
            edge = "+Inf" if bound is None else f"{bound:.12g}"
            yield _sample(f"{name}_bucket", f'{lead}le="{edge}"', running)
        yield _sample(f"{name}_sum", labels, self._sum)
        yield _sample(f"{name}_count", labels, running)


Series = Counter | Gauge | Histogram


class _Family:
    def __init__(self, kind: str, help_text: str) -> None:
        self.kind = kind
        self.help_text = help_text
        self.series: dict[str, Series] = {}


class Registry:
    """All series by name and labels; created when first asked for, kept until removed."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, help_text: str, **labels: str) -> Counter:
        series = self._series(name, "counter", help_text, labels, Counter)
        assert isinstance(series, Counter), f"{name} is two kinds of metric; this is a bug"
        return series

    def gauge(self, name: str, help_text: str, **labels: str) -> Gauge:
        series = self._series(name, "gauge", help_text, labels, Gauge)
        assert isinstance(series, Gauge), f"{name} is two kinds of metric; this is a bug"
        return series

    def histogram(
        self, name: str, help_text: str, bounds: Sequence[float], **labels: str
    ) -> Histogram:
        series = self._series(name, "histogram", help_text, labels, lambda: Histogram(bounds))
        assert isinstance(series, Histogram), f"{name} is two kinds of metric; this is a bug"
        series.extend(bounds)
        return series

    def remove(self, name: str, **labels: str) -> None:
        """Forget one series."""
        self._families[name].series.pop(_label_text(labels), None)

    def _series(
        self,
        name: str,
        kind: str,
        help_text: str,
        labels: Mapping[str, str],
        create: Callable[[], Series],
    ) -> Series:
        family = self._families.setdefault(name, _Family(kind, help_text))
        key = _label_text(labels)
        if key not in family.series:
            family.series[key] = create()
        return family.series[key]

    def render(self) -> bytes:
        """The exposition text."""
        return "".join(self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        for name, family in list(self._families.items()):
            yield f"# HELP {name} {family.help_text}\n# TYPE {name} {family.kind}\n"
            for labels, series in list(family.series.items()):
                yield from series.render(name, labels)
