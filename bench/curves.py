"""From a case's medians over the number of transfers to the HPC text's tables and plots: time, speed-up, efficiency."""

import plots
import stats


def page(title, curves, levels):
    """The SVG page, or None of nothing to draw. `curves`: {name: {transfers: seconds}}; `levels`: {name: seconds} without a number."""
    if not any(len(curve) > 1 for curve in curves.values()):
        return None
    colours = {name: number for number, name in enumerate([*curves, *(name for name in levels if name not in curves)])}
    times = [(name, colours[name], curve) for name, curve in curves.items()]
    flat = [(f"{name}, own choice" if name in curves else name, colours[name], seconds) for name, seconds in levels.items()]
    gains = [(name, colours[name], stats.speed_up(curve)) for name, curve in curves.items() if stats.speed_up(curve)]
    shares = [(name, colours[name], stats.efficiency(curve)) for name, curve in curves.items() if stats.efficiency(curve)]
    panels = [
        plots.panel("Time", "seconds", times, flat),
        plots.panel("Speed-up T(1)/T(n)", "times", gains),
        plots.panel("Efficiency, speed-up / n", "1 is perfect", shares),
    ]
    return plots.page(title, panels)


def table(curves):
    """Lines of Markdown with time, speed-up and efficiency of each tool and number of transfers; none without a T(1)."""
    lines = []
    for name, curve in curves.items():
        gains, shares = stats.speed_up(curve), stats.efficiency(curve)
        lines += [f"| {name} | {n} | {curve[n]:.2f} | {gains[n]:.2f} | {shares[n]:.0%} |" for n in gains]
    head = ["| tool | transfers n | T(n) s | speed-up T(1)/T(n) | efficiency |", "|---|--:|--:|--:|--:|"]
    return head + lines if lines else []
