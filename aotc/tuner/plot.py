"""The course of a tuning run as an SVG picture: predicted time of the model against trials."""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotc.tuner.session import Tuned

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
TICKS = 5


def plot(tuned: "Tuned", title: str) -> str:
    """SVG text of a Tuned: a step line of the time predicted for the best points so far, the
    untuned time as a dashed line, the tuned time as it was measured in the end as a dot."""
    trials = [0] + [n for _, n, _ in tuned.history]
    times = [tuned.untuned_ms] + [ms for _, _, ms in tuned.history]
    low, high = min([*times, tuned.tuned_ms]), max([*times, tuned.untuned_ms])
    pad = (high - low) * 0.1 or high * 0.05 or 1.0
    frame = _Frame(max(1, trials[-1]), low - pad, high + pad)
    steps = [f"M{frame.x(trials[0])},{frame.y(times[0])}"]
    steps += [f"H{frame.x(n)} V{frame.y(ms)}" for n, ms in zip(trials[1:], times[1:])]
    parts = [*frame.axes(), _text(WIDTH / 2, TOP / 2, escape(title), "middle"),
             f'<path d="M{frame.x(0)},{frame.y(tuned.untuned_ms)} H{WIDTH - RIGHT}" '
             'stroke="#888" stroke-dasharray="5 4" fill="none"/>',
             f'<path d="{" ".join(steps)}" stroke="#1764ab" stroke-width="2" fill="none"/>',
             f'<circle cx="{frame.x(trials[-1])}" cy="{frame.y(tuned.tuned_ms)}" r="4" '
             'fill="#b3261e"/>']
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>", ""])


class _Frame:
    """Where trials and milliseconds lie in the picture."""

    def __init__(self, trials: int, low: float, high: float) -> None:
        self.trials, self.low, self.high = trials, low, high

    def x(self, trials: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * trials / self.trials, 1)

    def y(self, ms: float) -> float:
        share = (ms - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share, 1)

    def axes(self) -> Iterator[str]:
        """Both axes with their numbers and what they count."""
        base = HEIGHT - BOTTOM
        yield f'<path d="M{LEFT},{TOP} V{base} H{WIDTH - RIGHT}" stroke="black" fill="none"/>'
        for i in range(TICKS + 1):
            ms = self.low + (self.high - self.low) * i / TICKS
            yield _text(LEFT - 6, self.y(ms) + 4, f"{ms:.4g}", "end")
            n = round(self.trials * i / TICKS)
            yield _text(self.x(n), base + 18, f"{n}", "middle")
        yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "candidates measured", "middle")
        yield _text(LEFT, TOP - 8, "ms a call: line predicted, dot measured, dashes untuned",
                    "start")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


__all__ = ["plot"]
