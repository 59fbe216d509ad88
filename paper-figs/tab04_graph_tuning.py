"""Sandwich Table 4, first half: what the search for cores costs, on this host and simulated."""

import os

from lib import read, reference, study, style

STEM = "tab04_graph_tuning"
HEADER = ["machine", "model", "trace", "evidence", "cost s", "measurements", "wall s here", "trees",
          "prefill", "decode", "decode tok/s", "paper: s"]
# As the paper's Table 4 names them.
MACHINES = {"kunpeng920x4": "Kunpeng 920", "epyc7h12x2-nps1": "EPYC 7H12",
            "xeon6230x2": "Xeon Gold 6230", "xeon6151x2": "Xeon Gold 6151"}
MODELS = {"llama-160m": "Llama-160M", "sheared-llama-1.3b": "Sheared-LLaMA-1.3B",
          "llama-3-8b": "Llama-3-8B"}


def target(c):
    """Machine, model."""
    model, _, machine = os.path.basename(str(study.setting(c, "model"))).partition("@")
    return machine or "this host", model.split(":")[0].removesuffix(".gguf").removesuffix("-bf16")


def row(c):
    machine, model = target(c)
    printed = reference.value(
        "sandwich", "Table 4", "graph tuning time", dataset=study.setting(c, "fit"),
        machine=MACHINES.get(machine), model=MODELS.get(model))
    return [machine, model, study.setting(c, "fit"), c.kind("graph_tuning_s").replace("_", " "),
            style.short(c.value("graph_tuning_s")), style.number(c.value("n_measurements")),
            style.number(c.value("search_s"), "%.1f"), style.number(c.value("n_trees"))] + [
        "%s x %s" % tuple(style.number(c.value("%s_%s" % (p, n))) for n in ("ranks", "threads"))
        for p in ("prefill", "decode")] + [
        style.short(c.value("decode_tok_s")), style.number(printed)]


result = read.latest(STEM)
table = [row(c) for c in result.cells]
fig, axes = style.panels(1)
study.draw_table(axes[0], HEADER, table)
style.save(fig, result, STEM, "What the search for cores costs, both phases; simulated: on that machine "
           "itself (Sandwich Table 4)")
study.write_table(STEM, HEADER, table)
