"""MNN-LLM Sec. V-B: the matrices and attention on the roofline, in prefill and decode, and the share of
the roof that each reaches."""

from lib import read, study, style

STEM = "mnn_linear_attention"
CLASSES = [("linear", "matrices", "o"), ("attention", "attention", "s")]


def which(c):
    """The phase, and the type of the weights where the record has several."""
    types = [str(study.setting(x, "model")).split(".gguf")[0].split("-")[-1] for x in (c, *result.cells)]
    return "%s %s" % (types[0], study.setting(c, "phase")) if len(set(types)) > 1 else study.setting(c, "phase")


def points(ax, cells):
    for k, c in enumerate(cells):
        for name, label, marker in CLASSES:
            x, y, roof = (c.value("%s_%s" % (name, n)) for n in ("flop_per_byte", "gflops", "roof_gflops"))
            if study.finite([x, y]) != [x, y]:
                continue
            ax.plot(x, y, marker, color=style.COLORS[k], label="%s, %s" % (label, which(c)))
            if study.finite([roof]):
                ax.plot([x, x], [y, roof], ":", color=style.COLORS[k])
                ax.plot(x, roof, "_", ms=9, mew=2, color=style.GREY)
    ax.set(title="Rate by intensity", xlabel="operations per byte", ylabel="GFLOP/s")
    if not ax.lines:
        return style.na(ax)
    ax.plot([], [], "_", ms=9, mew=2, color=style.GREY, label="bound at that intensity")
    ax.set(xscale="log", yscale="log")
    style.legend_below(ax)


def shares(ax, cells):
    bars = [(c, name, label) for c in cells for name, label, _ in CLASSES]
    for x, (c, name, _) in enumerate(bars):
        v = c.value(name + "_roof_frac")
        style.bar(ax, x, v, style.percent(v), width=0.6, color=style.COLORS[x // len(CLASSES)])
    ax.set_xticks(range(len(bars)), ["%s, %s" % (label, which(c)) for c, _, label in bars])
    ax.set(title="Share of that bound", ylabel="reached")
    ax.margins(y=0.15)
    style.percent_axis(ax.yaxis)
    if not ax.patches:
        style.na(ax)


result = read.latest(STEM)
fig, axes = style.rows(1, 1)
points(axes[0], result.cells)
shares(axes[1], result.cells)
style.save(fig, result, STEM, "Matrices and attention: what they compute and reach (MNN-LLM, Sec. V-B)")
study.write_table(
    STEM, ["class", "weights, phase", "paper 2^30 FLOP", "paper 2^30 B", "paper FLOP/B", "GFLOP", "GB", "FLOP/B", "ms", "GFLOP/s",
           "GB/s", "of the roof"],
    [[label, which(c)] +
     [style.short(c.value("%s_%s" % (name, n))) for n in ("paper_gflop", "paper_gb", "paper_flop_per_byte", "gflop",
                                                         "gb", "flop_per_byte")] +
     [style.short(1e3 * c.value(name + "_s"))] +
     [style.short(c.value("%s_%s" % (name, n))) for n in ("gflops", "gbps")] +
     [style.percent(c.value(name + "_roof_frac"))] for c in result.cells for name, label, _ in CLASSES])
