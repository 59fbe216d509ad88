"""Time of a step by class of operator: prefill by the length of the prompt, decode by that of the
context, and the whole step compared with its bound."""

import numpy as np
from lib import page, read, reference, study, style

STEM = "mnn_fig_time_share"
CLASSES = [("share_linear", "matrices"), ("share_attention", "attention, fused"),
           ("share_memory", "norms, rotation, copies")]


def shares(ax, cells, phase):
    ax.set(title=phase.capitalize(), ylabel="share of all operators' time",
           xlabel="prompt (tokens)" if phase == "prefill" else "context (tokens)")
    ax.set_ylim(0, 1.08)
    style.percent_axis(ax.yaxis)
    for x, c in enumerate(cells):
        foot = 0.0
        for i, (name, label) in enumerate(CLASSES):
            v = c.value(name)
            if np.isnan(v):
                continue
            ax.bar(x, v, bottom=foot, width=0.8, color=style.COLORS[i], edgecolor="white",
                   hatch=style.HATCHES[i], label=label if c is cells[0] else None)
            foot += v
        page.value(ax, ax.annotate(style.percent(c.value("share_linear")), (x, min(foot, 1)), xytext=(0, 2),
                                   textcoords="offset points", ha="center", va="bottom", fontsize=style.SMALL))
    wait = [c.value("wait_frac") for c in cells]
    if study.finite(wait):
        ax.plot(range(len(wait)), wait, "kx", label="threads waiting / the step")
    if phase == "prefill":
        least = reference.value("mnn_llm", "Sec. IV-A", "time of the Linear operators in prefill, over")
        reference.mark(ax, range(len(cells)), [least / 100] * len(cells), "mnn_llm", "Sec. IV-A",
                       [c.value("share_linear") for c in cells], machine="matrices take more than this")
    ax.set_xticks(range(len(cells)), [str(study.setting(c, "n_tok")) for c in cells])
    ax.grid(axis="x", visible=False)
    style.legend_below(ax)


def speed(ax, result):
    """Both phases and their bounds."""
    for i, phase in enumerate(("prefill", "decode")):
        cells = study.where(result.cells, phase=phase)
        x = [study.setting(c, "n_tok") for c in cells]
        for name, style_, label in (("tok_s", "-", phase), ("bound_tok_s", "--", "%s: its bound" % phase)):
            y = [c.value(name) for c in cells]
            if study.finite(y):
                ax.plot(x, y, style_, color=style.COLORS[i], marker="o", label=label)
    ax.set(title="The step", xlabel="tokens", ylabel="tokens per second")
    if not ax.lines:
        return style.na(ax)
    ax.set(xscale="log", yscale="log")
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.panels(3, 2)
for ax, phase in zip(axes, ("prefill", "decode")):
    shares(ax, study.where(result.cells, phase=phase), phase)
speed(axes[2], result)
style.save(fig, result, STEM, "Time by operator, %s" % ", ".join(
    str(c.setting("study.model")).split("/")[-1] for c in result.cells[:1]))
study.write_table(STEM, ["phase", "n_tok"] + [n for n, _ in CLASSES] + ["wait_frac"], [
    [study.setting(c, "phase"), study.setting(c, "n_tok")] + [style.percent(c.value(n)) for n, _ in CLASSES]
    + [style.percent(c.value("wait_frac"))]
    for c in result.cells])
