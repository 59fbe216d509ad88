"""Sandwich 7.1: micro-kernels generated from the reference product, against those written by hand."""

from lib import read, study, style

STEM = "sandwich_dual_ir"


def panel(ax, cells, width, weights):
    cells = study.where(cells, vectors=width, weights=weights)
    ms = study.settings(cells, "m")
    for i, matrix in enumerate(study.settings(cells, "matrix")):
        own = study.where(cells, matrix=matrix)
        v = [study.mean([c.value("ratio") for c in own if study.setting(c, "m") == m]) for m in ms]
        ax.plot(range(len(ms)), v, "o-", ms=4, color=style.COLORS[i % len(style.COLORS)],
                label=study.matrix_name(own[0]))
    ours = study.finite([c.value("ratio") for c in cells])
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.axhline(0.9, color=style.GREY, lw=0.8, ls="--")
    ax.set_xticks(range(len(ms)), ms)
    ax.set(title="%s, weights %s" % ("widest vectors" if width == "widest" else "vectors of 256 bits", weights), xlabel="M, rows",
           ylabel="speed, by hand = 1", ylim=(0, max(1.3, 1.1 * max(ours + [1]))))
    if not ours:
        return style.na(ax, read.why(cells, "ratio"))
    style.legend_below(ax)


result = read.latest(STEM)
widths, kinds = (study.settings(result.cells, n) for n in ("vectors", "weights"))
fig, axes = style.panels(len(widths) * len(kinds), columns=2)
for i, ax in enumerate(axes):
    panel(ax, result.cells, widths[i // len(kinds)], kinds[i % len(kinds)])
style.save(fig, result, STEM, "Generated micro-kernels against those written by hand, f32 (Sec. 7.1)")
study.write_table(
    STEM, ["vectors", "weights", "matrix", "M", "generated GFLOP/s", "by hand GFLOP/s", "ratio", "error"],
    [[study.setting(c, "vectors"), study.setting(c, "weights"), study.matrix_name(c), study.setting(c, "m"),
      style.short(c.value("generated_gflops")), style.short(c.value("handwritten_gflops")),
      style.number(c.value("ratio"), "%.3f"), style.number(c.value("error"), "%.1e")] for c in result.cells])
