"""ScheInfer V-E3: shares of layers on the accelerator compared with whole layers."""

from lib import read, slicing, study, style

STEM = "scheinfer_memory"

result = read.latest(STEM)
fig, (gain, time) = style.panels(2)
slicing.lines(gain, result.cells, "budget_gb", "speedup_memory", "Shares of layers over whole layers")
slicing.printed(gain, "Sec. V-E3", "speed-up", lambda at: at["GPU memory GB"],
                [c.value("speedup_memory") for c in result.cells])
gain.axhline(1, color=style.GREY, lw=0.8)
gain.set_ylabel("speed-up of decode")
slicing.lines(time, result.cells, "budget_gb", "step_ms", "A token, shares of layers")
time.set(ylabel="ms", ylim=(0, None))
for ax in gain, time:
    ax.set_xlabel("memory of the accelerator (GB)")
    style.legend_below(ax)
style.save(fig, result, STEM, "What stays on the accelerator: shares of all layers, or whole layers (ScheInfer V-E3)")
study.write_table(STEM, ["model", "GB", "ms", "over whole layers", "GG", "CG", "greedy above exact"], [
    [study.setting(c, "model"), study.setting(c, "budget_gb")] +
    [style.short(c.value(m)) for m in ("step_ms", "speedup_memory", "gg_frac", "cg_frac")] +
    [style.number(100 * c.value("greedy_gap_frac"), "%.2f", " %")] for c in result.cells])
