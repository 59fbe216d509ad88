"""Sandwich Fig. 8b: what tuning for every number of rows costs, by policy, and the speed of what each
policy chose."""

from lib import read, study, style

STEM = "fig08b_tuning_cost"
POLICIES = ["sandwich", "sandwich_paper", "roller", "roller_topk", "mikpoly", "dietcode", "ansor", "default"]
OURS = 2  # of these are Sandwich's


def total(form, policy):
    return study.total([c.value(form + policy) for c in result.cells])


def bars(ax, form, title, ylabel):
    for x, p in enumerate(POLICIES):
        v = total(form, p)
        if v == 0:
            ax.text(x, 0.02, "none", ha="center", fontsize=style.SMALL, color=style.GREY,
                    transform=ax.get_xaxis_transform())
        else:
            style.bar(ax, x, v, style.short(v), width=0.75, color=style.COLORS[x if x < OURS else 5])
    if any(total(form, p) > 0 for p in POLICIES):
        ax.set_yscale("log")
    ax.set_xticks(range(len(POLICIES)), POLICIES, rotation=35, ha="right")
    ax.grid(axis="x", visible=False)
    ax.margins(y=0.15)
    ax.set(title=title, ylabel=ylabel)


def speeds(ax, c):
    """Time of the cost model's schedule over that of each policy's, by M."""
    base, m = c.series.get("s_default", []), c.series.get("m", [])
    for i, p in enumerate(POLICIES[:-1]):
        s = c.series.get("s_" + p, [])
        if len(s) and len(base) == len(s):
            ax.plot(m, base / s, lw=1, ls=style.LINES[i // 3 % 3], color=style.COLORS[i % 6], label=p)
    if ax.get_legend_handles_labels()[1]:
        ax.axhline(1, color=style.GREY, ls="--", lw=1)
        ax.set_ylim(0, None)
        style.legend_below(ax)
    else:
        style.na(ax)
    ax.set(title=study.matrix_name(c), xlabel="rows of activations, M",
           ylabel="times as fast as\nthe cost model's schedule")


result = read.latest(STEM)
result.cells = [c for c in result.cells if study.setting(c, "trials") != 800]  # those are headlines only
fig, axes = style.panels(2 + len(result.cells))
bars(axes[0], "tuning_s_", "Tuning time, all M", "seconds of measuring")
bars(axes[1], "measurements_", "Measurements", "schedules measured")
for ax, cell in zip(axes[2:], result.cells):
    speeds(ax, cell)
n = study.total([c.value("n_shapes") for c in result.cells])
style.save(fig, result, STEM, "Tuning for every M: %s shapes (Sandwich Fig. 8b)" % style.number(n))
study.write_table(
    STEM, ["policy", "tuning s", "measurements", "speed-up"],
    [[p, style.short(total("tuning_s_", p)), style.number(total("measurements_", p)),
      style.number(study.geomean([c.value("speedup_" + p) for c in result.cells]), "%.3f")]
     for p in POLICIES])
