"""Qwen-1.8B under MNN-LLM's roofline: the bounds by machine, weights and way of counting, and
what the paper prints."""

import json
import textwrap

from lib import read, study, style

STEM = "mnn_roofline"
COUNTS = [("linear_prefill_gflop", "matrices, prompt", "1591.13"), ("linear_decode_gflop", "matrices, token", "2.84"),
          ("linear_prefill_gb", "... bytes, prompt", "1.74"), ("linear_decode_gb", "... bytes, token", "0.71"),
          ("attention_prefill_gflop", "attention, prompt", "57.57"), ("attention_decode_gflop", "attention, token", "0.11"),
          ("attention_prefill_gb", "... bytes, prompt", "0.58"), ("attention_decode_gb", "... bytes, token", "0.21"),
          ("other_prefill_gb", "other bytes, prompt", "10.2539"), ("other_decode_gb", "other bytes, token", "0.01831"),
          ("prefill_tok_s", "bound, prefill tok/s", "668.31"), ("decode_tok_s", "bound, decode tok/s", "105.26")]


def bounds(ax, cells, phase, printed):
    ax.set_title("%s: the bound" % phase.capitalize())
    labels = []
    for x, c in enumerate(cells):
        v = c.value("%s_tok_s" % phase)
        machine, i = study.setting(c, "machine"), study.setting(c, "counts") == "corrected"
        style.bar(ax, x, v, style.short(v), width=0.7, hatch=style.HATCHES[i], edgecolor="white",
                  color=style.COLORS[machine == "host"])
        labels.append("%s\n%s\n%s" % (machine, study.setting(c, "weights"),
                                      study.setting(c, "counts").replace("_", "\n")))
    ax.axhline(printed, color=style.GREY, ls="--", lw=1.3, label="printed in the paper: %g" % printed)
    ax.set_xticks(range(len(labels)), labels, fontsize=7)
    ax.set(ylabel="tok/s")
    ax.margins(y=0.15)
    style.legend_below(ax, drop=0.75)


def to_digits(v, printed):
    """The value with as many digits after the point as the paper prints."""
    return style.number(v, "%%.%df" % len(printed.partition(".")[2]))


def counts(paper, fixed):
    """Rows of the table: what the paper prints, our formulas to its digits and exactly, corrected."""
    rows = []
    for metric, what, printed in COUNTS:
        cells = [style.number(c.value(metric), "%.6g") for c in paper + fixed]
        rows.append([what, printed] + [to_digits(c.value(metric), printed) for c in paper] + cells)
    return ["units of 2^30", "printed", "to its digits", "formula", "corrected"][:2 + 2 * len(paper) + len(fixed)], rows


result = read.latest(STEM)
fig, axes = style.panels(4, width=4.7, height=5.6)
bounds(axes[0], result.cells, "prefill", 668.31)
bounds(axes[1], result.cells, "decode", 105.26)
paper = study.where(result.cells, machine="paper", weights="w4a8", counts="as_printed")[:1]
fixed = study.where(result.cells, machine="paper", weights="w4a8", counts="corrected")[:1]
header, table = counts(paper, fixed)
study.draw_table(axes[2], header, table if paper else [])
slips = json.loads(paper[0].attrs.get("notes.slips", "[]")) if paper else []
axes[3].axis("off")
axes[3].set_title("What does not add up in the paper")
axes[3].text(0, 0.99, "\n".join(textwrap.fill(s, 62, initial_indent="- ", subsequent_indent="  ") for s in slips),
             transform=axes[3].transAxes, fontsize=8, va="top", linespacing=1.35)
style.save(fig, result, STEM, "MNN-LLM's roofline of Qwen-1.8B: the paper's arithmetic, and this machine")
study.write_table(STEM, header, table + [["slip %d" % (i + 1), s] + [""] * (len(header) - 2)
                                         for i, s in enumerate(slips)])
