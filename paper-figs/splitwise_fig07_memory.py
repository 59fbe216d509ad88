"""Memory by the tokens of a batch: formula and resident memory of this engine, the paper's models by formula."""

from lib import read, study, style

STEM = "splitwise_fig07_memory"
MACHINE_GB = 640


def host(ax, cells):
    for c in cells:
        tok = c.series.get("batch_tok", [])
        for name, mark, label in (("rss_bytes", "o", "resident"), ("formula_bytes", "-", "formula")):
            if name in c.series and len(tok):
                ax.plot(tok, c.series[name] / 1e6, mark, ms=3, color=style.COLORS[0] if mark == "o" else style.GREY,
                        label=label)
        ax.plot([], [], " ", label="growth / formula: %s" % style.number(c.value("rss_over_formula"), "%.3f"))
    ax.set_title("This engine, prompts computed one by one")
    ax.set(xlabel="tokens of all sequences", ylabel="MB")
    style.legend_below(ax)


def papers(ax, cells):
    for i, c in enumerate(cells):
        if "formula_bytes" in c.series:
            ax.plot(c.series["batch_tok"], c.series["formula_bytes"] / 1e9, color=style.COLORS[i],
                    label="%s: %s sequences fit" % (study.setting(c, "what"),
                                                    style.number(c.value("batch_that_fits"), "%.0f")))
    ax.axhline(MACHINE_GB, color=style.GREY, ls="--", lw=0.8, label="8 GPUs of 80 GB")
    ax.set_title("The paper's models, by formula")
    ax.set(xlabel="tokens of all sequences", ylabel="GB")
    ax.set_ylim(bottom=0)
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.rows(1, 1)
host(axes[0], study.where(result.cells, what="engine"))
papers(axes[1], [c for c in result.cells if study.setting(c, "what") != "engine"])
style.save(fig, result, STEM, "Memory by batch (Splitwise Fig. 7)")
COLUMNS = ["kv_bytes_per_tok", "rss_bytes_per_tok", "rss_over_formula", "rss_linear_r2", "used_over_formula",
           "weights_gb", "tokens_as_weights", "batch_that_fits"]
study.write_table(STEM, ["model"] + [c.replace("_", " ") for c in COLUMNS],
                  [[study.setting(c, "what")] + [style.number(c.value(m), "%.4g") for m in COLUMNS]
                   for c in result.cells])
