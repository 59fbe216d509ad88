"""ScheInfer IV-A: decode with sliced MLPs: tokens a second that a plan predicts, and that are reached."""

from lib import read, study, style

STEM = "scheinfer_predicted"
result = read.latest(STEM)
fig, axes = style.panels(1)
ax = axes[0]
for i, model in enumerate(study.settings(result.cells, "model")):
    of = study.where(result.cells, model=model)
    x = [c.value("tokens_per_s") for c in of]
    y = [c.value("predicted_tokens_per_s") for c in of]
    low = [c.value("predicted_tokens_per_s") - c.value("predicted_lo") for c in of]
    high = [c.value("predicted_hi") - c.value("predicted_tokens_per_s") for c in of]
    ax.errorbar(x, y, yerr=[low, high], fmt="o", ms=4, lw=1, color=style.COLORS[i],
                label=str(model).rsplit("/", 1)[-1].replace(".gguf", ""))
ends = [v for c in result.cells for v in (c.value("tokens_per_s"),) if v == v]
if ends:
    ax.plot([min(ends), max(ends)], [min(ends), max(ends)], color=style.GREY, lw=0.8, label="as predicted")
ax.set(xlabel="measured, tokens/s", ylabel="predicted, tokens/s")
style.legend_below(ax)
style.save(fig, result, STEM, "Decode with sliced MLPs on a paced accelerator, predicted before loading (ScheInfer IV-A)")
study.write_table(STEM, ["model", "GB/s", "CG", "GG", "measured", "predicted", "from", "to", "inside", "off"], [
    [str(study.setting(c, "model")).rsplit("/", 1)[-1], study.setting(c, "link_gbps")] + [style.short(c.value(m)) for m in (
        "cg_frac", "gg_frac", "tokens_per_s", "predicted_tokens_per_s", "predicted_lo", "predicted_hi", "inside",
        "error_frac")] for c in result.cells])
