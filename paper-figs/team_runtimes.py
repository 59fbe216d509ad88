"""Threads of the engine and of OpenMP's runtime: phases, barriers, prompts and tokens."""

from lib import read, study, style

STEM = "team_runtimes"
SETTINGS = ["pthread", "openmp", "openmp_active", "openmp_passive"]
PARTS = [("dispatch_us", "A phase: beginning and end", "us"), ("barrier_us", "A barrier of all threads", "us"),
         ("prefill_tok_s", "A prompt", "tokens per second"), ("decode_tok_s", "Tokens of one sequence", "tokens per second")]


def name(c):
    busy = study.setting(c, "busy")
    return "CPUs of its own" if not busy else "CPUs shared with %s busy threads" % busy


def panel(ax, cells, part, unit):
    ax.set_yscale("log" if unit == "us" else "linear")
    for i, c in enumerate(cells):
        for k, setting in enumerate(SETTINGS):
            v, x = c.value("%s_%s" % (part, setting)), i + 0.2 * (k - 1.5)
            rounds = list(c.series.get("%s_%s_by_round" % (part, setting), []))
            style.bar(ax, x, v, style.short(v), top=rounds, width=0.19, color=style.COLORS[k],
                      label=setting.replace("_", ", ") if i == 0 else None)
            ax.plot([x] * len(rounds), rounds, ".", ms=3, color="black", alpha=0.5)
    ax.set_xticks(range(len(cells)), [name(c).replace(" shared", "\nshared") for c in cells])
    ax.grid(axis="x", visible=False)
    ax.margins(y=0.2)
    style.legend_below(ax)


result = read.latest(STEM)
fig, axes = style.panels(len(PARTS), columns=2)
for ax, (part, title, unit) in zip(axes, PARTS):
    panel(ax, result.cells, part, unit)
    ax.set(title=title, ylabel=unit)
style.save(fig, result, STEM, "Threads: the engine's, and OpenMP's as they are, spinning, sleeping; dots: rounds")
RATIOS = ["dispatch_openmp_over_pthread", "prefill_openmp_over_pthread", "decode_openmp_over_pthread",
          "best_decode_openmp_over_pthread"]
study.write_table(STEM, ["machine"] + ["%s %s" % (s, p.replace("_", " ")) for p, _, _ in PARTS for s in SETTINGS]
                  + [r.replace("_", " ") for r in RATIOS],
                  [[name(c)] + [style.short(c.value("%s_%s" % (p, s))) for p, _, _ in PARTS for s in SETTINGS]
                   + [style.number(c.value(r), "%.3g") for r in RATIOS] for c in result.cells])
