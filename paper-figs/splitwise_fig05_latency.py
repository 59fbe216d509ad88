"""TTFT by prompt, TBT by batch, E2E of two traces: published times of H100, and this engine's."""

from lib import read, reference, steps, study, style

STEM = "splitwise_fig05_latency"


def ttft(ax, cells):
    ax.set_title("(a) TTFT by prompt")
    for i, c in enumerate(cells):
        x, y = steps.points(c, steps.prompt_tok, steps.prompt_ms, steps.single)
        ax.plot(x, y, "o-", ms=3, color=style.COLORS[i], label="%s: R² %s" % (
            steps.name(c), style.number(c.value("prompt_linear_r2"), "%.3f")))
    ax.set(xscale="log", yscale="log", xlabel="prompt tokens", ylabel="ms")
    style.legend_below(ax)


def tbt(ax, cells):
    ax.set_title("(b) TBT by batch, relative to batch 1")
    for i, c in enumerate(cells):
        x, y = steps.points(c, steps.batch, steps.token_ms)
        if len(x):
            ax.plot(x, y / y[0], "o-", ms=3, color=style.COLORS[i], label="%s: %s x" % (
                steps.name(c), style.number(c.value("token_slowdown"), "%.2f")))
    reference.mark(ax, [64], [reference.value("splitwise", "Fig. 5", "TBT at batch 64 over batch 1", panel="b")],
                   "splitwise", "Fig. 5", [1, 2])
    ax.set_xscale("log", base=2)
    ax.set(xlabel="sequences", ylabel="time of a step / of one sequence")
    style.legend_below(ax)


def e2e(ax, cells, trace):
    ax.set_title("(c) E2E of %s, no batching" % trace)
    for i, c in enumerate(cells):
        v = c.series.get("e2e_ms_" + trace, [])
        if len(v):
            style.cdf(ax, v / 1e3, color=style.COLORS[i], lw=1.2, label="%s: %s" % (
                steps.name(c), style.percent(c.value("token_phase_frac_" + trace))))
    ax.set(xscale="log", xlabel="s; below: share of the token phase", ylabel="share of requests")
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.rows(2, 2)
ttft(axes[0], result.cells)
tbt(axes[1], result.cells)
e2e(axes[2], result.cells, "conversation")
e2e(axes[3], result.cells, "coding")
style.save(fig, result, STEM, "TTFT, TBT and E2E (Splitwise Fig. 5); E2E is computed from the times in (a) and (b)")
COLUMNS = ["prompt_linear_r2", "prompt_over_linear", "token_slowdown", "prompt_as_tokens", "e2e_p50_conversation",
           "e2e_p90_conversation", "e2e_p50_coding", "e2e_p90_coding", "token_bound_frac_conversation",
           "token_bound_frac_coding"]
study.write_table(STEM, ["source"] + [c.replace("_", " ") for c in COLUMNS],
                  [[steps.name(c)] + [style.number(c.value(m), "%.3g") for m in COLUMNS] for c in result.cells])
