"""What rounding the weights costs, by scheme and model: weights, divergence, perplexity."""

import math

from lib import read, study, style

STEM = "mnn_quant_error"
PANELS = [("weight_error", "Weights", "error / root mean square", 1),
          ("kl_mean", "Next token", "divergence (nat)", 1),
          ("perplexity_ratio", "Perplexity of a drawn text", "increase", 0)]
ROUNDED = "with activations in 8 bits"


def name(cell):
    return str(study.setting(cell, "model")).split("/")[-1].rsplit(".", 1)[0]


def panel(ax, cells, metric, title, label, log):
    schemes = study.settings(cells, "scheme")
    models = list(dict.fromkeys(name(c) for c in cells))
    drawn = False
    for i, model in enumerate(models):
        for precision, mark in ("exact", "o"), ("a8", "x"):
            of = [c for c in study.where(cells, precision=precision) if name(c) == model]
            y = [c.value(metric) - (metric == "perplexity_ratio") for c in of]
            if not study.finite(y) or (metric == "weight_error" and precision == "a8"):
                continue
            ax.plot([schemes.index(study.setting(c, "scheme")) + 0.2 * (i - (len(models) - 1) / 2) for c in of], y,
                    mark, ms=4, color=style.COLORS[i % len(style.COLORS)],
                    label=model if precision == "exact" else None)
            drawn = True
            if precision == "a8" and ROUNDED not in ax.get_legend_handles_labels()[1]:
                ax.plot([], [], mark, ms=4, color=style.GREY, label=ROUNDED)
    ax.set(title=title, ylabel=label)
    if not drawn:
        return style.na(ax)
    ax.set_xticks(range(len(schemes)), schemes)
    if log:
        ax.set_yscale("log")
    else:
        style.percent_axis(ax.yaxis)
    style.legend_below(ax)


result = read.latest(STEM)
cells = [c for c in result.cells if not math.isnan(c.value("kl_mean"))]
fig, axes = style.panels(3, 2)
for ax, (metric, title, label, log) in zip(axes, PANELS):
    panel(ax, cells, metric, title, label, log)
style.save(fig, result, STEM, "Error of quantised weights, by scheme (MNN-LLM, Sec. II)")
study.write_table(STEM, ["model", "scheme", "precision", "bits", "weight error", "logit error", "KL (nat)", "same top",
                         "perplexity ratio"], [
    [name(c), study.setting(c, "scheme"), study.setting(c, "precision"), "%.2f" % c.value("weight_bits"),
     "%.4f" % c.value("weight_error"), "%.4f" % c.value("logit_error"), "%.2e" % c.value("kl_mean"),
     style.percent(c.value("same_top_frac")), "%.4f" % c.value("perplexity_ratio")]
    for c in cells])
