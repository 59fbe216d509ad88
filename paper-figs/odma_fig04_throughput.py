"""Tokens per second by allocator, memory and load, and what odma gains over each of the others."""

from lib import read, reference, study, style

STEM = "odma_fig04_throughput"
ALLOCS = ["static", "s3", "odma", "paged"]
METRICS = ["tps", "tokens_per_step", "overflow_frac", "preempted_per_request", "recomputed_frac",
           "migrated_frac", "alloc_frac", "alloc_per_s"]


def name(cell):
    return "%s\n%s seqs, %s clients" % tuple(
        study.setting(cell, k) for k in ("fit", "budget_seqs", "clients"))


def bars(ax, cells, metric, title, label):
    ax.set_title(title)
    for i, alloc in enumerate(ALLOCS):
        for x, c in enumerate(cells):
            v = c.value("%s_%s" % (metric, alloc))
            style.bar(ax, x + 0.2 * (i - 1.5), v, style.short(v), width=0.18, color=style.COLORS[i],
                      label=alloc if x == 0 else None)
    ax.set_xticks(range(len(cells)), [name(c) for c in cells], fontsize=7)
    ax.set_ylabel(label)
    style.legend_below(ax)


def gains(ax, cells):
    ax.set_title("Tokens per second of odma / of the other")
    others = [a for a in ALLOCS if a != "odma"]
    for i, alloc in enumerate(others):
        for x, c in enumerate(cells):
            v = c.value("tps_odma_over_%s" % alloc)
            style.bar(ax, x + 0.25 * (i - 1), v, "%.2f" % v if v == v else "", width=0.22,
                      color=style.COLORS[ALLOCS.index(alloc)], label=alloc if x == 0 else None)
    x = [i for i, c in enumerate(cells) if study.setting(c, "fit") == "alpaca"]
    paper = 1 + reference.value("odma", "Fig. 4", "throughput gained", dataset="Alpaca") / 100
    if x:
        reference.mark(ax, [i - 0.25 for i in x], [paper] * len(x), "odma", "Fig. 4",
                       [c.value("tps_odma_over_static") for c in cells])
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_xticks(range(len(cells)), [name(c) for c in cells], fontsize=7)
    ax.set_ylabel("ratio")
    style.legend_below(ax)


result = read.latest(STEM)
cells = result.cells
fig, axes = style.rows(1, 1)
bars(axes[0], cells, "tps", "Tokens generated per second", "tokens per second")
gains(axes[1], cells)
style.save(fig, result, STEM, "Serving with memory for few sequences, by allocator (ODMA Fig. 4)")
study.write_table(
    STEM, ["lengths", "memory", "clients", "allocator"] + [m.replace("_", " ") for m in METRICS],
    [[study.setting(c, "fit"), study.setting(c, "budget_seqs"), study.setting(c, "clients"), a] +
     [style.number(c.value("%s_%s" % (m, a)), "%.3g") for m in METRICS]
     for c in cells for a in ALLOCS])
