"""What scattered keys and values cost attention, by block size, pages and order; the probe of
reads in random order; and the allocators' operations."""

from lib import read, reference, study, style

STEM = "odma_random_access"
PAGES = ["huge", "small"]
RACM = [reference.value("odma", "Sec. 2.2", "B_rand / B_seq, " + which) for which in ("least", "most")]


def shape(c):
    return "heads of %s, groups of %s" % (study.setting(c, "head_dim"), study.setting(c, "group"))


def by_block(ax, cells, pages):
    """Time over contiguous; dashed: blocks in sequence."""
    shapes = list(dict.fromkeys(map(shape, cells)))
    ticks = []
    for c in study.where(cells, pages=pages):
        if "block_tok" not in c.series:
            continue
        ticks = c.series["block_tok"]
        random = study.setting(c, "order") == "random"
        color = style.COLORS[shapes.index(shape(c)) % len(style.COLORS)]
        ax.plot(ticks, c.series["over_contiguous"], "-o" if random else "--", color=color, lw=1.2,
                ms=2.5, label=shape(c) if random else None)
        ends = [c.interval("paged%d_over_contiguous" % t) for t in ticks]
        if random and all(ends):
            ax.fill_between(ticks, *zip(*ends), color=color, alpha=0.15, lw=0)
    ax.set(title="%s pages; dashed: in sequence" % pages.capitalize(),
           xlabel="tokens of a block", ylabel="time / contiguous")
    if len(ticks):
        ax.axhline(1, color=style.GREY, lw=0.8)
        ax.set_xscale("log")
        style.plain_log(ax.xaxis, list(ticks))
    style.legend_below(ax)


def probe(ax, cells):
    ax.set(title="Reading blocks in random order", ylabel="bandwidth / in sequence")
    sizes = []
    for i, pages in enumerate(PAGES):
        for c in study.where(cells, pages=pages)[:1]:
            if "probe_bytes" in c.series and len(c.series["probe_bytes"]):
                sizes = c.series["probe_bytes"]
                ax.plot(sizes, c.series["probe_random_gbps"] / c.value("sequential_gbps"), "-o",
                        ms=2.5, color=style.COLORS[i], label="%s pages" % pages)
    if len(sizes):
        ax.axhspan(*RACM, color=style.GREY, alpha=0.2, lw=0, label="RACM of the paper")
        style.axis_of_sizes(ax, sizes, "block")
        ax.set_ylim(0, None)
    style.legend_below(ax)


def allocators(ax, cells):
    ax.set(title="Operations of an allocator", ylabel="million per second")
    for c in cells[:1]:
        names = str(c.attrs.get("notes.allocators", "")).split()
        for i, (name, s) in enumerate(zip(names, c.series.get("alloc_op_s", []))):
            style.bar(ax, i, 1e-6 / s, style.short(1e-6 / s), color=style.COLORS[i], width=0.6)
        ax.set_xticks(range(len(names)), names)
    ax.margins(y=0.15)


result = read.latest(STEM)
fig, axes = style.panels(4)
for panel, kind in zip(axes, PAGES):
    by_block(panel, result.cells, kind)
probe(axes[2], result.cells)
allocators(axes[3], result.cells)
style.save(fig, result, STEM, "Attention of decode over scattered keys and values (ODMA 2.2)")
SIZES = ["paged%d_over_contiguous" % n for n in (16, 32, 64, 128, 256, 512)]
REST = ["contiguous_ms", "contiguous_gbps", "sequential_gbps", "random_frac_4k", "alloc_step_frac"]
study.write_table(
    STEM, ["pages", "order", "shape"] + ["%s / contiguous" % m.split("_")[0] for m in SIZES] +
    [m.replace("_", " ") for m in REST],
    [[study.setting(c, "pages"), study.setting(c, "order"), shape(c)] +
     [style.short(c.value(m)) for m in SIZES + REST] for c in result.cells])
