"""Draws a load run over time as one SVG file, by hand. Knows nothing of how it was measured."""

from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 860, 150, 70, 20, 34, 44
COLOURS = ("#2563eb", "#f97316", "#16a34a", "#dc2626")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One diagram; every curve is (seconds, value), `limit` a dashed line."""

    title: str
    curves: dict[str, Points]
    limit: tuple[str, float] | None = None


def draw(panels: Sequence[Panel]) -> str:
    """The picture, all panels over the same time."""
    end_s = max((x for panel in panels for curve in panel.curves.values() for x, _ in curve))
    height = TOP + len(panels) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + number * (PANEL + GAP), end_s)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, top: int, end_s: float) -> list[str]:
    values = [value for curve in panel.curves.values() for _, value in curve]
    highest = 1.1 * max([*values, panel.limit[1] if panel.limit else 0.0, 1e-9])
    bottom = top + PANEL
    parts = [f'<text x="{LEFT}" y="{top - 8}" font-weight="600">{panel.title}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * PANEL
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e5e7eb"/>')
        value = share * highest
        label = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + share * (WIDTH - LEFT - RIGHT)
        parts.append(
            f'<text x="{x:.0f}" y="{bottom + 15}" text-anchor="middle" fill="#6b7280">'
            f"{share * end_s:.0f} s</text>"
        )
    for number, (name, curve) in enumerate(panel.curves.items()):
        parts += _curve(name, curve, number, (bottom, highest, end_s))
    if panel.limit is not None:
        name, value = panel.limit
        y = bottom - value / highest * PANEL
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#111827" stroke-dasharray="5 4"/>'
        )
        parts.append(f'<text x="{LEFT + 6}" y="{y - 4:.1f}">{name}</text>')
    return parts


def _curve(name: str, curve: Points, number: int, scale: tuple[int, float, float]) -> list[str]:
    bottom, highest, end_s = scale
    width = WIDTH - LEFT - RIGHT
    steps = [
        f"{LEFT + x / max(end_s, 1e-9) * width:.1f} {bottom - y / highest * PANEL:.1f}"
        for x, y in curve
    ]
    colour = COLOURS[number % len(COLOURS)]
    x = WIDTH - RIGHT - 130 * (number + 1)
    top = bottom - PANEL
    return [
        f'<path d="M{"L".join(steps)}" fill="none" stroke="{colour}" stroke-width="1.3"/>',
        f'<rect x="{x}" y="{top - 17}" width="10" height="10" fill="{colour}"/>',
        f'<text x="{x + 15}" y="{top - 8}">{name}</text>',
    ]
