"""The search for decode's cores without one of its parts, on three simulated machines."""

from lib import read, study, style

STEM = "tab02_ablation"
HEADER = ["machine", "method", "gap", "tok/s", "measurements", "trees", "search s", "latent"]


def rows(cells):
    out = []
    for machine in study.settings(cells, "machine"):
        for method in study.settings(cells, "method"):
            of = study.where(cells, machine=machine, method=method)
            mean = {m: study.mean([c.value(m) for c in of]) for m in
                    ("gap_frac", "tokens_per_s", "n_measurements", "n_trees", "search_s",
                     "latent")}
            out.append([machine, method, style.number(100 * mean["gap_frac"], "%.2f", " %"),
                        style.short(mean["tokens_per_s"]),
                        style.number(mean["n_measurements"]), style.number(mean["n_trees"]),
                        style.number(mean["search_s"], "%.2f"),
                        style.percent(mean["latent"])])
    return out


result = read.latest(STEM)
table = rows(result.cells)
machines, methods = (study.settings(result.cells, n) for n in ("machine", "method"))
fig, axes = style.panels(2, width=6.6, height=max(4.0, 0.9 + 0.29 * (len(table) + 1)))
for m, machine in enumerate(machines):
    for i, method in enumerate(methods):
        gap = study.mean([c.value("gap_frac") for c in
                          study.where(result.cells, machine=machine, method=method)])
        y = i + (m - (len(machines) - 1) / 2) * 0.26
        if gap == gap:
            axes[0].barh(y, max(gap, 0), height=0.24, color=style.COLORS[m],
                         label=machine if i == 0 else None)
            axes[0].text(max(gap, 0), y, " %.1f %%" % (100 * gap), va="center", fontsize=7.5)
axes[0].set_yticks(range(len(methods)), methods)
axes[0].invert_yaxis()
axes[0].set_title("Slower than the best configuration there is")
axes[0].margins(x=0.15)
style.percent_axis(axes[0].xaxis)
style.legend_below(axes[0], ncols=3)
study.draw_table(axes[1], HEADER, table)
style.save(fig, result, STEM, "The search for decode's cores without one of its parts")
study.write_table(STEM, HEADER, table)
