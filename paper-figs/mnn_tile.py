"""MNN-LLM Sec. IV-D: the tile of the formula, the fastest tile and the tuner's, for each matrix and type."""

from lib import read, study, style

STEM = "mnn_tile"
WHICH = [("formula", "the formula's tile"), ("best", "the fastest tile"), ("tuned", "the tuner's tile and slice")]


def tile(c, which):
    return "%sx%s" % tuple(style.number(c.value("%s_%s" % (which, side))) for side in ("rows", "cols"))


def short(c):
    return study.matrix_name(c).split("/")[-1]


def panel(ax, cells, kind):
    for x, c in enumerate(cells):
        for i, (which, label) in enumerate(WHICH):
            style.bar(ax, x + 0.27 * (i - 1), c.value(which + "_gflops"), "", width=0.25, color=style.COLORS[i],
                      hatch=style.HATCHES[i], edgecolor="white", label=label if x == 0 else None)
    ax.set_xticks(range(len(cells)), ["%s\n%s\n%s" % (short(c), tile(c, "formula"), tile(c, "best")) for c in cells])
    ax.set(title=str(kind), ylabel="GFLOP/s", xlabel="matrix, the formula's tile, the fastest")
    ax.grid(axis="x", visible=False)
    if not ax.patches:
        return style.na(ax)
    style.legend_below(ax)


result = read.latest(STEM)
kinds = study.settings(result.cells, "type")
fig, axes = style.panels(len(kinds), columns=2)
for ax, kind in zip(axes, kinds):
    panel(ax, study.where(result.cells, type=kind), kind)
style.save(fig, result, STEM, "Tiles by MNN-LLM's formula and by measurement (Sec. IV-D)")
study.write_table(
    STEM, ["matrix", "type", "formula", "ideal", "best", "tuned", "formula GFLOP/s", "best GFLOP/s", "tuned GFLOP/s",
           "formula / best"],
    [[short(c), study.setting(c, "type")] + [tile(c, w) for w in ("formula", "ideal", "best", "tuned")] +
     [style.short(c.value(w + "_gflops")) for w, _ in WHICH] + [style.number(c.value("formula_over_best"), "%.3f")]
     for c in result.cells])
