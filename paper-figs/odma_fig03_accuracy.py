"""Four accuracies of length prediction, always with the memory used and the overflows: fixed and learned buckets."""

import os

from lib import read, reference, study, style

STEM = "odma_fig03_accuracy"
ALLOCS = {"s3": "S3: ten equal buckets", "odma": "ODMA: learned buckets, blocks of any length",
          "odma_paper": "ODMA: the paper's rules, blocks of three sizes"}
METRICS = {"bucket_accuracy_frac": "bucket", "safe_frac": "safe", "within_frac": "in 10 %", "kendall_tau": "tau",
           "utilization_end": "memory", "overflow_frac": "overflow"}
PRINTED = {"alpaca_sample_dev": "Alpaca", "NQ-open.dev": "Google-NQ"}
# In the names of headlines.
SHORT = {"alpaca_sample_dev": "alpaca", "NQ-open.dev": "nq", "sharegpt_v3_sample_dev": "sharegpt"}


def name(stream):
    """"alpaca_sample_dev" of a file; a fit's own name."""
    return os.path.basename(stream).removesuffix(".gz").rsplit(".", 1)[0] if "/" in stream else stream


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def accuracies(ax, cells, stream):
    ax.set_title("%s (%s)" % (name(stream), "real prompts" if "/" in stream else "drawn"))
    x = range(len(METRICS))
    for i, (alloc, label) in enumerate(ALLOCS.items()):
        for at, metric in zip(x, METRICS):
            v = mean(study.where(cells, alloc=alloc), metric)
            style.bar(ax, at + 0.29 * (i - 1), v, style.number(100 * v, "%.0f"), width=0.28,
                      color=style.COLORS[i + 1], label=label if at == 0 else None)
    ticks, words = list(x), list(METRICS.values())
    if name(stream) in PRINTED:
        printed = [reference.value("odma", "Fig. 3", "accuracy", system=s, dataset=PRINTED[name(stream)]) / 100
                   for s in ("S3", "ODMA")]
        reference.mark(ax, [len(x) - 0.2, len(x) + 0.2], printed, "odma", "Fig. 3", [1])
        ticks, words = ticks + [len(x)], words + ["paper's own"]
    ax.set_xticks(ticks, words, fontsize=7)
    ax.set_xlim(-0.8, len(ticks) - 0.3)
    ax.set_ylim(min([0] + study.finite([mean(cells, "kendall_tau") - 0.15])), 1.18)
    ax.set_ylabel("share of requests")
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


def errors(ax, streams, cells):
    """The predictor's own error, a point for each seed; of real prompts the 95 % interval."""
    ax.set_title("Error / that of the best constant")
    for i, stream in enumerate(streams):
        y = [c.value("log_mae_over_constant") for c in study.where(cells, stream=stream, alloc="odma")]
        ax.plot(study.finite(y), [i] * len(study.finite(y)), "o", ms=3, color=style.COLORS[2], alpha=0.6)
        h = result.headlines.get("log_mae_over_constant_" + SHORT.get(name(stream), ""))
        if h:
            ax.hlines(i - 0.2, h.lo, h.hi, color=style.COLORS[1], lw=1.6)
        ax.annotate(style.short(study.mean(y)), (1, i), xycoords=ax.get_yaxis_transform(), xytext=(3, 0),
                    textcoords="offset points", va="center", fontsize=7)
    ax.axvline(1, color=style.GREY, lw=0.8)
    ax.set_xlim(left=0)
    ax.margins(x=0.2, y=0.15)
    ax.set_yticks(range(len(streams)), [name(s).replace("+", "\nthen ") for s in streams], fontsize=7)
    ax.set_xlabel("mean of |ln(predicted / true)|, relative")


result = read.latest(STEM)
# each as it is meant: the paper's rules with the paper's allocator, and only there
result.cells = [c for c in result.cells
                if bool(study.setting(c, "paper")) == (study.setting(c, "alloc") == "odma_paper")]
streams = study.settings(result.cells, "stream")
learned = study.where(result.cells, predictor="learned")
shown = [s for s in streams if "/" in s] + [s for s in streams if "+" in s]
fig, axes = style.panels(len(shown) + 1, 2)
for ax, stream in zip(axes, shown):
    accuracies(ax, study.where(learned, stream=stream), stream)
errors(axes[-1], streams, learned)
style.save(fig, result, STEM,
           "Accuracy of length prediction, learned predictor (ODMA Fig. 3; its own accuracy is not defined)")
COLUMNS = list(METRICS) + ["log_mae", "log_mae_over_constant", "large_frac", "utilization_inner", "n_requests"]
study.write_table(
    STEM, ["requests", "predictor", "allocator"] + [c.replace("_", " ") for c in COLUMNS],
    [[name(s), p, a] + [style.number(mean(study.where(result.cells, stream=s, predictor=p, alloc=a), c), "%.3g")
                        for c in COLUMNS]
     for s in streams for p in study.settings(result.cells, "predictor") for a in ALLOCS])
