"""Power by prompt and by batch, as a share of the rated power: A100, published."""

from lib import read, steps, study, style

STEM = "splitwise_fig08_power"


def curves(ax, cells, x, y, keep, metric):
    for i, c in enumerate(cells):
        a, b = steps.points(c, x, y, keep)
        if len(a):
            ax.plot(a, b, "o-", ms=3, color=style.COLORS[i], label="%s: %s x" % (
                steps.name(c), style.number(c.value(metric), "%.2f")))
    ax.set_xscale("log", base=2)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("power / rated power")
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.rows(1, 1)
curves(axes[0], result.cells, steps.prompt_tok, lambda p: p["peak_power"], steps.single, "power_prompt_growth")
axes[0].set_title("(a) Highest power of a run, by prompt")
axes[0].set_xlabel("prompt tokens")
curves(axes[1], result.cells, steps.batch, lambda p: p["average_power"],
       lambda p: p["prompt_size"] == 512, "power_token_growth")
axes[1].set_title("(b) Mean power of a run, nearly all of it tokens, by batch")
axes[1].set_xlabel("sequences")
style.save(fig, result, STEM, "Power of GPUs (Splitwise Fig. 8); H100: no published value")
COLUMNS = ["power_prompt_growth", "power_token_growth"]
study.write_table(STEM, ["source"] + [c.replace("_", " ") for c in COLUMNS],
                  [[steps.name(c)] + [style.number(c.value(m), "%.3g") for m in COLUMNS] for c in result.cells])
