"""Agents on one CPU machine: sessions an hour within the objectives by the time that tools take, how that
compares with LRU for each seed, and what is computed again."""

from lib import read, study, style

STEM = "agent_sessions"
POLICIES = [("paged", "each turn on its own (paged)"), ("odma_session", "held by the session (odma)"),
            ("lru", "reuse, LRU"), ("lru_ended", "LRU, ended first"),
            ("expected_return", "expected return"), ("oracle", "oracle")]
COMPARED = [("odma_session", "held"), ("lru_again", "LRU again"), ("lru_ended", "ended first"),
            ("expected_return", "expected return"), ("oracle", "oracle")]


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def lines(ax, metric, title, label):
    for k, (policy, name) in enumerate(POLICIES):
        ax.plot(range(len(pauses)), [mean(study.where(most, policy=policy, pause=p), metric) for p in pauses],
                marker="osv^D*"[k], ms=4, lw=1.2, color=style.COLORS[k % 6], label=name)
    ax.set_xticks(range(len(pauses)), ["%g s" % p for p in pauses])
    ax.set(title=title, xlabel="time of tools between turns, median", ylabel=label)
    ax.set_ylim(bottom=0)
    style.legend_below(ax)


def over_lru(ax, memory):
    """A row for each policy where tools are slowest: every seed, and the mean."""
    ax.set_title("Slowest tools, memory for %.1f million tokens" % (memory / 1e6))
    for y, (policy, _) in enumerate(reversed(COMPARED)):
        style.seeds(ax, y, [c.value("over_lru") for c in study.where(
            result.cells, policy=policy, pause=pauses[-1], memory_tok=memory)])
    ax.axvline(1, color=style.GREY, lw=1, ls="--")
    ax.set_yticks(range(len(COMPARED)), [name for _, name in reversed(COMPARED)], fontsize=7)
    ax.set_xlabel("goodput / that of LRU, same seed")


result = read.latest(STEM)
pauses, memories = study.settings(result.cells, "pause"), study.settings(result.cells, "memory_tok")
most = study.where(result.cells, memory_tok=memories[-1])
fig, axes = style.panels(4)
lines(axes[0], "goodput_per_h", "Sessions within the objectives", "sessions per hour")
lines(axes[1], "recomputed_frac", "Computed again, with 16 agents", "share of prompt tokens")
style.percent_axis(axes[1].yaxis)
over_lru(axes[2], memories[0])
over_lru(axes[3], memories[-1])
style.save(fig, result, STEM, "Sessions of agents, and memory that is short")
METRICS = ["goodput_per_h", "goodput_agents", "over_lru", "attained_frac", "sessions_per_h", "ttft_first_p50_ms",
           "ttft_later_p50_ms", "ttft_later_p95_ms", "recomputed_frac", "used_frac", "kept_frac"]
study.write_table(STEM, ["memory", "pause", "policy"] + [m.replace("_", " ") for m in METRICS],
                  [[m, "%g" % p, policy] + [style.number(mean(study.where(
                      result.cells, memory_tok=m, pause=p, policy=policy), x), "%.3g") for x in METRICS]
                   for m in memories for p in pauses for policy in study.settings(result.cells, "policy")])
