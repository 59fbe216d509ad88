"""Use of the memory for keys and values over time, by allocator."""

from lib import read, reference, study, style

STEM = "odma_fig05_utilization"
ALLOCS = ["static", "s3", "odma", "paged"]
METRICS = ["utilization", "utilization_outer", "tokens_per_step", "tps", "overflow_frac"]


def over_time(ax, cell):
    ax.set_title("%s: use of reserved memory" % study.setting(cell, "fit"))
    for i, alloc in enumerate(ALLOCS):
        y = cell.series.get("utilization_over_time_%s" % alloc)
        if y is not None and len(y):
            ax.plot([k / len(y) for k in range(len(y))], y, color=style.COLORS[i], lw=1.2, label=alloc)
    ax.set_ylim(0, 1)
    ax.set_xlabel("part of the time with requests to send")
    ax.set_ylabel("bytes used / reserved")
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


def means(ax, cells, metric, title):
    ax.set_title(title)
    for i, alloc in enumerate(ALLOCS):
        for x, c in enumerate(cells):
            v = c.value("%s_%s" % (metric, alloc))
            style.bar(ax, x + 0.2 * (i - 1.5), v, style.percent(v), width=0.18, color=style.COLORS[i],
                      label=alloc if x == 0 else None)
    ax.set_xticks(range(len(cells)), [study.setting(c, "fit") for c in cells])
    ax.set_ylim(0, 1.05)
    ax.set_ylabel("bytes used / %s" % ("reserved" if metric == "utilization" else "all"))
    style.percent_axis(ax.yaxis)
    x = [k for k, c in enumerate(cells) if study.setting(c, "fit") == "alpaca"][:1]
    if metric == "utilization" and x:
        paper = [reference.value("odma", "Fig. 5", "utilization", system=s, dataset="Alpaca") / 100
                 for s in ("static", "ODMA")]
        reference.mark(ax, [x[0] - 0.3, x[0] + 0.1], paper, "odma", "Fig. 5",
                       [c.value("utilization_static") for c in cells])
    style.legend_below(ax)


result = read.latest(STEM)
cells = result.cells
fig, axes = style.rows(2, 2)
for ax, c in zip(axes[:2], cells):
    over_time(ax, c)
means(axes[2], cells, "utilization", "Inner utilization, mean")
means(axes[3], cells, "utilization_outer", "Outer utilization, mean")
style.save(fig, result, STEM, "Memory for keys and values under load, by allocator (ODMA Fig. 5)")
study.write_table(
    STEM, ["lengths", "allocator"] + [m.replace("_", " ") for m in METRICS],
    [[study.setting(c, "fit"), a] +
     [style.number(c.value("%s_%s" % (m, a)), "%.3g") for m in METRICS] for c in cells for a in ALLOCS])
