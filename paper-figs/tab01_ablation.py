"""Sandwich Table 1: one optimization after the other, on this host."""

import os

from lib import read, reference, study, style

STEM = "tab01_ablation"
# The paper's first row is vLLM, ours is this engine with one plan.
STEPS = [("one_plan", "one plan", "vLLM"), ("communication", "+ communication", "+ communication op"),
         ("service_config", "+ service config", "+ service config"),
         ("kernel_tuning", "+ kernel tuning", "+ kernel tuning"), ("split_k", "+ split K", "+ split k")]


def name(c):
    model = os.path.basename(str(study.setting(c, "model"))).removesuffix(".gguf")
    return "%s, batch %s" % (model, study.setting(c, "batch"))


result = read.latest(STEM)
fig, axes = style.panels(max(1, len(result.cells)), width=3.9, height=4.3)
for ax, c in zip(axes, result.cells):
    for i, (step, _, _) in enumerate(STEPS):
        v = c.value("tok_s_" + step)
        style.bar(ax, i, v, style.short(v), width=0.7, color=style.COLORS[0])
        rounds = c.series.get("tok_s_" + step, [])
        ax.plot([i] * len(rounds), rounds, "o", ms=2.5, color=style.COLORS[1], alpha=0.6)
    printed = [reference.value("sandwich", "Table 1", "throughput", step=paper,
                               batch=study.setting(c, "batch")) for _, _, paper in STEPS]
    if study.finite(printed):
        reference.mark(ax, range(len(STEPS)), printed, "sandwich", "Table 1",
                       [c.value("tok_s_" + step) for step, _, _ in STEPS])
    ax.set_xticks(range(len(STEPS)), [text for _, text, _ in STEPS], rotation=30, ha="right",
                  fontsize=8)
    style.legend_below(ax, drop=0.85)
    ax.set_title(name(c))
    ax.set_ylabel("output tokens per second")
    ax.margins(y=0.15)
style.save(fig, result, STEM, "One optimization after the other; dots: rounds (Sandwich Table 1)")
HEADER = ["cell"] + [text for _, text, _ in STEPS] + ["prefill ranks", "decode ranks x threads",
                                                   "tuning s"]
study.write_table(STEM, HEADER, [
    [name(c)] + [style.short(c.value("tok_s_" + s)) for s, _, _ in STEPS] +
    [style.number(c.value("prefill_ranks")),
     "%s x %s" % (style.number(c.value("decode_ranks")), style.number(c.value("decode_threads"))),
     style.number(c.value("tuning_s"), "%.1f")] for c in result.cells])
