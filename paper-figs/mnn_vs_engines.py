"""Prefill of 512 tokens and decode of this engine and of llama.cpp on the same files of 4-bit
weights, with the rates that the measured peak and the measured read bandwidth allow."""

import math

from lib import bars, read, style

STEM = "mnn_vs_engines"
PHASES = [("prefill_tok_s", "prefill_peak_frac", "prefill, tok/s (% of the measured peak)"),
          ("decode_tok_s", "decode_bandwidth_frac", "decode, tok/s (% of the read bandwidth)")]


def bound(cells, value, share):
    """Of each bar its own, and of a system that states none that of the precision it has, too: a8."""
    def own(cell):
        of = read.ratio(cell.value(value), cell.value(share))
        return of if not math.isnan(of) else max(
            (read.ratio(c.value(value), c.value(share)) for c in cells if c.variant() == "a8"), default=math.nan)
    return own


result = read.latest(STEM)
models = read.unique(c.model() for c in result.cells) or ["no cell was measured"]
names = read.unique(c.variant() for c in result.cells)
fig, axes = style.panels(2 * len(models) + 1, columns=2)
for i, model in enumerate(models):
    cells = [c for c in result.cells if c.model() == model]
    for ax, (value, share, label) in zip(axes[2 * i:], PHASES):
        bars.panel(ax, cells, names, value, share, bound=bound(cells, value, share))
        ax.set(title=model, xlabel=label)
bars.ratios(axes[-1], result, {"prefill512_over_llamacpp": "prefill, ", "decode_over_llamacpp": "decode, "},
            "Relative to llama.cpp (above 1: faster)")
style.save(fig, result, STEM, "4-bit weights: this engine and llama.cpp on the same files")
