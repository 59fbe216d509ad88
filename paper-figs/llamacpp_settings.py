"""llama-server's settings under a light load: the scale of the objectives that 90 % of requests meet."""

from lib import read, style

STEM = "llamacpp_settings"
result = read.latest(STEM)
names = read.unique(c.variant() for c in result.cells)
cases = read.unique(c.axes.get("case", "") for c in result.cells) or ["no cell was measured"]
fig, axes = style.panels(len(cases))
for ax, case in zip(axes, cases):
    for i, name in enumerate(names):
        repeats = [c for c in result.cells if c.variant() == name and c.axes.get("case", "") == case]
        v = read.median(repeats, "p90_slo_scale")
        seen = [c.value("p90_slo_scale") for c in repeats]
        style.bar(ax, i, v, style.short(v), top=seen, color=style.COLORS[i % 6], width=0.6)
        ax.plot([i] * len(seen), seen, ls="", marker="o", color="#222222", ms=3)
    ax.set_xticks(range(len(names)), names)
    ax.set(ylabel="multiple of the objectives (lower: faster)",
           title="%s: 90 %% of requests meet\n(dots: repeats)" % (case or "llama-160m"))
style.save(fig, result, STEM, "Settings of llama-server: scale of the objectives that it holds")
