"""Sandwich Fig. 9: share of requests within the objectives, made stricter (left) or looser."""

from lib import read, style

STEM = "fig09_slo_scale"
result = read.latest(STEM)
rates = read.unique(c.setting("load.rate_rps", 0) for c in result.cells)
fig, axes = style.panels(max(1, len(rates)), columns=2)
for ax, rate in zip(axes, rates):
    cells = [c for c in result.cells if c.setting("load.rate_rps", 0) == rate]
    for i, c in enumerate(cells):
        x, y = c.series.get("slo_scale", []), c.series.get("slo_attainment_frac", [])
        if len(x):
            ax.plot(x, y, color=style.COLORS[i % 6], marker="osD^vP"[i % 6], ms=4,
                    label="%s: %s at scale 1" % (c.system(), style.percent(
                        c.value("slo_attainment_frac"))))
    ax.axhline(0.9, color=style.GREY, ls="--", lw=1.3, label="90 %")
    ax.axvline(1, color=style.GREY, ls=":", lw=1.3)
    ax.set_xscale("log")
    if len(cells[0].series.get("slo_scale", [])):
        x = cells[0].series["slo_scale"]
        style.plain_log(ax.xaxis, style.ticks_1_2_5(x[0], x[-1]))
    style.percent_axis(ax.yaxis)
    ax.set_ylim(0, 1.04)
    c = cells[0]
    ax.set(xlabel="scale of both objectives", title="%s\nscale 1: TTFT %g ms, TPOT %g ms" % (
        "one request at a time" if not rate else "%g requests per second" % rate,
        c.setting("slo.ttft_ms", 0), c.setting("slo.tpot_ms", 0)))
    ax.set_ylabel("requests within both")
    style.legend_below(ax)
style.save(fig, result, STEM, "SLO attainment against SLO scale (Sandwich Fig. 9)")
