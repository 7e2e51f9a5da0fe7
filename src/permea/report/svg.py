"""Charts as SVG: drawn here, so that they print and show without any script."""

import math
from collections.abc import Sequence
from typing import Any

from permea._text import safe_html as escape
from permea._text import safe_json
from permea.report.content import Chart, Series

WIDTH, HEIGHT = 460.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 12.0, 12.0, 46.0
DASHES = ("", "6 4", "2 3", "8 3 2 3", "1 4")


def draw(chart: Chart) -> str:
    """One chart as an ``<svg>`` element that carries its own readout data."""
    scale = _Scale(chart)
    parts = [_grid(chart, scale)]
    if chart.reference is not None:
        parts.append(_reference(chart.reference, scale))
    if chart.marked_x is not None:
        x = scale.x(chart.marked_x)
        parts.append(
            f'<line class="marked" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        )
    draw_series = _bars if chart.kind == "histogram" else _curve
    parts += [draw_series(chart, one, index, scale) for index, one in enumerate(chart.series)]
    parts.append(f'<line class="guide" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="-9" x2="-9"/>')
    readout = escape(safe_json(_readout(chart, scale), allow_nan=True))
    label = escape(f"{chart.title}. Use the arrow keys to read values.")
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" tabindex="0" role="img" '
        f'aria-label="{label}" data-readout="{readout}">{"".join(parts)}</svg>'
    )


class _Scale:
    """From values to places in the picture."""

    def __init__(self, chart: Chart) -> None:
        half = (chart.x[1] - chart.x[0]) / 2 if chart.kind == "histogram" else 0.0
        self.log = chart.log_x
        self.low, self.high = self._shape(chart.x[0] - half), self._shape(chart.x[-1] + half)
        self.bottom, self.top = chart.y_range or _range(chart)

    def _shape(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def x(self, value: float) -> float:
        share = (self._shape(value) - self.low) / ((self.high - self.low) or 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.bottom) / ((self.top - self.bottom) or 1.0)
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)


def _range(chart: Chart) -> tuple[float, float]:
    values = [y for series in chart.series for y in series.y if math.isfinite(y)]
    if chart.reference is not None:
        values.append(chart.reference[1])
    low = 0.0 if chart.kind == "histogram" else min(values, default=0.0)
    high = max(values, default=1.0)
    room = 0.06 * ((high - low) or 1.0)
    return (0.0 if low >= 0 and low < room * 6 else low - room), high + room


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between ``low`` and ``high``.

    Examples
    --------
    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    width = (high - low) or 1.0
    rough = width / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.99)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def _log_ticks(chart: Chart) -> list[float]:
    if len(chart.x) <= 9:
        return list(chart.x)
    low, high = math.ceil(math.log10(chart.x[0])), math.floor(math.log10(chart.x[-1]))
    return [10.0**power for power in range(low, high + 1)]


def number(value: float) -> str:
    """A number as short as it can be read.

    Examples
    --------
    >>> number(0.30000000000000004), number(12345.678), number(0.5)
    ('0.3', '12346', '0.5')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "–"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _grid(chart: Chart, scale: _Scale) -> str:
    out = []
    for value in ticks(scale.bottom, scale.top):
        y = scale.y(value)
        out.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{number(value)}</text>"
        )
    base = HEIGHT - BOTTOM
    along = _log_ticks(chart) if chart.log_x else ticks(scale.low, scale.high)
    for value in along:
        x = scale.x(value)
        out.append(
            f'<line class="tickmark" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 4}"/>'
            f'<text class="tick" x="{x:.1f}" y="{base + 17}" text-anchor="middle">'
            f"{number(value)}</text>"
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>'
        f'<text class="label" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(chart.x_label)}</text>"
        f'<text class="label" transform="translate(13 {(TOP + base) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(chart.y_label)}</text>'
    )
    return "".join(out)


def _reference(reference: tuple[str, float], scale: _Scale) -> str:
    name, value = reference
    y = scale.y(value)
    return (
        f'<line class="reference" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="note" x="{LEFT + 6}" y="{y + 15:.1f}" text-anchor="start">'
        f"{escape(name)}</text>"
    )


def _curve(chart: Chart, series: Series, index: int, scale: _Scale) -> str:
    points = [(scale.x(x), scale.y(y)) for x, y in zip(chart.x, series.y, strict=True)]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for x, y in points[1:]:
        path += f"H{x:.1f}V{y:.1f}" if chart.kind == "step" else f"L{x:.1f} {y:.1f}"
    dashes = DASHES[index % len(DASHES)] if not series.dashed else "6 4"
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    dots = ""
    if chart.kind == "line" and len(points) <= 20:
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>' for x, y in points)
    return (
        f'<g class="series s{index % 5}" data-series="{index}"><path d="{path}"{style}/>{dots}</g>'
    )


def _bars(chart: Chart, series: Series, index: int, scale: _Scale) -> str:
    """The outline of a histogram with a light filling: several can lie on each other."""
    half = (chart.x[1] - chart.x[0]) / 2
    base = scale.y(0.0)
    path = f"M{scale.x(chart.x[0] - half):.1f} {base:.1f}"
    for x, y in zip(chart.x, series.y, strict=True):
        path += f"V{scale.y(y):.1f}H{scale.x(x + half):.1f}"
    path += f"V{base:.1f}Z"
    dashes = DASHES[index % len(DASHES)]
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<g class="series s{index % 5} filled" data-series="{index}"><path d="{path}"{style}/></g>'
    )


def _readout(chart: Chart, scale: _Scale) -> dict[str, Any]:
    """What the script needs: places along x, and the words to say there."""
    return {
        "px": [round(scale.x(x), 1) for x in chart.x],
        "x": [number(x) for x in chart.x],
        "label": chart.x_label,
        "series": [
            {
                "name": series.name,
                "y": [number(y) for y in series.y],
                "py": [round(scale.y(y), 1) for y in series.y],
            }
            for series in chart.series
        ],
    }


def interval_bar(value: float, interval: Sequence[float]) -> str:
    """A value with its interval between 0 and 1, guessing marked at one half."""
    low, high = (120 * bound for bound in interval)
    text = escape(f"{value:.2f}, interval {interval[0]:.2f} to {interval[1]:.2f}")
    return (
        f'<svg class="bar" viewBox="0 0 120 16" role="img" aria-label="{text}">'
        '<line class="grid" x1="0" x2="120" y1="8" y2="8"/>'
        '<line class="reference" x1="60" x2="60" y1="1" y2="15"/>'
        f'<line class="interval" x1="{low:.1f}" x2="{high:.1f}" y1="8" y2="8"/>'
        f'<circle class="value" cx="{120 * value:.1f}" cy="8" r="2.6"/></svg>'
    )
