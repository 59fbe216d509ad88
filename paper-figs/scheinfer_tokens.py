"""ScheInfer V-E4: what it gains that the accelerator takes over tokens of a prompt, by its length and
by the bound of the accelerator."""

from lib import read, slicing, study, style

STEM = "scheinfer_tokens"
CASES = [("mixtral-8x7b", 12, "Mixtral-7B"), ("llama-2-70b", 24, "LLaMA-2-70B")]  # ours, GB, the paper's name

result = read.latest(STEM)
fig, axes = style.panels(2)
for ax, (model, gb, name) in zip(axes, CASES):
    cells = study.where(result.cells, model=model, budget_gb=gb)
    slicing.lines(ax, cells, "n_tok", "speedup_tokens", "%s, %d GB" % (model, gb), "accel_tmacs",
                  lambda rate: "at most %g TMAC/s" % rate if rate else "at Table I's rate")
    slicing.printed(ax, "Sec. V-E4", "speed-up", lambda at: at["prompt"],
                    [c.value("speedup_tokens") for c in cells], model=name)
    lengths = sorted(study.settings(result.cells, "n_tok"))
    ax.set(xlabel="tokens of the prompt", ylabel="speed-up")
    y = study.finite([c.value("speedup_tokens") for c in cells])
    if y:
        ax.set(xscale="log", yscale="log")
        style.plain_log(ax.xaxis, lengths)
        style.plain_log(ax.yaxis, style.ticks_1_2_5(min(y + [1]), max(y + [46])))
    style.legend_below(ax)
style.save(fig, result, STEM, "A prompt's tokens that the accelerator takes over from the CPU (ScheInfer V-E4)")
study.write_table(STEM, ["model", "GB", "tokens", "TMAC/s", "prompt, ms", "speed-up", "taken over"], [
    [study.setting(c, n) for n in ("model", "budget_gb", "n_tok", "accel_tmacs")] +
    [style.short(c.value(m)) for m in ("step_ms", "speedup_tokens", "accel_tok_frac")] for c in result.cells])
