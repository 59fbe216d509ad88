"""The machine card on one page: what computes together, the curves of memory, the roof with this
engine's own prefill and decode below it, and the numbers that are not curves."""

import math
import textwrap

import numpy as np
from lib import read, study, style, trees

STEM = "characterize"
NUMBERS = [
    ("line to the nearest other CPU", "handoff_ns_min", "ns"), ("... the farthest", "handoff_ns_max", "ns"),
    ("barrier, all CPUs", "barrier_ns", "ns"), ("all-reduce of 4 KiB", "allreduce_ns_4k", "ns"),
    ("first touch, small page", "fault_small_ns", "ns"), ("first touch, huge page", "fault_huge_ns", "ns"),
    ("speed with another busy CPU / alone", "share_speed_min", ""),
    ("deviation of computing", "noise_compute_cv", ""), ("deviation of reading", "noise_read_cv", ""),
    ("stolen by the host", "steal_ns_per_s", "ns/s")]


def curves(ax, c, x, names, **axes):
    drawn = False
    for name, label in names:
        xs, ys = c.series.get(x, []), np.array(c.series.get(name, []), float)
        if len(ys) and not np.isnan(ys).all():
            ax.plot(xs, ys, marker="o", ms=3.5, label=label)
            drawn = True
    ax.set(**axes)
    if not drawn:
        return style.na(ax)
    style.legend_below(ax, ncol=3)


def roof(ax, c):
    """Achieved rate over intensity; the roof is the lower of peak and of the bandwidth that was
    measured with the tokens, or else by the card."""
    v = c.value
    gbps = v("read_gbps_all") if math.isnan(v("decode_read_gbps")) else v("decode_read_gbps")
    x = np.logspace(-1, 4, 200)
    for name, label in (("peak_gflops_bf16", "exact bf16"), ("peak_gflops_bf16_dot", "bf16 dot"),
                        ("peak_gflops_fp16", "fp16"), ("peak_gops_int8", "int8")):
        if not math.isnan(v(name) * gbps):
            ax.plot(x, np.minimum(gbps * x, v(name)), lw=1.2, label="%s bound" % label)
    for phase, mark, share, of in (("decode", "v", "decode_bandwidth_frac", "the bandwidth"),
                                   ("prefill", "^", "prefill_peak_frac", "its peak")):
        at = v("%s_flop_per_byte" % phase), v("%s_gflops" % phase)
        if not math.isnan(at[0] * at[1]):
            ax.plot(*at, mark, ms=8, color="black", label="%s: %s of %s" % (phase, style.percent(v(share)), of))
    if not ax.lines:
        return style.na(ax)
    ax.set(xscale="log", yscale="log", xlabel="FLOP per byte of memory", ylabel="GFLOP/s or GOP/s")
    ax.set_title("Roofline, all CPUs: %s GB/s" % style.short(gbps))
    style.legend_below(ax, ncol=2)


result = read.latest(STEM)
fig, grid = style.plt.subplots(2, 4, figsize=(20, 10.2))
for c in result.cells[:1]:
    trees.draw(grid[0][0], c)
    grid[0][0].set_title("CPUs that compute together")
    curves(grid[0][1], c, "threads", [("read_gbps", "read"), ("copy_gbps", "copy"), ("triad_gbps", "triad")],
           xlabel="threads", ylabel="GB/s", title="Bandwidth", ylim=(0, None))
    grid[0][1].xaxis.get_major_locator().set_params(integer=True)
    curves(grid[0][2], c, "latency_bytes", [("latency_huge_ns", "huge pages"), ("latency_small_ns", "small")],
           xlabel="working set (bytes)", ylabel="ns", xscale="log", yscale="log", title="Dependent reads")
    roof(grid[1][0], c)
    curves(grid[1][1], c, "block_bytes", [("random_huge_gbps", "random, huge pages"), ("random_small_gbps",
           "random, small pages"), ("sequential_small_gbps", "in sequence: the bound")], xscale="log",
           xlabel="block (bytes)", ylabel="GB/s", title="Blocks in random order", ylim=(0, None))
    study.draw_table(grid[1][2], ["median", "", ""], [[t, style.short(c.value(m)), u] for t, m, u in NUMBERS])
    events = [line.replace("nan", "n/a").split("|") for line in str(c.attrs.get("notes.trust_lines", "")).split("\n") if line]
    study.draw_table(grid[0][3], ["event", "counted / expected", "verdict"], events)
    grid[1][3].axis("off")
    grid[1][3].text(0, 0.95, "\n".join(textwrap.fill(t, 56) for t in [
        "Events unavailable: " + str(c.attrs.get("notes.trust_why", "none")), "",
        "Root would add: " + str(c.attrs.get("notes.root", "n/a"))]), va="top", fontsize=9, linespacing=1.4)
    study.write_table(STEM, ["what", "value", "why not"], [
        [m, style.short(v), c.why.get(m, "")] for m, v in sorted(c.summary.items())])
style.save(fig, result, STEM, "Machine card: %s" % ", ".join(
    str(c.attrs.get("notes.cpu", "n/a")) for c in result.cells[:1]))
