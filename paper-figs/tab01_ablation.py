"""Sandwich Table 1: one optimization after the other, on this host."""

import os

from lib import read, study, style

STEM = "tab01_ablation"
STEPS = [("one_plan", "one plan"), ("communication", "+ communication"),
         ("service_config", "+ service config"), ("kernel_tuning", "+ kernel tuning"),
         ("split_k", "+ split K")]


def name(c):
    model = os.path.basename(str(study.setting(c, "model"))).removesuffix(".gguf")
    return "%s, batch %s" % (model, study.setting(c, "batch"))


result = read.latest(STEM)
fig, axes = style.panels(max(1, len(result.cells)), width=3.9, height=3.9)
for ax, c in zip(axes, result.cells):
    for i, (step, _) in enumerate(STEPS):
        v = c.value("tok_s_" + step)
        style.bar(ax, i, v, style.short(v), width=0.7, color=style.COLORS[0])
        rounds = c.series.get("tok_s_" + step, [])
        ax.plot([i] * len(rounds), rounds, "o", ms=2.5, color=style.COLORS[1], alpha=0.6)
    ax.set_xticks(range(len(STEPS)), [text for _, text in STEPS], rotation=30, ha="right",
                  fontsize=8)
    ax.set_title(name(c))
    ax.set_ylabel("output tokens per second")
    ax.margins(y=0.15)
style.save(fig, result, STEM, "One optimization after the other; dots: rounds (Sandwich Table 1)")
HEADER = ["cell"] + [text for _, text in STEPS] + ["prefill ranks", "decode ranks x threads",
                                                   "tuning s"]
study.write_table(STEM, HEADER, [
    [name(c)] + [style.short(c.value("tok_s_" + s)) for s, _ in STEPS] +
    [style.number(c.value("prefill_ranks")),
     "%s x %s" % (style.number(c.value("decode_ranks")), style.number(c.value("decode_threads"))),
     style.number(c.value("tuning_s"), "%.1f")] for c in result.cells])
