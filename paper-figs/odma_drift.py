"""The lengths change half-way: memory used with bounds learned again, once and never, and the time to recover."""

import math

import numpy as np

from lib import read, study, style

STEM = "odma_drift"
# As far as the record has them: those drawn over time come first.
WORDS = {"none": "learned again", "bounds=once": "learned once", "bounds=never": "never learned",
         "paper=true": "as in the paper", "detect=false": "no detection", "half_life=256": "and weights by age",
         "least=true": "least memory", "calibrate=256": "predictions corrected",
         "calibrate=256;bounds=never": "corrected, never learned"}
OVER_TIME = 3


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def over_time(ax, cells, title):
    """The mean of the seeds, at equal parts of the run."""
    ax.set_title(title)
    ax.set_ylabel("tokens held / reserved")
    at = np.linspace(0, 1, 101)
    for i, change in enumerate(changes[:OVER_TIME]):
        runs = [np.interp(at, c.series["step"] / c.series["step"].max(), c.series["utilization_inner_over_time"])
                for c in study.where(cells, change=change) if "step" in c.series]
        if runs:
            ax.plot(at, np.mean(runs, axis=0), color=style.COLORS[i], lw=1.2, label=WORDS.get(change, change))
    ax.set_ylim(0, 1)
    ax.set_xlabel("part of the run")
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


def after(ax, cells, title):
    """A row for each change: every seed, and the mean."""
    ax.set_title(title)
    for i, change in enumerate(reversed(changes)):
        style.seeds(ax, i, [c.value("utilization_after") for c in study.where(cells, change=change)])
    ideal = mean(study.where(cells, change="none"), "utilization_ideal")
    if not math.isnan(ideal):
        ax.axvline(ideal, color=style.GREY, lw=1, ls="--", label="bounds of the new lengths")
    ax.set_yticks(range(len(changes)), [WORDS.get(c, c) for c in reversed(changes)], fontsize=7)
    ax.set_xlim(0, 1)
    ax.set_xlabel("memory used long after the change")
    style.percent_axis(ax.xaxis)
    style.legend_below(ax)


result = read.latest(STEM)
streams = study.settings(result.cells, "stream")
predictors = study.settings(result.cells, "predictor")
usual = "learned" if "learned" in predictors else predictors[0]
changes = study.settings(result.cells, "change")
fig, axes = style.panels(2 * len(streams), 2)
for ax, stream in zip(axes, streams):
    over_time(ax, study.where(result.cells, stream=stream, predictor=usual), stream.replace("+", ", then "))
for ax, stream in zip(axes[len(streams):], streams):
    after(ax, study.where(result.cells, stream=stream, predictor=usual), stream.replace("+", ", then "))
style.save(fig, result, STEM, "Bounds of buckets while the lengths change: %s predictor (ODMA 3.3)" % usual)
COLUMNS = ["recovery_requests", "utilization_after", "utilization_ideal", "overflow_frac", "large_frac",
           "bucket_accuracy_frac", "over_static"]
study.write_table(
    STEM, ["lengths", "predictor", "changed"] + [c.replace("_", " ") for c in COLUMNS] + ["runs recovered"],
    [[s, p, WORDS.get(ch, ch)] + [style.number(mean(of, c), "%.3g") for c in COLUMNS]
     + ["%d of %d" % (len(study.finite([c.value("recovery_requests") for c in of])), len(of))]
     for s in streams for p in predictors for ch in changes
     for of in [study.where(result.cells, stream=s, predictor=p, change=ch)]])
