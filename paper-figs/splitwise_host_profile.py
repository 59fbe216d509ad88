"""Times of this engine's steps, and what a model fitted on some of them predicts for others."""

import numpy as np

from lib import read, steps, study, style

STEM = "splitwise_host_profile"


def contexts(ax, cell, what):
    ax.set_title("Token steps, by context" if what is steps.token_ms else "Prompts in one step, by length of each")
    x = steps.batch if what is steps.token_ms else steps.prompt_tok
    lengths = sorted(set(cell.series.get("prompt_size", [])))
    wanted = [n for n in lengths if len(steps.points(cell, x, what, lambda p, n=n: p["prompt_size"] == n)[0]) > 1]
    for i, n in enumerate(wanted):
        for fitted, style_ in (1, "o-"), (0, "D"):
            a, b = steps.points(cell, x, what, lambda p, n=n, f=fitted: p["prompt_size"] == n and p["fitted"] == f)
            if len(a):
                ax.plot(a, b, style_, ms=4, color=style.COLORS[i % len(style.COLORS)], mfc=None if fitted else "none",
                        label="%d tokens%s" % (n, "" if fitted else ", not fitted"))
    if what is steps.prompt_ms:
        a, b = steps.points(cell, x, what, steps.single)
        ax.plot(a, b, "s--", ms=4, color=style.GREY, label="one prompt")
    ax.set(xlabel="sequences" if what is steps.token_ms else "tokens of all prompts", ylabel="ms")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    style.legend_below(ax)


def ratios(ax, cell):
    for i, what in enumerate(("prompt", "token")):
        v = cell.series.get("%s_ratios" % what, np.array([]))
        ax.plot(v, i + np.linspace(-0.2, 0.2, len(v)) if len(v) > 1 else [i] * len(v), "o", ms=4, alpha=0.7,
                color=style.COLORS[i])
        m = cell.value("%s_ratio" % what)
        if m == m:
            ax.plot([m, m], [i - 0.35, i + 0.35], color=style.COLORS[i], lw=2)
            ax.annotate("median %.3f" % m, (m, i + 0.36), fontsize=style.SMALL, ha="center", va="bottom")
    ax.axvline(1, color=style.GREY, lw=0.8)
    ax.axvspan(0.95, 1.05, color="#eeeeee", zorder=0)
    ax.set_yticks([0, 1], ["prompts", "tokens"])
    ax.set_ylim(-0.6, 1.7)
    ax.set_title("Not fitted: predicted / measured")
    ax.set_xlabel("1: exact; grey: within 5 %")


result = read.latest(STEM)
fig, axes = style.rows(2, 1)
for cell in result.cells[:1]:
    contexts(axes[0], cell, steps.token_ms)
    contexts(axes[1], cell, steps.prompt_ms)
    ratios(axes[2], cell)
style.save(fig, result, STEM, "A profile of this host, and the performance model of it (Splitwise V-B)")
COLUMNS = ["prompt_ratio", "prompt_ratio_min", "prompt_ratio_max", "token_ratio", "token_ratio_min",
           "token_ratio_max", "host_error", "host_mape", "round_spread"]
study.write_table(STEM, ["source"] + [c.replace("_", " ") for c in COLUMNS],
                  [[steps.name(c)] + [style.number(c.value(m), "%.3g") for m in COLUMNS] for c in result.cells])
