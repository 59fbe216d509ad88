"""Tokens per second by allocator and memory, and what odma gains over each of the others; geometric means of
the seeds."""

from lib import read, reference, study, style

STEM = "odma_fig04_throughput"
ALLOCS = ["static", "s3", "odma", "paged"]
METRICS = ["tps", "tokens_per_step", "overflow_frac", "preempted_per_request", "recomputed_frac",
           "migrated_frac", "alloc_frac", "alloc_per_s"]


def mean(cells, metric):
    return study.geomean([c.value(metric) for c in cells])


def bars(ax, groups, metric, title, label):
    ax.set_title(title)
    for i, alloc in enumerate(ALLOCS):
        for x, (_, cells) in enumerate(groups):
            v = mean(cells, "%s_%s" % (metric, alloc))
            style.bar(ax, x + 0.2 * (i - 1.5), v, style.short(v), width=0.18, color=style.COLORS[i],
                      label=alloc if x == 0 else None)
    ax.set_xticks(range(len(groups)), ["%s\n%s sequences, %s clients" % at for at, _ in groups], fontsize=7)
    ax.set_ylabel(label)
    style.legend_below(ax)


def gains(ax, groups):
    ax.set_title("Tokens per second of odma / of the other")
    others = [a for a in ALLOCS if a != "odma"]
    for i, alloc in enumerate(others):
        for x, (_, cells) in enumerate(groups):
            v = mean(cells, "tps_odma_over_%s" % alloc)
            style.bar(ax, x + 0.25 * (i - 1), v, "%.2f" % v if v == v else "", width=0.22,
                      color=style.COLORS[ALLOCS.index(alloc)], label=alloc if x == 0 else None)
    x = [i for i, (at, _) in enumerate(groups) if at[0] == "alpaca"]
    paper = 1 + reference.value("odma", "Fig. 4", "throughput gained", dataset="Alpaca") / 100
    if x:
        reference.mark(ax, [i - 0.25 for i in x], [paper] * len(x), "odma", "Fig. 4",
                       [mean(cells, "tps_odma_over_static") for _, cells in groups])
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_xticks(range(len(groups)), ["%s\n%s sequences, %s clients" % at for at, _ in groups], fontsize=7)
    ax.set_ylabel("ratio")
    style.legend_below(ax)


result = read.latest(STEM)
cells = result.cells
at = sorted({tuple(study.setting(c, k) for k in ("fit", "budget_seqs", "clients")) for c in cells})
groups = [(a, study.where(cells, fit=a[0], budget_seqs=a[1], clients=a[2])) for a in at]
fig, axes = style.rows(1, 1)
bars(axes[0], groups, "tps", "Tokens generated per second", "tokens per second")
gains(axes[1], groups)
style.save(fig, result, STEM, "Serving with memory for few sequences, by allocator (ODMA Fig. 4)")
study.write_table(
    STEM, ["lengths", "memory", "clients", "allocator"] + [m.replace("_", " ") for m in METRICS],
    [list(a) + [alloc] + [style.number(study.mean([c.value("%s_%s" % (m, alloc)) for c in of]), "%.3g") for m in METRICS]
     for a, of in groups for alloc in ALLOCS])
