"""Sandwich Fig. 3a: which cores are left out on a Kunpeng 920 machine of four sockets, with the
uncertainty of the machine's fitted rates."""

import math

from lib import page, read, study, style, table

STEM = "fig03a_core_removal"
NAMES = {"numa": "all cores", "sc_rm": "one of each hidden\nfour left out (SC-RM)",
         "numa_rm": "as many, at the end\nof nodes (NUMA-RM)",
         "fast@0,2,4,6": "only nodes that are\nassumed fast", "slow@1,3,5,7": "only nodes that are\nassumed slow"}


def plan(cell):
    return str(study.setting(cell, "plan")).split()[0]


def equal(cell):
    return study.setting(cell, "equal_nodes") in (True, 1, "true", "True")


result = read.latest(STEM)
models = study.settings(result.cells, "model")
cells = [c for c in result.cells if not equal(c)] or result.cells
plans = list(dict.fromkeys(plan(c) for c in cells))
fig, axes = style.panels(3)
for m, model in enumerate(models):
    base = study.mean([c.value("request_s") for c in study.where(cells, model=model) if plan(c) == "numa"])
    for c in study.where(cells, model=model):
        v = c.value("request_s") / base
        if v != v:
            continue
        lo, hi = (x / base for x in c.interval("request_s") or (math.nan, math.nan))
        axes[0].errorbar(v, plans.index(plan(c)) + 0.15 * (2 * m - 1), ms=5, capsize=3,
                         xerr=[[max(0, v - lo)], [max(0, hi - v)]] if lo == lo else None,
                         marker="os"[m % 2], color=style.COLORS[m], ls="",
                         label=model if plan(c) == plans[0] else None)
for k, (which, label) in enumerate([(False, "four nodes slower by a fifth (assumed)"),
                                    (True, "eight equal nodes")]):
    for c in study.where(result.cells, model=models[0]):
        if equal(c) == which and c.value("p_best") == c.value("p_best"):
            y = plans.index(plan(c)) + 0.19 * (2 * k - 1)
            axes[1].barh(y, c.value("p_best"), 0.36, color=style.COLORS[k],
                         label=label if plan(c) == plans[0] else None)
            axes[1].text(c.value("p_best") + 0.02, y, style.percent(c.value("p_best")), va="center",
                         fontsize=style.SMALL)
for c in study.where(cells, model=models[0]):
    if c.value("stream_gbps") == c.value("stream_gbps"):
        axes[2].barh(plans.index(plan(c)), c.value("stream_gbps"), 0.6, color=style.COLORS[0])
        axes[2].text(c.value("stream_gbps") + 1, plans.index(plan(c)), style.short(c.value("stream_gbps")),
                     va="center", fontsize=style.SMALL)
for ax, title, label in zip(axes, ["Request", "Fastest of the five", "Bandwidth of a node"],
                            ["time, % of all cores; bars: 95 % of the fits",
                             "share of the bootstrapped fits", "GB/s (static shares)"]):
    page.height(ax, 2.2)
    ax.set_ylim(len(plans) - 0.5, -0.5)
    ax.set_yticks(range(len(plans)), [NAMES.get(p, p) for p in plans] if ax is axes[0] else [])
    ax.set_title(title)
    ax.set_xlabel(label)
    style.legend_below(ax)
style.percent_axis(axes[0].xaxis)
style.percent_axis(axes[1].xaxis)
axes[1].set_xlim(0, 1.18)
axes[2].margins(x=0.18)
style.save(fig, result, STEM, "Leaving cores out on a Kunpeng 920 of 192 cores (Sandwich Fig. 3a)")
HEADER = ["model", "plan", "nodes", "ranks", "threads", "request s", "95 % of the fits", "P(fastest)",
          "token ms", "node GB/s"]
table.write(STEM, HEADER, [
    [study.setting(c, "model"), plan(c), "equal" if equal(c) else "four slow (assumed)",
     style.number(c.value("n_ranks")), style.number(c.value("n_threads")),
     style.short(c.value("request_s")),
     "%s to %s" % tuple(map(style.short, c.interval("request_s") or (math.nan, math.nan))),
     style.percent(c.value("p_best")), style.short(1e3 * c.value("decode_s")),
     style.short(c.value("stream_gbps"))] for c in result.cells])
