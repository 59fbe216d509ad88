"""Sandwich Fig. 9 and 12 with many cores: plans by different methods on simulated machines, for single
requests and under Poisson arrivals."""

from lib import read, study, style

STEM = "plans_simulated"
METHODS = ["one_plan", "even_split", "vllmpp", "search"]


def over_base(cells, c, metric):
    same = {n: study.setting(c, n) for n in ("machine", "model")}
    base = study.finite([b.value(metric) for b in study.where(cells, method="one_plan", **same)])
    return c.value(metric) / base[0] if base else float("nan")


def scale(cells, c):
    v = over_base(cells, c, "slo_scale_p90")
    return v, v, v


def rate(cells, c):
    v = c.value("over_one_plan")
    return (v,) + tuple(c.interval("over_one_plan") or (v, v))


def panel(ax, cells, value):
    groups = [(m, n) for m in study.settings(cells, "machine") for n in study.settings(cells, "model")]
    for k, method in enumerate(names):
        for i, (machine, model) in enumerate(groups):
            for c in study.where(cells, machine=machine, model=model, method=method):
                v, lo, hi = value(cells, c)
                x = i + 0.2 * (k - (len(names) - 1) / 2)
                style.bar(ax, x, v, style.number(v, "%.2f"), top=[hi], width=0.19, color=style.COLORS[k],
                          label=method if i == 0 else None)
                if hi > lo:
                    ax.plot([x, x], [lo, hi], color="black", lw=0.8)
    ax.axhline(1, color=style.GREY, lw=0.8)
    ax.set_xticks(range(len(groups)), ["%s\n%s" % (m, n) for m, n in groups])
    ax.margins(y=0.2)
    style.legend_below(ax)


result = read.latest(STEM)
names = [m for m in METHODS if m in study.settings(result.cells, "method")]
fig, axes = style.panels(2, columns=1)
panel(axes[0], result.cells, scale)
axes[0].set(ylabel="SLO scale / that of one_plan", title="One request after the other: smaller is stricter")
panel(axes[1], result.cells, rate)
axes[1].set(ylabel="goodput / that of one_plan", title="Poisson arrivals: mean over seeds, 95 % interval")
style.save(fig, result, STEM, "Plans on many simulated cores (Sandwich Fig. 9 and 12)")
METRICS = ["slo_scale_p90", "goodput_rps", "over_one_plan", "ttft_ms", "tpot_ms"]
study.write_table(STEM, ["machine", "model", "method"] + [m.replace("_", " ") for m in METRICS]
                  + ["prefill ranks x threads", "decode ranks x threads"],
                  [[study.setting(c, n) for n in ("machine", "model", "method")]
                   + [style.number(c.value(m), "%.4g") for m in METRICS]
                   + ["%s x %s" % tuple(style.number(c.value(p + n)) for n in ("ranks", "threads"))
                      for p in ("prefill_", "decode_")] for c in result.cells])
