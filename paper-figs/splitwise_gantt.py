"""What each machine computes when, and which keys and values arrive when, from the events of a simulation."""

from lib import cluster, read, study, style

STEM = "splitwise_gantt"
SPAN = 1.6  # seconds from the first step
KINDS = {"prompt": style.COLORS[0], "tokens": style.COLORS[4], "prompt and tokens": style.COLORS[2]}


def kind(prompt_tok, sequences):
    return "prompt and tokens" if prompt_tok and sequences else "prompt" if prompt_tok else "tokens"


def chart(ax, c):
    s = c.series
    begin = s["step_start"].min()
    for machine, start, end, prompt_tok, sequences in zip(*(s["step_" + n] for n in (
            "machine", "start", "end", "prompt_tok", "sequences"))):
        if start - begin < SPAN:
            ax.barh(machine, min(end, begin + SPAN) - start, left=start - begin, height=0.6, color=KINDS[kind(prompt_tok, sequences)],
                    ec="white", lw=0.4)
    arrivals = [t - begin for t in s["move_end"] if t - begin < SPAN] if "move_end" in s else []
    ax.plot(arrivals, [0.5] * len(arrivals), "v", ms=4, color=style.COLORS[1])
    ax.set_xlim(0, SPAN)


result = read.latest(STEM)
cells = [c for c in result.cells if study.setting(c, "design").startswith("Splitwise")
         or study.setting(c, "layer_wise_tok") == 512]
fig, axes = style.rows(*[1] * len(cells))
for ax, c in zip(axes, cells):
    way = "serial transfer" if study.setting(c, "layer_wise_tok") > 512 else "layer by layer from 512 tokens on"
    name = study.setting(c, "design")
    ax.set_title("%s%s; longest time between tokens %s" % (
        name, ", " + way if name.startswith("Splitwise") else "", style.number(c.value("max_gap_ms"), "%.1f", " ms")))
    chart(ax, c) if "step_start" in c.series else style.na(ax)
    ax.set_yticks([0, 1], ["machine 0", "machine 1"])
    ax.set_xlabel("s")
for name, color in KINDS.items():
    axes[0].bar(0, 0, color=color, label=name)
axes[0].plot([], [], "v", ms=4, color=style.COLORS[1], label="keys and values have arrived")


cluster.legend(fig, axes[:1])
style.save(fig, result, STEM, "Steps and transfers of two machines (Splitwise Figs 2, 10 and 11)")
