"""What a million requests cost to simulate."""

from lib import cluster, read, study, style

STEM = "splitwise_simulator_speed"

result = read.latest(STEM)
fig, axes = style.rows(1, 1)
names = ["%s,\n%s" % (study.setting(c, "trace"), cluster.RULES[study.setting(c, "rules")]) for c in result.cells]
for ax, metric, label, scale in ((axes[0], "sim_s", "CPU time, s", 1), (axes[1], "events_per_s", "million events per s", 1e-6)):
    ax.set_title(label.split(",")[0].capitalize())
    ax.set_ylabel(label)
    for x, c in enumerate(result.cells):
        v = scale * c.value(metric)
        style.bar(ax, x, v, style.short(v), color=style.COLORS[0])
    ax.set_xticks(range(len(names)), names)
    ax.margins(y=0.2)
style.save(fig, result, STEM, "The simulated cluster: one core, %s requests"
           % " or ".join(sorted({style.number(c.value("n_requests"), "%.0f") for c in result.cells})[:2]))
METRICS = ["n_requests", "n_excluded", "n_events", "sim_s", "events_per_s"]
study.write_table(STEM, ["trace", "rules"] + [m.replace("_", " ") for m in METRICS],
                  [[study.setting(c, "trace"), study.setting(c, "rules")]
                   + [style.number(c.value(m), "%.4g") for m in METRICS] for c in result.cells])
