"""Which parity figure of an artifact came nearest to its bound. Compares nothing anew."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.manifest import Manifest, ParityBounds
from infinity_v3.compiler.parity import RAW_MAX_RELATIVE, OutputKind, output_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstFigure:
    """One figure; `share` is how much of what is allowed it takes: 1 is just allowed."""

    target: str
    figure: str
    value: float
    share: float

    @property
    def text(self) -> str:
        """As the summary shows it: "pooled.max_abs 3.1e-06 of cpu-x86_64-avx2-f32"."""
        digits = f"{self.value:.6f}" if self.figure.endswith("min_cosine") else f"{self.value:.2g}"
        return f"{self.figure} {digits} of {self.target}"


def worst_figure(manifest: Manifest, build: Mapping[str, object]) -> WorstFigure | None:
    """Return the figure that takes most of its bound, None where no figure has one."""
    return max(_judged(manifest, build), key=lambda found: found.share, default=None)


def _judged(manifest: Manifest, build: Mapping[str, object]) -> Iterator[WorstFigure]:
    parity = build.get("parity")
    by_target = parity if isinstance(parity, Mapping) else {}
    for target in manifest.targets:
        figures = by_target.get(target.name)
        for name, value in figures.items() if isinstance(figures, Mapping) else ():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            share = _share(str(name), float(value), target.parity.bounds)
            if share is not None:
                yield WorstFigure(
                    target=target.name, figure=str(name), value=float(value), share=share
                )


def _share(name: str, value: float, bounds: ParityBounds) -> float | None:
    """How much of its bound a figure takes; None for one that is not held to any."""
    output, _, figure = name.rpartition(".")
    kind = output_kind(output)
    if figure.endswith("min_cosine"):
        lowest = bounds.min_cosine if figure == "min_cosine" else bounds.batch_min_cosine
        return None if lowest is None or kind.is_logits else (1 - value) / (1 - lowest)
    highest = _highest(figure, kind, bounds)
    return None if highest is None else value / highest


def _highest(figure: str, kind: OutputKind, bounds: ParityBounds) -> float | None:
    if figure.endswith("max_probability"):
        return bounds.max_probability
    if figure == "batch_max_abs":
        return bounds.batch_max_abs
    if figure != "max_abs" or bounds.max_abs is None:
        return None
    return bounds.max_abs if kind is OutputKind.VECTORS else RAW_MAX_RELATIVE
