"""Busy time by the number of active tokens, at two requests per second: simulated, and this engine."""

import numpy as np

from lib import read, reference, study, style

STEM = "splitwise_fig04_active_tokens"
NAMES = {"bloom-176b": "BLOOM-176B, DGX-H100, simulated", "llama2-70b": "Llama2-70B, DGX-H100, simulated",
         "engine": "This engine, shorter requests"}


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def cdf(ax, cells, source):
    ax.set_title(NAMES.get(source, source))
    for i, trace in enumerate(study.settings(cells, "trace")):
        of = study.where(cells, trace=trace)
        curves = [c.series["time_frac"] for c in of if "time_frac" in c.series]
        if curves:
            ax.plot(of[0].series["active_tok"], np.mean(curves, axis=0), color=style.COLORS[i], lw=1.3,
                    label="%s: %s within 20, %s of 1" % (trace, style.percent(mean(of, "tok_20_frac")),
                                                         style.percent(mean(of, "tok_1_frac"))))
    if source != "engine":
        shares = [reference.value("splitwise", "Fig. 4", "time with that, " + w, trace="conversation") / 100
                  for w in ("least", "most")]
        reference.mark(ax, [20, 20], shares, "splitwise", "Fig. 4", [0.5], machine="conversation")
    ax.set_xscale("log")
    ax.set_ylim(0, 1.02)
    style.percent_axis(ax.yaxis)
    ax.set(xlabel="active tokens, at most", ylabel="busy time")
    style.legend_below(ax)


result = read.latest(STEM)
sources = study.settings(result.cells, "source")
fig, axes = style.panels(max(1, len(sources)))
for ax, source in zip(axes, sources):
    cdf(ax, study.where(result.cells, source=source), source)
style.save(fig, result, STEM, "Active tokens over busy time, 2 requests per second (Splitwise Fig. 4)")
COLUMNS = ["tok_1_frac", "tok_20_frac", "tok_100_frac", "prompt_frac", "mean_tok", "busy_frac"]
study.write_table(STEM, ["source", "trace"] + [c.replace("_", " ") for c in COLUMNS],
                  [[s, t] + [style.number(mean(of, m), "%.3g") for m in COLUMNS]
                   for s in sources for t in study.settings(result.cells, "trace")
                   for of in [study.where(result.cells, source=s, trace=t)]])
