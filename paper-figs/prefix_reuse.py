"""Time to first token where prompts begin like earlier ones: all computed, and what is kept reused."""

import numpy as np

from lib import read, study, style

STEM = "prefix_reuse"


def reused_share(cells):
    """Of all prompt tokens of these cells, warm-up included; NaN where a cell does not say."""
    reused = [float(c.setting("described.work.kv.n_reused_tok", "nan")) for c in cells]
    prompt = [float(np.sum(c.requests["n_prompt_tok"])) for c in cells]
    return read.ratio(study.total(reused), study.total(prompt))


result = read.latest(STEM)
fig, (cdf, shares) = style.panels(2)
names = read.unique(c.system() for c in result.cells)
for i, name in enumerate(names):
    cells = [c for c in result.cells if c.system() == name]
    ttft = np.concatenate([c.measured("ttft_ms") for c in cells])
    style.cdf(cdf, ttft, color=style.COLORS[i],
              label="%s: p50 %s" % (name, style.short(read.median(cells, "p50_ttft_ms"), " ms")))
    share = reused_share(cells)
    style.bar(shares, i, share, style.percent(share), width=0.6, color=style.COLORS[i])
cdf.set(xlabel="time to first token (ms)", ylabel="share of requests", title="TTFT")
style.legend_below(cdf)
shares.set_xticks(range(len(names)), names)
shares.set(title="Prompt tokens that were reused", ylabel="share of all prompt tokens")
shares.set_ylim(0, 1.15)
style.percent_axis(shares.yaxis)
shares.grid(axis="x", visible=False)
style.save(fig, result, STEM, "Prompts that begin like earlier ones (Mooncake's conversation trace)")
study.write_table(STEM, ["requests", "mean TTFT, ms", "p50", "p90", "reused tokens"], [
    [name] + [style.short(read.median([c for c in result.cells if c.system() == name], m))
              for m in ("mean_ttft_ms", "p50_ttft_ms", "p90_ttft_ms")] +
    [style.percent(reused_share([c for c in result.cells if c.system() == name]))] for name in names])
