"""ScheInfer V-E1: the speed-up of decode over Fiddler and llama.cpp by the speed of the CPU."""

from lib import read, slicing, study, style

STEM = "scheinfer_threads"
PANELS = [("speedup_fiddler", "Fiddler"), ("speedup_whole_layers", "llama.cpp")]

result = read.latest(STEM)
fig, axes = style.panels(2)
for ax, (metric, other) in zip(axes, PANELS):
    slicing.lines(ax, result.cells, "cpu_factor", metric, "Decode, over %s" % other,
                  "testbed", lambda bed: "testbed %s" % bed)
    slicing.printed(ax, "Sec. V-E1", "speed-up, average", lambda at: 16 / at["threads"],
                    [c.value(metric) for c in result.cells], over=other)
    ax.set_xscale("log")
    style.plain_log(ax.xaxis, study.settings(result.cells, "cpu_factor"))
    ax.set(xlabel="CPU's time, x that of Table I (8: two threads)", ylabel="speed-up, mean")
    style.legend_below(ax)
style.save(fig, result, STEM, "Slower CPUs gain more from slices on both (ScheInfer V-E1)")
study.write_table(STEM, ["CPU's time x", "over Fiddler", "over llama.cpp"], [
    [f] + [style.short(study.mean([c.value(m) for c in study.where(result.cells, cpu_factor=f)])) for m, _ in PANELS]
    for f in study.settings(result.cells, "cpu_factor")])
