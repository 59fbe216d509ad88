"""Distributions of the lengths of prompts and outputs of Azure's two traces, and of their fits."""

from lib import read, reference, study, style

STEM = "splitwise_fig03_cdf"


def lengths(ax, cells, what):
    ax.set_title("(%s) %ss" % ("a" if what == "prompt" else "b", what.capitalize()))
    for c in cells:
        trace, fit = study.setting(c, "trace"), study.setting(c, "source") == "fit"
        v = c.series.get(what + "_tok", [])
        median = c.value(what + "_p50_tok")
        if len(v):
            style.cdf(ax, v, color=style.COLORS[trace == "coding"], lw=0.9 if fit else 1.4, ls=":" if fit else "-",
                      label="%s%s: median %s" % (trace, ", fit" if fit else "", style.number(median, "%.0f")))
    traces = study.settings(cells, "trace")
    printed = [reference.value("splitwise", "Fig. 3", what + ", median", trace=t) for t in traces]
    reference.mark(ax, printed, [0.5] * len(printed), "splitwise", "Fig. 3", [0.5], machine="medians")
    ax.set(xscale="log", xlabel="tokens", ylabel="share of requests")
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.panels(2)
lengths(axes[0], result.cells, "prompt")
lengths(axes[1], result.cells, "output")
style.save(fig, result, STEM, "Lengths of prompts and outputs (Splitwise Fig. 3)")
COLUMNS = ["%s_%s" % (w, m) for w in ("prompt", "output") for m in ("p50_tok", "p90_tok", "p99_tok", "ks")] + \
    ["rank_correlation", "n_requests"]
study.write_table(STEM, ["trace", "source"] + [c.replace("_", " ") for c in COLUMNS],
                  [[study.setting(c, "trace"), study.setting(c, "source")]
                   + [style.number(c.value(m), "%.4g") for m in COLUMNS] for c in result.cells])
