"""Cells of the studies of core selection with made-up numbers, as made_up_studies.py has them."""

import numpy as np

MACHINES = ["kunpeng920x4", "xeon6230x2"]


def topo_search(rng, **_):
    names = ("step_s tokens_per_s speedup_vs_all_cores group_s search_s measuring_s n_measurements n_configs "
             "n_grouped n_trees n_merged n_pruned n_removes").split()
    summary = {n: rng.uniform(1, 100) for n in names}
    summary.update(gap_frac=rng.uniform(-0.001, 0.1), complete=1, n_ranks=8, n_threads=18, n_pus=192,
                   kept_frac=0.75, latent=1)
    return summary, {}, {"notes.shape": "4 package x 2 node x 24 PU", "notes.rates": "assumed"}


def topo_hidden_structure(rng, machine, **_):
    kept = np.nan if machine == "tiled:0" else rng.uniform(0.5, 1)
    paper = ["_paper%s%s" % (margin, patience) for margin in ("", "_margin_2")
             for patience in ("", "_patience_1", "_patience_3", "_patience_10", "_patience_30")]
    ways = {"within_2pct" + w: float(rng.uniform() < 0.6) for w in
            ["", "_trees", "_no_group", "_random", *paper, "_all_cores", "_one_rank_per_node"]}
    ways.update(("n_measurements" + w, rng.uniform(300, 3000)) for w in ["", *paper])
    return ({"gap_frac": rng.uniform(0, 0.03), "gap_of_trees_frac": rng.uniform(0, 0.01), "latent": 0,
             "kept_frac": kept, "best_kept_frac": kept, "gain_of_groups": rng.uniform(0, 0.1), **ways}, {})


def search_regret(rng, search, **_):
    return ({**{"regret_%d" % n: rng.uniform(0, 10 / n) for n in (10, 30, 100, 300, 1000)},
             "regret_chosen": rng.uniform(0, 0.02), "within_2pct": float(rng.uniform() < 0.6),
             "n_measurements": rng.uniform(300, 1000)}, {})


def topo_plan(rng, **_):
    return ({"request_s": (rng.uniform(9, 11), 9, 11),
             "p_best": rng.uniform(0, 1), "prefill_s": 0.4, "decode_s": rng.uniform(0.03, 0.05),
             "stream_gbps": rng.uniform(60, 66), "n_ranks": 8, "n_threads": 18}, {})


def topo_tree(rng, steps="", **_):
    arity, levels = [2, 6, 0], "machine|package|core+PU"
    if steps:
        arity, levels = [2, 2, 3, 0], "machine|package|group|core+PU"
    original = list(arity)
    if "remove" in steps:
        arity[2], original[2] = 2, 3
    spans = np.cumprod(([1] + arity[:-1][::-1]))[::-1]
    series = {"arity": arity, "original_arity": original, "section_ranks": spans[0] / spans,
              "section_threads": spans, "attention_imbalance": [1.0] * (len(arity) - 1) + [0.0],
              "ffn_imbalance": [1.0] * (len(arity) - 1) + [0.0],
              "allowed_strictly": [1.0] * (len(arity) - 1) + [0.0], "cpus": range(spans[0])}
    return ({"n_levels": len(arity), "n_pus": spans[0], "n_grouped": 8, "n_removes": 12},
            {k: np.array(list(v), float) for k, v in series.items()}, {"notes.levels": levels})


STEPS = ["", "group(3,1,2)", "group(3,1,2) remove(1,3)"]
STUDIES = {
    "fig03a_core_removal": (topo_plan, {"model": ["a", "b"], "plan": ["numa", "sc_rm group(4,1,3)",
                                                                      "fast@0,2,4,6"],
                                         "equal_nodes": [False, True]}),
    "fig03b_tp_degree": (topo_plan, {"machine": MACHINES, "plan": ["all", "no_smt remove(1,4)"],
                                     "ranks": [1, 2, 4, 8]}),
    "fig05_transformations": (topo_tree, {"steps": STEPS}),
    "fig06_cross_sections": (topo_tree, {"model": ["a", "b"], "steps": STEPS[2:]}),
    "tab02_topk": (topo_search, {"k": [5, 10], "seed": [1, 2]}),
    "tab02_ablation": (topo_search, {"machine": MACHINES, "method": ["whole", "no_group"],
                                     "seed": [1, 2]}),
    "topo_hidden_truth": (topo_hidden_structure, {
        "machine": ["tiled:0", "tiled:0.4", "slow_node:0.4", "kunpeng920x4"], "seed": [1, 2, 3]}),
    "search_regret": (search_regret, {
        "machine": ["tiled:0", "tiled:0.3", "noisy:0.4", "unequal:0.4", "crossed:0.4", "slow_node:0.4"],
        "seed": [1, 2], "search": ["search", "trees", "paper", "paper_patience_10", "random_trees", "exhaustive",
                                   "random", "annealing", "annealing_cool",
                                   "tpe"]}),
    "topo_atlas": (topo_search, {"machine": MACHINES + ["real.xml"]}),
}
