"""Sandwich Fig. 3a: which cores are left out on a Kunpeng 920 machine of four sockets."""

from lib import read, study, style

STEM = "fig03a_core_removal"
NAMES = {"numa": "all\ncores", "sc_rm": "one of each\nhidden four", "numa_rm": "as many, end\nof each node",
         "fast@0,2,4,6": "fast nodes\nonly", "slow@1,3,5,7": "slow nodes\nonly"}
METRICS = [("request_s", "Request", "s (lower is better)"),
           ("decode_s", "One token", "ms (lower is better)"),
           ("stream_gbps", "Local bandwidth of a node", "GB/s (static shares)")]


def plan(cell):
    return str(study.setting(cell, "plan")).split()[0]


result = read.latest(STEM)
models = study.settings(result.cells, "model")
fig, axes = style.panels(len(METRICS), width=5.2)
for ax, (metric, title, unit) in zip(axes, METRICS):
    of = models[:1] if metric == "stream_gbps" else models
    for m, model in enumerate(of):
        cells = study.where(result.cells, model=model)
        for i, c in enumerate(cells):
            v = c.value(metric) * (1e3 if metric == "decode_s" else 1)
            style.bar(ax, i + (m - (len(of) - 1) / 2) * 0.4, v, style.short(v), width=0.38,
                      color=style.COLORS[m], label=model if i == 0 else None)
    ax.set_title(title)
    ax.set_ylabel(unit)
    ax.set_xticks(range(len(study.settings(result.cells, "plan"))),
                  [NAMES.get(str(p).split()[0], str(p).split()[0])
                   for p in study.settings(result.cells, "plan")], fontsize=7.5)
    ax.margins(y=0.12)
    if metric != "stream_gbps":
        style.legend_below(ax, ncols=2)
style.save(fig, result, STEM, "Leaving cores out on a Kunpeng 920 of 192 cores (Sandwich Fig. 3a)")
HEADER = ["model", "plan", "ranks", "threads", "request s", "token ms", "node GB/s"]
study.write_table(STEM, HEADER, [
    [study.setting(c, "model"), plan(c), style.number(c.value("n_ranks")),
     style.number(c.value("n_threads")), style.short(c.value("request_s")),
     style.short(1e3 * c.value("decode_s")), style.short(c.value("stream_gbps"))]
    for c in result.cells])
