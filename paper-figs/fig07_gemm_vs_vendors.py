"""Sandwich Fig. 7: our tuned GEMMs, a bar for each library, matrix and number of rows."""

import itertools
import math

from lib import page, read, reference, study, style

STEM = "fig07_gemm_vs_vendors"
SERIES = [("f32", "", "f32"), ("bf16", "_relaxed", "bf16, relaxed"), ("bf16", "", "bf16, exact")]
LIBRARIES = ["onednn", "openblas", "blis", "libxsmm"]
WIDTH = 0.8 / len(LIBRARIES)
N_WORST = 12


def of_library(cells, library, suffix):
    """Times as fast as the library: geometric mean, ends of its interval (of several cells, the
    least and the greatest), and the same for the cost model's schedule."""
    name = "ratio_vs_%s%s" % (library, suffix)
    mid = [c.value(name) for c in cells]
    low, high = zip(*(c.interval(name) or (math.nan, math.nan) for c in cells)) if cells else ([], [])
    if len(cells) > 1:
        low = high = mid
    plain = [c.value("gflops_default" + suffix) / c.value("gflops_" + library) for c in cells]
    return (study.geomean(mid), min(study.finite(low), default=math.nan),
            max(study.finite(high), default=math.nan), study.geomean(plain))


def panel(ax, cells, suffix, ms, title):
    """Bars from 1 upwards where ours is faster, downwards where the library is."""
    n_bars = 0
    for i, library in enumerate(LIBRARIES):
        for k, m in enumerate(ms):
            mid, low, high, plain = of_library(study.where(cells, m=m), library, suffix)
            if math.isnan(mid):
                continue
            x = k + (i - 1.5) * WIDTH
            ax.bar(x, mid - 1, bottom=1, width=0.9 * WIDTH, color=style.COLORS[i])
            ax.plot([x, x], [low, high], color="#222222", lw=0.7)
            ax.plot([x - WIDTH / 2, x + WIDTH / 2], [plain, plain], color="#222222", lw=1.2)
            n_bars += 1
    page.height(ax, 0.55)
    ax.set_title(title)
    if n_bars == 0:
        return style.na(ax)
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_yscale("log", base=2)
    low, high = ax.get_ylim()
    style.plain_log(ax.yaxis, [t for t in (0.25, 0.5, 1, 2, 4, 8, 16) if 0.7 * low < t < 1.4 * high])
    ax.set_xticks(range(len(ms)), ["%d" % m for m in ms])
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="M (rows)", ylabel="x as fast", xlim=(-0.5, len(ms) - 0.5))


def points(cells):
    """Every point, the one where ours is furthest behind the best library first, and what is
    particular there."""
    found = []
    for kind, suffix, label in SERIES:
        for c in study.where(cells, type=kind):
            ratio = c.value("ratio_tuned_vs_best" + suffix)
            low, high = c.interval("ratio_tuned_vs_best" + suffix) or (math.nan, math.nan)
            rates = [style.short(c.value("gflops_%s%s" % (how, suffix))) for how in ("tuned", "default")]
            row = [label, study.setting(c, "weights"), study.matrix_name(c), study.setting(c, "m"), *rates,
                   "%.2f (%.2f to %.2f)" % (ratio, low, high), c.setting("notes.best_baseline", ""),
                   style.percent(c.value("roof_frac" + suffix)), c.setting("notes.particulars" + suffix, "")]
            found += [(ratio, row)] if not math.isnan(ratio) else []
    return [row for _, row in sorted(found, key=lambda x: x[0])]


result = read.latest(STEM)
ms = sorted(study.settings(result.cells, "m")) or [1]
matrices = study.settings(result.cells, "matrix")
rows = [("all, from memory", {"weights": "cold"}), ("in the cache", {"weights": "warm"})]
rows += [(str(m).split()[0], {"weights": "cold", "matrix": m}) for m in matrices]
series = [s for s in SERIES[:2] if study.finite([c.value("ratio_tuned_vs_best" + s[1]) for c in study.where(
    result.cells, type=s[0])])] or SERIES[:1]
fig, axes = style.panels(len(rows) * len(series), columns=1 + len(series))
for ax, ((name, wanted), (kind, suffix, label)) in zip(axes, itertools.product(rows, series)):
    panel(ax, study.where(result.cells, type=kind, **wanted), suffix, ms, "%s, %s" % (label, name))
low, high = (reference.value("sandwich", "Fig. 7", "speed-up over the baselines, " + end) for end in ("least", "most"))
keys = [style.plt.Rectangle((0, 0), 1, 1, color=c) for c in style.COLORS[:len(LIBRARIES)]]
keys += [style.plt.Line2D([], [], color="#222222", lw=1.2), style.plt.Line2D([], [], ls="")]
page.legend(fig, keys, LIBRARIES + ["cost model's schedule", "the paper: %.2f to %.2f" % (low, high)])
style.save(fig, result, STEM, "Our tuned GEMMs: times as fast as each library (Sandwich Fig. 7)")
HEADER = ["series", "weights", "matrix", "M", "tuned GFLOP/s", "cost model's", "vs best (95 %)", "best",
          "of roof", "particular"]
every = points(result.cells)
# no library offers exact products of bf16: its points say how much rounding gives
study.write_table(STEM, HEADER, [row for row in every if row[0] != SERIES[2][2]][:N_WORST])
study.write_table(STEM + "_points", HEADER, every)
