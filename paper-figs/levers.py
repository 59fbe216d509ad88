"""Elasticities of prefill and decode with respect to compute, bandwidth and cache; controls for which
they are known; and that of the cores' time, which is 1 for whatever computes."""

import math

from lib import read, study, style

STEM = "levers"
RESOURCES = ["compute", "bandwidth", "cache"]
CONTROLS = {"fma": "registers", "stream": "memory", "cache": "last-level\ncache"}


def name(work):
    return CONTROLS.get(work) or work.replace("decode_", "decode,\nbatch ").replace("serving_", "serving,\nbatch ")


def bar(ax, x, cell, metric, width, color, label):
    """A median with its 95 % interval."""
    v = cell.value(metric)
    lo, hi = cell.interval(metric) or (v, v)
    style.bar(ax, x, v, style.number(v, "%.2f"), top=[lo, hi], width=width, color=color, label=label)
    if not math.isnan(v):
        ax.vlines(x, lo, hi, color="black", lw=0.8)


def panel(ax, cells, title):
    for i, c in enumerate(cells):
        for k, r in enumerate(RESOURCES):
            bar(ax, i + 0.3 * (k - 1), c, "elasticity_" + r, 0.28, style.COLORS[k], r if i == 0 else None)
    ax.set_xticks(range(len(cells)), ["%s\nsum %s" % (name(study.setting(c, "work")), style.number(c.value("sum"), "%.2f"))
                                      for c in cells])
    finish(ax, title)


def times(ax, cells):
    for i, c in enumerate(cells):
        bar(ax, i, c, "elasticity_time", 0.7, style.GREY, None)
    ax.set_xticks(range(len(cells)), [str(study.setting(c, "work")).replace("decode_", "dec.\n").replace("serving_", "serv.\n") for c in cells])
    finish(ax, "Time of all cores: known to be 1")


def finish(ax, title):
    ax.axhline(1, color=style.GREY, ls="--", lw=1)
    ax.set(title=title, ylabel="d ln speed / d ln resource")
    ax.grid(axis="x", visible=False)
    ax.margins(y=0.2)
    style.legend_below(ax)


result = read.latest(STEM)
controls = [c for c in result.cells if study.setting(c, "work") in CONTROLS]
phases = [c for c in result.cells if study.setting(c, "work") not in CONTROLS]
fig, axes = style.rows(1, 2)
panel(axes[0], phases, "What more of a resource gives")
panel(axes[1], controls, "Controls")
times(axes[2], result.cells)
style.save(fig, result, STEM, "Which resource makes what faster: elasticities, 95 % intervals over rounds")
METRICS = ["elasticity_" + r for r in RESOURCES] + ["sum", "rest", "elasticity_time", "elasticity_frequency"]
study.write_table(STEM, ["work", "step ms", "GFLOP/s", "GB/s"] + [m.replace("elasticity_", "") for m in METRICS],
                  [[study.setting(c, "work")] + [style.short(c.value(m)) for m in ("step_ms", "step_gflops", "step_gbps")]
                   + [style.number(c.value(m), "%.2f") for m in METRICS] for c in result.cells])
