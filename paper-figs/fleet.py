"""A day of a fleet with and without CPU machines: cost of a million tokens, at which price of a CPU
machine it pays, and the hours of the day."""

from lib import read, study, style

STEM = "fleet"
ROLES = {"none": "no CPU\nmachines", "prompt": "CPUs for\nprompts", "token": "CPUs for\ntokens",
         "both": "CPUs for\nboth", "slow": "control:\nslow CPUs"}


def of(cells, **wanted):
    return study.where(cells, **wanted)


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def bars(ax, cells, metric, label):
    """A group for each role, a bar for each way to provision; dots are seeds."""
    for i, role in enumerate(roles):
        for k, p in enumerate(provisions):
            here = of(cells, role=role, provision=p)
            v = mean(here, metric)
            style.bar(ax, i + 0.27 * (k - (len(provisions) - 1) / 2), v, style.short(v), width=0.25, color=style.COLORS[k],
                      label="provisioned by " + p if i == 0 else None)
    ax.set_xticks(range(len(roles)), [ROLES[r] for r in roles], fontsize=6)
    ax.set(title=label, ylabel=label.split(":")[-1])
    ax.margins(y=0.2)
    style.legend_below(ax)


def hours(ax, cells):
    here = of(cells, role=roles[0], provision=provisions[0])[0]
    n = here.series["hour_requests"][:]
    ax.bar(range(len(n)), n, color=style.COLORS[0])
    ax.set(title="Requests by hour", xlabel="hour", ylabel="requests")


result = read.latest(STEM)
roles, provisions = study.settings(result.cells, "role"), study.settings(result.cells, "provision")
fig, axes = style.rows(3)
bars(axes[0], result.cells, "usd_mtok", "Cost: $ per million tokens")
paid = [r for r in roles if r != "none"]
for i, role in enumerate(paid):
    v = mean(of(result.cells, role=role, provision=provisions[0]), "breakeven_usd_h")
    style.bar(axes[1], i, v, style.short(v), width=0.6, color=style.COLORS[0])
axes[1].set_xticks(range(len(paid)), [ROLES[r] for r in paid], fontsize=6)
axes[1].set(title="Price of a CPU machine below which it pays", ylabel="$/h")
axes[1].margins(y=0.2)
hours(axes[2], result.cells)
style.save(fig, result, STEM, "A fleet of GPU and CPU machines over a day")
METRICS = ["n_prompt", "n_token", "n_cpu", "attained_frac", "ttft_p99_ms", "tpot_p99_ms", "usd_mtok", "gpu_usd_mtok",
           "kwh_mtok", "breakeven_usd_h", "cpu_speed", "cpu_prompt_frac", "cpu_token_frac", "drained_frac",
           "restarted_frac"]
study.write_table(STEM, ["role", "provision"] + [m.replace("_", " ") for m in METRICS],
                  [[r, p] + [style.number(mean(of(result.cells, role=r, provision=p), m), "%.4g") for m in METRICS]
                   for r in roles for p in provisions])
