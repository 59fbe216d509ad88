"""Cells of the studies about Splitwise with made-up numbers, as made_up_studies.py has them."""

import numpy as np

SOURCES = ["llama2-70b:a100-80gb:8", "llama2-70b:h100-80gb:8"]
ENGINE = {"model": ["build/models/llama-160m-bf16.gguf"]}
TRACES = ["conversation", "coding"]


def step_profile(rng, source, **_):
    """A grid of batches and contexts; on GPUs with power."""
    own = source == "engine"
    batch, prompt = (np.ravel(v) for v in np.meshgrid([1.0, 2, 4, 8, 64], [32.0, 256, 2048]))
    series = {"batch_size": batch, "prompt_size": prompt, "token_size": 0 * batch + 128,
              "prompt_time": (5 if own else 0.07) * batch * prompt + 20,
              "token_time": 30 * (1 + batch / (8 if own else 64)) * (1 + prompt / 20000),
              "average_power": 0 * batch + (np.nan if own else 0.6),
              "peak_power": np.nan * batch if own else np.minimum(1, 0.4 + prompt / 3000),
              "fitted": np.where(batch == 4, 0.0, 1.0),
              "prompt_ratios": rng.normal(1, 0.02, 4), "token_ratios": rng.normal(1, 0.02, 4)}
    series.update({"e2e_ms_" + t: np.exp(rng.normal(8, 1, 300)) for t in TRACES})
    names = ("prompt_linear_r2 prompt_over_linear prompt_as_tokens prompt_best_tok_ms prompt_after_best "
             "single_best_tok_ms single_after_best token_gain token_slowdown prompt_ratio prompt_ratio_min "
             "prompt_ratio_max token_ratio token_ratio_min token_ratio_max host_error host_mape round_spread").split()
    names += [m + t for t in TRACES for m in ("token_phase_frac_", "token_bound_frac_")]
    summary = {n: rng.uniform(0.8, 1) for n in names}
    summary.update({"%s_p%d_%s" % (m, q, t): rng.uniform(1, 9) for t in TRACES for q in (50, 90)
                    for m in ("ttft", "tbt", "e2e", "cost", "energy")})
    summary.update(token_best_tok_s=900, token_best_at_batch=64, token_knee_batch=8, single_best_at_tok=2048,
                   prompt_best_at_tok=2048, power_prompt_growth=2, power_token_growth=1.05)
    kinds = {"*": "measured_small" if own else "published"}
    return summary, series, {}, {**kinds, **{n: "model" for n in summary if n.endswith(tuple(TRACES))}}


def perf_models(rng, **_):
    summary = {"%s_%s_mape" % (a, b): rng.uniform(1, 9) for a in ("rows", "points", "step", "inner")
               for b in ("prompt", "token")}
    summary.update({n + "_mape": rng.uniform(1, 90)
                    for n in ("batch_prompt", "long_prompt", "batch_token", "context_token", "rows", "points")})
    summary.update(n_not_one_batch=1, repeat_spread=1)
    return summary, {}, {}, {"*": "model"}


def trace_lengths(rng, **_):
    summary = {"%s_%s" % (w, m): rng.uniform(0.1, 0.5) if m == "ks" else rng.uniform(100, 1e3)
               for w in ("prompt", "output") for m in ("p50_tok", "p90_tok", "p99_tok", "ks")}
    summary.update(rank_correlation=0.1, n_requests=900)
    return summary, {w + "_tok": np.sort(np.exp(rng.normal(6, 1, 200))) for w in ("prompt", "output")}


def kv_memory(rng, what, **_):
    tok = np.arange(1, 17) * 256.0
    names = ("kv_bytes_per_tok rss_bytes_per_tok rss_over_formula rss_linear_r2 used_over_formula weights_gb "
             "tokens_as_weights").split()
    summary = {**{n: rng.uniform(0.9, 1.1) for n in names}, "batch_that_fits": np.nan if what == "engine" else 62}
    series = {"batch_tok": tok, "formula_bytes": 3e8 + 7e4 * tok}
    if what == "engine":
        series["rss_bytes"] = 3.1e8 + 7.2e4 * tok
    return summary, series, {}, {"*": "measured_small" if what == "engine" else "model", "formula_bytes": "model"}


def active_tokens(rng, **_):
    names = "tok_1_frac tok_20_frac tok_100_frac prompt_frac mean_tok busy_frac".split()
    tok = np.array([1.0, 3, 10, 20, 50, 100, 500, 2048, 8192])
    return {n: rng.uniform(0.2, 0.9) for n in names}, {"active_tok": tok, "time_frac": np.linspace(0.2, 1, 9)}


def kv_transfer(rng, x_over_c, **_):
    tok = np.array([16.0, 64, 256])
    names = ("alpha_serial alpha_layer form_error_serial form_error_layer form_error_max visible_serial visible_layer "
             "visible_layer_frac interference second_serial second_layer e2e_serial e2e_layer x_layer c_layer "
             "link_speed").split()
    series = {"prompt_tok": tok, "x_ms": x_over_c * tok / 10, "c_ms": tok / 10}
    for way, k in ("alone", 0), ("serial", 12), ("layer", 1):
        series.update({"%s_%s_ms" % (n, way): tok + 1 for n in ("first", "second_gap", "later_gap", "e2e")})
        if k:
            series["form_%s_ms" % way] = 0.3 + k * series["x_ms"]
            series["visible_%s_ms" % way] = series["form_%s_ms" % way] * rng.uniform(0.95, 1.05, 3)
    return {**{n: rng.uniform(1, 9) for n in names}, "crossing_tok": 64, "crossing_form_tok": 16}, series


def roles_vs_sim(rng, machines, **_):
    summary, series = {}, {}
    for key, scale in ("ttft", 80 * len(machines)), ("tpot", 20):
        for kind in "real", "sim":
            series["%s_%s" % (key, kind)] = scale * np.exp(rng.normal(0, 0.4, 60))
        for q in "p50", "p90":
            ratio = rng.uniform(0.95, 1.05)
            summary.update({"%s_%s_real_ms" % (key, q): scale, "%s_%s_sim_ms" % (key, q): scale * ratio,
                            "%s_%s_ratio" % (key, q): (ratio, 0.97 * ratio, 1.03 * ratio),
                            "%s_%s_queue_ratio" % (key, q): (1.01, 0.98, 1.04)})
    summary.update(prompt_in_place=(1.1, 1.05, 1.15), token_in_place=(1.02, 0.98, 1.06))
    kinds = {n: "simulated" for n in (*summary, *series) if "sim" in n}
    return summary, series, {}, {"*": "measured_small", **kinds}


def split_simulated(rng, nodes, system, tpot_factor, **_):
    names = "prompt_ms token_ms ttft_kept tpot_kept slowdown".split()
    summary = {n: rng.uniform(0.8, 1) for n in names}
    summary.update(prompt_cores=24 * nodes, token_cores=18 * nodes, goodput_rps=nodes * tpot_factor * rng.uniform(0.5, 1), over_switch=(1.1, 0.9, 1.2))
    return summary, {"goodputs": rng.uniform(1, 2, 5)}, {}, {"*": "simulated"}


def plans_simulated(rng, method, **_):
    summary = {n: rng.uniform(0.8, 1) for n in "slo_scale_p90 goodput_rps ttft_ms tpot_ms".split()}
    summary.update(prefill_ranks=1, prefill_threads=52, decode_ranks=2, decode_threads=20,
                   over_one_plan=(2.1, 1.9, 2.3) if method != "one_plan" else (1, 1, 1))
    return summary, {"goodputs": rng.uniform(1, 2, 5)}, {}, {"*": "simulated"}


def kv_faults(rng, checksums, **_):
    faults = ["unknown_id", "partial_layer", "peer_killed", "corrupted", "slow"]
    series = {}
    for f in faults:
        series["n_" + f] = rng.integers(20, 40, 4) * np.array([1, 1, 1, np.nan if f == "slow" else 1])
        series["silent_" + f] = np.array([0, 0 if checksums or f != "corrupted" else 20, 0, 0])
        series["worst_ms_" + f] = rng.uniform(1, 90, 4) * np.array([1, 1, np.nan if f == "slow" else 1, 1])
    summary = {"n_faults": 200, "n_silent": 0 if checksums else 20, "n_lost": 0, "named_frac": 0.9, "named_p50": 2,
               "named_p99": 80, "named_max": 120}
    return summary, series, {}, {"*": "measured_small"}


def kv_transport(rng, way, checksums, **_):
    rate = 200 if way == "map" and not checksums else rng.uniform(0.5, 2)
    names = "sender_cpu_per_gb receiver_cpu_per_gb checksum_per_gb paced_reached paced_cpu_frac".split()
    summary = {n: rng.uniform(0.1, 1) for n in names}
    summary.update(gb_per_s=rate, cpu_per_gb=rng.uniform(0.2, 3), pieces_per_gb=500, neighbour_alone=9, neighbour_with=11,
                   neighbour_slowdown=22)
    return summary, {n: [summary[n]] * 3 for n in summary}, {}, {"*": "measured_small"}


def fleet(rng, role, provision, **_):
    saved = {"none": 0, "prompt": 1, "token": 3, "both": 3, "slow": 0}[role]
    summary = {"n_prompt": 1, "n_token": 5 - saved, "n_cpu": 16 * (role != "none"), "attained_frac": 0.99,
               "ttft_p99_ms": 600, "tpot_p99_ms": 110, "usd_mtok": rng.uniform(8, 14), "gpu_usd_mtok": 12 - 2 * saved,
               "kwh_mtok": rng.uniform(2, 4), "drained_frac": 0.2 * (provision != "peak"), "restarted_frac": 1e-3,
               "breakeven_usd_h": 2.4 * saved if role != "none" and provision == "peak" else np.nan,
               "cpu_speed": 0.4 if role != "none" else np.nan, "cpu_prompt_frac": 0.1, "cpu_token_frac": 0.3}
    n = 1e5 * (1 + 0.6 * np.cos(2 * np.pi * (np.arange(24) - 15) / 24))
    return summary, {"hour_requests": n, "hour_attained": 0 * n + 0.99}


def agent_sessions(rng, policy, pause, **_):
    reuses = {"static": 0, "paged": 0}.get(policy, 1)
    return ({"goodput_per_h": reuses * rng.uniform(10, 30), "goodput_agents": 20 * reuses,
             "over_lru": rng.uniform(0.8, 1.3) if reuses else 0.0, "attained_frac": 0.9, "sessions_per_h": rng.uniform(8, 20),
             "ttft_first_p50_ms": rng.uniform(500, 2000), "ttft_later_p50_ms": rng.uniform(300, 3000),
             "ttft_later_p95_ms": rng.uniform(5e3, 2e4), "recomputed_frac": rng.uniform(0.1, 0.9), "used_frac": 0.3,
             "kept_frac": 0.3 * reuses}, {})


STUDIES = {
    "agent_sessions": (agent_sessions, {"pause": [0.0, 0.5, 5.2, 60.0], "memory_tok": [524288, 1048576], "seed": [1, 2],
                                        "policy": ["lru", "paged", "odma_session", "lru_again", "lru_ended",
                                                   "expected_return", "oracle"]}),
    "fleet": (fleet, {"role": ["none", "prompt", "token", "both", "slow"], "provision": ["peak", "cost"],
                      "seed": [1, 2]}),
    "splitwise_faults": (kv_faults, {"transport": ["shm", "socket"], "checksums": [True, False]}),
    "splitwise_transport": (kv_transport, {"way": ["map", "shm", "mpi_put:openmpi"], "checksums": [True, False]}),
    "splitwise_fig14_transfer": (kv_transfer, {"x_over_c": [0.05, 0.1, 0.3, 1.0, 3.0]}),
    "splitwise_fig15_overhead": (kv_transfer, {"x_over_c": [0.05, 0.3, 1.0]}),
    "splitwise_sim_vs_real": (roles_vs_sim, {"machines": ["one", "two", "two+transfer"]}),
    "split_or_switch_simulated": (split_simulated, {
        "nodes": [2, 4], "system": ["split", "switch", "one_configuration", "mixed", "chunked"], "tpot_factor": [1.5, 3]}),
    "plans_simulated": (plans_simulated, {
        "machine": ["xeon8272clx2", "kunpeng920x4"], "model": ["llama-160m", "sheared-llama-1.3b"],
        "method": ["one_plan", "even_split", "vllmpp", "search"]}),
    "splitwise_fig04_active_tokens": (active_tokens, {"source": ["llama2-70b", "engine"], "trace": TRACES,
                                                      "seed": [1, 2]}),
    "splitwise_fig07_memory": (kv_memory, {"what": ["engine", "llama2-70b", "llama2-70b-mha", "bloom-176b"]}),
    "splitwise_fig03_cdf": (trace_lengths, {"trace": TRACES, "source": ["file", "fit"]}),
    "splitwise_host_profile": (step_profile, {"source": ["engine"], **ENGINE}),
    "splitwise_fig05_latency": (step_profile, {"source": ["engine"] + SOURCES, **ENGINE}),
    "splitwise_fig06_throughput": (step_profile, {"source": ["engine"] + SOURCES, **ENGINE}),
    "splitwise_fig08_power": (step_profile, {"source": SOURCES[:1], **ENGINE}),
    "splitwise_tab04_a100_h100": (step_profile, {"source": SOURCES + ["printed:a100", "printed:h100"], **ENGINE}),
    "splitwise_perf_models": (perf_models, {"source": SOURCES, "perf": ["table", "distserve"],
                                            "keep": ["all", "one_batch"]}),
}
