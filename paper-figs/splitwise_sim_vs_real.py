"""Machines in real time, in three parts, and the simulated cluster on the same arrivals."""

import numpy as np

from lib import read, study, style

STEM = "splitwise_sim_vs_real"
WHAT = [("ttft", "TTFT"), ("tpot", "TPOT")]


def part(cell):
    name = cell.setting("study.machines", None) or "load %g" % study.setting(cell, "load")
    return name + (", paced" if is_paced(cell) else "")


def is_paced(cell):
    return cell.setting("study.steps", None) == "paced"


def curves(ax, cells, key, name):
    for i, c in enumerate(cells):
        for kind, line in ("real", "-"), ("sim", "--"):
            v = np.sort(c.series.get("%s_%s" % (key, kind), np.empty(0)))
            if len(v):
                ax.plot(v, np.arange(1, len(v) + 1) / len(v), line, lw=1.2, color=style.COLORS[i],
                        label="%s, %s" % (part(c), "real" if kind == "real" else "simulated"))
    style.percent_axis(ax.yaxis)
    ax.set(xlabel="%s, ms" % name, ylabel="requests", title="%s of the first seed, and simulated" % name)
    if ax.get_legend_handles_labels()[0]:
        ax.set_xscale("log")
        style.legend_below(ax)
    else:
        style.na(ax)


def ratios(ax, cells):
    rows = [("%s %s%s" % (name, q, text), "%s_%s_%s" % (key, q, metric)) for key, name in WHAT for q in ("p50", "p90")
            for metric, text in (("ratio", ""), ("queue_ratio", ", real steps"))]
    rows += [("prompt steps / alone", "prompt_in_place"), ("token steps / alone", "token_in_place")]
    for i, c in enumerate(cells):
        for k, (_, metric) in enumerate(rows):
            lo, hi = c.interval(metric) or (np.nan, np.nan)
            y = k + (0.2 if len(cells) < 4 else 0.12) * (i - (len(cells) - 1) / 2)
            ax.plot([lo, hi], [y, y], color=style.COLORS[i], lw=1)
            ax.plot(c.value(metric), y, "o", ms=3.5, color=style.COLORS[i],
                    label=part(c) if k == 0 else None)
    ax.axvline(1, color=style.GREY, lw=0.8)
    ax.axvspan(0.9, 1.1, color="#eeeeee", zorder=0)
    ax.set_yticks(range(len(rows)), [text for text, _ in rows])
    ax.set(xlabel="1: exact; grey: within 10 %", title="Simulated / real, mean of the seeds")
    ax.margins(x=0.1)
    style.legend_below(ax)


result = read.latest(STEM)
cells = list(result.cells)
fig, axes = style.rows(2, 1)
for ax, (key, name) in zip(axes, WHAT):
    curves(ax, [c for c in cells if not is_paced(c)], key, name)
ratios(axes[2], cells)
style.save(fig, result, STEM, "Machines in real time, and what the simulator says of them (Splitwise V-B)")
METRICS = ["%s_%s_%s" % (k, q, m) for k, _ in WHAT for q in ("p50", "p90")
           for m in ("real_ms", "sim_ms", "ratio", "queue_ratio")] + ["prompt_in_place", "token_in_place"]
study.write_table(STEM, ["machines"] + [m.replace("_", " ") for m in METRICS],
                  [[part(c)] + [style.number(c.value(m), "%.3g") for m in METRICS] for c in cells])
