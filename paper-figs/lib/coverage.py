"""What of each paper is tested, as one strip a paper: paper-figs/gallery/coverage.svg, drawn from
results/coverage.json by `make docs`."""

import json
import os
import sys
import textwrap
import types

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from lib import style  # noqa: E402

KINDS = (("full", style.COLORS[0], "white"), ("partial", style.COLORS[5], "black"),
         ("other", style.COLORS[4], "black"), ("none", "#d9d9d9", "black"))
MEANING = {"full": "as in the paper", "partial": "in part", "none": "not tested",
           "other": "the same question, asked in another way"}

with open(os.path.join(style.TOP, "results", "coverage.json")) as f:
    rows = json.load(f)["rows"]
papers = sorted({r["paper"] for r in rows})
fig, axes = style.rows(1)
ax = axes[0]
for y, paper in enumerate(papers):
    left = 0
    for kind, color, ink in KINDS:
        n = sum(r["paper"] == paper and r["covers"] == kind for r in rows)
        ax.barh(y, n, left=left, height=0.7, color=color, edgecolor="white",
                label=None if y else "%s: %s" % (kind, MEANING[kind]))
        if n:
            ax.text(left + n / 2, y, str(n), ha="center", va="center", color=ink)
        left += n
ax.set_yticks(range(len(papers)), papers)
ax.invert_yaxis()
ax.grid(axis="y", visible=False)
ax.set_xlabel("figures, tables and sections")
style.legend_below(ax)
style.FORMATS = style.FORMATS[:1]  # documents show the SVG
SOURCE = "From results/coverage.json; testbed coverage lists each, with what is missing and why"
about = types.SimpleNamespace(footer=lambda chars, _: textwrap.fill(SOURCE, chars), why_missing=str, notes=list)
style.save(fig, about, "coverage", "What of each paper is tested")
