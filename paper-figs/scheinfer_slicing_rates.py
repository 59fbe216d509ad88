"""ScheInfer V-E2: the best share that is sent, by the speed of the CPU, and what fixed shares cost."""

from lib import read, slicing, study, style

STEM = "scheinfer_slicing_rates"
FIXED = ["0", "25", "50", "75"]

result = read.latest(STEM)
factors = sorted(study.settings(result.cells, "cpu_factor"))
fig, (rate, cost) = style.panels(2)
slicing.lines(rate, result.cells, "cpu_factor", "cg_frac", "The best share that is sent")
slicing.printed(rate, "Sec. V-E2", "optimal slicing rate r_CG", lambda at: 16 / at["threads"],
                [c.value("cg_frac") for c in result.cells])
rate.set(ylabel="CG, share of the weights", ylim=(0, 1))
for i, k in enumerate(FIXED):
    cost.plot(factors, [study.mean([c.value("speedup_fixed_" + k) for c in study.where(result.cells, cpu_factor=f)])
                        for f in factors], "o-", color=style.COLORS[i], label="%s %% sent" % k)
if not study.finite([c.value("speedup_fixed_0") for c in result.cells]):
    style.na(cost, read.why(result.cells, "speedup_fixed_0"))
cost.axhline(1, color=style.GREY, lw=0.8)
cost.set(title="What a fixed share costs", ylabel="time / that of the best share")
for ax in rate, cost:
    ax.set_xscale("log")
    style.plain_log(ax.xaxis, factors)
    ax.set_xlabel("CPU's time, x that of Table I (8: two threads)")
    style.legend_below(ax)
style.save(fig, result, STEM, "The best share that is sent, by the speed of the CPU (ScheInfer V-E2)")
study.write_table(STEM, ["model", "CPU's time x", "CG"] + ["over %s %%" % k for k in FIXED], [
    [study.setting(c, "model"), study.setting(c, "cpu_factor")] +
    [style.short(c.value(m)) for m in ["cg_frac"] + ["speedup_fixed_" + k for k in FIXED]] for c in result.cells])
