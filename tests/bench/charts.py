"""Draws figures of benches as PNG and SVG. Knows nothing of how they were measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
# Letters stay letters, and the same figures give the same bytes.
mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "infinity", "font.size": 9}

from matplotlib import pyplot as plt  # noqa: E402  (the backend is chosen above)

_SIZE_INCHES = (9.0, 4.2)
_PNG_DPI = 120


def draw_bars(
    path: Path, title: str, unit: str, groups: Sequence[str], rows: Mapping[str, Sequence[float]]
) -> None:
    """A bar for each row in each group.

    Args:
        path: without suffix; `.png` and `.svg` are written.
        title: stands above.
        unit: of the vertical axis.
        groups: names below.
        rows: a value per group, by name.
    """
    figure, axes = plt.subplots(figsize=_SIZE_INCHES)
    width = 0.8 / len(rows)
    for index, (name, values) in enumerate(rows.items()):
        left = [place + index * width - 0.4 + width / 2 for place in range(len(groups))]
        axes.bar(left, values, width, label=name)
    axes.set_xticks(range(len(groups)), groups)
    _finish(figure, axes, path, title, unit)


def draw_lines(
    path: Path, title: str, axes_names: tuple[str, str], rows: Mapping[str, Mapping[float, float]]
) -> None:
    """A line for each row; its points by their place on the horizontal axis.

    Args:
        path: without suffix; `.png` and `.svg` are written.
        title: stands above.
        axes_names: horizontal and vertical.
        rows: points, by name.
    """
    figure, axes = plt.subplots(figsize=_SIZE_INCHES)
    for name, points in rows.items():
        axes.plot(list(points), list(points.values()), marker="o", label=name)
    axes.set_xlabel(axes_names[0])
    axes.set_yscale("log")
    _finish(figure, axes, path, title, axes_names[1])


def _finish(figure: Any, axes: Any, path: Path, title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(ncols=6, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=_PNG_DPI, metadata={"Software": None})
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)
