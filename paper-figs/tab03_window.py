"""Sandwich Table 3: the sliding window, what it costs and gives, with the spread of chance."""

from lib import read, reference, study, style

STEM = "tab03_window"
PANELS = [("tuning_s", "Tuning time", "s"),
          ("n_measurements", "Measurements", "schedules measured"),
          ("speedup", "Speed-up over the cost model", "x")]
PRINTED = [("tuning time", "%.2f"), ("TTFT", "%.2f"), ("throughput", "%.2f")]


def panel(ax, cells, metric, title, ylabel):
    sigmas = study.settings(cells, "sigma")
    for x, sigma in enumerate(sigmas):
        v = study.finite([c.value(metric) for c in study.where(cells, sigma=sigma)])
        ax.plot([x] * len(v), v, "o", ms=4, color=style.COLORS[5])
        mean = study.mean(v)
        if v:
            ax.hlines(mean, x - 0.25, x + 0.25, color=style.COLORS[0], lw=2)
        ax.annotate(style.short(mean), (x, mean if v else 0), xytext=(0, 12),
                    textcoords="offset points", ha="center", fontsize=8.5)
    if metric == "tuning_s":
        printed = [(sigmas.index(at["rho"]), v) for v, at in
                   reference.values("sandwich", "Table 3", "tuning time") if at["rho"] in sigmas]
        if printed:
            reference.mark(ax, *zip(*printed), "sandwich", "Table 3",
                           [c.value(metric) for c in cells])
            style.legend_below(ax)
    ax.set_xticks(range(len(sigmas)), sigmas)
    ax.set_xlim(-0.6, len(sigmas) - 0.4)
    ax.margins(y=0.2)
    ax.set(title=title, ylabel=ylabel, xlabel="window (shapes)")


result = read.latest(STEM)
fig, axes = style.panels(3, width=3.7, height=4.0)
for ax, what in zip(axes, PANELS):
    panel(ax, result.cells, *what)
style.save(fig, result, STEM, "The sliding window; dots: draws of the shapes, bar: mean "
           "(Sandwich Table 3)")
rows = []
for sigma in study.settings(result.cells, "sigma"):
    cells = study.where(result.cells, sigma=sigma)
    row = [sigma, len(cells)]
    for metric, _, _ in PANELS:
        v = study.finite([c.value(metric) for c in cells])
        row.append("%s (%s to %s)" % tuple(map(style.short, (study.mean(v), min(v), max(v))))
                   if v else "n/a")
    rows.append(row + [style.number(reference.value("sandwich", "Table 3", m, rho=sigma), form)
                       for m, form in PRINTED])
study.write_table(STEM, ["window", "draws", "tuning s", "measurements", "speed-up",
                         "paper: tuning s", "paper: TTFT ms", "paper: tok/s"], rows)
