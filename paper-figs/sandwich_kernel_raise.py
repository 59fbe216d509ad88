"""Sandwich 7.1: reference kernels raised and with other parameters, next to the reference and those written by hand."""

from lib import read, study, style

STEM = "sandwich_kernel_raise"
BARS = [("ratio_vs_ref", "time of the reference"), ("ratio_vs_handwritten", "time of the kernel written by hand")]


def kernel(c):
    return str(study.setting(c, "kernel")).split()[0]


def parameters(c):
    return (str(study.setting(c, "kernel")).split() + ["as it is"])[1]


def bits(c):
    return "bits kept" if c.value("keeps_bits") == 1 else "other order"


def panel(ax, cells, name, width):
    cells = [c for c in study.where(cells, vectors=width) if kernel(c) == name]
    for x, c in enumerate(cells):
        for i, (metric, label) in enumerate(BARS):
            v = c.value(metric)
            style.bar(ax, x + 0.4 * i - 0.2, v, style.number(v, "%.2f"), width=0.38, color=style.COLORS[i],
                      hatch=style.HATCHES[i], edgecolor="white", label=label if x == 0 else None)
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_xticks(range(len(cells)), ["%s\n%s" % (parameters(c).replace(",", "\n"), bits(c)) for c in cells], fontsize=6)
    ax.set(title="%s, %s" % (name, "widest vectors" if width == "widest" else "vectors of 256 bits"), ylabel="time of it / of the raised kernel")
    if not ax.patches:
        return style.na(ax, read.why(cells, "ratio_vs_ref"))
    ax.set_yscale("log")
    style.legend_below(ax)


result = read.latest(STEM)
widths, names = study.settings(result.cells, "vectors"), list(dict.fromkeys(kernel(c) for c in result.cells))
fig, axes = style.panels(len(widths) * len(names), columns=len(widths))
for i, ax in enumerate(axes):
    panel(ax, result.cells, names[i // len(widths)], widths[i % len(widths)])
style.save(fig, result, STEM, "Reference kernels raised and changed (Sec. 7.1)")
study.write_table(
    STEM, ["vectors", "kernel", "parameters", "bits", "results that differ", "of", "us", "vs reference", "vs by hand",
           "error"],
    [[study.setting(c, "vectors"), kernel(c), parameters(c), bits(c), style.number(c.value("n_different")),
      style.number(c.value("n_results")), style.short(c.value("time_us")), style.number(c.value("ratio_vs_ref"), "%.2f"),
      style.number(c.value("ratio_vs_handwritten"), "%.2f"), style.number(c.value("error"), "%.1e")]
     for c in result.cells])
