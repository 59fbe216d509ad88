"""Sandwich Fig. 8: policies over the same micro-kernels, what they find and what it costs."""

import math

from lib import read, study, style

STEM = "fig08_policies"
POLICIES = ["sandwich", "roller", "roller_topk", "mikpoly", "dietcode", "ansor", "oracle", "default"]
PANELS = [("regret_%s", study.mean, "Slower than the oracle", "mean over matrices", False),
          ("measurements_%s", study.total, "Measurements", "schedules measured", True),
          ("tuning_s_%s", study.total, "Tuning time", "seconds of measuring", True)]


def values(cells, form, over):
    return [over([c.value(form % p) for c in cells]) for p in POLICIES]


def panel(ax, cells, form, over, title, ylabel, log):
    shown = values(cells, form, over)
    for x, v in enumerate(shown):
        if log and v == 0:
            ax.text(x, 0.02, "none", ha="center", fontsize=8, color=style.GREY,
                    transform=ax.get_xaxis_transform())
            continue
        text = style.short(v) if log else style.number(100 * v, "%.1f", " %")
        style.bar(ax, x, v, text, top=[0], width=0.75, color=style.COLORS[0 if x == 0 else 5])
    if log and any(v > 0 for v in shown):
        ax.set_yscale("log")
    elif not log:
        style.percent_axis(ax.yaxis)
    ax.axhline(0, color=style.GREY, lw=0.8)
    ax.set_xticks(range(len(POLICIES)), POLICIES, rotation=35, ha="right", fontsize=8.5)
    ax.grid(axis="x", visible=False)
    ax.margins(y=0.15)
    ax.set(title=title, ylabel=ylabel)


result = read.latest(STEM)
fig, axes = style.panels(3, columns=2)
for ax, what in zip(axes, PANELS):
    panel(ax, result.cells, *what)
n = study.total([c.value("n_shapes") for c in result.cells])
style.save(fig, result, STEM, "Tuning policies on %s shapes, winners measured again in turn "
           "(Sandwich Fig. 8)" % style.number(n))
columns = [values(result.cells, form, over) for form, over, *_ in PANELS]
gflops = values(result.cells, "gflops_%s", study.geomean)
study.write_table(
    STEM, ["policy", "regret", "measurements", "tuning s", "GFLOP/s"],
    [[p, style.number(100 * columns[0][i], "%.1f", " %"), style.number(columns[1][i]),
      "0" if columns[2][i] == 0 else style.short(columns[2][i]),
      style.short(gflops[i]) if not math.isnan(gflops[i]) else "n/a"]
     for i, p in enumerate(POLICIES)])
