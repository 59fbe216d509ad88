"""Sandwich Fig. 9: share of requests within the objectives, made stricter (left) or looser, by model
and what serves it, over all repeats."""

import numpy as np

from lib import read, style

STEM = "fig09_slo_scale"
result = read.latest(STEM)
cases = read.unique(c.axes.get("case", "") for c in result.cells) or ["no cell was measured"]
names = read.unique(c.system() for c in result.cells)


def label(name, repeats):
    scale = read.median(repeats, "p90_slo_scale")
    return "%s: %s" % (name, "scale " + style.short(scale) if scale == scale else "n/a")


fig, axes = style.panels(len(cases), columns=2)
for ax, case in zip(axes, cases):
    cells = [c for c in result.cells if c.axes.get("case", "") == case]
    for i, name in enumerate(names):
        repeats = [c for c in cells if c.system() == name and len(c.series.get("slo_scale", []))]
        if repeats:
            share = np.mean([c.series["slo_attainment_frac"] for c in repeats], axis=0)
            ax.plot(repeats[0].series["slo_scale"], share, color=style.COLORS[i % 6], marker="osD^vP"[i % 6],
                    ms=4, ls=style.LINES[i % 3], label=label(name, repeats))
    ax.axhline(0.9, color=style.GREY, ls="--", lw=1.3, label="90 %")
    ax.axvline(1, color=style.GREY, ls=":", lw=1.3)
    ax.set_xscale("log")
    scales = [c.series["slo_scale"] for c in cells if len(c.series.get("slo_scale", []))]
    if scales:
        style.plain_log(ax.xaxis, style.ticks_1_2_5(scales[0][0], scales[0][-1]))
    style.percent_axis(ax.yaxis)
    ax.set_ylim(0, 1.04)
    slo = ["%g" % c.setting("slo." + k, 0) for c in cells[:1] for k in ("ttft_ms", "tpot_ms")]
    ax.set(xlabel="scale of both objectives", title="%s\nscale 1: TTFT %s ms, TPOT %s ms" % (
        case, *(slo or ["?", "?"])))
    ax.set_ylabel("requests within both")
    style.legend_below(ax)
style.save(fig, result, STEM, "SLO attainment against SLO scale, single sequences (Sandwich Fig. 9)")
