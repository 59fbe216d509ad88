"""What one sequence costs: TTFT against prompt length, TPOT as a distribution, and the share of
requests that would meet the paper's objectives made stricter or looser."""

import numpy as np

from lib import read, style

STEM = "quickstart"
BLUE = style.COLORS[0]


def ttft(ax, c):
    n, ms = c.measured("n_prompt_tok"), c.measured("ttft_ms")
    ax.scatter(n, ms, s=9, color=BLUE, alpha=0.75, linewidths=0, label="requests")
    peak = c.peak_gflops()
    floor = c.measured("prefill_flop") / (peak * 1e6)
    order = np.argsort(n)
    if np.isfinite(floor).any():
        ax.plot(n[order], floor[order], color=style.GREY, ls="--", lw=1,
                label="bound: measured peak, %.0f GFLOP/s" % peak)
    ax.set_xscale("log")
    ax.set_yscale("log")
    style.plain_log(ax.xaxis, style.ticks_1_2_5(n.min(), n.max()))
    low = np.nanmin(np.append(ms, floor))
    style.plain_log(ax.yaxis, style.ticks_1_2_5(low, ms.max()))
    ax.set(xlabel="prompt length (tokens)", ylabel="time to first token (ms)")
    ax.set_title("Prefill: %s of peak" % style.percent(c.value("prefill_peak_frac")))
    style.legend_below(ax)


def tpot(ax, c):
    ms = c.measured("tpot_ms")
    gaps = np.maximum(c.measured("n_output_tok") - 1, 1)
    floor = np.median(c.measured("decode_bytes") / gaps) / (c.read_gbps() * 1e6)
    style.cdf(ax, ms, color=BLUE, label="requests, median %s ms" % style.short(np.nanmedian(ms)))
    share, least = c.value("decode_bandwidth_frac"), c.read_gbps_least()
    shares = style.percent(share)
    if np.isfinite(floor) and np.isfinite(share):  # else the bound is wrong
        ax.axvline(floor, color=style.GREY, ls="--", lw=1,
                   label="bound: %s ms at measured %.1f GB/s" % (
                       style.short(floor), c.read_gbps()))
    if c.warned("bound_changed") and np.isfinite(share) and least < c.read_gbps():
        slower = c.read_gbps() / least
        ax.axvspan(floor, floor * slower, color=style.GREY, alpha=0.2, lw=0,
                   label="memory changed, down to %.1f GB/s" % least)
        if share * slower <= read.SHARE_MAX:
            shares = "%.0f to %s" % (100 * share, style.percent(share * slower))
    ax.set_xlim(0, 1.15 * np.nanmax(ms))
    ax.set(xlabel="time per output token (ms)", ylabel="share of requests")
    ax.set_title("Decode: %s of bandwidth" % shares)
    style.legend_below(ax)


def slo(ax, c):
    x, y = c.series["slo_scale"], c.series["slo_attainment_frac"]
    ax.plot(x, y, color=BLUE, marker="o", ms=3, label="requests within both objectives")
    ax.axhline(0.9, color=style.GREY, ls="--", lw=1, label="goal: 90 %")
    ax.axvline(1, color=style.GREY, ls=":", lw=1)
    ax.set_xscale("log")
    style.plain_log(ax.xaxis, style.ticks_1_2_5(x[0], x[-1]))
    style.percent_axis(ax.yaxis)
    ax.set_ylim(0, 1.04)
    ax.set(xlabel="SLO scale (1 = TTFT %g ms, TPOT %g ms)" %
           (c.attrs["slo.ttft_ms"], c.attrs["slo.tpot_ms"]), ylabel="share of requests")
    ax.set_title("SLO attainment: %s at scale 1" % style.percent(c.value("slo_attainment_frac")))
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.panels(3)
answered = any(np.isfinite(c.measured("ttft_ms")).any() for c in result.cells[:1])
for ax, draw in zip(axes, (ttft, tpot, slo)):
    if answered:
        draw(ax, result.cells[0])
    else:
        style.na(ax)
what = ", ".join("%s %s" % (c.model(), c.weights()) for c in result.cells[:1])
style.save(fig, result, STEM, "Quickstart: %s, one sequence at a time" % (what or "n/a"))
