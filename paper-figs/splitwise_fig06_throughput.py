"""Throughput of prompts by tokens in the step, and of tokens by batch: H100, published, and this engine."""

from lib import read, reference, steps, study, style

STEM = "splitwise_fig06_throughput"


def relative(ax, cells, best, unit, curves):
    for i, c in enumerate(cells):
        top = c.value(best)
        for x, y, mark, what in curves(c):
            if len(x) and top == top:
                ax.plot(x, y / top, mark, ms=3, color=style.COLORS[i], label=steps.name(c) + (
                    what or ": 100 %% is %s %s" % (style.short(top), unit)))
    ax.set_xscale("log", base=2)
    ax.set_ylim(0, max(1.2, 1.05 * ax.dataLim.y1))
    style.percent_axis(ax.yaxis)


def prompts(c):
    def rate(p):
        return steps.prompt_tok(p) / p["prompt_time"]

    yield (*steps.points(c, steps.prompt_tok, rate, steps.single), "o-", "")
    several = steps.points(c, steps.prompt_tok, rate, lambda p: not steps.single(p))
    if len(several[0]):
        yield (*several, "x:", ", batches")


def tokens(c):
    yield (*steps.points(c, steps.batch, lambda p: 1e3 * p["batch_size"] / p["token_time"]), "o-", "")


def knee(ax, x, text):
    ax.axvline(x, color=style.GREY, lw=0.8, ls="--", label=text)
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.rows(1, 1)
relative(axes[0], result.cells, "single_best_tok_ms", "tok/ms", prompts)
axes[0].set_title("(a) Prompts: throughput / highest of single prompts")
axes[0].set(xlabel="prompt tokens in the step", ylabel="share")
falls = reference.value("splitwise", "Fig. 6", "prompt tokens after which throughput falls", panel="a")
knee(axes[0], falls if falls == falls else 2048, "2048: falls after that, Splitwise")
relative(axes[1], result.cells, "token_best_tok_s", "tok/s", tokens)
axes[1].set_title("(b) Tokens: throughput / highest")
axes[1].set(xlabel="sequences in the step", ylabel="share")
knee(axes[1], 64, "64: rises up to that, Splitwise")
style.save(fig, result, STEM, "Throughput by batching (Splitwise Fig. 6)")
COLUMNS = ["single_best_at_tok", "single_after_best", "prompt_best_at_tok", "prompt_after_best",
           "token_best_at_batch", "token_knee_batch", "token_gain", "token_best_tok_s"]
study.write_table(STEM, ["source"] + [c.replace("_", " ") for c in COLUMNS],
                  [[steps.name(c)] + [style.number(c.value(m), "%.3g") for m in COLUMNS] for c in result.cells])
