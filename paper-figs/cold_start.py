"""Start to first token: phases of `sandwich run`, and servers in turn, with a warm and a cold page cache."""

import itertools

from lib import read, study, style

STEM = "cold_start"
PHASES = ["read", "pack", "wait", "kv", "rest", "prompt"]
TEXT = {"read": "reading the file", "pack": "packing weights", "wait": "waiting for other threads",
        "kv": "memory for keys and values", "rest": "threads, kernels, tokenizer", "prompt": "prompt"}
PREFIX = "first_token_s_of_"


def name(c):
    model = str(study.setting(c, "model")).split("/")[-1].replace(".gguf", "")
    return "%s\n%s" % (model, study.setting(c, "cache"))


def phases(ax, cells):
    for i, c in enumerate(cells):
        ends = list(itertools.accumulate(c.value(p + "_s") for p in PHASES))
        text = "%s s\n%s GB/s" % (style.number(ends[-1], "%.2f"), style.number(c.value("weights_gbps"), "%.1f"))
        style.bar(ax, i, ends[-1], text, width=0.6, color=style.COLORS[len(PHASES) - 1],
                  label=TEXT[PHASES[-1]] if i == 0 else None)
        for k in reversed(range(len(PHASES) - 1)):
            ax.bar(i, ends[k], width=0.6, color=style.COLORS[k], label=TEXT[PHASES[k]] if i == 0 else None)
    finish(ax, cells, "sandwich run: phases, GB/s of weights")


def servers(ax, cells):
    names = list(dict.fromkeys(k[len(PREFIX):] for c in cells for k in c.series if k.startswith(PREFIX)))
    width = 0.8 / max(1, len(names))
    for i, c in enumerate(cells):
        for k, n in enumerate(names):
            rounds = list(c.series.get(PREFIX + n, []))
            x = i + width * (k - (len(names) - 1) / 2)
            v = sorted(rounds)[len(rounds) // 2] if rounds else float("nan")
            style.bar(ax, x, v, style.number(v, "%.2f"), top=rounds, width=0.95 * width, color=style.COLORS[k],
                      label=n if i == 0 else None)
            ax.plot([x] * len(rounds), rounds, ".", ms=3, color="black", alpha=0.5)
    finish(ax, cells, "Servers")


def finish(ax, cells, title):
    ax.set_xticks(range(len(cells)), [name(c) for c in cells], fontsize=7)
    ax.set(title=title, ylabel="start to first token (s)")
    ax.grid(axis="x", visible=False)
    ax.margins(y=0.2)
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.panels(2)
phases(axes[0], result.cells)
servers(axes[1], result.cells)
style.save(fig, result, STEM, "From the start of a program to its first token; dots: rounds")
METRICS = ["run_first_token_s"] + [p + "_s" for p in PHASES] + ["weights_gbps", "disk_frac", "first_token_s",
                                                                "rival_first_token_s", "first_token_over_rival"]
study.write_table(STEM, ["model", "cache"] + [m.replace("_", " ") for m in METRICS],
                  [name(c).split("\n") + [style.number(c.value(m), "%.3g") for m in METRICS] for c in result.cells])
