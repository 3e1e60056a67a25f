"""Draws line plots as SVG, without any library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

COLOURS = ("#0b6e99", "#d9480f", "#2b8a3e", "#7048e8", "#868e96")
WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 40, 48


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: a name and its points."""

    name: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False


@dataclass(slots=True)
class Plot:
    """One panel."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line] = field(default_factory=list)
    limits: list[tuple[str, float]] = field(default_factory=list)
    """Horizontal lines: what was promised."""

    def to_svg(self, y_offset: int = 0) -> str:
        """Returns the panel as an SVG group."""
        x_top = _round_up(max(x for line in self.lines for x, _ in line.points) or 1.0)
        highest = [y for line in self.lines for _, y in line.points]
        y_top = _round_up(max([*highest, *(limit for _, limit in self.limits)]) or 1.0)

        def place(x: float, y: float) -> tuple[float, float]:
            return (
                LEFT + x / x_top * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - y / y_top * (HEIGHT - TOP - BOTTOM),
            )

        parts = [f'<g transform="translate(0 {y_offset})">']
        parts.append(_text(LEFT, 22, self.title, weight="bold"))
        for tick in range(6):
            x, y = place(x_top * tick / 5, y_top * tick / 5)
            parts.append(_rule(LEFT, y, WIDTH - RIGHT, y, "#e9ecef"))
            parts.append(_text(LEFT - 6, y + 4, _number(y_top * tick / 5), anchor="end"))
            parts.append(_text(x, HEIGHT - BOTTOM + 16, _number(x_top * tick / 5), anchor="middle"))
        parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, self.x_label, anchor="middle"))
        parts.append(
            f'<text transform="translate(14 {(HEIGHT - BOTTOM + TOP) / 2}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y_label)}</text>"
        )
        for name, limit in self.limits:
            _, y = place(0, limit)
            parts.append(_rule(LEFT, y, WIDTH - RIGHT, y, "#c92a2a", dash="2 4"))
            parts.append(_text(WIDTH - RIGHT + 6, y + 4, name, fill="#c92a2a"))
        for number, line in enumerate(self.lines):
            colour = COLOURS[number % len(COLOURS)]
            points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in line.points)
            dash = ' stroke-dasharray="6 4"' if line.is_dashed else ""
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
            )
            _, y = place(*line.points[-1])
            parts.append(_text(WIDTH - RIGHT + 6, y - 4, line.name, fill=colour))
        parts.append("</g>")
        return "\n".join(parts)


def document(plots: Sequence[Plot]) -> str:
    """Returns the panels below each other as one SVG document."""
    height = HEIGHT * len(plots)
    panels = "\n".join(plot.to_svg(HEIGHT * number) for number, plot in enumerate(plots))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#343a40">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{panels}\n</svg>\n'
    )


def _round_up(value: float) -> float:
    """Returns the next value that divides nicely into fifths."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 2.5, 4, 5, 7.5, 10) if step * power >= value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'
    )


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", weight: str = "", fill: str = ""
) -> str:
    styles = (f' font-weight="{weight}"' if weight else "") + (f' fill="{fill}"' if fill else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{styles}>{escape(words)}</text>'
