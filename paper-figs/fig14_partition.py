"""Sandwich Fig. 14: an even split of the machine whose sums one rank makes alone, as
xFasterTransformer does it, compared with this engine's plans."""

from lib import bars, read, style

STEM = "fig14_partition"
PANELS = (("mean_ttft_ms", "prefill_peak_frac", "mean TTFT in ms (% of the peak)", "TTFT"),
          ("mean_tpot_ms", "decode_bandwidth_frac", "mean TPOT in ms (% of the read bandwidth)", "TPOT"))

result = read.latest(STEM)
models = read.unique(c.model() for c in result.cells) or ["no cell was measured"]
names = read.unique(c.variant() for c in result.cells)
fig, axes = style.panels(2 * len(models) + 1, columns=2)
for k, model in enumerate(models):
    cells = [c for c in result.cells if c.model() == model]
    for ax, (value, share, words, title) in zip(axes[2 * k:], PANELS):
        bars.panel(ax, cells, names, value, share)
        ax.set(title="%s, %s" % (title, model), xlabel=words)
bars.ratios(axes[-1], result, {"ttft_over_even_split_2": "TTFT ", "tpot_over_even_split_2": "TPOT "},
            "Relative to even_split_2")
style.save(fig, result, STEM, "Even split with master copy, and plans (Sandwich Fig. 14, in-engine)")
