"""The cores of a simulated machine as two roles or as one engine: goodput, and what a prompt and a token
take."""

from lib import read, study, style

STEM = "split_or_switch_simulated"
SYSTEMS = ["split", "switch", "one_configuration", "mixed", "chunked"]


def goodput(ax, cells, nodes, names):
    factors = sorted(study.settings(cells, "tpot_factor"))
    for k, f in enumerate(factors):
        for i, name in enumerate(names):
            v = study.mean([c.value("goodput_rps") for c in study.where(cells, nodes=nodes, system=name, tpot_factor=f)])
            style.bar(ax, i + 0.4 * (k - 0.5), v, style.number(v, "%.2g"), width=0.37, color=style.COLORS[i],
                      alpha=1 if k == 0 else 0.55, hatch=style.HATCHES[k])
    ax.set_xticks(range(len(names)), [n.replace("_", "\n") for n in names])
    ax.margins(y=0.2)
    cores = study.finite([c.value("prompt_cores") for c in study.where(cells, nodes=nodes, system="switch")])
    ax.set(ylabel="requests per second", title="%s cores; TPOT within %s of alone"
           % ("%d" % cores[0] if cores else "?", " or ".join("%g x" % f for f in factors)))


result = read.latest(STEM)
names = [s for s in SYSTEMS if s in study.settings(result.cells, "system")]
sizes = sorted(study.settings(result.cells, "nodes"))
fig, axes = style.panels(max(len(sizes), 1))
for ax, n in zip(axes, sizes):
    goodput(ax, result.cells, n, names)
style.save(fig, result, STEM, "Split the cores, or switch? Simulated (Sandwich 3.1, Splitwise VI)")
METRICS = ["goodput_rps", "over_switch", "prompt_cores", "token_cores", "prompt_ms", "token_ms", "slowdown", "ttft_kept", "tpot_kept"]
study.write_table(STEM, ["memory nodes", "system", "TPOT factor"] + [m.replace("_", " ") for m in METRICS],
                  [["%g" % study.setting(c, "nodes"), study.setting(c, "system"), "%g" % study.setting(c, "tpot_factor")]
                   + [style.number(c.value(m), "%.4g") for m in METRICS] for c in result.cells])
