"""A day of a fleet with and without CPU machines: cost of a million tokens, at which price of a CPU
machine it pays, and the hours of the day."""

from lib import read, study, style

STEM = "fleet"
ROLES = {"none": "none", "prompt": "prompts", "token": "tokens", "both": "both", "slow": "tokens,\nslowly"}


def of(cells, **wanted):
    return study.where(cells, **wanted)


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def bars(ax, names, ways, metric, title, label):
    """A group for each role, a bar for each way to provision; dots are seeds."""
    ax.set(title=title, ylabel=label, xlabel="what CPU machines compute")
    for i, role in enumerate(names):
        for k, p in enumerate(ways):
            x, here = i + 0.27 * (k - (len(ways) - 1) / 2), of(result.cells, role=role, provision=p)
            seeds = [c.value(metric) for c in here]
            v = mean(here, metric)
            style.bar(ax, x, v, style.short(v), top=seeds, width=0.25, color=style.COLORS[k],
                      label="provisioned by " + p if i == 0 else None)
            ax.plot([x] * len(seeds), seeds, "o", ms=2.5, color="black", label="a seed" if i + k == 0 else None)
    ax.set_xticks(range(len(names)), [ROLES[r] for r in names])
    ax.margins(y=0.2)
    style.legend_below(ax)


def hours(ax, cells):
    here = of(cells, role=roles[0], provision=provisions[0])[0]
    n = here.series["hour_requests"][:]
    ax.bar(range(len(n)), n, color=style.COLORS[0])
    ax.set(title="Requests by hour", xlabel="hour", ylabel="requests")


result = read.latest(STEM)
roles, provisions = study.settings(result.cells, "role"), study.settings(result.cells, "provision")
fig, axes = style.rows(2, 1)
bars(axes[0], roles, provisions, "usd_mtok", "Cost of a million tokens", "$")
bars(axes[1], [r for r in roles if r != "none"], provisions[:1], "breakeven_usd_h", "Price below which a CPU machine pays", "$/h")
hours(axes[2], result.cells)
style.save(fig, result, STEM, "A fleet of GPU and CPU machines over a day")
METRICS = ["n_prompt", "n_token", "n_cpu", "attained_frac", "ttft_p99_ms", "tpot_p99_ms", "usd_mtok", "gpu_usd_mtok",
           "kwh_mtok", "breakeven_usd_h", "cpu_speed", "cpu_prompt_frac", "cpu_token_frac", "drained_frac",
           "restarted_frac"]
study.write_table(STEM, ["role", "provision"] + [m.replace("_", " ") for m in METRICS],
                  [[r, p] + [style.number(mean(of(result.cells, role=r, provision=p), m), "%.4g") for m in METRICS]
                   for r in roles for p in provisions])
