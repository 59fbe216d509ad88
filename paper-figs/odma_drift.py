"""The lengths change half-way: memory used with bounds learned again, once and never, and the time to recover."""

import math

import numpy as np

from lib import read, study, style

STEM = "odma_drift"
BOUNDS = ["again", "once", "never"]


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def over_time(ax, cells, title):
    """The mean of the seeds, at equal parts of the run."""
    ax.set_title(title)
    ax.set_ylabel("tokens held / reserved")
    at = np.linspace(0, 1, 101)
    for i, bounds in enumerate(BOUNDS):
        runs = [np.interp(at, c.series["step"] / c.series["step"].max(), c.series["utilization_inner_over_time"])
                for c in study.where(cells, bounds=bounds) if "step" in c.series]
        if runs:
            ax.plot(at, np.mean(runs, axis=0), color=style.COLORS[i], lw=1.2, label="learned " + bounds)
    ax.set_ylim(0, 1)
    ax.set_xlabel("part of the run")
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


def after(ax, groups):
    ax.set_title("Memory used long after the change")
    ax.set_ylabel("tokens / memory, at requests' ends")
    for x, (_, cells) in enumerate(groups):
        for i, bounds in enumerate(BOUNDS):
            v = mean(study.where(cells, bounds=bounds), "utilization_after")
            style.bar(ax, x + 0.25 * (i - 1), v, style.percent(v), width=0.23, color=style.COLORS[i],
                      label="learned " + bounds if x == 0 else None)
        ideal = mean(study.where(cells, bounds="again"), "utilization_ideal")
        if not math.isnan(ideal):
            ax.hlines(ideal, x - 0.4, x + 0.4, color=style.GREY, lw=1, ls="--",
                      label="bounds of the new lengths" if x == 0 else None)
    ax.set_xticks(range(len(groups)), [name for name, _ in groups], fontsize=7)
    ax.margins(y=0.2)
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


result = read.latest(STEM)
streams = study.settings(result.cells, "stream")
predictors = study.settings(result.cells, "predictor")
usual = "learned" if "learned" in predictors else predictors[0]
fig, axes = style.panels(len(streams) + 1, 3)
for ax, stream in zip(axes, streams):
    over_time(ax, study.where(result.cells, stream=stream, predictor=usual), stream.replace("+", ", then "))
after(axes[-1], [(s.replace("+", ",\nthen "), study.where(result.cells, stream=s, predictor=usual)) for s in streams])
style.save(fig, result, STEM, "Bounds of buckets while the lengths change: %s predictor (ODMA 3.3)" % usual)
COLUMNS = ["recovery_requests", "utilization_after", "utilization_ideal", "overflow_frac", "large_frac",
           "bucket_accuracy_frac", "over_static"]
study.write_table(
    STEM, ["lengths", "predictor", "bounds learned"] + [c.replace("_", " ") for c in COLUMNS] + ["runs recovered"],
    [[s, p, b] + [style.number(mean(of, c), "%.3g") for c in COLUMNS]
     + ["%d of %d" % (len(study.finite([c.value("recovery_requests") for c in of])), len(of))]
     for s in streams for p in predictors for b in BOUNDS
     for of in [study.where(result.cells, stream=s, predictor=p, bounds=b)]])
