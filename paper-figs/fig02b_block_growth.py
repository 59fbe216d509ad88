"""Sandwich Fig. 2b: rate as one side of the slice grows, by micro-kernel."""

import math

from lib import read, study, style

STEM = "fig02b_block_growth"
UNIT = {"m": "rows", "n": "columns"}


def tile(c):
    return "%d rows x %d columns" % (study.setting(c, "mr"), 16 * study.setting(c, "np"))


def panel(ax, cells, left_out, along):
    for i, c in enumerate(study.where(cells, along=along)):
        name = tile(c)
        color = style.COLORS[i % len(style.COLORS)]
        ax.plot(c.series["side"], c.series["gflops"], "-o", ms=2, color=color, label=name)
        knee = c.value("knee")
        if not math.isnan(knee):
            ax.axvline(knee, color=color, lw=0.8, ls=":")
    for c in study.where(left_out, along=along):
        ax.plot([], [], " ", label="%s: %s" % (tile(c), c.setting("error").split(", ")[-1]))
    ax.set(title="Along %s" % along.upper(), xlabel="side of the slice (%s)" % UNIT[along],
           ylabel="GFLOP/s, one thread")
    ax.set_ylim(0, 1.08 * max(ax.dataLim.y1, 1))
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.panels(2)
for ax, along in zip(axes, UNIT):
    panel(ax, result.cells, result.left_out, along)
style.save(fig, result, STEM, "Growth of a slice; dotted: the smallest within 5 % of the best "
           "(Sandwich Fig. 2b)")
study.write_table(
    STEM, ["along", "micro-kernel", "first GFLOP/s", "best GFLOP/s", "growth", "knee"],
    [[study.setting(c, "along"), "%sx%s" % (study.setting(c, "mr"), study.setting(c, "np"))] +
     [style.short(c.value(k)) for k in ("gflops_first", "gflops_best", "growth", "knee")]
     for c in result.cells] +
    [[study.setting(c, "along"), "%sx%s" % (study.setting(c, "mr"), study.setting(c, "np")),
      "%s: %s" % (c.attrs["state"], c.setting("error")), "", "", ""] for c in result.left_out])
