"""Sandwich Fig. 3b: how many ranks share an EPYC 7H12 machine of two sockets."""

from lib import read, study, style

STEM = "fig03b_tp_degree"
METRICS = [("request_s", "Request", "s", 1), ("decode_s", "One token", "ms", 1e3),
           ("prefill_s", "One prompt", "ms", 1e3)]

result = read.latest(STEM)
fig, axes = style.panels(len(METRICS), width=4.6)
for ax, (metric, title, unit, scale) in zip(axes, METRICS):
    i = 0
    for machine in study.settings(result.cells, "machine"):
        for plan in study.settings(result.cells, "plan"):
            cells = study.where(result.cells, machine=machine, plan=plan)
            smt = "no SMT" if str(plan).startswith("no_smt") else "SMT"
            ax.plot([study.setting(c, "ranks") for c in cells],
                    [c.value(metric) * scale for c in cells], marker="o", ms=4,
                    color=style.COLORS[i], label="%s, %s" % (machine, smt))
            i += 1
    ranks = study.settings(result.cells, "ranks")
    ax.set_xscale("log", base=2)
    style.plain_log(ax.xaxis, ranks)
    ax.margins(y=0.15)
    ax.set_ylim(bottom=0)
    ax.set_title(title)
    ax.set_xlabel("ranks")
    ax.set_ylabel(unit + " (lower is better)")
    style.legend_below(ax, ncols=1)
style.save(fig, result, STEM, "Ranks that share all cores of two EPYC 7H12 (Sandwich Fig. 3b)")
HEADER = ["machine", "plan", "ranks", "threads", "request s", "token ms", "prompt ms"]
study.write_table(STEM, HEADER, [
    [study.setting(c, "machine"), str(study.setting(c, "plan")).split()[0],
     style.number(c.value("n_ranks")), style.number(c.value("n_threads")),
     style.short(c.value("request_s")), style.short(1e3 * c.value("decode_s")),
     style.short(1e3 * c.value("prefill_s"))] for c in result.cells])
