"""Going from prefill's configuration to decode's: whole requests, and the first step after."""

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
fig, (requests, steps) = style.panels(2, columns=1)
for i, c in enumerate(result.cells):
    for k, (metric, name) in enumerate(WAYS):
        ms = 1e3 * c.value(metric)
        style.bar(requests, i + 0.27 * (k - 1), ms, style.short(ms), width=0.25,
                  color=style.COLORS[k], label=name if i == 0 else None)
    us = c.series.get("switch_us", [])
    steps.plot([i] * len(us), us, "o", alpha=0.5, color=style.COLORS[5],
               label="rounds" if i == 0 else None)
    steps.plot([i], [c.value("switch_us_p50")], "_", ms=22, mew=2, color=style.COLORS[0],
               label="median" if i == 0 else None)
requests.set(title="One request, by configuration", ylabel="ms")
steps.set(title="Cost of a switch: decode's first step after prefill's, less its own",
          ylabel="us")
steps.axhline(0, color=style.GREY, lw=0.8)
steps.set_xlim(-0.6, max(1, len(result.cells)) - 0.4)
for ax in (requests, steps):
    ax.set_xticks(range(len(result.cells)), [label(c) for c in result.cells])
    ax.grid(axis="x", visible=False)
    style.legend_below(ax)
style.save(fig, result, STEM, "Switching configurations between steps; bytes copied: %s"
           % style.number(study.total([c.value("bytes_copied") for c in result.cells])))
HEADER = ["model", "decode", "bytes", "switch us", "repack ms", "request s", "prefill's", "decode's",
          "decode GB/s"]
study.write_table(STEM, HEADER, [
    label(c).split("\n") + [style.number(c.value("bytes_copied"))] +
    ["%s +- %s" % (style.short(c.value("switch_us_p50")), style.short(c.value("switch_us_mad")))] +
    [style.short(c.value(m)) for m in ["repack_ms"] + [m for m, _ in WAYS] + ["decode_gbps"]]
    for c in result.cells])
