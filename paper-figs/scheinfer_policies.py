"""ScheInfer V: every policy's time over that of slices, by model, for decode, a batch and a prompt."""

from lib import read, study, style

STEM = "scheinfer_policies"

result = read.latest(STEM)
policies = [p for p in study.settings(result.cells, "policy") if p != "scheinfer"]
models = study.settings(result.cells, "model")
rates = study.settings(result.cells, "accel_tmacs")
panels = [(n, max(rates) if n > 8 else min(rates)) for n in study.settings(result.cells, "n_tok")]
fig, axes = style.rows(*[1] * len(panels))
for ax, (n_tok, rate) in zip(axes, panels):
    for i, policy in enumerate(policies):
        for k, gb in enumerate(study.settings(result.cells, "budget_gb")):
            of = study.where(result.cells, policy=policy, n_tok=n_tok, accel_tmacs=rate, budget_gb=gb)
            x = [models.index(study.setting(c, "model")) + 0.12 * (i - (len(policies) - 1) / 2) for c in of]
            ax.plot(x, [c.value("speedup_scheinfer") for c in of], "o", ms=3 + 2 * k, alpha=0.8,
                    color=style.COLORS[i], label=policy if k == 0 else None)
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_yscale("log")
    style.plain_log(ax.yaxis, [0.5, 1, 2, 5, 10])
    ax.set_xticks(range(len(models)), [m.replace("-", "-\n", 1) for m in models])
    ax.set(title="%d token%s%s" % (n_tok, "s" if n_tok > 1 else "",
                                   ", accelerator at most %g TMAC/s" % rate if rate else ""),
           ylabel="time over slices'")
    style.legend_below(ax)
style.save(fig, result, STEM, "Policies for weights beyond the accelerator's memory, by Table I's models "
           "(larger dots: more memory)")
study.write_table(STEM, ["policy", "model", "GB", "tokens", "TMAC/s", "ms", "over slices", "over the best", "CG", "GG"], [
    [study.setting(c, n) for n in ("policy", "model", "budget_gb", "n_tok", "accel_tmacs")] +
    [style.short(c.value(m)) for m in ("step_ms", "speedup_scheinfer", "speedup_oracle", "cg_frac", "gg_frac")]
    for c in result.cells])
