"""The figures of a report: medians, spans, ratios within rounds, speed-up and efficiency. Pure."""

import statistics


def median(values):
    """The median, or None of nothing."""
    return statistics.median(values) if values else None


def spread(values, digits=2):
    """Median, and least–most if there is more than one."""
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def ratio(values, base):
    """How many times the base's value in the same round: the median over rounds, so that slow rounds don't count more.

    Both are dictionaries by round. None if no round has both.
    """
    pairs = [values[number] / base[number] for number in values if base.get(number)]
    return statistics.median(pairs) if pairs else None


def speed_up(seconds):
    """T(1)/T(n) for each number of transfers n, from a dictionary of seconds by n; empty without n = 1."""
    if not seconds.get(1):
        return {}
    return {n: seconds[1] / taken for n, taken in sorted(seconds.items()) if taken > 0}


def efficiency(seconds):
    """Speed-up divided by n: 1 is perfect."""
    return {n: gain / n for n, gain in speed_up(seconds).items()}
