"""Sandwich Fig. 12: goodput of each system, with the interval of its seeds, and every trial of the
searches: the share of requests within the objectives against the rate."""

import numpy as np

from lib import read, style

STEM = "fig12_goodput"
result = read.latest(STEM)
names = read.unique(c.system() for c in result.cells)
fig, (bars, curves) = style.panels(2)


def goodput(ax):
    for i, name in enumerate(names):
        c = [c for c in result.cells if c.system() == name][0]
        v, low, high = (c.value("goodput_%s" % k) for k in ("rps", "low_rps", "high_rps"))
        style.bar(ax, i, v, style.short(v), top=(high,), color=style.COLORS[i], width=0.6)
        if np.isfinite([v, low, high]).all():
            ax.errorbar(i, v, yerr=[[v - low], [high - v]], color="black", capsize=4, lw=1.2)
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylim(0, None if ax.get_ylim()[1] <= 1 else 1.12 * ax.get_ylim()[1])
    seeds = max([int(c.setting("search.seeds", 1)) for c in result.cells], default=1)
    ax.set(ylabel="requests per second", title="Goodput, median over seeds (%d); line: lowest that held "
           "to highest that failed" % seeds)


def trials(ax):
    for i, name in enumerate(names):
        cells = [c for c in result.cells if c.system() == name]
        rate, share = (np.concatenate([c.series.get(k, np.empty(0)) for c in cells])
                       for k in ("trial_rate_rps", "trial_slo_attainment_frac"))
        if len(rate):
            ax.plot(rate, share, ls="", marker="osD^vP"[i % 6], alpha=0.8,
                    color=style.COLORS[i], label=name)
    target = read.unique(c.setting("slo.target_frac", 0.9) for c in result.cells)
    ax.axhline(target[0] if target else 0.9, color=style.GREY, ls="--", lw=1.3, label="target")
    if ax.get_legend_handles_labels()[1] == ["target"]:
        style.na(ax)
    else:
        ax.set_xscale("log")
        style.plain_log(ax.xaxis, style.ticks_1_2_5(*ax.dataLim.intervalx))
    ax.set_ylim(0, 1.04)
    style.percent_axis(ax.yaxis)
    ax.set(xlabel="offered rate (requests per second)", ylabel="requests within the objectives",
           title="Every trial")
    style.legend_below(ax)


goodput(bars)
trials(curves)
slo = ["%g ms" % result.cells[0].setting("slo." + k, 0) for k in ("ttft_ms", "tpot_ms")] \
    if result.cells else ["?", "?"]
style.save(fig, result, STEM, "Goodput at TTFT %s, TPOT %s (Sandwich Fig. 12)" % tuple(slo))
