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


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def means(ax, groups, metric, title):
    """The mean of the seeds."""
    ax.set_title(title)
    for i, alloc in enumerate(ALLOCS):
        for x, (_, cells) in enumerate(groups):
            v = mean(cells, "%s_%s" % (metric, alloc))
            style.bar(ax, x + 0.2 * (i - 1.5), v, style.percent(v), width=0.18, color=style.COLORS[i],
                      label=alloc if x == 0 else None)
    ax.set_xticks(range(len(groups)), ["%s\n%s sequences" % at for at, _ in groups], fontsize=7)
    ax.set_ylim(0, 1.05)
    ax.set_ylabel("bytes used / %s" % ("reserved" if metric == "utilization" else "all"))
    style.percent_axis(ax.yaxis)
    x = [k for k, (at, _) in enumerate(groups) if at[0] == "alpaca"][:1]
    if metric == "utilization" and x:
        paper = [reference.value("odma", "Fig. 5", "utilization", system=s, dataset="Alpaca") / 100
                 for s in ("static", "ODMA")]
        reference.mark(ax, [x[0] - 0.3, x[0] + 0.1], paper, "odma", "Fig. 5", [mean(groups[x[0]][1], "utilization_static")])
    style.legend_below(ax)


result = read.latest(STEM)
cells = result.cells
fits, budgets = study.settings(cells, "fit"), study.settings(cells, "budget_seqs")
groups = [((f, b), study.where(cells, fit=f, budget_seqs=b)) for f in fits for b in budgets]
fig, axes = style.rows(2, 2)
for ax, f in zip(axes[:2], fits):
    over_time(ax, study.where(cells, fit=f)[0])
means(axes[2], groups, "utilization", "Inner utilization, mean")
means(axes[3], groups, "utilization_outer", "Outer utilization, mean")
style.save(fig, result, STEM, "Memory for keys and values under load, by allocator (ODMA Fig. 5)")
study.write_table(
    STEM, ["lengths", "memory, sequences", "allocator"] + [m.replace("_", " ") for m in METRICS],
    [[f, b, a] + [style.number(mean(of, "%s_%s" % (m, a)), "%.3g") for m in METRICS]
     for (f, b), of in groups for a in ALLOCS])
