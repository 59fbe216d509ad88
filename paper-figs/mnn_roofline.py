"""Qwen-1.8B under MNN-LLM's roofline: the bounds by machine, weights and way of counting, and
what the paper prints."""

import json

from lib import page, read, reference, study, style

STEM = "mnn_roofline"
LINEAR, ATTENTION, OTHER = ("Sec. V-B, " + w for w in ("linear operators", "attention", "other operators"))
COUNTS = [("linear_%s_gflop", "matrices", LINEAR, "work"), ("linear_%s_gb", "... bytes", LINEAR, "memory"),
          ("attention_%s_gflop", "attention", ATTENTION, "work"),
          ("attention_%s_gb", "... bytes", ATTENTION, "memory"),
          ("other_%s_gb", "other bytes", OTHER, "memory"), ("%s_tok_s", "bound, tok/s", "Sec. V-D", "peak")]


def bounds(ax, cells, phase):
    ax.set_title("%s: the bound" % phase.capitalize())
    labels, printed = [], reference.value("mnn_llm", "Sec. V-D", "peak", phase=phase)
    for x, c in enumerate(cells):
        v = c.value("%s_tok_s" % phase)
        machine, i = study.setting(c, "machine"), study.setting(c, "counts") == "corrected"
        at = [printed] if machine == "paper" and study.setting(c, "weights") == "w4a8" else []
        style.bar(ax, x, v, style.short(v), top=at, width=0.7, hatch=style.HATCHES[i], edgecolor="white",
                  color=style.COLORS[machine == "host"])
        labels.append("%s\n%s\n%s" % (machine, study.setting(c, "weights"),
                                      study.setting(c, "counts").replace("_", " ")))
    own = [x for x, c in enumerate(cells) if study.setting(c, "machine") == "paper"
           and study.setting(c, "weights") == "w4a8"]
    if own:
        reference.mark(ax, own, [printed] * len(own), "mnn_llm", "Sec. V-D",
                       [cells[x].value("%s_tok_s" % phase) for x in own])
    ax.set_xticks(range(len(labels)), labels)
    ax.set(ylabel="tokens per second")
    style.legend_below(ax)


def to_digits(v, printed):
    """The value with as many digits after the point as the paper prints."""
    return style.number(v, "%%.%df" % len(printed.partition(".")[2]))


def counts(paper, fixed):
    """Rows of the table: what the paper prints, our formulas to its digits and exactly, corrected."""
    rows = []
    for metric, what, where, name in COUNTS:
        for phase, unit in ("prefill", "prompt"), ("decode", "token"):
            printed = "%s" % reference.value("mnn_llm", where, name, phase=phase)
            v = [c.value(metric % phase) for c in paper + fixed]
            rows.append(["%s, %s" % (what, unit), printed] + [to_digits(x, printed) for x in v[:len(paper)]]
                        + [style.number(x, "%.6g") for x in v])
    return ["units of 2^30", "printed", "to its digits", "formula", "corrected"][:2 + 2 * len(paper) + len(fixed)], rows


result = read.latest(STEM)
fig, axes = style.rows(1, 1, 1, 1)
bounds(axes[0], result.cells, "prefill")
bounds(axes[1], result.cells, "decode")
paper = study.where(result.cells, machine="paper", weights="w4a8", counts="as_printed")[:1]
fixed = study.where(result.cells, machine="paper", weights="w4a8", counts="corrected")[:1]
header, table = counts(paper, fixed)
study.draw_table(axes[2], header, table if paper else [])
slips = json.loads(paper[0].attrs.get("notes.slips", "[]")) if paper else []
axes[3].set_title("What does not add up in the paper")
page.note(axes[3], "\n".join("%d. %s" % (i + 1, s) for i, s in enumerate(slips)) or "n/a: no list was recorded")
style.save(fig, result, STEM, "MNN-LLM's roofline of Qwen-1.8B: the paper's arithmetic, and this machine")
study.write_table(STEM, header, table + [["slip %d" % (i + 1), s] + ["-"] * (len(header) - 2)
                                         for i, s in enumerate(slips)])
