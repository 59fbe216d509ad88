"""Who has memory for keys and values: batches, utilization and what wrong predictions cost, by allocator."""

from lib import read, study, style

STEM = "odma_replay"
ALLOCS = ["static", "s3", "odma", "paged"]


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def grouped(ax, groups, metric, form, title, label):
    """Bars of the allocators for each (label, cells)."""
    ax.set_title(title)
    for i, alloc in enumerate(ALLOCS):
        for x, (_, cells) in enumerate(groups):
            v = mean(study.where(cells, alloc=alloc), metric)
            style.bar(ax, x + 0.2 * (i - 1.5), v, form(v), width=0.18, color=style.COLORS[i],
                      label=alloc if x == 0 else None)
    ax.set_xticks(range(len(groups)), [name for name, _ in groups], fontsize=8)
    ax.margins(y=0.15)
    ax.set_ylabel(label)
    style.legend_below(ax)


def over_time(ax, cells):
    """The first seed's inner utilization while the lengths change."""
    ax.set_title("Use of reserved memory over time")
    ax.set_ylabel("tokens held / reserved")
    for i, alloc in enumerate(ALLOCS):
        for c in study.where(cells, alloc=alloc)[:1]:
            if "step" in c.series:
                ax.plot(c.series["step"] / c.series["step"].max(),
                        c.series["utilization_inner_over_time"], color=style.COLORS[i], lw=1.2,
                        label=alloc)
    ax.set_ylim(0, 1)
    ax.set_xlabel("part of the run; the trace changes within it")
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


result = read.latest(STEM)
budgets = study.settings(result.cells, "budget_seqs")
most = study.where(result.cells, budget_seqs=budgets[-1]) if budgets else result.cells
fits = study.settings(result.cells, "stream")
predictors = study.settings(result.cells, "predictor")
usual = "noisy" if "noisy" in predictors else predictors[0]
by_fit = [(f.replace("+", "\nthen "), study.where(most, stream=f, predictor=usual)) for f in fits]
by_predictor = [(p, study.where(most, stream=fits[-1], predictor=p)) for p in predictors]
fig, axes = style.panels(4)
grouped(axes[0], by_fit, "over_static", style.short, "Batches", "tokens per step / static's")
axes[0].axhline(1, color=style.GREY, lw=0.8)
grouped(axes[1], by_fit, "utilization_inner", style.percent, "Use of reserved memory", "tokens held / reserved")
grouped(axes[2], by_predictor, "over_static", style.short,
        "Batches by predictor: %s" % fits[-1].replace("+", " then "), "tokens per step / static's")
over_time(axes[3], by_fit[-1][1])
style.percent_axis(axes[1].yaxis)
style.save(fig, result, STEM, "Memory for keys and values by allocator; no step takes a time (ODMA 5.2)")
METRICS = ["tokens_per_step", "over_static", "utilization_inner", "utilization_outer", "overflow_frac",
           "migrated_frac", "extended_frac", "preempted_per_request", "recomputed_frac", "waited_frac",
           "safe_frac", "bucket_accuracy_frac"]
study.write_table(
    STEM, ["memory, sequences", "lengths", "predictor", "allocator"] + [m.replace("_", " ") for m in METRICS],
    [[b, f, p, a] + [style.number(mean(study.where(result.cells, budget_seqs=b, stream=f, predictor=p, alloc=a), m), "%.3g")
                     for m in METRICS] for b in budgets for f in fits for p in predictors for a in ALLOCS])
