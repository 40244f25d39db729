"""A bar for each peer, as SVG: the median, and a line from the least to the most of the rounds."""

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
