"""Sandwich Table 2: what keeping more configurations costs and gives."""

from lib import read, reference, study, style

STEM = "tab02_topk"
METRICS = [("measuring_s", "Measuring, on that machine", "s", "tuning time"),
           ("tokens_per_s", "Decode", "tok/s", "throughput"),
           ("gap_frac", "Slower than the best there is", "extra time of a step", None)]

result = read.latest(STEM)
ks = study.settings(result.cells, "k")
fig, axes = style.panels(len(METRICS))
for ax, (metric, title, unit, paper) in zip(axes, METRICS):
    for k in ks:
        v = [c.value(metric) for c in study.where(result.cells, k=k)]
        ax.plot([k] * len(v), v, "o", ms=3, color=style.COLORS[5])
    means = [study.mean([c.value(metric) for c in study.where(result.cells, k=k)]) for k in ks]
    ax.plot(ks, means, color=style.COLORS[0], marker="_", ms=12)
    if not study.finite(means):
        style.na(ax, read.why(result.cells, metric))
    if paper:
        printed = [(at["k"], v) for v, at in reference.values("sandwich", "Table 2", paper)]
        reference.mark(ax, *zip(*printed), "sandwich", "Table 2", means)
        style.legend_below(ax)
    ax.margins(x=0.1, y=0.2)
    ax.set_ylim(min([0] + study.finite(means)), None)
    ax.set_title(title)
    ax.set_xlabel("k (configurations measured again)")
    ax.set_xticks(sorted({x for line in ax.lines for x in line.get_xdata()} | set(ks)))
    ax.set_ylabel(unit)
    if metric == "gap_frac":
        ax.yaxis.set_major_formatter(lambda v, _: "%.1f %%" % (100 * v))
style.save(fig, result, STEM, "Configurations that are measured again; dots: seeds, line: mean "
           "(Sandwich Table 2)")
HEADER = ["k", "seeds", "measurements", "measuring s", "tok/s", "gap", "paper: tuning s", "paper: tok/s"]
study.write_table(STEM, HEADER, [
    [k, len(of)] + [style.short(study.mean([c.value(m) for c in of])) for m in
     ("n_measurements", "measuring_s", "tokens_per_s")] +
    [style.number(100 * study.mean([c.value("gap_frac") for c in of]), "%.2f", " %")] +
    [style.number(reference.value("sandwich", "Table 2", m, k=k), "%.2f")
     for m in ("tuning time", "throughput")]
    for k in ks for of in [study.where(result.cells, k=k)]])
