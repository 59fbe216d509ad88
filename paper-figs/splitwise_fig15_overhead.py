"""What transfers add to the second token and to requests, and what the paper prints."""

from lib import read, reference, study, style

STEM = "splitwise_fig15_overhead"
WAYS = {"serial": ("serial", "serialized"), "layer": ("layer by layer", "Splitwise")}
METRICS = {"second": ("second token", "latency added to the second token"), "e2e": ("E2E", "share of E2E")}

result = read.latest(STEM)
cells = sorted(result.cells, key=lambda c: study.setting(c, "x_over_c"))
fig, axes = style.panels(2, 2)
for ax, (metric, (title, printed)) in zip(axes, METRICS.items()):  # the text has no x / c: lines
    ours = study.finite([c.value("%s_%s" % (metric, w)) for c in cells for w in WAYS])
    if ours and min(ours) > 0:
        ax.set_yscale("log")
    for i, (way, (label, theirs)) in enumerate(WAYS.items()):
        for x, c in enumerate(cells):
            v = c.value("%s_%s" % (metric, way))
            style.bar(ax, x + 0.4 * (i - 0.5), v, style.short(v), width=0.38, color=style.COLORS[i],
                      label=label if x == 0 else None)
        name = printed + (", up to" if metric == "e2e" and way == "serial" else "")
        v = reference.value("splitwise", "Fig. 15", name, transfer=theirs)
        reference.level(ax, v, ours, style.COLORS[i], "%s, coding: %g %%" % (theirs, v))
    ax.set_title(title)
    ax.set_xticks(range(len(cells)), ["%g" % study.setting(c, "x_over_c") for c in cells])
    ax.set(xlabel="x / c: sending a layer / computing it", ylabel="added, %")
    ax.margins(y=0.2)
    style.legend_below(ax)
style.save(fig, result, STEM, "What a transfer adds, without batching (Splitwise Fig. 15)")
COLUMNS = ["second_serial", "second_layer", "e2e_serial", "e2e_layer", "visible_serial", "visible_layer",
           "interference"]
study.write_table(STEM, ["x / c"] + [c.replace("_", " ") for c in COLUMNS],
                  [["%g" % study.setting(c, "x_over_c")] + [style.number(c.value(m), "%.3g") for m in COLUMNS]
                   for c in cells])
