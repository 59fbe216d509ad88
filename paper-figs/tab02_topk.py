"""Sandwich Table 2: what keeping more configurations costs and gives."""

from lib import read, reference, study, style

STEM = "tab02_topk"
METRICS = [("measuring_s", "Measuring, on that machine", "s", "tuning time"),
           ("tokens_per_s", "Decode", "tok/s", "throughput"),
           ("gap_frac", "Slower than the best there is", "", None)]

result = read.latest(STEM)
ks = study.settings(result.cells, "k")
fig, axes = style.panels(len(METRICS), height=4.0)
for ax, (metric, title, unit, paper) in zip(axes, METRICS):
    for k in ks:
        v = [c.value(metric) for c in study.where(result.cells, k=k)]
        ax.plot([k] * len(v), v, "o", ms=4, color=style.COLORS[5])
    means = [study.mean([c.value(metric) for c in study.where(result.cells, k=k)]) for k in ks]
    ax.plot(ks, means, color=style.COLORS[0], marker="_", ms=14)
    if paper:
        printed = [(at["k"], v) for v, at in reference.values("sandwich", "Table 2", paper)]
        reference.mark(ax, *zip(*printed), "sandwich", "Table 2", means)
        style.legend_below(ax)
    ax.set_title(title)
    ax.set_xlabel("k")
    ax.set_xticks(ks)
    ax.set_ylabel(unit)
    if metric == "gap_frac":
        style.percent_axis(ax.yaxis)
    ax.margins(y=0.2)
style.save(fig, result, STEM, "Configurations measured again; dots: seeds, line: mean "
           "(Sandwich Table 2)")
HEADER = ["k", "seeds", "measurements", "measuring s", "tok/s", "gap", "paper: tuning s", "paper: tok/s"]
study.write_table(STEM, HEADER, [
    [k, len(of)] + [style.short(study.mean([c.value(m) for c in of])) for m in
     ("n_measurements", "measuring_s", "tokens_per_s")] +
    ["%.2f %%" % (100 * study.mean([c.value("gap_frac") for c in of]))] +
    [style.number(reference.value("sandwich", "Table 2", m, k=k), "%.2f")
     for m in ("tuning time", "throughput")]
    for k in ks for of in [study.where(result.cells, k=k)]])
