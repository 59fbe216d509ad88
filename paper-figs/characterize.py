"""The machine card: what computes together, the curves of memory, the roof with this engine's own
prefill and decode below it, the numbers that are not curves, and which events can be counted."""

import math

import numpy as np
from lib import page, read, study, style, trees

STEM = "characterize"
# name, metric, factor, unit
NUMBERS = [
    ("line to the nearest other CPU", "handoff_ns_min", 1, "ns"),
    ("line to the farthest CPU", "handoff_ns_max", 1, "ns"),
    ("barrier of all CPUs", "barrier_ns", 1e-3, "us"),
    ("all-reduce of 4 KiB", "allreduce_ns_4k", 1e-3, "us"),
    ("first touch of a small page", "fault_small_ns", 1e-3, "us"),
    ("first touch of a huge page", "fault_huge_ns", 1e-3, "us"),
    ("speed with another busy CPU, of that alone", "share_speed_min", 100, "%"),
    ("deviation of computing", "noise_compute_cv", 100, "%"),
    ("deviation of reading", "noise_read_cv", 100, "%"),
    ("stolen by the host, per second", "steal_ns_per_s", 1e-6, "ms")]
PEAKS = (("peak_gflops_bf16", "exact bf16"), ("peak_gflops_bf16_dot", "bf16 dot product"),
         ("peak_gflops_bf16_tile", "bf16 tiles"), ("peak_gflops_fp16", "fp16"), ("peak_gops_int8", "int8"))


def curves(ax, c, x, names, **axes):
    for name, label in names:
        xs, ys = c.series.get(x, []), np.array(c.series.get(name, []), float)
        if len(ys) and not np.isnan(ys).all():
            ax.plot(xs, ys, marker="o", ms=2.5, label=label)
    ax.set(**axes)
    style.legend_below(ax)


def roof(ax, c):
    """Achieved rate over intensity; each roof is the bound by a peak and by the bandwidth that was
    measured with the tokens, or else by the card."""
    v = c.value
    gbps = v("read_gbps_all") if math.isnan(v("decode_read_gbps")) else v("decode_read_gbps")
    for phase, mark, share, of in (("decode", "v", "decode_bandwidth_frac", "bandwidth"),
                                   ("prefill", "^", "prefill_peak_frac", "peak")):
        at = v("%s_flop_per_byte" % phase), v("%s_gflops" % phase)
        if not math.isnan(at[0] * at[1]):
            ax.plot(*at, mark, ms=6, color="black",
                    label="%s: %s of %s" % (phase, style.percent(v(share)), of))
    x = np.logspace(-1, 4, 200)
    for name, label in PEAKS:
        if not math.isnan(v(name) * gbps):
            ax.plot(x, np.minimum(gbps * x, v(name)), lw=1, label=label)
    ax.set(xscale="log", yscale="log", xlabel="FLOP per byte of memory", ylabel="GFLOP/s or GOP/s",
           title="All CPUs, and their bounds at %s GB/s" % style.short(gbps))
    style.legend_below(ax)


def numbers(c):
    return [[name, style.short(c.value(metric) * factor, " " + unit)]
            for name, metric, factor, unit in NUMBERS]


def draw(axes, c):
    tree, bandwidth, latency, blocks, roofline, card, events, why = axes
    trees.draw(tree, c)
    tree.set_title("CPUs that compute together")
    curves(bandwidth, c, "threads", [("read_gbps", "read"), ("copy_gbps", "copy"),
                                     ("triad_gbps", "triad")],
           xlabel="threads", ylabel="GB/s", title="Bandwidth", ylim=(0, None))
    bandwidth.xaxis.get_major_locator().set_params(integer=True)
    curves(latency, c, "latency_bytes", [("latency_huge_ns", "huge pages"),
                                         ("latency_small_ns", "small pages")],
           ylabel="ns", yscale="log", title="Dependent reads")
    curves(blocks, c, "block_bytes", [("random_huge_gbps", "random, huge pages"),
                                      ("random_small_gbps", "random, small pages"),
                                      ("sequential_small_gbps", "in sequence: the bound")],
           ylabel="GB/s", title="Blocks in random order", ylim=(0, None))
    for ax, series, label in ((latency, "latency_bytes", "working set"), (blocks, "block_bytes", "block")):
        if len(c.series.get(series, [])):
            style.axis_of_sizes(ax, c.series[series], label)
    roof(roofline, c)
    study.draw_table(card, ["median", "value"], numbers(c), wide=2.8)
    lines = [line.split("|") for line in str(c.attrs.get("notes.trust_lines", "")).split("\n")]
    counted = [line for line in lines if line[-1] not in ("unavailable", "")]
    study.draw_table(events, ["event", "counted / expected", "verdict"], counted)
    if not counted:
        page.height(events, 0.2)
        style.na(events, "none of %d events can be counted here" % len(lines))
    page.note(why, "Events unavailable: %s\nRoot would add: %s" % (
        c.attrs.get("notes.trust_why") or "none", c.attrs.get("notes.root") or "nothing"))


result = read.latest(STEM)
fig, axes = style.rows(2, 2, 2, 1, 1)
for c in result.cells[:1]:
    draw(axes, c)
    study.write_table(STEM, ["what", "value", "why not"], [
        [m, style.short(v), c.why.get(m) or "-"] for m, v in sorted(c.summary.items())])
style.save(fig, result, STEM, "Machine card: %s" % ", ".join(
    str(c.attrs.get("notes.cpu", "n/a")) for c in result.cells[:1]))
