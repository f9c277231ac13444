"""The course of a tuning run as an SVG picture: predicted time of the model against trials."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aotc.svg import draw_path, draw_svg, draw_text

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
    parts = [*frame.axes(), draw_text(WIDTH / 2, TOP / 2, title, "middle"),
             draw_path(f"M{frame.x(0)},{frame.y(tuned.untuned_ms)} H{WIDTH - RIGHT}", "#888",
                       'stroke-dasharray="5 4"'),
             draw_path(" ".join(steps), "#1764ab", 'stroke-width="2"'),
             f'<circle cx="{frame.x(trials[-1])}" cy="{frame.y(tuned.tuned_ms)}" r="4" '
             'fill="#b3261e"/>']
    return draw_svg(WIDTH, HEIGHT, 12, parts)


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
        yield draw_path(f"M{LEFT},{TOP} V{base} H{WIDTH - RIGHT}", "black")
        for i in range(TICKS + 1):
            ms = self.low + (self.high - self.low) * i / TICKS
            yield draw_text(LEFT - 6, self.y(ms) + 4, f"{ms:.4g}", "end")
            n = round(self.trials * i / TICKS)
            yield draw_text(self.x(n), base + 18, f"{n}", "middle")
        yield draw_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "candidates measured", "middle")
        yield draw_text(LEFT, TOP - 8, "ms a call: line predicted, dot measured, dashes untuned",
                    "start")


__all__ = ["plot"]
