"""Charts as SVG: a bar for each peer, its median with a line from the least to the most of the rounds; or a line for each peer."""

import math
from xml.sax.saxutils import escape

from .peers import OURS

ROW, LEFT, WIDTH, RIGHT = 26, 130, 440, 150
COLOURS = {True: "#c2410c", False: "#64748b"}


def chart(title, bars):
    """`bars` are pairs of the peer's name and its figures, the fastest first."""
    most = max(figures["spread"][1] for _, figures in bars)
    scale = WIDTH / most if most else 0
    height, width = 44 + ROW * len(bars), LEFT + WIDTH + RIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-weight="bold" fill="#0f172a">{escape(title)}: acquire + release pairs per second</text>',
    ]
    for row, (name, figures) in enumerate(bars):
        top = 36 + ROW * row
        least, longest = (LEFT + value * scale for value in figures["spread"])
        bar = max(figures["rate"] * scale, 1)
        lines += [
            f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end" fill="#0f172a">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{bar:.1f}" height="18" fill="{COLOURS[name == OURS]}"/>',
            f'<path d="M{least:.1f} {top + 9}H{longest:.1f}" stroke="#0f172a" stroke-width="2"/>',
            f'<text x="{longest + 8:.1f}" y="{top + 14}" fill="#0f172a">{figures["rate"]:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def lines(title, unit, loads, rows):
    """A line for each peer over the number of tasks, both axes by powers of two. `rows` are pairs of a peer and its figures."""
    height, top, bottom, right = 380, 40, 340, LEFT - 60 + WIDTH
    rates = [figures["rate"] for _, columns in rows for figures in columns if "rate" in figures]
    if not rates or len(loads) < 2:
        return ""
    least, most = math.floor(math.log2(min(rates))), math.ceil(math.log2(max(rates)))
    most = max(most, least + 1)

    def across(tasks):
        first, last = math.log2(loads[0].tasks), math.log2(loads[-1].tasks)
        return LEFT - 60 + WIDTH * (math.log2(tasks) - first) / (last - first)

    def up(rate):
        return bottom - (bottom - top) * (math.log2(rate) - least) / (most - least)

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + RIGHT}" height="{height}" viewBox="0 0 {right + RIGHT} {height}" '
        'font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{right + RIGHT}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-weight="bold" fill="#0f172a">{escape(title)}: acquire + release pairs per second</text>',
    ]
    for power in range(least, most + 1):
        drawn.append(f'<path d="M{LEFT - 60} {up(2**power):.1f}H{right}" stroke="#e2e8f0"/>')
        drawn.append(f'<text x="{LEFT - 68}" y="{up(2**power) + 4:.1f}" text-anchor="end" fill="#0f172a">{2**power:,}</text>')
    for load in loads:
        drawn.append(f'<text x="{across(load.tasks):.1f}" y="{bottom + 18}" text-anchor="middle" fill="#0f172a">{load.tasks}</text>')
    drawn.append(f'<text x="{LEFT - 60 + WIDTH / 2}" y="{bottom + 36}" text-anchor="middle" fill="#0f172a">{unit}</text>')
    ends = []
    for peer, columns in rows:
        points = [(across(load.tasks), up(figures["rate"])) for load, figures in zip(loads, columns) if figures.get("rate")]
        if not points:
            continue
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        width = 3 if peer.name == OURS else 1.5
        drawn.append(f'<path d="M{path}" fill="none" stroke="{COLOURS[peer.name == OURS]}" stroke-width="{width}"/>')
        ends.append((points[-1][1], peer.name))
    # The names stand at the ends of their lines, and below each other where these meet.
    below = top
    for y, name in sorted(ends):
        below = max(below + 15, y + 4)
        drawn.append(f'<text x="{right + 8}" y="{below:.1f}" fill="#0f172a">{escape(name)}</text>')
    return "\n".join([*drawn, "</svg>", ""])
