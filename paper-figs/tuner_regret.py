"""Regret of the tuners of kernels by measurements and by seconds, and from which budget on the order of
any two is decided."""

import math

import numpy as np

from lib import read, study, style, table

STEM = "tuner_regret"
TUNERS = ["sandwich", "sandwich_3", "sandwich_paper", "sandwich_paper_3", "roller", "roller_topk", "ansor", "ansor_100",
          "dietcode", "mikpoly", "random", "random_100", "oracle"]
MARKS = [30, 100, 300, 1000, 3000, 10000, 30000]
SECONDS = [1, 3, 10, 30, 100, 300]


def seeds_of(tuner, metric):
    """The mean over the machines for each seed."""
    return np.array([study.mean([c.value(metric) for c in study.where(result.cells, tuner=tuner, seed=s)])
                     for s in study.settings(result.cells, "seed")])


def t95(n):
    """Student's t for a 95 % interval of n numbers, from the normal one's (Cornish and Fisher)."""
    z, v = 1.959963984540054, n - 1
    return z + (z ** 3 + z) / (4 * v) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * v ** 2)


def order(a, b, metric):
    """-1: a has less regret, 1: b has, 0: the interval of the difference over the seeds has both."""
    d = seeds_of(a, metric) - seeds_of(b, metric)
    half = t95(len(d)) * d.std(ddof=1) / math.sqrt(len(d)) if len(d) > 1 else math.inf
    return 0 if not abs(d.mean()) > half else int(np.sign(d.mean()))


def decided(a, b, form, marks):
    """The first budget from which on a has surely less regret than b."""
    first = None
    for m in reversed(marks):
        if order(a, b, form % m) >= 0:
            break
        first = m
    return first


def curves(ax, form, marks, title, xlabel):
    for k, t in enumerate(TUNERS):
        ax.plot(marks, [study.mean(list(seeds_of(t, form % m))) for m in marks], marker="osv^D*P<>Xhdp"[k], ms=4, lw=1,
                ls=style.LINES[k // 6], color=style.COLORS[k % 6], label=t)
    ax.set_xscale("log")
    ax.set_xticks(marks, ["{:,}".format(m) for m in marks])
    ax.minorticks_off()
    ax.set_yscale("symlog", linthresh=0.1)
    ax.set_yticks([0, 0.02, 0.05, 0.1, 0.2, 0.5, 1], ["0", "2 %", "5 %", "10 %", "20 %", "50 %", "100 %"])
    ax.set_ylim(bottom=-0.002)
    ax.set(title=title, xlabel=xlabel, ylabel="time over the best's, mean")


def matrix(ax):
    """From how many measurements on a row's tuner has surely less regret than the column's."""
    ax.imshow([[math.nan]], extent=(-0.5, len(TUNERS) - 0.5, len(TUNERS) - 0.5, -0.5), aspect="auto")
    for y, a in enumerate(TUNERS):
        for x, b in enumerate(TUNERS):
            m = decided(a, b, "regret_%d", MARKS) if x != y else None
            ax.text(x, y, "{:,}".format(m) if m else "-", ha="center", va="center", fontsize=style.SMALL,
                    color="black" if m else style.GREY)
    ax.grid(False)
    ax.set_xticks(range(len(TUNERS)), [t.replace("_", "\n") for t in TUNERS])
    ax.set_yticks(range(len(TUNERS)), TUNERS)
    ax.set(title="Measurements from which on a row's regret is surely below the column's")


result = read.latest(STEM)
fig, axes = style.rows(2, 1)
curves(axes[0], "regret_%d", MARKS, "After measurements", "measurements, 12 shapes together")
curves(axes[1], "regret_%ds", SECONDS, "After time on the machine", "seconds of measuring")
style.legend_below(axes[0])
matrix(axes[2])
style.save(fig, result, STEM, "Tuners of kernels at equal budgets (Sandwich Fig. 8)")
table.write(STEM, ["tuner"] + ["after %d" % m for m in MARKS] + ["%d s" % s for s in SECONDS] + [
    "chosen", "measurements", "seconds"],
    [[t] + [style.percent(study.mean(list(seeds_of(t, n)))) for n in
            ["regret_%d" % m for m in MARKS] + ["regret_%ds" % s for s in SECONDS] + ["regret_chosen"]] +
     [style.number(study.geomean([c.value(n) for c in study.where(result.cells, tuner=t)]), f)
      for n, f in (("n_measurements", "%.0f"), ("tuning_s", "%.2f"))] for t in TUNERS + ["sandwich_again"]])
