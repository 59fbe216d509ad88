"""Long contexts: speed and share of attention of a prompt, and decode by the share of the bandwidth."""

from lib import read, study, style

STEM = "long_context"
PANELS = [("prefill_tok_s", 1, "prefill (tok/s)"), ("attention_frac", 100, "attention in a prompt (%)"),
          ("decode_tok_s", 1, "decode (tok/s)"), ("decode_bandwidth_frac", 100, "decode, of bandwidth (%)")]
BOUNDS = {"prefill_tok_s": "prefill_roof_frac", "decode_tok_s": "decode_bandwidth_frac"}

result = read.latest(STEM)
types = study.settings(result.cells, "kv_type")
contexts = study.settings(result.cells, "n_ctx_tok")


def cells_of(kv_type):
    return [c for n in contexts for c in study.where(result.cells, kv_type=kv_type, n_ctx_tok=n)]


fig, axes = style.panels(len(PANELS), columns=2)
for ax, (metric, factor, label) in zip(axes, PANELS):
    for k, t in enumerate(types):
        cells = cells_of(t)
        x, y = [study.setting(c, "n_ctx_tok") for c in cells], [c.value(metric) for c in cells]
        ax.plot(x, [factor * v for v in y], "o-", ms=4, lw=1, color=style.COLORS[k],
                label="keys and values in %s" % t)
        if metric in BOUNDS:
            ax.plot(x, [v / c.value(BOUNDS[metric]) for v, c in zip(y, cells)], "--", lw=0.8,
                    color=style.COLORS[k], label="bound, %s" % t)
    if metric == "decode_bandwidth_frac":
        ax.axhline(100, ls="--", color=style.GREY, lw=0.8)
    ax.set(xlabel="context (tokens)", ylabel=label, xscale="log", ylim=(0, None))
    style.plain_log(ax.xaxis, contexts)
    style.legend_below(ax)
style.save(fig, result, STEM, "Prefill and decode at long contexts")
METRICS = ["prefill_tok_s", "prefill_over_short", "prefill_roof_frac", "attention_peak_frac", "decode_tok_s",
           "decode_bandwidth_frac", "kv_bytes_frac"]
study.write_table(STEM, ["keys and values", "context"] + [m.replace("_", " ") for m in METRICS],
                  [[t, "%d" % study.setting(c, "n_ctx_tok")]
                   + [style.number(c.value(m), "%.3g") for m in METRICS] for t in types for c in cells_of(t)])
