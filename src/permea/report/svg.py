"""Where the parts of a chart lie in its SVG picture; the template ``chart.html`` draws them."""

import math
from typing import Any

from permea.report.content import Chart, Series

_DASHES = ("none", "6 4", "2 3", "8 3 2 3", "1 4")


class Layout:
    """Positions in the picture of one chart, in the units of its view box.

    Parameters
    ----------
    chart : Chart
        What is drawn.
    """

    width, height = 460, 290
    left, right, top, base = 50, 448, 12, 244  #: edges of the area inside the axes

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.half = (chart.x[1] - chart.x[0]) / 2 if chart.kind == "histogram" else 0.0
        self.first = self._scaled(chart.x[0] - self.half)
        self.last = self._scaled(chart.x[-1] + self.half)
        self.low, self.high = chart.y_range or _range(chart)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.chart.log_x else value

    def x(self, value: float) -> float:
        """Horizontal position of a value."""
        share = (self._scaled(value) - self.first) / ((self.last - self.first) or 1.0)
        return round(self.left + share * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        """Vertical position of a value; values outside the axis are drawn at its ends."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.base - min(max(share, 0.0), 1.0) * (self.base - self.top), 1)

    def y_ticks(self) -> list[float]:
        """Values that are written at the vertical axis."""
        return ticks(self.low, self.high)

    def x_ticks(self) -> list[float]:
        """Values that are written at the horizontal axis."""
        if not self.chart.log_x:
            return ticks(self.first, self.last)
        if len(self.chart.x) <= 9:
            return list(self.chart.x)
        return [10.0**power for power in range(math.ceil(self.first), math.floor(self.last) + 1)]

    def path(self, series: Series) -> str:
        """The SVG path of one series: a curve, steps, or the outline of a histogram."""
        points = list(zip(self.chart.x, series.y, strict=True))
        if self.chart.kind == "histogram":
            base = self.y(0.0)
            bars = "".join(f"V{self.y(y)}H{self.x(x + self.half)}" for x, y in points)
            return f"M{self.x(self.chart.x[0] - self.half)} {base}{bars}V{base}Z"
        segment = "H{}V{}" if self.chart.kind == "step" else "L{} {}"
        places = [(self.x(x), self.y(y)) for x, y in points]
        return "M{} {}".format(*places[0]) + "".join(segment.format(*one) for one in places[1:])

    def dashes(self, index: int) -> str:
        """How the line of a series is dashed, so that colour is not needed to tell them apart."""
        return _DASHES[index % len(_DASHES)]

    def readout(self) -> dict[str, Any]:
        """What the script shows when a reader points at the chart."""
        return {
            "px": [self.x(x) for x in self.chart.x],
            "x": [number(x) for x in self.chart.x],
            "label": self.chart.x_label,
            "series": [
                {"name": one.name, "y": [number(y) for y in one.y]} for one in self.chart.series
            ],
        }


def _range(chart: Chart) -> tuple[float, float]:
    values = [y for series in chart.series for y in series.y if math.isfinite(y)]
    if chart.reference is not None:
        values.append(chart.reference[1])
    low = 0.0 if chart.kind == "histogram" else min(values, default=0.0)
    high = max(values, default=1.0)
    room = 0.06 * ((high - low) or 1.0)
    return (0.0 if 0 <= low < room * 6 else low - room), high + room


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between ``low`` and ``high``.

    Examples
    --------
    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = ((high - low) or 1.0) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.99)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def number(value: float) -> str:
    """A number as short as it can be read.

    Examples
    --------
    >>> number(0.30000000000000004), number(12345.678), number(0.5)
    ('0.3', '12346', '0.5')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
