"""The search for decode's cores without one of its parts, on simulated machines: a panel for each
machine, how much slower than the best configuration each method's answer is. The axis is
logarithmic, because methods without removes are slower by orders of magnitude."""

import math

from lib import page, read, study, style

STEM = "tab02_ablation"
HEADER = ["machine", "method", "slower than the best", "tok/s", "measurements", "trees", "search s",
          "latent"]
FLOOR = 1e-3  # a smaller share is drawn here: it is within the noise


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def panel(ax, cells, methods):
    for y, method in enumerate(methods):
        of = study.where(cells, method=method)
        gaps = study.finite([c.value("gap_frac") for c in of])
        gap = study.mean(gaps)
        ax.plot([max(g, FLOOR) for g in gaps], [y] * len(gaps), "o", ms=3, color=style.COLORS[5],
                label="seeds" if y == 0 else None)
        ax.plot([max(gap, FLOOR)], [y], "|", ms=9, mew=2, color=style.COLORS[0],
                label="mean" if y == 0 else None)
        ax.text(1.02, y, style.number(100 * gap, "%.1f", " %"), transform=ax.get_yaxis_transform(),
                va="center", fontsize=style.SMALL)
    style.na(ax, read.why(cells, "gap_frac"))
    ax.set_xscale("log")
    gaps = study.finite([c.value("gap_frac") for c in cells])
    if gaps:
        ax.set_xlim(0.8 * FLOOR, 1.5 * max(10 * FLOOR, *gaps))
        shown = [t for t in (1e-3, 1e-2, 0.1, 1, 10) if t <= ax.get_xlim()[1]]
        ax.set_xticks(shown, ["<0.1 %"] + ["%g %%" % (100 * t) for t in shown[1:]])
        ax.minorticks_off()
    ax.set_yticks(range(len(methods)), methods)
    ax.set_ylim(len(methods) - 0.4, -0.6)
    page.height(ax, 0.18 * max(4, len(methods)))
    style.legend_below(ax)


result = read.latest(STEM)
machines, methods = (study.settings(result.cells, n) for n in ("machine", "method"))
fig, axes = style.panels(max(1, len(machines)))
for ax, machine in zip(axes, machines):
    panel(ax, study.where(result.cells, machine=machine), methods)
    ax.set(title=machine, xlabel="slower than the best")
for ax in axes[1:]:
    ax.set_yticklabels([])
style.save(fig, result, STEM, "The search for decode's cores without one of its parts: how much "
           "slower its answer is than the best configuration")
study.write_table(STEM, HEADER, [
    [machine, method, style.number(100 * mean(of, "gap_frac"), "%.2f", " %"),
     style.short(mean(of, "tokens_per_s")), style.number(mean(of, "n_measurements")),
     style.number(mean(of, "n_trees")), style.number(mean(of, "search_s"), "%.2f"),
     style.percent(mean(of, "latent"))]
    for machine in machines for method in methods
    for of in [study.where(result.cells, machine=machine, method=method)]])
