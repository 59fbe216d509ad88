"""Sandwich Table 1: one optimization after the other, raw and kept, on this host and simulated."""

import os

from lib import page, read, reference, study, style

STEM = "tab01_ablation"
# The paper's first row is vLLM, ours is this engine with one plan; rank_shifted is ours alone.
STEPS = [("one_plan", "one plan", "vLLM"), ("rank_shifted", "rank-shifted", None),
         ("communication", "+ communication", "+ communication op"),
         ("service_config", "+ service config", "+ service config"),
         ("kernel_tuning", "+ kernel tuning", "+ kernel tuning"), ("split_k", "+ split K", "+ split k")]
GAINS = ["communication", "service_config", "kernel_tuning", "split_k"]
WAYS = [("raw_", "raw: each step as it comes"), ("", "kept: what a step slows down is taken back")]


def name(c):
    """What is served, where, and what its numbers rest on."""
    target = os.path.basename(str(study.setting(c, "model"))).removesuffix(".gguf")
    return "%s, batch %s, %s (%s)" % (target, study.setting(c, "batch"), study.setting(c, "policy"),
                                      c.kind("raw_tok_s_service_config").replace("_", " "))


def rates(c, way, step):
    """The output rate of every round."""
    n_tok = study.setting(c, "batch") * study.setting(c, "n_output_tok")
    return [n_tok / s for s in c.series.get("%srequest_s_%s" % (way, step), [])]


def panel(ax, c, last):
    """Output rates; the steps are named below the last panel."""
    for i, (step, _, _) in enumerate(STEPS):
        for k, (way, label) in enumerate(WAYS):
            v, x = c.value("%stok_s_%s" % (way, step)), i + 0.4 * k - 0.2
            style.bar(ax, x, v, style.short(v), width=0.38, color=style.COLORS[k],
                      label=label if i == 2 else None)
            rounds = rates(c, way, step)
            ax.plot([x] * len(rounds), rounds, ".", ms=3, color="black", alpha=0.5)
    marks = [(i, reference.value("sandwich", "Table 1", "throughput", step=paper,
                                 batch=study.setting(c, "batch")))
             for i, (_, _, paper) in enumerate(STEPS) if paper]
    marks = [(i, v) for i, v in marks if study.finite([v])]
    if marks:
        reference.mark(ax, *zip(*marks), "sandwich", "Table 1",
                       [c.value("raw_tok_s_" + step) for step, _, _ in STEPS])
    ax.set_xticks(range(len(STEPS)), [text if last else "" for _, text, _ in STEPS])
    ax.set(title=name(c), ylabel="tok/s", xlim=(-0.6, len(STEPS) - 0.4))
    ax.margins(y=0.15)
    style.legend_below(ax)


def gains(ax, cells):
    """What a step gains over the one before in the same rounds, with the 95 % interval."""
    for i, c in enumerate(cells):
        for x, metric in enumerate(GAINS):
            v = c.value("gain_" + metric)
            lo, hi = c.interval("gain_" + metric) or (v, v)
            ax.vlines(x + 0.15 * (i - 1.5), lo, hi, color=style.COLORS[i % len(style.COLORS)], lw=1)
            ax.plot([x + 0.15 * (i - 1.5)], [v], "o", ms=4, color=style.COLORS[i % len(style.COLORS)],
                    label=None if x else "batch %s, %s" % (study.setting(c, "batch"), study.setting(c, "policy")))
    ax.axhline(1, color=style.GREY, ls="--", lw=0.8)
    ax.set_xticks(range(len(GAINS)), [text for step, text, _ in STEPS if step in GAINS])
    ax.set(title="What each step gains over the one before, in pairs of rounds", ylabel="times as fast")
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.panels(1 + max(1, len(result.cells)), columns=1)
gains(axes[0], [c for c in result.cells if study.finite([c.value("gain_kernel_tuning")])])
for ax, c in zip(axes[1:], result.cells):
    panel(ax, c, c is result.cells[-1])
    if len(result.cells) > 6:
        page.height(ax, 0.4)
style.save(fig, result, STEM, "One optimization after the other; dots: rounds (Sandwich Table 1)")
HEADER = ["cell", "values"] + [text for _, text, _ in STEPS] + [
    "prefill ranks x threads", "decode ranks x threads", "plan s", "tuning s"]
study.write_table(STEM, HEADER, [
    [name(c), label.split(":")[0]] + [style.short(c.value("%stok_s_%s" % (way, s))) for s, _, _ in STEPS] +
    ["%s x %s" % tuple(style.number(c.value(p + n)) for n in ("ranks", "threads"))
     for p in ("prefill_", "decode_")] +
    [style.number(c.value(n), "%.1f") for n in ("plan_s", "tuning_s")]
    for c in result.cells for way, label in WAYS])
