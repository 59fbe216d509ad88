"""Regret of the searches for a plan by the number of measurements, and how often what each chooses in
the end is within 2 % of the best plan known."""

from lib import read, study, style, table

STEM = "search_regret"
SEARCHES = [("search", "the engine's"), ("trees", "trees alone"), ("paper", "the paper's, never stops"),
            ("paper_patience_10", "the paper's, patience 10"), ("random_trees", "random trees"),
            ("exhaustive", "all trees"), ("random", "random PUs"), ("annealing", "annealing"),
            ("annealing_cool", "annealing, cool"), ("tpe", "Parzen")]
MARKS = [10, 30, 100, 300, 1000]
PANELS = [("cores of a node are alike", ["tiled:0", "tiled:0.3", "noisy:0.4"]),
          ("they are not", ["unequal:0.4", "crossed:0.4", "slow_node:0.4"])]

result = read.latest(STEM)
fig, axes = style.rows(2, 1)
rows = []
for ax, (title, machines) in zip(axes[:2], PANELS):
    for k, (search, label) in enumerate(SEARCHES):
        cells = [c for m in machines for c in study.where(result.cells, machine=m, search=search)]
        means = [study.mean([c.value("regret_%d" % n) for c in cells]) for n in MARKS]
        ax.plot(MARKS, means, marker="osv^D*P<>X"[k], ms=4, lw=1, ls=style.LINES[k // 6],
                color=style.COLORS[k % 6], label=label)
    ax.set_xscale("log")
    ax.set_xticks(MARKS, ["%d" % n for n in MARKS])
    ax.set_yscale("symlog", linthresh=0.02)
    ax.set_yticks([0, 0.01, 0.02, 0.1, 1], ["0", "1 %", "2 %", "10 %", "100 %"])
    ax.set_ylim(bottom=-0.002)
    ax.axhline(0.02, color=style.GREY, lw=1, ls="--")
    ax.set(title="Regret where " + title, xlabel="measurements",
           ylabel="time of a step over the best one's, mean")
style.legend_below(axes[0])
for y, (search, label) in enumerate(SEARCHES):
    for k, (title, machines) in enumerate(PANELS):
        cells = [c for m in machines for c in study.where(result.cells, machine=m, search=search)]
        v = study.finite([c.value("within_2pct") for c in cells])
        if v:
            (lo, hi), p = study.wilson95(sum(v), len(v)), sum(v) / len(v)
            axes[2].errorbar(p, y + 0.2 * (2 * k - 1), xerr=[[max(0, p - lo)], [max(0, hi - p)]], marker="os"[k],
                             ls="", ms=4, lw=1, color=style.COLORS[k], label=title if y == 0 else None)
        rows.append([label, title, len(v)] + [
            style.percent(study.mean([c.value("regret_%d" % n) for c in cells])) for n in MARKS] + [
            style.percent(study.mean([c.value("regret_chosen") for c in cells])),
            "%.0f %%" % (100 * sum(v) / len(v)) if v else "n/a",
            "%.0f" % study.mean([c.value("n_measurements") for c in cells]) if v else "n/a"])
axes[2].set_yticks(range(len(SEARCHES)), [label for _, label in SEARCHES])
axes[2].set_ylim(len(SEARCHES) - 0.5, -0.5)
axes[2].set(title="Chosen in the end within 2 % of the best", xlabel="share of machines, 95 % interval",
            xlim=(-0.05, 1.05))
style.percent_axis(axes[2].xaxis)
style.legend_below(axes[2])
style.save(fig, result, STEM, "Searches for a plan at equal numbers of measurements")
table.write(STEM, ["search", "machines", "n"] + ["after %d" % n for n in MARKS] + [
    "chosen", "within 2 %", "measurements"], rows)
