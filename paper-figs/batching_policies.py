"""Decode in batches: tokens per second with the roof of bandwidth and peak, and where a step's
time goes."""

import os

from lib import read, study, style

STEM = "batching_policies"
SHARES = [("linear_frac", "matrices"), ("head_frac", "output projection"), ("attn_frac", "attention"),
          ("norm_rope_frac", "norm, rotation, packing")]


def curves(rate, of_roof, cells, color, name):
    x = [study.setting(c, "batch") for c in cells]
    rate.plot(x, [c.value("roof_tokens_per_s") for c in cells], "--", color=color, alpha=0.6,
              label="%s: bound" % name)
    for ax, metric in (rate, "tokens_per_s"), (of_roof, "batch_roof_frac"):
        ax.plot(x, [c.value(metric) for c in cells], "o-", color=color, label=name)


def shares(ax, cells):
    for x, c in enumerate(cells):
        top = 0
        for k, (metric, name) in enumerate(SHARES):
            v = c.value(metric)
            if v == v:
                ax.bar(x, v, bottom=top, width=0.7, color=style.COLORS[k], label=name if x == 0 else None)
                top += v
        if not top:
            style.bar(ax, x, float("nan"), "")
    ax.set_xticks(range(len(cells)), ["%s" % study.setting(c, "batch") for c in cells])
    ax.set_title("Share of the forward pass")
    ax.set(xlabel="sequences in a step", ylabel="share of time (rest: waiting)")
    ax.set_ylim(0, 1)
    style.percent_axis(ax.yaxis)


result = read.latest(STEM)
fig, axes = style.panels(3, 2)
names = study.settings(result.cells, "precision")
for i, p in enumerate(names):
    curves(*axes[:2], study.where(result.cells, precision=p), style.COLORS[i], p)
axes[0].set(title="Decoded tokens", ylabel="tokens per second")
axes[1].set(title="Share of the bound", ylabel="share of the bound")
style.percent_axis(axes[1].yaxis)
for ax in axes[:2]:
    ax.set_xlabel("sequences in a step")
    ax.set_xticks(study.settings(result.cells, "batch"))
    ax.set_ylim(bottom=0)
axes[1].set_ylim(top=1.04)
shares(axes[2], study.where(result.cells, precision=names[0]) if names else [])
for ax in axes:
    style.legend_below(ax)
model = os.path.basename(str(result.cells[0].setting("study.model"))) if result.cells else ""
style.save(fig, result, STEM, "Batched decode of %s; bound: min(peak, bandwidth x intensity)" % model)
HEADER = ["precision", "batch", "tok/s", "bound", "% of it", "FLOP/B", "GB/s of", "GFLOP/s of",
          "scheduling %", "sampling %"]
study.write_table(STEM, HEADER, [
    [study.setting(c, "precision"), study.setting(c, "batch")] +
    [style.short(c.value(m)) for m in ("tokens_per_s", "roof_tokens_per_s")] +
    [style.percent(c.value("batch_roof_frac")), style.short(c.value("flop_per_byte"))] +
    ["%s / %s" % (style.short(c.value(a)), style.short(c.value(b)))
     for a, b in (("step_gbps", "read_gbps"), ("step_gflops", "peak_gflops"))] +
    [style.short(100 * c.value(m)) for m in ("sched_overhead_frac", "sample_frac")]
    for c in result.cells])
