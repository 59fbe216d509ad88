"""Medians of two traces without batching on A100 and H100, and H100 / A100, next to Table IV."""

import math

from lib import read, reference, steps, study, style

STEM = "splitwise_tab04_a100_h100"
METRICS = [("TTFT", "ttft", "%.0f ms", 1), ("TBT", "tbt", "%.0f ms", 1), ("E2E", "e2e", "%.0f ms", 1),
           ("cost", "cost", "%.2f cents", 100), ("energy", "energy", "%.2f Wh", 1)]
TRACES = ["coding", "conversation"]


def of(cells, kind, gpu):
    for c in cells:
        source = str(study.setting(c, "source"))
        if gpu in source and source.startswith("printed") == (kind == "printed"):
            return c
    return None


def number(cell, metric, trace):
    return cell.value("%s_p50_%s" % (metric, trace)) if cell else math.nan


result = read.latest(STEM)
header = ["median", "trace", "A100", "H100", "H100 / A100", "paper: A100", "H100", "H100 / A100"]
rows, bars = [], []
for what, metric, form, scale in METRICS:
    for trace in TRACES:
        a, h = (number(of(result.cells, "published", g), metric, trace) * scale for g in ("a100", "h100"))
        printed = [reference.value("splitwise", "Table IV", what, machine=m, trace=trace) for m in ("A100", "H100")]
        ratio = reference.value("splitwise", "Table IV", what + ", ratio", trace=trace)
        bars.append(("%s\n%s" % (what, trace), h / a, ratio))
        rows.append([what, trace, style.number(a, form), style.number(h, form), style.number(h / a, "%.2f")]
                    + [style.number(v, form) for v in printed] + [style.number(ratio, "%.2f")])
fig, axes = style.rows(1, 1)
for x, (label, ours, theirs) in enumerate(bars):
    style.bar(axes[0], x, ours, style.number(ours, "%.2f"), top=[theirs], width=0.6, color=style.COLORS[0])
reference.mark(axes[0], range(len(bars)), [b[2] for b in bars], "splitwise", "Table IV",
               [b[1] for b in bars], machine="Table IV, Llama-70B")
axes[0].set_xticks(range(len(bars)), [b[0] for b in bars])
axes[0].axhline(1, color=style.GREY, lw=0.8)
axes[0].set_ylabel("H100 / A100")
axes[0].set_title("%s and %s" % tuple(steps.name(c) for c in (result.cells + result.cells)[:2])
                  if result.cells else "no cell")
style.legend_below(axes[0])
study.draw_table(axes[1], header, rows)
style.save(fig, result, STEM, "A100 and H100 without batching, from published times (Splitwise Table IV)")
study.write_table(STEM, header, rows)
