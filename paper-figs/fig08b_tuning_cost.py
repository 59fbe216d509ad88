"""Sandwich Fig. 8b: what tuning for every number of rows costs, by policy, and the speed of what each
policy chose."""

import numpy as np

from lib import read, study, style

STEM = "fig08b_tuning_cost"
POLICIES = ["sandwich", "sandwich_paper", "roller", "roller_topk", "mikpoly", "dietcode", "ansor", "default"]
OURS = 2  # of these are Sandwich's


def total(form, policy):
    return study.total([c.value(form + policy) for c in result.cells])


def bars(ax, form, title, ylabel):
    for x, p in enumerate(POLICIES):
        v = total(form, p)
        if v == 0:
            ax.text(x, 0.02, "none", ha="center", fontsize=style.SMALL, color=style.GREY,
                    transform=ax.get_xaxis_transform())
        else:
            style.bar(ax, x, v, style.short(v), width=0.75, color=style.COLORS[x if x < OURS else 5])
    if any(total(form, p) > 0 for p in POLICIES):
        ax.set_yscale("log")
    names(ax, POLICIES)
    ax.margins(y=0.15)
    ax.set(title=title, ylabel=ylabel)


def speeds(ax, c):
    """Time of the cost model's schedule over that of each policy's: quantiles over M."""
    base = c.series.get("s_default", [])
    for x, p in enumerate(POLICIES[:-1]):
        s = c.series.get("s_" + p, [])
        if len(s) and len(base) == len(s):
            q = np.quantile(base / s, [0.05, 0.25, 0.5, 0.75, 0.95])
            color = style.COLORS[x if x < OURS else 5]
            ax.plot([x, x], q[[0, 4]], lw=1, color=color)
            ax.plot([x, x], q[[1, 3]], lw=4, color=color)
            ax.plot(x, q[2], "o", ms=3, color="black", zorder=3)
    if ax.lines:
        ax.axhline(1, color=style.GREY, ls="--", lw=1)
        ax.set_ylim(0, None)
    else:
        style.na(ax)
    names(ax, POLICIES[:-1])
    ax.set(title="%s: median, half, 90 %% of M" % study.matrix_name(c),
           ylabel="times as fast as\nthe cost model's schedule")


def names(ax, policies):
    ax.set_xticks(range(len(policies)), policies)
    ax.grid(axis="x", visible=False)


result = read.latest(STEM)
fig, axes = style.panels(2 + len(result.cells), columns=1)
bars(axes[0], "tuning_s_", "Tuning time, all M", "seconds of measuring")
bars(axes[1], "measurements_", "Measurements", "schedules measured")
for ax, cell in zip(axes[2:], result.cells):
    speeds(ax, cell)
n = study.total([c.value("n_shapes") for c in result.cells])
style.save(fig, result, STEM, "Tuning for every M: %s shapes (Sandwich Fig. 8b)" % style.number(n))
study.write_table(
    STEM, ["policy", "tuning s", "measurements", "speed-up"],
    [[p, style.short(total("tuning_s_", p)), style.number(total("measurements_", p)),
      style.number(study.geomean([c.value("speedup_" + p) for c in result.cells]), "%.3f")]
     for p in POLICIES])
