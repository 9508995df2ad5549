"""SVG as text: elements, and the styles that a picture uses."""

from __future__ import annotations

import re
from html import escape

INK, RED, PAPER = "#222222", "#c00000", "#ffffff"

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML may contain, in whatever form."""


def plain(words: str) -> str:
    """Text as ASCII that XML takes."""
    clean = escape(_FORBIDDEN.sub("?", words))
    return clean.encode("ascii", "xmlcharrefreplace").decode("ascii")


def tag(name: str, *inside: str, **attributes: str | int | float) -> str:
    """An element; ``class_`` is its class, and an underscore in a name is a hyphen."""
    words = [
        f' {key.rstrip("_").replace("_", "-")}="{plain(f"{value}")}"'
        for key, value in attributes.items()
    ]
    if not inside:
        return f"<{name}{''.join(words)}/>"
    return f"<{name}{''.join(words)}>{''.join(inside)}</{name}>"


def rect(x: float, y: float, width: float, height: float, class_: str, **more: str | int) -> str:
    """A rectangle."""
    return tag("rect", x=x, y=y, width=width, height=height, class_=class_, **more)


def text(x: float, y: float, words: str, class_: str) -> str:
    """Words that start, end or are centred at x, as their class says."""
    return tag("text", plain(words), x=x, y=y, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return tag("path", d=f"M{x1} {y1}L{x2} {y2}", class_=class_)


def shape(class_: str, fill: str, *points: tuple[float, float]) -> str:
    """A filled polygon."""
    return tag("polygon", points=" ".join(f"{x},{y}" for x, y in points), class_=class_, fill=fill)


STYLE = f"""<style>
text {{ font: 13px Helvetica, Arial, sans-serif; fill: {INK}; }}
.title, .title tspan {{ font-size: 17px; font-weight: bold; }}
.verified {{ fill: #117733; }}
.violated {{ fill: {RED}; }}
.number, .wrong {{ font-size: 15px; font-weight: bold; text-anchor: middle; }}
.lane {{ text-anchor: end; }}
.small {{ font-size: 11px; fill: #555555; }}
.badge {{ font-size: 12px; font-weight: bold; text-anchor: middle; fill: {PAPER}; }}
.page {{ fill: {PAPER}; stroke: #bbbbbb; }}
.band {{ fill: #f2f2f2; }}
.pass {{ stroke: #999999; stroke-dasharray: 2 4; }}
.edge {{ stroke: {INK}; }}
.frame {{ fill: none; stroke: {INK}; stroke-width: 2.5; }}
.fence {{ fill: none; stroke: #444444; stroke-width: 1.5; marker-end: url(#tip); }}
.slack {{ opacity: 0.4; }}
.red {{ fill: none; stroke: {RED}; stroke-width: 3.5; }}
.cross {{ fill: none; stroke: {RED}; stroke-width: 5; stroke-linecap: round; }}
.halo {{ fill: none; stroke: {PAPER}; stroke-width: 9; stroke-linecap: round; }}
.hatch {{ fill: url(#hatch); }}
.dot {{ fill: {RED}; stroke: {PAPER}; stroke-width: 1.5; }}
.wrong {{ fill: {PAPER}; }}
</style>
<defs>
<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0L8 4L0 8z" fill="#444444"/></marker>
<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" \
patternTransform="rotate(45)"><rect width="2.5" height="7" fill="{RED}" opacity="0.75"/></pattern>
</defs>"""
