"""The all-reduce among ranks: time by size, and how much faster than the master's copy."""

import math

from lib import read, study, style

STEM = "allreduce_bench"
ALGORITHMS = ["master_copy", "rank_shifted", "symmetric", "by_size"]


def times(ax, cells, title):
    ax.set_title(title)
    ax.set_ylabel("us per message")
    x = [study.setting(c, "bytes") for c in cells]
    for i, name in enumerate(ALGORITHMS):
        ax.plot(x, [c.value("us_" + name) for c in cells], ls="--" if name == "by_size" else "-",
                marker="o", ms=2.5, color=style.COLORS[i], label=name)
        ax.fill_between(x, [c.value("us_p25_" + name) for c in cells],
                        [c.value("us_p75_" + name) for c in cells],
                        color=style.COLORS[i], alpha=0.15, lw=0)
    style.axis_of_sizes(ax, [study.setting(c, "bytes") for c in cells], "message")
    ax.set_yscale("log")
    style.legend_below(ax)


def ratios(ax, cells, groups):
    ax.set_title("master_copy / rank_shifted")
    ax.axhline(1, color=style.GREY, lw=0.8)
    for i, (title, of) in enumerate(groups):
        y = [c.value("rank_shifted_over_master_copy") for c in of]
        bars = [[v - c.value("ratio_p25") for v, c in zip(y, of)],
                [c.value("ratio_p75") - v for v, c in zip(y, of)]]
        ax.errorbar([study.setting(c, "bytes") for c in of], y, yerr=bars, fmt="-o", ms=2.5,
                    elinewidth=0.8, color=style.COLORS[4 + i % 2], label=title)
    style.axis_of_sizes(ax, [study.setting(c, "bytes") for c in cells], "message")
    ax.set_ylabel("times as fast")
    ax.set_ylim(0, 1.5 * max(c.value("rank_shifted_over_master_copy") for c in cells))
    style.legend_below(ax)


result = read.latest(STEM)
cells = [c for c in result.cells if not math.isnan(c.value("us_master_copy"))]
groups = [("%s ranks, %s" % (n, mode), of) for n in study.settings(cells, "ranks")
          for mode in study.settings(cells, "mode")
          for of in [study.where(cells, ranks=n, mode=mode)] if of]
fig, axes = style.panels(len(groups) + 1)
for ax, (title, of) in zip(axes, groups):
    times(ax, of, title)
if groups:
    ratios(axes[-1], cells, groups)
else:
    style.na(axes[0])
style.save(fig, result, STEM, "All-reduce through shared memory; bands and bars: half of "
           "the rounds (Sandwich 7.2)")
study.write_table(
    STEM, ["ranks", "mode", "message"] + ["%s us" % a for a in ALGORITHMS] +
    ["master_copy / rank_shifted", "by size"],
    [[study.setting(c, "ranks"), study.setting(c, "mode"), style.size(study.setting(c, "bytes"))] +
     [style.short(c.value("us_" + a)) for a in ALGORITHMS] +
     [style.short(c.value("rank_shifted_over_master_copy")), c.attrs.get("notes.by_size", "?")]
     for c in result.cells])
