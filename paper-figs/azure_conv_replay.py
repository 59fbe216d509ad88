"""A window of the Azure conversation trace, replayed: when requests came and how long each waited
for its first token, and the distributions of TTFT and TPOT."""

import numpy as np

from lib import read, style

STEM = "azure_conv_replay"
result = read.latest(STEM)
fig, (over_time, ttft, tpot) = style.panels(3)
for i, c in enumerate(result.cells):
    color, name = style.COLORS[i % 6], c.system()
    at, ms = c.measured("intended_ns") / 1e9, c.measured("ttft_ms")
    over_time.plot(at, ms, ls="", marker="osD^vP"[i % 6], ms=3, alpha=0.7, color=color, label=name)
    for ax, metric in ((ttft, "ttft_ms"), (tpot, "tpot_ms")):
        p90 = c.value("p90_" + metric)
        style.cdf(ax, c.measured(metric), color=color,
                  label="%s: p90 %s" % (name, style.short(p90, " ms")))
c = result.cells[0] if result.cells else None
for ax, metric, axis in ((over_time, "ttft", "y"), (ttft, "ttft", "x"), (tpot, "tpot", "x")):
    objective = float(c.setting("slo.%s_ms" % metric, "nan")) if c else np.nan
    line = ax.axhline if axis == "y" else ax.axvline
    line(objective, color=style.GREY, ls="--", lw=1, label="objective: %g ms" % objective)
    positive = ax.dataLim.intervaly if axis == "y" else ax.dataLim.intervalx
    if (positive > 0).all() and np.isfinite(positive).all():
        (ax.set_yscale if axis == "y" else ax.set_xscale)("log")
        style.plain_log(ax.yaxis if axis == "y" else ax.xaxis,
                        style.ticks_1_2_5(max(positive[0], 1e-3), positive[1]))
over_time.set(xlabel="arrival (s)", ylabel="time to first token (ms)", title="Over the window")
ttft.set(xlabel="time to first token (ms)", ylabel="share of requests", title="TTFT")
tpot.set(xlabel="time per output token (ms)", ylabel="share of requests", title="TPOT")
for ax in (over_time, ttft, tpot):
    style.legend_below(ax)
share = ", ".join("%s %s" % (c.system(), style.percent(c.value("slo_attainment_frac")))
                  for c in result.cells)
style.save(fig, result, STEM, "Azure conversation trace, replayed: within the objectives %s" % share)
