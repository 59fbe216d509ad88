"""Going from prefill's configuration to decode's: the first step after, and whole requests."""

import os

from lib import read, study, style

STEM = "phase_switch"
WAYS = [("request_s", "prefill's, then decode's"), ("request_s_prefill_plan", "prefill's for both"),
        ("request_s_decode_plan", "decode's for both")]


def label(c):
    model = os.path.basename(str(study.setting(c, "model"))).removesuffix(".gguf")
    return "%s\ndecode %sx%s" % (model, study.setting(c, "decode_ranks"),
                                 study.setting(c, "decode_threads"))


result = read.latest(STEM)
fig, axes = style.panels(2, width=6.2)
for i, c in enumerate(result.cells):
    for k, (metric, name) in enumerate(WAYS):
        share = read.ratio(c.value(metric), c.value("request_s"))
        style.bar(axes[0], i + 0.26 * (k - 1), share, style.short(c.value(metric) * 1e3), width=0.25,
                  color=style.COLORS[k], label=name if i == 0 else None)
    us = c.series.get("switch_us", [])
    axes[1].plot([i] * len(us), us, "o", ms=4, alpha=0.5, color=style.COLORS[5])
    axes[1].plot([i], [c.value("switch_us_p50")], "_", ms=26, mew=2.5, color=style.COLORS[0])
    axes[1].annotate("repack %s ms" % style.short(c.value("repack_ms")), (i, 0), xytext=(0, -34),
                     xycoords=axes[1].get_xaxis_transform(), textcoords="offset points",
                     ha="center", fontsize=8, color=style.GREY)
axes[0].set_title("One request, numbers in ms")
axes[0].set_ylabel("time / with a switch")
axes[1].set_title("First decode step: after the other's prefill - its own")
axes[1].set_ylabel("us (dots: rounds)")
for ax in axes:
    ax.set_xticks(range(len(result.cells)), [label(c) for c in result.cells], fontsize=7.5)
style.legend_below(axes[0], ncols=3)
style.save(fig, result, STEM, "Switching configurations between steps; bytes copied: %s"
           % style.number(study.total([c.value("bytes_copied") for c in result.cells])))
HEADER = ["model", "decode", "bytes", "switch us", "repack ms", "request s", "prefill's", "decode's",
          "decode GB/s"]
study.write_table(STEM, HEADER, [
    label(c).split("\n") + [style.number(c.value("bytes_copied"))] +
    ["%s +- %s" % (style.short(c.value("switch_us_p50")), style.short(c.value("switch_us_mad")))] +
    [style.short(c.value(m)) for m in ["repack_ms"] + [m for m, _ in WAYS] + ["decode_gbps"]]
    for c in result.cells])
