"""Sandwich Fig. 2a: rate over slices, one thread and all, and what the wrong slice costs."""

import math

import numpy as np

from lib import page, read, reference, study, style

STEM = "fig02a_block_thread"
SLICES = {"sweep_gflops_1": "best slice of one thread", "sweep_gflops_n": "best slice of all threads"}
NAMES = {"slices": "slices in turn", "m": "parts of M", "n": "parts of N", "k": "parts of K"}


def grid(cell, rates):
    """The best rate over bK for each (bM, bN); and the sides."""
    bm, bn = (sorted(set(cell.series[k].astype(int))) for k in ("bm", "bn"))
    z = np.full((len(bm), len(bn)), math.nan)
    for m, n, rate in zip(cell.series["bm"], cell.series["bn"], cell.series[rates]):
        i, j = bm.index(int(m)), bn.index(int(n))
        z[i, j] = np.fmax(z[i, j], rate)
    return bm, bn, z


def heat(ax, cell, rates, title, marks):
    bm, bn, z = grid(cell, rates)
    known = study.finite(z.ravel())
    middle = 0.4 * min(known, default=0) + 0.6 * max(known, default=0)
    ax.imshow(z, origin="lower", aspect="auto", cmap="viridis")
    for (i, j), v in np.ndenumerate(z):
        ax.text(j, i, style.number(v), ha="center", va="center", fontsize=style.SMALL,
                color=style.GREY if math.isnan(v) else "black" if v > middle else "white")
    for which, marker in marks:
        m, n = cell.value("bm_" + which), cell.value("bn_" + which)
        if int(m if m == m else -1) in bm and int(n if n == n else -1) in bn:
            ax.plot(bn.index(int(n)), bm.index(int(m)), marker, ms=13, mfc="none", mec="#D55E00",
                    mew=1.5)
    if study.setting(cell, "matrix").startswith("paper"):
        slice_ = reference.value("sandwich", "Fig. 2", SLICES[rates])
        if slice_[0] in bm and slice_[1] in bn:
            ax.plot(bn.index(slice_[1]), bm.index(slice_[0]), "D", ms=15, mfc="none", mec="black",
                    path_effects=reference.HALO)
    ax.set_xticks(range(len(bn)), bn)
    ax.set_yticks(range(len(bm)), bm)
    page.height(ax, 0.19 * max(6, len(bm)))
    ax.grid(False)
    ax.set(title=title, xlabel="bN (columns)", ylabel="bM (rows)")


def losses(ax, cells):
    matrices, dealings = (study.settings(cells, k) for k in ("matrix", "dealing"))
    width = 0.8 / max(1, len(dealings))
    for c in cells:
        k = dealings.index(study.setting(c, "dealing"))
        x = matrices.index(study.setting(c, "matrix")) + (k - (len(dealings) - 1) / 2) * width
        loss = c.value("loss_frac")
        first = study.setting(c, "matrix") == matrices[0]
        style.bar(ax, x, loss, style.percent(loss), width=0.9 * width, color=style.COLORS[k],
                  label=NAMES[dealings[k]] if first else None)
    ax.set_xticks(range(len(matrices)), [m.replace(" ", "\n") for m in matrices])
    ax.set(title="Lost with one thread's best", ylabel="share of the rate")
    style.percent_axis(ax.yaxis)
    style.legend_below(ax)


result = read.latest(STEM)
first = [c for c in result.cells
         if study.setting(c, "matrix") == study.setting(result.cells[0], "matrix")]
fig, axes = style.panels(len(first) + 2, columns=2)
for c in first[:1]:
    heat(axes[0], c, "sweep_gflops_1", "One thread", [("1", "s")])
for ax, c in zip(axes[1:], first):
    heat(ax, c, "sweep_gflops_n", "All: " + NAMES[study.setting(c, "dealing")],
         [("1", "s"), ("n", "o")])
losses(axes[-1], result.cells)
style.save(fig, result, STEM, "GFLOP/s over slices, best bK; square: best of one thread, circle: of "
           "all, diamond: the paper's, 2x Xeon 6230 (Sandwich Fig. 2a)")
SIDES = ["bm_1", "bn_1", "bk_1", "bm_n", "bn_n", "bk_n"]
study.write_table(
    STEM, ["matrix", "dealt as", "loss"] + SIDES,
    [[study.setting(c, "matrix"), NAMES[study.setting(c, "dealing")],
      style.percent(c.value("loss_frac"))] + [style.number(c.value(s)) for s in SIDES]
     for c in result.cells])
