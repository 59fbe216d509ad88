"""ScheInfer IV-A: when CPU and accelerator have computed their slices of a layer, measured and by the model."""

from lib import read, study, style

STEM = "scheinfer_overlap"
result = read.latest(STEM)
links = study.settings(result.cells, "link_gbps")
types = study.settings(result.cells, "type")
n_tok = study.settings(result.cells, "n_tok")
fig, axes = style.panels(len(types) * len(n_tok))
for ax, (kind, tok) in zip(axes, [(k, t) for k in types for t in n_tok]):
    for i, link in enumerate(links):
        for cell in study.where(result.cells, type=kind, n_tok=tok, link_gbps=link, gg_frac=0):
            cg, s, p, plain = (cell.series.get(k, []) for k in (
                "cg", "measured_s", "predicted_s", "predicted_no_contention_s"))
            ax.plot(cg, [1e3 * v for v in s], "o", color=style.COLORS[i], label="%g GB/s, measured" % link)
            ax.plot(cg, [1e3 * v for v in p], "-", color=style.COLORS[i], lw=1,
                    label="model, off by %s" % style.number(100 * cell.value("error_frac"), "%.1f %%"))
            ax.plot(cg, [1e3 * v for v in plain], ":", color=style.COLORS[i], lw=1,
                    label="without contention" if i == 0 else None)
    ax.set(title="%s, %d token%s" % (kind, tok, "s"[:tok > 1]), xlabel="share of CG", ylabel="ms")
    ax.set_ylim(bottom=0)
    style.legend_below(ax)
style.save(fig, result, STEM, "A layer in slices: CPU and copies are real, kernels' times are waited for (ScheInfer IV-A)")
study.write_table(STEM, ["type", "tokens", "GB/s", "GG", "best, ms", "speed-up", "best CG", "planned CG", "off", "within 10 %",
                         "off, no contention", "within 10 %, no contention", "CPU slower", "link slower"], [
    [study.setting(c, n) for n in ("type", "n_tok", "link_gbps", "gg_frac")] + [style.short(c.value(m)) for m in (
        "best_ms", "best_speedup", "best_cg_frac", "planned_cg_frac", "error_frac", "within_10_frac",
        "error_no_contention_frac", "within_10_no_contention_frac", "cpu_contention", "link_contention")]
    for c in result.cells])
