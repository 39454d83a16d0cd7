"""Format numbers for people: sizes, times, shares, counts."""

from __future__ import annotations

import math

from mdsx.base.sizes import format_size

_NAMES = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_DIGITS = 3


def size(value: float) -> str:
    """Return bytes, such as "1.5 GB"."""
    return format_size(round(value))


def limit(value: float) -> str:
    """Return a size for an argument, rounded up so that it has room for `value` bytes: "4.98GB"."""
    least = math.ceil(value)
    step = 10 ** max(len(str(least)) - _DIGITS, 0)
    return size(-(-least // step) * step).replace(" ", "")


def count(value: float) -> str:
    """Return a number: in full below a million, then "1.5 million"."""
    for unit, name in _NAMES:
        if value >= unit:
            return f"{value / unit:.4g} {name}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def share(value: float) -> str:
    """Return a share of 1 in percent, with significant digits: "0.03 %", "4.2 %", "38 %"."""
    percent = 100 * value
    if percent == 0 or percent >= 9.95:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if percent >= 0.95 else "under 0.01 %" if percent < 0.01 else f"{percent:.2f} %"


def seconds(value: float) -> str:
    """Return a time, such as "85 ms", "12.5 s", "39 min", "5.2 hours" or "12 days"."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    for unit, name, most in ((1, "s", 120), (60, "min", 7200), (3600, "hours", 48 * 3600)):
        if value < most:
            return f"{value / unit:.3g} {name}"
    return f"{value / 86400:,.3g} days" if value < 86400 * 1000 else f"{value / 86400:,.0f} days"


def times(part: float, whole: float) -> str:
    """Return the ratio of `part` to `whole`: "1.02 times"."""
    ratio = part / whole if whole else 0.0
    return f"{ratio:.2f} times" if ratio < 10 else f"{ratio:,.0f} times"


def money(value: float, currency: str) -> str:
    """Return an amount, such as "12.30 USD"; amounts below a cent say so."""
    if 0 < value < 0.01:
        return f"under 0.01 {currency}"
    return f"{value:,.2f} {currency}"
