"""Sandwich Fig. 13: distribution of request latency at batch size 1 on ShareGPT lengths."""

import numpy as np

from lib import read, style, table

STEM = "fig13_latency_cdf"
HEADER = ["model", "variant", "p50 ms", "p90 ms", "decode, of the bandwidth"]


def cells_of(result, model, name):
    return [c for c in result.cells if (c.model(), c.variant()) == (model, name)]


result = read.latest(STEM)
models = read.unique(c.model() for c in result.cells) or ["no cell was measured"]
names = read.unique(c.variant() for c in result.cells)
fig, axes = style.rows(len(models), 1)
rows = []
for ax, model in zip(axes, models):
    high = 0
    for i, name in enumerate(names):
        repeats = cells_of(result, model, name)
        if not repeats:
            continue
        ms = np.concatenate([c.measured("e2e_ms") for c in repeats])
        high = max(high, np.nanmax(ms, initial=0))
        style.cdf(ax, ms, color=style.COLORS[i % len(style.COLORS)], ls=style.LINES[i // 3 % 3],
                  label=name)
        rows.append([model, name] + [style.short(read.median(repeats, p)) for p in
                                     ("p50_e2e_ms", "p90_e2e_ms")] +
                    [style.percent(read.median(repeats, "decode_bandwidth_frac"))])
    ax.set_xlim(0, 1.04 * high if high > 0 else 1)
    ax.set(xlabel="request latency, intended start to last token (ms)", title=model,
           ylabel="share of requests")
    style.legend_below(ax)
table.draw(axes[-1], HEADER, rows)
style.save(fig, result, STEM, "Request latency, batch size 1 (Sandwich Fig. 13)")
table.write(STEM, HEADER, rows)
