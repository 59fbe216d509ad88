"""ScheInfer V-B, Table I: how long products of this host take by tokens, and two models of it."""

from lib import read, study, style

STEM = "scheinfer_cpu_half"


def percent(cell, model):
    return style.number(100 * cell.value(model + "_one_tok_error_frac"), "%.0f %%")


result = read.latest(STEM)
types = study.settings(result.cells, "type")
threads = study.settings(result.cells, "n_threads")
fig, axes = style.panels(len(types))
for ax, kind in zip(axes, types):
    for i, n in enumerate(threads):
        for cell in study.where(result.cells, type=kind, n_threads=n):
            weights, tok, s, line, regimes = (cell.series.get(k, []) for k in (
                "weights", "n_tok", "seconds", "line_s", "regimes_s"))
            most = max(weights, default=0)
            of = sorted((t, a, b, c) for w, t, a, b, c in zip(weights, tok, s, line, regimes) if w == most)
            x = [p[0] for p in of]
            ax.plot(x, [1e3 * p[1] for p in of], "o", color=style.COLORS[i], label="%d thread%s" % (n, "s"[:n > 1]))
            ax.plot(x, [1e3 * p[2] for p in of], ":", color=style.COLORS[i], lw=1, label="one line, at 1 token off by %s" % percent(cell, "line"))
            ax.plot(x, [1e3 * p[3] for p in of], "-", color=style.COLORS[i], lw=1,
                    label="two regimes, %s" % percent(cell, "regimes"))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(title=kind, xlabel="tokens", ylabel="ms, the largest matrix")
    style.legend_below(ax)
style.save(fig, result, STEM, "Products of this host: one line does not fit both regimes (ScheInfer Table I)")
study.write_table(STEM, ["type", "threads", "alpha, us", "beta, ns/kMAC", "r2", "T=1 off", "unseen off", "GB/s", "GFLOP/s",
                         "T=1 off, two regimes", "unseen off, two regimes"], [
    [study.setting(c, "type"), study.setting(c, "n_threads")] + [style.short(c.value(m)) for m in (
        "line_start_us", "line_ns_per_kmac", "line_r2", "line_one_tok_error_frac", "line_error_frac", "regimes_gbps",
        "regimes_gflops", "regimes_one_tok_error_frac", "regimes_error_frac")] for c in result.cells])
