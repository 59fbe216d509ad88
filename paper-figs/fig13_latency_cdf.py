"""Sandwich Fig. 13: distribution of request latency at batch size 1 on ShareGPT lengths."""

import numpy as np

from lib import read, style

STEM = "fig13_latency_cdf"
result = read.latest(STEM)
models = read.unique(c.model() for c in result.cells)
names = read.unique(c.variant() for c in result.cells)
fig, axes = style.panels(max(1, len(models)), width=5.4, height=5.2)
for ax, model in zip(axes, models):
    cells = [c for c in result.cells if c.model() == model]
    high = max(np.nanmax(c.measured("e2e_ms"), initial=0) for c in cells) / 1e3
    for i, name in enumerate(names):
        repeats = [c for c in cells if c.variant() == name]
        if not repeats:
            continue
        seconds = np.concatenate([c.measured("e2e_ms") for c in repeats]) / 1e3
        share = style.percent(read.median(repeats, "decode_bandwidth_frac"))
        style.cdf(ax, seconds, color=style.COLORS[i % len(style.COLORS)], ls=style.LINES[i // 3],
                  label="%s: p50 %s s, p90 %s s (decode at %s of bandwidth)" % (
                      name, style.short(read.median(repeats, "p50_e2e_ms") / 1e3),
                      style.short(read.median(repeats, "p90_e2e_ms") / 1e3), share))
    ax.set_xlim(0, 1.04 * high if high > 0 else 1)
    ax.set(xlabel="request latency, intended start to last token (s)", title=model)
    style.legend_below(ax)
axes[0].set_ylabel("share of requests")
style.save(fig, result, STEM, "Request latency, batch size 1 (Sandwich Fig. 13)")
