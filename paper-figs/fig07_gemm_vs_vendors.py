"""Sandwich Fig. 7: our GEMMs against the best library for each point, and against the roof."""

import math

from lib import read, study, style

STEM = "fig07_gemm_vs_vendors"
SERIES = [("f32", "", "f32"), ("bf16", "", "bf16 exact"), ("bf16", "_relaxed", "bf16 relaxed")]
LIBRARIES = ["onednn", "openblas", "blis", "libxsmm"]


def by_m(cells, metric):
    """m, the geometric mean over the matrices, and every value."""
    ms = sorted(study.settings(cells, "m"))
    values = [study.finite([c.value(metric) for c in study.where(cells, m=m)]) for m in ms]
    return ms, [study.geomean(v) for v in values], values


def m_axis(ax, cells):
    ms = sorted(study.settings(cells, "m")) or [1]
    ax.set_xscale("log", base=2)
    style.plain_log(ax.xaxis, ms)
    ax.tick_params(axis="x", labelsize=8)
    ax.set_xlabel("M (rows of activations)")


def ratios(ax, cells, title):
    """Ours / the best library, a dot for each matrix, a line for their geometric mean."""
    for i, (kind, suffix, label) in enumerate(SERIES):
        ms, line, values = by_m(study.where(cells, type=kind), "ratio_vs_best" + suffix)
        for m, v in zip(ms, values):
            ax.plot([m * (0.94 + 0.06 * i)] * len(v), v, ".", ms=4, color=style.COLORS[i],
                    alpha=0.45)
        if study.finite(line):
            ax.plot(ms, line, "-", color=style.COLORS[i], label=label)
    ax.axhline(1, color=style.GREY, lw=1)
    m_axis(ax, cells)
    ax.set_ylim(bottom=0)
    ax.set(title=title, ylabel="times as fast as the best library")
    style.legend_below(ax, drop=0.55, ncol=3)


def rates(ax, cells, kind, title):
    """Geometric mean of GFLOP/s over the matrices, ours, every library's, and the roof."""
    cells = study.where(cells, type=kind)
    lines = [("gflops", "ours, exact", style.COLORS[0], "-"),
             ("gflops_relaxed", "ours, relaxed", style.COLORS[1], "-"),
             ("roof_gflops", "bound", style.GREY, ":"),
             ("roof_gflops_relaxed", "bound, relaxed", style.GREY, "-.")]
    lines += [("gflops_" + r, r, style.COLORS[2 + i % 4], "--") for i, r in enumerate(LIBRARIES)]
    for metric, label, color, dashes in lines:
        ms, line, _ = by_m(cells, metric)
        if study.finite(line):
            ax.plot(ms, line, ls=dashes, color=color, label=label, lw=1.5)
    m_axis(ax, cells)
    ax.set_yscale("log")
    ax.set(title=title, ylabel="GFLOP/s, geometric mean")
    style.legend_below(ax, drop=0.55, ncol=3)


def table_rows(cells):
    out = []
    for kind, suffix, label in SERIES:
        for m in sorted(study.settings(cells, "m")):
            of = study.where(cells, type=kind, m=m)
            means = [study.geomean([c.value(k + suffix) for c in of])
                     for k in ("gflops", "ratio_vs_best", "roof_frac", "error")]
            worst = study.finite([c.value("ratio_vs_best" + suffix) for c in of])
            theirs = study.geomean([c.value("error_best_baseline", older="error_best_rival")
                                    for c in of])
            out.append([label, m, style.short(means[0]), style.number(means[1], "%.2f"),
                        style.number(min(worst, default=math.nan), "%.2f"),
                        style.percent(means[2]), style.number(means[3], "%.1e"),
                        style.number(theirs, "%.1e")])
    return out


result = read.latest(STEM)
cold, warm = (study.where(result.cells, weights=w) for w in ("cold", "warm"))
fig, axes = style.panels(4, width=4.3, height=4.5)
ratios(axes[0], cold, "Weights from memory")
ratios(axes[1], warm, "Weights in the cache")
rates(axes[2], cold, "f32", "f32, from memory")
rates(axes[3], cold, "bf16", "bf16, from memory")
style.save(fig, result, STEM, "GEMMs beside the best library for each point (Sandwich Fig. 7)")
study.write_table(
    STEM, ["series", "M", "GFLOP/s", "vs best", "worst", "of roof", "error", "best library's"],
    table_rows(cold))
