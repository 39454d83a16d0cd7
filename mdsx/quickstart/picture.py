"""Draw a training that was killed and resumed: a page with its loss and the order of its samples.

The charts are SVG. The page has no scripts, and its policy lets it load nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mdsx.base import pages
from mdsx.quickstart.account import Account, last_checkpoint
from mdsx.quickstart.lives import Step

_WIDTH, _HEIGHT = 760, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 30, 12, 46  # around the chart, for its axes
_TICKS = 6  # at most, of an axis


def page(found: Account, killed: Sequence[Step], resumed: Sequence[Step]) -> str:
    """Return the page of a training's two lives, as HTML. The same training gives the same page."""
    styles = [pages.asset("theme.css"), pages.own("mdsx.quickstart", "page.css")]
    figures = {
        "samples": f"{len(found.lives):,}",
        "lost": f"{found.lost:,}",
        "repeated": f"{found.repeated:,}",
        "killed after step": f"{killed[-1].step}",
        "resumed at step": f"{resumed[0].step}",
        "batch size": f"{len(killed[0].samples)}, then {len(resumed[0].samples)}",
    }
    return pages.filled(
        pages.own("mdsx.quickstart", "page.html"),
        {
            "POLICY": pages.policy(styles=styles),
            "STYLES": pages.inline("style", styles),
            "VERDICT": "Every sample was read exactly once" if found.exact else "A promise was broken",
            "FIGURES": "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in figures.items()),
            "LOSS": _loss(killed, resumed),
            "ORDER": _order(found, killed, resumed),
        },
    )


@dataclass(frozen=True)
class _Axis:
    """Values from `low` to `high`, on the pixels from `start` to `end`."""

    title: str
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> str:
        share = (value - self.low) / ((self.high - self.low) or 1)
        return f"{self.start + share * (self.end - self.start):.1f}"

    def ticks(self) -> list[float]:
        """Return a few round values."""
        least = ((self.high - self.low) or 1) / _TICKS
        power = 10.0 ** math.floor(math.log10(least))
        unit = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
        first = math.ceil(self.low / unit)
        return [unit * number for number in range(first, math.floor(self.high / unit) + 1)]


def _loss(killed: Sequence[Step], resumed: Sequence[Step]) -> str:
    kept, last = last_checkpoint(killed), killed[-1].step
    losses = [step.loss for step in (*killed, *resumed)]
    x = _across("step", 0, resumed[-1].step)
    y = _up("loss, bits per byte", math.floor(min(losses)), math.ceil(max(losses)))
    kill = f'x1="{x.at(last)}" x2="{x.at(last)}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"'
    marks = [f'<line class="kill" {kill}/>']
    marks.append(f'<text class="killed" x="{float(x.at(last)) + 6}" y="{_TOP + 14}">killed after step {last}</text>')
    for kind, steps in (("one", killed), ("two", resumed)):
        points = " ".join(f"{x.at(step.step)},{y.at(step.loss)}" for step in steps)
        marks.append(f'<polyline class="line {kind}" points="{points}"/>')
    for kind, steps in (("one", killed), ("two", resumed)):
        for step in steps:
            look = "open" if kind == "one" and step.step > kept else kind
            text = f"step {step.step}: {step.loss:.2f} bits per byte, {len(step.samples)} samples"
            marks.append(_dot(look, x.at(step.step), y.at(step.loss), 3, text))
    return _chart("The loss of each step; the second life continues where the checkpoint was", x, y, marks)


def _order(found: Account, killed: Sequence[Step], resumed: Sequence[Step]) -> str:
    total = len(found.lives)
    x, y = _across("samples read before it", 0, total), _up("number in the dataset", 0, total)
    marks = []
    for position, (kind, step, sample) in enumerate(_reads(killed, resumed)):
        text = f"sample {sample}: read at position {position}, in step {step}"
        look = kind if len(found.lives[sample]) == 1 else "bad"
        marks.append(_dot(look, x.at(position), y.at(sample), 2, text))
    lost = [sample for sample, lives in enumerate(found.lives) if not lives]
    marks += [_dot("bad", x.at(total), y.at(sample), 2, f"sample {sample}: lost") for sample in lost]
    return _chart("When each sample was read, by its number in the dataset: an even cloud", x, y, marks)


def _reads(killed: Sequence[Step], resumed: Sequence[Step]) -> Iterator[tuple[str, int, int]]:
    """Yield (class, step, sample) for all that the final model has read."""
    kept = last_checkpoint(killed)
    for kind, steps in (("one", [step for step in killed if step.step <= kept]), ("two", resumed)):
        for step in steps:
            for sample in step.samples:
                yield kind, step.step, sample


def _across(title: str, low: float, high: float) -> _Axis:
    return _Axis(title, low, high, _LEFT, _WIDTH - _RIGHT)


def _up(title: str, low: float, high: float) -> _Axis:
    return _Axis(title, low, high, _HEIGHT - _BOTTOM, _TOP)


def _dot(look: str, x: str, y: str, radius: int, text: str) -> str:
    return f'<circle class="{look}" cx="{x}" cy="{y}" r="{radius}"><title>{text}</title></circle>'


def _chart(label: str, x: _Axis, y: _Axis, marks: Sequence[str]) -> str:
    drawn = []
    for tick in y.ticks():
        at = y.at(tick)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>')
        drawn.append(f'<text x="{_LEFT - 8}" y="{float(at) + 4}" text-anchor="end">{tick:,.6g}</text>')
    under = f'y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle"'
    drawn += [f'<text x="{x.at(tick)}" {under}>{tick:,.6g}</text>' for tick in x.ticks()]
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    drawn.append(f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{x.title}</text>')
    turned = f'transform="rotate(-90 14 {middle})"'
    drawn.append(f'<text x="14" y="{middle}" text-anchor="middle" {turned}>{y.title}</text>')
    inside = "".join((*drawn, *marks))
    return (
        f'<div class="chart"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{inside}</svg></div>'
    )
