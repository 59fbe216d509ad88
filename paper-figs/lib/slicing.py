"""What the figures of ScheInfer share: models as colours, a setting along the x axis, and what the paper
prints, or the range of it."""

from lib import read, reference, study, style

PAPER = "scheinfer"


def band(ax, where, metric, label, **at):
    """The range that the text has, in place of bars without a number."""
    low, high = (reference.value(PAPER, where, "%s, %s" % (metric, end), **at) for end in ("least", "most"))
    ax.axhspan(low, high, color=style.GREY, alpha=0.18, lw=0, label="ScheInfer, %s: %s to %s" % (label, low, high))


def by_model(ax, cells, metric, title):
    """A column of dots for each model: testbeds as colours; a memory that is larger, a larger dot."""
    models = study.settings(cells, "model")
    beds, memories = (study.settings(cells, n) for n in ("testbed", "budget_gb"))
    for i, bed in enumerate(beds):
        for k, gb in enumerate(memories):
            of = study.where(cells, testbed=bed, budget_gb=gb)
            x = [models.index(study.setting(c, "model")) + 0.18 * (i - (len(beds) - 1) / 2) for c in of]
            ax.plot(x, [c.value(metric) for c in of], "o", ms=3 + 2 * k, alpha=0.8, color=style.COLORS[i],
                    label="%s, %g GB" % (bed, gb))
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_xticks(range(len(models)), [m.replace("-", "-\n", 1) for m in models])
    ax.set_xlim(-0.6, max(len(models), 1) - 0.4)
    ax.set(title=title, ylabel="speed-up")
    if not study.finite([c.value(metric) for c in cells]):
        style.na(ax, read.why(cells, metric))


def speedups(stem, metric, title, where=(("Sec. V-D", "generation"), ("Sec. V-C", None))):
    """Decode, and a prompt with Table I's rate of the accelerator and with a bound of it."""
    result = read.latest(stem)
    fig, axes = style.rows(1, 2)
    named = "speed-up over Fiddler and llama.cpp"
    rates = study.settings(result.cells, "accel_tmacs") or [0]
    n_prompt = max(study.settings(result.cells, "n_tok"), default=1024)
    by_model(axes[0], study.where(result.cells, n_tok=1, accel_tmacs=rates[0]), metric, "Decode")
    band(axes[0], where[0][0], named, "generation phase", phase=where[0][1])
    for ax, rate in zip(axes[1:], (rates + rates)[:2]):
        by_model(ax, study.where(result.cells, n_tok=n_prompt, accel_tmacs=rate), metric,
                 "Prompt of %d tokens, accelerator %s" % (
                     n_prompt, "at Table I's rate" if rate == 0 else "of at most %g TMAC/s" % rate))
        band(ax, where[1][0], named, "prompt phase")
        ax.set_yscale("log")
    for ax in axes:
        style.legend_below(ax)
    style.save(fig, result, stem, title)
    study.write_table(stem, ["model", "testbed", "GB", "tokens", "TMAC/s", "slices, ms", "speed-up", "CG", "GG"], [
        [study.setting(c, n) for n in ("model", "testbed", "budget_gb", "n_tok", "accel_tmacs")] +
        [style.short(c.value(m)) for m in ("step_ms", metric, "cg_frac", "gg_frac")] for c in result.cells])


def lines(ax, cells, axis, metric, title, group="model", label=str):
    """Means over the other settings, a line for each value of `group`."""
    x = sorted(study.settings(cells, axis))
    for i, g in enumerate(study.settings(cells, group)):
        y = [study.mean([c.value(metric) for c in study.where(cells, **{axis: v, group: g})]) for v in x]
        ax.plot(x, y, "o-", color=style.COLORS[i], label=label(g))
    ax.set_title(title)
    if not study.finite([c.value(metric) for c in cells]):
        style.na(ax, read.why(cells, metric))


def printed(ax, where, metric, x_of, ours, **at):
    """The paper's numbers at x_of(their settings)."""
    v = reference.values(PAPER, where, metric, **at)
    reference.mark(ax, [x_of(a) for _, a in v], [y for y, _ in v], PAPER, where, ours, machine="as printed")
