"""A prompt and a token machine as processes, and the simulated cluster on the same arrivals."""

import numpy as np

from lib import read, study, style

STEM = "splitwise_sim_vs_real"
WHAT = [("ttft", "TTFT"), ("tpot", "TPOT")]


def curves(ax, cells, key, name):
    for i, c in enumerate(cells):
        for kind, line in ("real", "-"), ("sim", "--"):
            v = np.sort(c.series.get("%s_%s" % (key, kind), np.empty(0)))
            if len(v):
                ax.plot(v, np.arange(1, len(v) + 1) / len(v), line, lw=1.2, color=style.COLORS[i],
                        label="load %g, %s" % (study.setting(c, "load"), "real" if kind == "real" else "simulated"))
    style.percent_axis(ax.yaxis)
    ax.set(xlabel="%s, ms" % name, ylabel="requests", title="%s of the first run, and simulated" % name)
    if ax.get_legend_handles_labels()[0]:
        ax.set_xscale("log")
        style.legend_below(ax)
    else:
        style.na(ax)


def ratios(ax, cells):
    labels = ["%s %s" % (name, q) for _, name in WHAT for q in ("p50", "p90")]
    for i, c in enumerate(cells):
        for k, metric in enumerate("%s_%s_ratio" % (key, q) for key, _ in WHAT for q in ("p50", "p90")):
            ax.plot(c.value(metric), k + 0.2 * (i - (len(cells) - 1) / 2), "o", ms=4, color=style.COLORS[i],
                    label="load %g" % study.setting(c, "load") if k == 0 else None)
    ax.axvline(1, color=style.GREY, lw=0.8)
    ax.axvspan(0.95, 1.05, color="#eeeeee", zorder=0)
    ax.set_yticks(range(len(labels)), labels)
    ax.set(xlabel="1: exact; grey: within 5 %", title="Simulated / real")
    ax.margins(x=0.1)


result = read.latest(STEM)
cells = sorted(result.cells, key=lambda c: study.setting(c, "load") or 0)
fig, axes = style.rows(2, 1)
for ax, (key, name) in zip(axes, WHAT):
    curves(ax, cells, key, name)
ratios(axes[2], cells)
style.save(fig, result, STEM, "Three processes, and what the simulator says of them (Splitwise V-B)")
METRICS = ["%s_%s_%s" % (k, q, m) for k, _ in WHAT for q in ("p50", "p90") for m in ("real_ms", "sim_ms", "ratio")]
study.write_table(STEM, ["load"] + [m.replace("_", " ") for m in METRICS],
                  [["%g" % study.setting(c, "load")] + [style.number(c.value(m), "%.3g") for m in METRICS] for c in cells])
