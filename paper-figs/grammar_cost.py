"""What a JSON schema adds to the time for a token, known and new, and the time to compile it."""

import os

from lib import read, study, style

STEM = "grammar_cost"
WAYS = [("cost", "known"), ("cost_new", "new")]


def model(c):
    return os.path.basename(str(study.setting(c, "model"))).removesuffix(".gguf")


def label(c):
    v = c.value("n_vocab")
    return "%s, %s" % (model(c), style.number(v / 1000, "%.0f k"))


result = read.latest(STEM)
schemas = study.settings(result.cells, "schema")
models = study.settings(result.cells, "model")
fig, axes = style.rows(1, 2)
for k, m in enumerate(models):
    cells = [c for s in schemas for c in study.where(result.cells, model=m, schema=s)]
    for c in cells:
        for j, (metric, _) in enumerate(WAYS):
            v = 100 * c.value(metric + "_frac")
            lo, hi = c.interval(metric + "_frac") or (v / 100, v / 100)
            axes[0].errorbar(schemas.index(study.setting(c, "schema")) + 0.12 * (2 * k + j) - 0.3, v,
                             yerr=[[max(0, v - 100 * lo)], [max(0, 100 * hi - v)]], marker="os"[j], ms=4, lw=1, ls="",
                             color=style.COLORS[k], fillstyle=["full", "none"][j],
                             label="%s, %s" % (label(c), WAYS[j][1]) if c is cells[0] else None)
    for ax, metric in ((axes[1], "cost_us"), (axes[2], "compile_ms")):
        ax.plot([schemas.index(study.setting(c, "schema")) for c in cells], [c.value(metric) for c in cells], "o-",
                ms=4, lw=1, color=style.COLORS[k], label=label(cells[0]))
axes[0].axhline(3, color=style.GREY, lw=1, ls="--")
axes[0].set(title="Added to a token; the goal is 3 %", ylabel="of the time for a token (%)")
axes[1].set(title="The same, known", ylabel="per token (us)")
axes[2].set(title="To compile a schema", ylabel="ms")
for ax in axes:
    ax.set_xticks(range(len(schemas)), schemas)
    ax.set_xlim(-0.5, len(schemas) - 0.5)
    ax.set_ylim(bottom=0)
    style.legend_below(ax)
style.save(fig, result, STEM, "What a JSON schema adds to the time for a token")
METRICS = ["tpot_ms", "cost_us", "cost_new_us", "cost_frac", "cost_new_frac", "worst_us", "worst_new_us", "tpot_ratio",
           "detectable_frac", "compile_ms", "vocab_ms", "allowed_frac", "schema_kb"]
study.write_table(STEM, ["model", "schema"] + [m.replace("_", " ") for m in METRICS],
                  [[label(c), study.setting(c, "schema")] + [style.number(c.value(m), "%.3g") for m in METRICS]
                   for c in result.cells])
