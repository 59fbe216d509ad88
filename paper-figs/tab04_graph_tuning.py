"""Sandwich Table 4, first half: what the search for cores costs."""

from lib import read, reference, study, style

STEM = "tab04_graph_tuning"
HEADER = ["machine", "model", "trace", "phase", "measurements", "measuring s", "search s",
          "trees", "ranks x threads", "tok/s", "paper: s"]
# As the paper's Table 4 names them; its costs are of both phases together.
MACHINES = {"kunpeng920x4": "Kunpeng 920", "epyc7h12x2-nps1": "EPYC 7H12",
            "xeon6230x2": "Xeon Gold 6230", "xeon6151x2": "Xeon Gold 6151"}
MODELS = {"llama-160m": "Llama-160M", "sheared-llama-1.3b": "Sheared-LLaMA-1.3B",
          "llama-3-8b": "Llama-3-8B"}


def printed(c):
    return reference.value(
        "sandwich", "Table 4", "graph tuning time", dataset=study.setting(c, "fit"),
        machine=MACHINES.get(study.setting(c, "machine")), model=MODELS.get(study.setting(c, "model")))


def row(c):
    return [study.setting(c, n) for n in ("machine", "model", "fit", "phase")] + [
        style.number(c.value("n_measurements")), style.short(c.value("measuring_s")),
        style.number(c.value("search_s"), "%.2f"), style.number(c.value("n_trees")),
        "%s x %s" % (style.number(c.value("n_ranks")), style.number(c.value("n_threads"))),
        style.short(c.value("tokens_per_s")), style.number(printed(c))]


result = read.latest(STEM)
table = [row(c) for c in result.cells]
fig, axes = style.panels(1)
study.draw_table(axes[0], HEADER, table)
style.save(fig, result, STEM, "What the search for cores costs; measuring s: on the simulated "
           "machine itself (Sandwich Table 4)")
study.write_table(STEM, HEADER, table)
