"""Plots as self-contained SVG: lines over the number of transfers, and a page of three of them. Pure: numbers in, text out."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 460, 330
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 40, 82
# Okabe and Ito's colours, which the colour-blind tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:13px}.grid{stroke:#ddd}.axis{stroke:#444}"
    ".line{fill:none;stroke-width:2}.level{stroke-width:1.5;stroke-dasharray:6 4}"
)


def panel(title, unit, curves, levels=(), bottom=0.0):
    """One plot as an SVG group, of WIDTH by HEIGHT.

    `curves` are (name, colour number, {transfers: value}); `levels` are (name, colour number, value), drawn across; the value axis
    starts at `bottom`.
    """
    points = [value for _, _, curve in curves for value in curve.values()] + [value for _, _, value in levels]
    across = sorted({n for _, _, curve in curves for n in curve})
    if not points or not across:
        return ""
    top, step = axis(max(points) - bottom)
    top += bottom
    # Transfers double from tick to tick, so the axis is logarithmic.
    first, span = math.log2(across[0]), (math.log2(across[-1]) - math.log2(across[0])) or 1.0

    def x(n):
        return LEFT + (math.log2(n) - first) / span * (WIDTH - LEFT - RIGHT)

    def y(value):
        return HEIGHT - BOTTOM - (value - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    out = [f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>']
    for index in range(round((top - bottom) / step) + 1):
        value = bottom + index * step
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for n in across:
        out.append(f'<text x="{x(n):.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{n}</text>')
    base = HEIGHT - BOTTOM
    out.append(f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{base}H{WIDTH - RIGHT}"/>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{base + 34}" text-anchor="middle">--transfers</text>')
    middle = (TOP + base) / 2
    out.append(f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{escape(unit)}</text>')
    for _, colour, value in levels:
        stroke = COLOURS[colour % len(COLOURS)]
        out.append(f'<line class="level" stroke="{stroke}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
    for _, colour, curve in curves:
        stroke = COLOURS[colour % len(COLOURS)]
        spots = [(x(n), y(value)) for n, value in sorted(curve.items())]
        if len(spots) > 1:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in spots)
            out.append(f'<polyline class="line" stroke="{stroke}" points="{path}"/>')
        out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{stroke}"/>' for px, py in spots]
    named = [(name, colour, False) for name, colour, _ in curves] + [(name, colour, True) for name, colour, _ in levels]
    return "\n".join(out + legend(named))


def legend(named):
    """Names with their strokes below the axis, three in a row."""
    out = []
    for index, (name, colour, dashed) in enumerate(named):
        px, py = LEFT - 40 + index % 3 * 140, HEIGHT - 28 + index // 3 * 17
        stroke = COLOURS[colour % len(COLOURS)]
        kind = "level" if dashed else "line"
        out.append(f'<line class="{kind}" stroke="{stroke}" x1="{px}" x2="{px + 22}" y1="{py - 4}" y2="{py - 4}"/>')
        out.append(f'<text x="{px + 27}" y="{py}">{escape(name)}</text>')
    return out


def page(title, panels):
    """An SVG file of panels side by side."""
    shown = [one for one in panels if one]
    width, height = WIDTH * max(1, len(shown)), HEIGHT + 30
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    out = [head, f"<style>{STYLE}</style>", f'<rect width="{width}" height="{height}" fill="#fff"/>']
    out.append(f'<text class="title" x="{LEFT - 40}" y="18">{escape(title)}</text>')
    for index, one in enumerate(shown):
        out.append(f'<g transform="translate({index * WIDTH} 24)">\n{one}\n</g>')
    return "\n".join([*out, "</svg>"]) + "\n"


def axis(largest):
    """The axis' end and the distance of its ticks: 3 to 6 round numbers."""
    if largest <= 0:
        return 1.0, 0.25
    raw = largest / 6
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    return math.ceil(largest / step - 1e-9) * step, step
