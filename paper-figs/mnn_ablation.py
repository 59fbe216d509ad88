"""MNN-LLM Sec. V-C: what each of three optimizations gains, and the time of a step before and after it."""

import math

from lib import read, reference, study, style

STEM = "mnn_ablation"
STEPS = [("baseline", "baseline"), ("fused", "+ fused"), ("unsigned", "+ uint4"), ("transposed", "+ transposed")]
GAINS = [("attention_fuse", "fused attention", "Attention Fuse"), ("int4_to_uint4", "int4 as uint4", "Int4 to Uint4"),
         ("pre_transpose", "transposed", "Pre-transpose")]
PARTS = [("linear_s_", "matrices"), ("attention_s_", "attention")]


def papers(phase):
    return [reference.value("mnn_llm", "Sec. V-C", "improvement", optimization=name, phase=phase)
            for _, _, name in GAINS]


def gains(ax, c, phase):
    ours = [100 * c.value("gain_" + name) for name, _, _ in GAINS]
    for i, (name, _, _) in enumerate(GAINS):
        lo, hi = (100 * x for x in c.interval("gain_" + name) or (math.nan, math.nan))
        style.bar(ax, i, ours[i], style.short(ours[i], " %"), top=(lo, hi), width=0.6, color=style.COLORS[i])
        if study.finite([ours[i], lo, hi]) == [ours[i], lo, hi]:
            ax.plot([i, i], [lo, hi], "k-", lw=1)
    reference.mark(ax, range(len(GAINS)), papers(phase), "mnn_llm", "Sec. V-C", ours)
    ax.set_xticks(range(len(GAINS)), [label for _, label, _ in GAINS])
    ax.set(title="%s: gain of each" % phase.capitalize(), ylabel="increase of tokens per second (%)")
    ax.margins(y=0.15)
    if not ax.patches:
        return style.na(ax)
    style.legend_below(ax)


def times(ax, c, phase):
    for x, (step, _) in enumerate(STEPS):
        foot, speed = 0.0, c.value("tok_s_" + step)
        for i, (prefix, label) in enumerate(PARTS):
            v = 1e3 * c.value(prefix + step)
            if not study.finite([v]):
                continue
            ax.bar(x, v, bottom=foot, width=0.6, color=style.COLORS[i], hatch=style.HATCHES[i], edgecolor="white",
                   label=label if x == 0 else None)
            foot += v
        if foot:
            ax.text(x, foot, style.short(speed, "/s"), ha="center", va="bottom", fontsize=style.SMALL)
    ax.set_xticks(range(len(STEPS)), [label for _, label in STEPS])
    ax.set(title="%s: a step, and tokens/s" % phase.capitalize(), ylabel="time of operators (ms)")
    ax.margins(y=0.15)
    if not ax.patches:
        return style.na(ax)
    style.legend_below(ax)


result = read.latest(STEM)
phases = study.settings(result.cells, "phase")
fig, axes = style.rows(len(phases), len(phases))
for i, phase in enumerate(phases):
    cell = study.where(result.cells, phase=phase)[0]
    gains(axes[i], cell, phase)
    times(axes[len(phases) + i], cell, phase)
style.save(fig, result, STEM, "Three optimizations, one after the other (MNN-LLM, Sec. V-C)")
study.write_table(STEM, ["phase", "optimization", "gain", "95 % interval", "paper", "tokens/s after it"], [
    [study.setting(c, "phase"), label, style.short(100 * c.value("gain_" + name), " %"),
     "%s to %s" % tuple(style.short(100 * x) for x in c.interval("gain_" + name) or (math.nan, math.nan)),
     style.short(paper, " %"), style.short(c.value("tok_s_" + step))]
    for c in result.cells
    for (name, label, _), paper, (step, _) in zip(GAINS, papers(study.setting(c, "phase")), STEPS[1:])])
