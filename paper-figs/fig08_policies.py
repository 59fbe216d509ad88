"""Sandwich Fig. 8: policies over the same micro-kernels, what they find and what it costs."""

import math

from lib import read, study, style

STEM = "fig08_policies"
POLICIES = ["sandwich", "sandwich_paper", "roller", "roller_topk", "mikpoly", "dietcode", "ansor",
            "oracle", "default"]
OURS = 2  # of these are Sandwich's


def interval(result, name):
    """A headline with its interval over the seeds; NaN where the record has none."""
    h = result.headlines.get(name)
    return (h.value, h.lo, h.hi) if h else (math.nan,) * 3


def mean_of(result, form, over):
    """The headlines' numbers; of records without them, the same mean over the cells."""
    out = []
    for p in POLICIES:
        mid, low, high = interval(result, form % p)
        out.append((over([c.value(form % p) for c in result.cells]) if math.isnan(mid) else mid, low, high))
    return out


def bars(ax, shown, text, title, ylabel, log):
    for x, (v, low, high) in enumerate(shown):
        if log and v == 0:
            ax.text(x, 0.02, "none", ha="center", fontsize=style.SMALL, color=style.GREY,
                    transform=ax.get_xaxis_transform())
            continue
        style.bar(ax, x, v, text(v), top=[0, high], width=0.75,
                  color=style.COLORS[x if x < OURS else 5])
        if not math.isnan(low):
            ax.plot([x, x], [low, high], color="#222222", lw=1)
    if log and any(v > 0 for v, *_ in shown):
        ax.set_yscale("log")
    ax.axhline(0, color=style.GREY, lw=0.8)
    ax.set_xticks(range(len(POLICIES)), POLICIES)
    ax.grid(axis="x", visible=False)
    ax.margins(y=0.15)
    ax.set(title=title, ylabel=ylabel)


def percent(v):
    return style.number(100 * v, "%.1f", " %")


result = read.latest(STEM)
speed = mean_of(result, "vs_ansor_%s", study.geomean)
regret = mean_of(result, "regret_%s", study.mean)
cost = {form: [(study.total([c.value(form % p) for c in result.cells]), math.nan, math.nan) for p in POLICIES]
        for form in ("tuning_s_%s", "measurements_%s")}
fig, axes = style.panels(4)
bars(axes[0], speed, lambda v: "%.2f" % v, "(a) Performance, normalised to ansor",
     "times as fast as its choices", False)
bars(axes[1], cost["tuning_s_%s"], style.short, "(b) Tuning time", "seconds of measuring", True)
bars(axes[2], regret, lambda v: style.number(100 * v, "%.1f"), "Regret", "% slower than the oracle's", False)
style.percent_axis(axes[2].yaxis)
bars(axes[3], cost["measurements_%s"], style.number, "Measurements", "schedules measured", True)
n = study.total([c.value("n_shapes") for c in result.cells])
seeds = len(study.settings(result.cells, "seed"))
style.save(fig, result, STEM, "Tuning policies on %s shapes, %d seeds (Sandwich Fig. 8)"
           % (style.number(n), seeds))


def cell_text(shown, text):
    v, low, high = shown
    return text(v) if math.isnan(low) else "%s (%s to %s)" % (text(v), text(low), text(high))


study.write_table(
    STEM, ["policy", "vs ansor (95 %)", "regret (95 %)", "measurements", "tuning s"],
    [[p, cell_text(speed[i], lambda v: style.number(v, "%.3f")), cell_text(regret[i], percent),
      style.number(cost["measurements_%s"][i][0]),
      "0" if cost["tuning_s_%s"][i][0] == 0 else style.short(cost["tuning_s_%s"][i][0])]
     for i, p in enumerate(POLICIES)])
