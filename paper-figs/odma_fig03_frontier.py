"""Accuracy of buckets against the memory used, over their number and the longest sequence; memory at equal overflow."""

import os

from lib import read, study, style

STEM = "odma_fig03_frontier"
ALLOCS = {"s3": "S3", "odma": "ODMA"}
LINES = ["-", "--", ":", "-."]
NAMES = {"alpaca_sample_dev": "Alpaca", "NQ-open.dev": "Natural Questions", "sharegpt_v3_sample_dev": "ShareGPT"}


def name(stream):
    base = os.path.basename(stream).removesuffix(".gz").rsplit(".", 1)[0] if "/" in stream else stream
    return NAMES.get(base, base)


def longest(value):
    return "95 %" if value == 0 else "%s" % value


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def n_buckets(change):
    """Of "n_buckets=10"; None where more is changed."""
    word = change.removeprefix("n_buckets=")
    return int(word) if word.isdigit() else None


def frontier(ax, cells, stream):
    ax.set_title(name(stream))
    counts = [c for c in changes if n_buckets(c)]
    for i, (alloc, label) in enumerate(ALLOCS.items()):
        for line, most in zip(LINES, study.settings(cells, "max_tok")):
            of = [study.where(cells, alloc=alloc, max_tok=most, change=c) for c in counts]
            x, y = ([mean(o, m) for o in of] for m in ("utilization_end", "bucket_accuracy_frac"))
            ax.plot(x, y, "o" + line, ms=2.5, lw=1.1, color=style.COLORS[i + 1],
                    label="%s, %s" % (label, longest(most)))
    ax.set(xlim=(0, 1), ylim=(0, 1.05), xlabel="memory used, at requests' ends", ylabel="length in the chosen bucket")
    style.percent_axis(ax.xaxis)
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


def equal_overflow(ax, cells, change):
    ax.set_title("Memory used at equal overflow (%s)" % change.rsplit("=", 1)[1])
    for x, stream in enumerate(streams):
        for i, alloc in enumerate(ALLOCS):
            of = study.where(cells, stream=stream, alloc=alloc, change=change)
            v = mean(of, "utilization_end")
            style.bar(ax, x + 0.4 * (i - 0.5), v, style.percent(v), width=0.38, color=style.COLORS[i + 1],
                      label=alloc if x == 0 else None)
    ax.set_xticks(range(len(streams)), [name(s).replace(" ", "\n") for s in streams], fontsize=7)
    ax.set_ylabel("tokens / memory, at requests' ends")
    ax.margins(y=0.2)
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


result = read.latest(STEM)
streams = study.settings(result.cells, "stream")
changes = study.settings(result.cells, "change")
equal = [c for c in changes if "overflow=" in c]
fig, axes = style.panels(len(streams) + len(equal), 2)
for panel, s in zip(axes, streams):
    frontier(panel, study.where(result.cells, stream=s), s)
for panel, c in zip(axes[len(streams):], equal):
    equal_overflow(panel, study.where(result.cells, max_tok=study.settings(result.cells, "max_tok")[0]), c)
style.save(fig, result, STEM, "Accuracy against memory, 2 to 16 buckets, by longest sequence (ODMA Fig. 3)")
COLUMNS = ["bucket_accuracy_frac", "utilization_end", "overflow_frac", "alpha", "large_frac", "over_static", "predict_us"]
study.write_table(
    STEM, ["requests", "longest", "allocator", "changed"] + [c.replace("_", " ") for c in COLUMNS],
    [[name(s), longest(m), a, ch] + [style.number(mean(of, c), "%.3g") for c in COLUMNS]
     for s in streams for m in study.settings(result.cells, "max_tok") for a in ALLOCS for ch in changes
     for of in [study.where(result.cells, stream=s, max_tok=m, alloc=a, change=ch)]])
