"""What the papers leave open, and each claim's verdict in every setting of it that was tried:
paper-figs/gallery/assumption_matrix.svg, drawn by `make docs` from what
`testbed check --published --assumptions --json` prints. usage: assumption_matrix.py MATRIX.json"""

import json
import os
import sys
import textwrap
import types

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from lib import page, style  # noqa: E402

KINDS = (("reproduced", style.COLORS[0]), ("reproduced in shape", style.COLORS[5]),
         ("consistent", style.COLORS[2]),
         ("undecided", "#d9d9d9"), ("not reproduced", style.COLORS[1]))
COLORS = dict(KINDS)


def names_of(at, sets):
    """The values of a setting, and the named sets that it is part of."""
    of = [name for name, values in sets.items() if all(values.get(k) == v for k, v in at.items())]
    return ", ".join(at.values()) + (" (%s)" % "; ".join(of) if of else "")


def draw(ax, paper):
    claims, settings = paper["claims"], paper["settings"]
    for y, claim in enumerate(claims):
        for x, verdict in enumerate(claim["verdicts"]):
            if verdict in COLORS:
                ax.barh(y, 0.92, left=x - 0.46, height=0.86, color=COLORS[verdict])
    ax.set_title("%s, by %s" % (paper["paper"], ", ".join(dict.fromkeys(k for at in settings for k in at))))
    ax.set_yticks(range(len(claims)), [c["name"] for c in claims], fontsize=6)
    ax.set_xticks(range(len(settings)), [names_of(at, paper["sets"]) for at in settings], rotation=90, fontsize=6)
    ax.set_xlim(-0.6, len(settings) - 0.4)
    ax.set_ylim(len(claims) - 0.4, -0.6)
    ax.grid(visible=False)
    page.height(ax, 0.3 + 0.13 * len(claims))


with open(sys.argv.pop(1)) as f:
    papers = json.load(f)
fig, axes = style.rows(*[1] * len(papers))
for ax, paper in zip(axes, papers):
    draw(ax, paper)
for verdict, color in KINDS:
    axes[-1].barh(0, 0, color=color, label=verdict)
style.legend_below(axes[-1])
style.FORMATS = style.FORMATS[:1]  # documents show the SVG
SOURCE = "From results/assumptions.json and the published records; white: not tried. " \
    "testbed check --assumptions prints it"
about = types.SimpleNamespace(footer=lambda chars, _: textwrap.fill(SOURCE, chars), why_missing=str, notes=list)
style.save(fig, about, "assumption_matrix", "Claims by settings: what the papers leave open")
