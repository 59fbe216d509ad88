"""Cells of studies with made-up numbers, for make_result.py: by stem the axes, and the summary
and series of a cell in terms of them."""

import itertools
import json

import made_up_machine
import made_up_splitwise
import made_up_topo
import numpy as np

MATRICES = ["llama-160m/qkv 2304x768", "sheared-llama-1.3b/qkv 6144x2048"]
POLICIES = ["sandwich", "sandwich_paper", "roller", "roller_topk", "mikpoly", "dietcode", "ansor", "oracle",
            "default"]
BMS, BNS, BKS = [16, 32, 64], [96, 144], [288, 576]


def block_thread(rng, dealing, **_):
    sides = np.array(list(itertools.product(BMS, BNS, BKS)), float).T
    summary = {"loss_frac": rng.uniform(0, 0.2), "bm_1": 64, "bn_1": 96, "bk_1": 576,
               "bm_n": 64, "bn_n": 144, "bk_n": 576}
    series = dict(zip(("bm", "bn", "bk"), sides))
    for k, peak in ("1", 200), ("n", 400):
        series["sweep_gflops_" + k] = peak * rng.uniform(0.5, 1, sides.shape[1])
    return summary, series


def block_growth(rng, **_):
    side = np.arange(4, 129, 4.0)
    rate = 190 * side / (side + 8)
    return ({"gflops_first": rate[0], "gflops_best": rate[-1], "growth": rate[-1] / rate[0],
             "knee": 64}, {"side": side, "gflops": rate})


def policies(rng, **_):
    summary = {"n_shapes": 5}
    for i, p in enumerate(POLICIES):
        summary.update({"regret_" + p: 0.02 * i - 0.01, "vs_ansor_" + p: 1.1 - 0.02 * i, "measurements_" + p: 10.0 ** (6 - i) // 10,
                        "tuning_s_" + p: 0.0 if p == "default" else rng.uniform(0.1, 20),
                        "tuning_wall_s_" + p: 21.0, "speedup_" + p: rng.uniform(0.98, 1.1),
                        "gflops_" + p: rng.uniform(200, 300)})
    m = np.arange(1, 41.0)
    return summary, {"m": m, **{"s_" + p: 1e-5 * m * rng.uniform(0.9, 1.1, len(m)) for p in POLICIES}}


def tuner_regret(rng, tuner, **_):
    r = 0.02 if "sandwich" in tuner else 0.05
    return ({**{"regret_%d" % n: r + rng.uniform(0, 20 / (n + 30)) for n in (0, 30, 100, 300, 1000, 3000, 10000, 30000)},
             **{"regret_%ds" % n: r + rng.uniform(0, 0.4 / n) for n in (1, 3, 10, 30, 100, 300)},
             "regret_chosen": r, "n_measurements": rng.uniform(300, 10000), "tuning_s": rng.uniform(1, 100)}, {})


def window(rng, sigma, freeze, **_):
    ttft = 90 * rng.uniform(0.95, 1.05)
    return ({"tuning_s": sigma * rng.uniform(1, 1.3), "n_measurements": 40 * sigma, "n_frozen": 60 - freeze,
             "ttft_ms": ttft, "ttft_ms_default": 95, "ttft_gain": 95 / ttft, "tok_s": 60,
             "tok_s_default": 58}, {"prefill_s": 1e-3 * ttft * rng.normal(1.02, 0.01, 15)})


def plan_search(rng, model, **_):
    summary = {n: rng.uniform(1, 9) for n in "search_s n_trees decode_tok_s request_s".split()}
    summary.update(graph_tuning_s=rng.uniform(100, 900), n_measurements=900, prefill_ranks=2,
                   prefill_threads=24, decode_ranks=8, decode_threads=6)
    return summary, {}, {}, {"*": "simulated" if "@" in model else "measured_small", "search_s": "measured"}


def dual_ir(rng, weights, **_):
    ratio = rng.uniform(0.8, 1.1)
    return {"ratio": ratio, "generated_gflops": 90 * ratio, "handwritten_gflops": 90, "error": 2e-7}, {}


def kernel_raise(rng, kernel, **_):
    bits = "sD" not in kernel and "fma" not in kernel
    return {"ratio_vs_ref": rng.uniform(1, 20), "ratio_vs_handwritten": rng.uniform(0.1, 1.1), "keeps_bits": int(bits),
            "n_different": 0 if bits else 700, "n_results": 9000, "error": 0 if bits else 3e-6, "time_us": 12}, {}


def graph_rewrite(rng, norm, passes, **_):
    left = 0.8 ** (0 if passes == "none" else 1 + passes.count(","))
    return {"n_nodes": 1900 * left, "n_operators": 800 * left, "n_copies": 120, "activation_mb": 12000 * left,
            "copied_mb": 1100}, {}


def slicing(rng, n_tok=1, **_):
    summary = {n: rng.uniform(1, 4) for n in "speedup_whole_layers speedup_fiddler speedup_memory speedup_tokens".split()}
    summary.update({"speedup_fixed_%s" % k: rng.uniform(1, 4) for k in ("0", "25", "50", "75")})
    return {**summary, "step_ms": n_tok * rng.uniform(20, 200), "cg_frac": rng.uniform(0, 0.5), "gg_frac": rng.uniform(0, 0.5),
            "accel_tok_frac": rng.uniform(0, 1), "greedy_gap_frac": 0.001}, {}


def product_times(rng, n_threads, **_):
    tok = np.tile([1.0, 4, 16, 64, 256, 1024], 2)
    weights = np.repeat([1e6, 8e6], 6)
    s = weights * np.maximum(2 / 3e10, tok / 2e11) / n_threads
    names = ("line_start_us line_ns_per_kmac line_r2 line_one_tok_error_frac line_error_frac regimes_gbps regimes_gflops "
             "regimes_one_tok_error_frac regimes_error_frac")
    return ({n: rng.uniform(0.1, 90) for n in names.split()},
            {"weights": weights, "n_tok": tok, "seconds": s * rng.uniform(0.97, 1.03, 12), "line_s": 1.2 * s, "regimes_s": s})


def sliced_layer(rng, n_tok, link_gbps, **_):
    cg = np.linspace(0, 1, 9)
    s = 1e-3 * n_tok ** 0.3 * np.maximum(1 - cg, 8 * cg / link_gbps)
    names = ("best_ms best_speedup best_cg_frac planned_cg_frac error_frac within_10_frac error_no_contention_frac "
             "within_10_no_contention_frac cpu_contention link_contention")
    return ({n: rng.uniform(0, 1) for n in names.split()},
            {"cg": cg, "measured_s": s * rng.uniform(0.95, 1.1, 9), "predicted_s": s, "predicted_no_contention_s": 0.97 * s})


def slicing_policy(rng, n_tok, **_):
    return {"step_ms": n_tok * rng.uniform(20, 90), "speedup_scheinfer": rng.uniform(0.8, 4),
            "speedup_oracle": rng.uniform(1, 4), "cg_frac": rng.uniform(0, 0.5), "gg_frac": rng.uniform(0, 0.5)}, {}


def sliced_decode(rng, **_):
    v = rng.uniform(20, 90)
    return {"tokens_per_s": v, "predicted_tokens_per_s": 1.05 * v, "predicted_lo": 0.95 * v, "predicted_hi": 1.15 * v,
            "cg_frac": 0.2, "gg_frac": 0.25, "inside": 1.0, "error_frac": 0.05}, {}


def topk_tuned(rng, k, **_):
    n = min(k, 3)
    tries = rng.uniform(0.9, 1, 2 * n)
    return ({"spent_s": 80.0 * k, "n_configs": n, "request_s": tries.min(), "gain_frac": 0.02 * n,
             "gain_lo_frac": 0.01 * n - 0.02, "tuning_gain_frac": 0.03},
            {"try_s": tries, "best_of_s": tries[::2], "try_config": np.repeat(np.arange(n) + 1.0, 2),
             "try_tuned": np.tile([0.0, 1.0], n)})


def gemm_vendors(rng, m, type, weights, **_):
    roof = min(400, 33 * 2 * m / (4 if type == "f32" else 2))
    rates = {r: roof * rng.uniform(0.4, 0.9) for r in ("onednn", "openblas", "blis")}
    summary = {"gflops_" + r: v for r, v in rates.items()}
    summary.update({"gflops_libxsmm": np.nan, "gflops_best_baseline": max(rates.values()),
                    "error_best_baseline": 1.7e-3 if type == "bf16" else 1e-7})
    for suffix, gain in ("", 1), ("_relaxed", 1.5):
        rate = 0.85 * roof * gain if type == "bf16" or not suffix else np.nan
        summary.update({
            "gflops" + suffix: rate, "error" + suffix: 1e-7 if not suffix else 1.6e-3,
            "gflops_default" + suffix: 0.95 * rate, "gflops_tuned" + suffix: rate,
            "roof_frac" + suffix: rate / (roof * gain) if weights == "cold" else np.nan,
            "peak_frac" + suffix: rate / 400 / gain,
            "roof_gflops" + suffix: roof * gain if rate == rate else np.nan})
        for name, r in [("tuned_vs_best", max(rates.values())), *[("vs_" + k, v) for k, v in rates.items()]]:
            summary["ratio_" + name + suffix] = rate / r, 0.97 * rate / r, 1.02 * rate / r
    return summary, {}, {"notes.best_baseline": "onednn", "notes.particulars": "", "notes.particulars_relaxed":
                         "few rows: a micro-kernel takes 14"}


def phase_switch(rng, **_):
    names = "switch_us_p50 switch_us_mad repack_ms request_s decode_gbps".split()
    summary = {n: rng.uniform(1, 100) for n in names}
    summary.update(bytes_copied=0, request_s_prefill_plan=50, request_s_decode_plan=60)
    return summary, {"switch_us": rng.normal(3, 10, 25)}


def ablation(rng, model, batch, n_output_tok, **_):
    steps = "one_plan rank_shifted communication service_config kernel_tuning split_k".split()
    simulated = "@" in model
    known = steps[2:4] if simulated else steps
    summary = {w + "tok_s_" + s: rng.uniform(10, 20) if s in known else np.nan
               for w in ("raw_", "") for s in steps}
    series = {n.replace("tok_s", "request_s"): batch * n_output_tok / v * rng.normal(1.02, 0.01, 6)
              for n, v in summary.items() if not simulated}
    for step in ("communication", "service_config", "kernel_tuning", "split_k"):
        v = rng.uniform(0.9, 1.2) if step == "service_config" or not simulated else np.nan
        summary["gain_" + step] = v if simulated else (v, 0.97 * v, 1.03 * v)
    summary.update(prefill_ranks=1, prefill_threads=2, decode_ranks=2, decode_threads=1, tuning_s=40,
                   plan_s=9)
    return summary, series, {}, {"*": "simulated"} if simulated else {}


def speculation(rng, draft_tok, **_):
    summary = {"step_cost": 2, "breakeven_predicted": 40, "breakeven_measured": 42, "breakeven_error": 2,
               "prediction_error": 5, "n_different": 0}
    for p in (0, 20, 40, 60, 80, 100):
        says = sum((p / 100) ** i for i in range(draft_tok + 1)) / 2
        summary["acceptance_a%d" % p] = p / 100
        summary["predicted_a%d" % p] = says
        summary["speedup_a%d" % p] = says * rng.uniform(0.9, 1.1)
    return summary, {}


def long_context(rng, kv_type, n_ctx_tok, **_):
    bytes_per_tok = {"bf16": 2, "q8": 1}[kv_type]
    return {"prefill_tok_s": 300 / (1 + n_ctx_tok / 2e4), "short_tok_s": 300,
            "prefill_over_short": 1 / (1 + n_ctx_tok / 2e4), "prefill_roof_frac": rng.uniform(0.6, 0.8),
            "attention_frac": n_ctx_tok / (n_ctx_tok + 2e4), "attention_gflops": 500,
            "attention_peak_frac": rng.uniform(0.5, 0.8),
            "decode_tok_s": 50 / (1 + bytes_per_tok * n_ctx_tok / 2e4), "decode_gbps": 50,
            "decode_read_gbps": 55, "decode_bandwidth_frac": rng.uniform(0.8, 0.95), "kv_bytes_frac": 0.4}, {}


def team_runtimes(rng, busy, **_):
    summary, series = {}, {}
    for part in "dispatch_us barrier_us prefill_tok_s decode_tok_s".split():
        for i, setting in enumerate("pthread openmp openmp_active openmp_passive".split()):
            rounds = (1 + i + busy) * rng.uniform(0.9, 1.1, 5)
            summary["%s_%s" % (part, setting)] = np.median(rounds)
            series["%s_%s_by_round" % (part, setting)] = rounds
    summary.update(dispatch_openmp_over_pthread=2, decode_openmp_over_pthread=0.9,
                   prefill_openmp_over_pthread=1, best_decode_openmp_over_pthread=0.95)
    return summary, series


def cold_start(rng, model, cache, **_):
    phases = {p + "_s": rng.uniform(0.02, 0.3) for p in "read pack wait kv rest prompt".split()}
    rounds = {"first_token_s_of_" + n: rng.uniform(0.5, 1.5, 5) for n in ("sandwich", "ik_llama.cpp")}
    summary = {**phases, "run_first_token_s": sum(phases.values()), "weights_gbps": 4, "ready_s": 0.6,
               "disk_frac": 0.99 if cache == "cold" else 0, "first_token_s": 0.7, "rival_first_token_s": 0.8,
               "first_token_over_rival": 0.9, "file_mb": 757}
    return summary, {**rounds, "run_first_token_s_by_round": rng.uniform(0.5, 0.7, 5)}


def engines(rng, model, **_):
    summary, names = {"read_gbps": 40, "peak_gflops": 900}, ["sandwich", "llama.cpp", "ik_llama.cpp"]
    points = ["p16", "p128", "p512", "p4096", "b1", "b4", "b8", "b16"]
    share = {n: rng.uniform(0.3, 1, len(points)) for n in names}
    share["llama.cpp"][3] = np.nan
    for i, p in enumerate(points):
        rival = np.nanmax([share[n][i] for n in names[1:]])
        summary.update({"tok_s_" + p: 100 * share["sandwich"][i], "rival_tok_s_" + p: 100 * rival,
                        "over_rival_" + p: share["sandwich"][i] / rival, "roof_tok_s_" + p: 100,
                        "detectable_frac_" + p: 0.05,
                        "roof_frac_" + p: share["sandwich"][i], "rival_roof_frac_" + p: rival})
    series = {"tok_s_of_" + n: 100 * v for n, v in share.items()}
    series.update({"error_of_" + n: [e] for n, e in zip(names, (0.02, 0.04, 0.021))})
    summary.update(over_rival=1.2, least_over_rival=0.8, n_behind=2, logit_error=0.02,
                   rival_logit_error=0.021, logit_error_over_rival=0.95)
    return summary, series


def accuracy_frontier(rng, **_):
    names = ["f32/exact/f32", "bf16/exact/f16", "bf16/relaxed/f16", "q8_0/a8/f16", "q4_k/a8/q8", "w4c/exact/f16",
             "w4c/a8/f16", "w4c/a8/f16@ref", "q8_0/a8/f16 again", "llama.cpp:q4_k flash attention"]
    series, n = {}, len(names)
    for name, v in (("goodput_rps", np.array([2, 4, 5, 7, 9, 5, 9.5, 6, 7.1, 8])), ("prefill_tok_s", np.full(n, 900.0)),
                    ("decode_tok_s", np.full(n, 90.0)), ("decode16_tok_s", np.full(n, 400.0)),
                    ("error", np.array([1e-5, 2e-3, 4e-3, 1e-2, 8e-2, 0.2, 0.21, 0.21, 1e-2, 8e-2])),
                    ("agree", np.linspace(1, 0.8, n)),
                    ("trained_error", np.array([1e-5, 2e-3, 4e-3, 1e-2, 8e-2, 0.1, 0.11, 0.11, 1e-2, np.nan])),
                    ("trained_agree", np.array([1, 1, 0.99, 0.98, 0.93, 0.9, 0.9, 0.9, 0.98, np.nan]))):
        series.update({name: v, name + "_lo": 0.97 * v, name + "_hi": 1.02 * v})
    series["frontier"] = np.array([1, 1, 1, 0, 1, -1, 1, -1, 0, -1.0])
    series["trained_frontier"] = np.append(series["frontier"][:-1], np.nan)
    summary = {m: rng.uniform(0.5, 2) for m in (
        "decode_w4_over_w8 goodput_a8_over_exact error_a8_over_exact trained_error_a8_over_exact goodput_kv8_over_kv16 "
        "error_kv8_over_kv16 trained_error_kv8_over_kv16 goodput_over_avx2 least_lead_w4a8 trained_agree_w16 "
        "trained_agree_w8 trained_agree_w4 trained_agree_loss n_on n_dominated trained_n_on trained_n_dominated "
        "n_variants n_absent n_twins_differ over_again decode_over_again detectable_frac").split()}
    return summary, series, {"notes.variants": ", ".join(names)}


def levers(rng, work, **_):
    e = {"elasticity_compute": 0.9 if work in ("fma", "prefill", "decode_16") else 0.1, "elasticity_time": 1.0}
    e.update(elasticity_bandwidth=1 - e["elasticity_compute"], elasticity_cache=0.02 * (work == "cache"))
    summary = {n: (v * rng.uniform(0.9, 1.1), v - 0.1, v + 0.1) for n, v in e.items()}
    summary.update(sum=0.95, rest=0.05, step_ms=7, step_gflops=100, step_gbps=20, elasticity_frequency=np.nan)
    return summary, {}


def neighbours(rng, threads, **_):
    loss = {"cpu": 0.0 if threads else 0.7, "bandwidth": 0.3, "cache": 0.1, "page_cache": 0.05}
    full = {"cpu": 0.5, "bandwidth": 9.0, "cache": 150.0, "page_cache": 90e3}
    summary = {"elasticity_bandwidth": np.nan if threads else 0.2}
    for thief, slope in loss.items():
        for s in (0, 25, 50, 100):
            left = np.exp(-slope * s / 100) * rng.uniform(0.98, 1.02)
            values = {"left": left, "tok_s": 400 * left, "itl_p95_ms": 20 / left, "attained": left, "goodput_rps": 20 * left,
                      "taken": 0.005 * s, "dose": full[thief] * s / 100}
            summary.update({"%s_%s_%d" % (m, thief, s): (v, 0.95 * v, 1.05 * v) for m, v in values.items()})
        summary.update({"slope_" + thief: (slope, slope - 0.05, slope + 0.05), "rises_" + thief: 1,
                        "predicted_" + thief: np.nan if threads else np.exp(-0.8 * slope)})
    return summary, {}


def allreduce(rng, bytes, ranks, **_):
    summary = {"slept_frac": 0.01, "gbps_by_size": bytes / 1e3, "by_size_over_best": 0.99,
               "rank_shifted_over_master_copy": 1.5, "ratio_p25": 1.4, "ratio_p75": 1.7}
    for name, us in ("master_copy", 0.9), ("rank_shifted", 0.6), ("symmetric", 0.3), ("by_size", 0.3):
        us = ranks * (us + bytes / 5e3) * rng.uniform(0.9, 1.1)
        summary.update({"us_" + name: us, "us_p25_" + name: 0.9 * us, "us_p75_" + name: 1.2 * us})
    return summary, {}, {"notes.by_size": "symmetric"}


def characterization(rng, phase, batch, **_):
    names = ("estimated_flop_per_byte estimated_gbps estimated_gflops estimated_bytes_per_tok "
             "estimated_cycles_per_tok sde_steps sde_tok sde_weight_bytes sde_kv_bytes sde_flop "
             "sde_wait_s page_faults context_switches task_clock_s ipc l3lpki dtlb_miss").split()
    summary = {n: rng.uniform(0.1, 100) for n in names}
    summary.update({n: np.nan for n in ("rar", "mclpki", "mcipki", "buspki")})
    lines = 2000.0 if phase == "prefill" else 18000.0
    summary.update(callgrind_lines_per_tok=lines if batch == 1 else np.nan,
                   callgrind_ll_misses_per_tok=1.08 * lines if batch == 1 else np.nan)
    return summary, {}


def batching(rng, batch, **_):
    roof = min(batch * 120.0, 800.0)
    summary = {"tokens_per_s": 0.8 * roof, "roof_tokens_per_s": roof, "batch_roof_frac": 0.8,
               "flop_per_byte": float(batch), "step_gbps": 30, "read_gbps": 33, "step_gflops": 40.0 * batch,
               "peak_gflops": 400, "sched_overhead_frac": 0.001, "sample_frac": 0.004, "linear_frac": 0.6,
               "head_frac": 0.15, "attn_frac": 0.1, "norm_rope_frac": 0.05}
    return summary, {}


def odma_replay(rng, alloc="odma", **_):
    names = ("tokens_per_step over_static utilization_inner utilization_outer overflow_frac "
             "migrated_frac extended_frac preempted_per_request recomputed_frac waited_frac").split()
    summary = {n: rng.uniform(0.1, 1) for n in names}
    summary.update(n_steps=900, n_epochs=4, n_requests=500, log_mae=0.5, log_mae_over_constant=0.8, within_frac=0.1,
                   kendall_tau=0.4, large_frac=0.02, utilization_end=0.6, recovery_requests=900,
                   utilization_after=0.5, utilization_ideal=0.7, alpha=0.5, predict_us=20, predict_frac=1e-5,
                   utilization_gain=0.2, reserved_least_frac=0.7, reserved_most_frac=0.9)
    for name in "safe_frac", "bucket_accuracy_frac":
        summary[name] = np.nan if alloc in ("static", "paged") else rng.uniform(0.5, 1)
    series = {n + "_over_time": rng.uniform(0.3, 0.9, 20)
              for n in ("utilization_inner", "utilization_outer", "tokens_per_step")}
    return summary, dict(series, step=np.arange(20.0))


def kv_serving(rng, **_):
    allocs = ("static", "s3", "odma", "paged")
    names = ("tps utilization utilization_outer tokens_per_step overflow_frac preempted_per_request "
             "recomputed_frac migrated_frac alloc_frac migrate_frac alloc_per_s").split()
    summary = {"%s_%s" % (n, a): rng.uniform(0.1, 1) for n in names for a in allocs}
    summary.update({"tps_odma_over_" + a: rng.uniform(0.9, 1.5) for a in ("static", "s3", "paged")})
    summary.update(utilization_gain=0.2, predict_frac=1e-6, max_tok=208, kv_budget_mib=60)
    return summary, {"%s_over_time_%s" % (n, a): rng.uniform(0.3, 0.9, 20)
                     for n in ("utilization", "utilization_outer") for a in allocs}


def paged_attention(rng, pages, order, group, **_):
    tok = 2.0 ** np.arange(4, 10)
    ratio = 1 + (0.1 if order == "sequence" else 5 if pages == "small" else 3) / tok / group
    summary = {"paged%d_over_contiguous" % t: (r, r - 0.01, r + 0.01) for t, r in zip(tok, ratio)}
    summary.update(contiguous_ms=18, contiguous_gbps=30, sequential_gbps=33, random_frac_4k=0.8,
                   kv_mb=512, n_seqs=64, alloc_ops_per_s=3e7, alloc_step_frac=1e-5)
    size = 2.0 ** np.arange(6, 21, 2)
    series = {"block_tok": tok, "over_contiguous": ratio, "probe_bytes": size,
              "probe_random_gbps": 33 * size / (size + 500), "alloc_op_s": rng.uniform(2e-8, 5e-8, 4)}
    return summary, series, {"notes.allocators": "odma paged s3 static"}


def cluster_load(rng, rate=70, prompt_tok=0, **_):
    summary = {"%s_%s_%s" % (m, p, u): rng.uniform(0.5, 2) * rate / 70 for m in ("ttft", "tbt", "e2e")
               for p in ("p50", "p90", "p99") for u in ("ms", "slowdown")}
    for n in ("slo_use e2e_mean_ms max_gap_ms second_extra_ms n_requests n_excluded n_events preempted_per_request completed_rps rps_per_dollar few_tok_frac tok_30_frac few_tok_frac_prompt "
              "few_tok_frac_token mean_batch_tok_prompt mean_batch_tok_token busy_frac_prompt busy_frac_token "
              "mixed_frac moves_per_s stuck_frac events_per_s sim_s n_machines cost_per_hour power").split():
        summary[n] = rng.uniform(0, 1)
    tok = np.array([1.0, 10, 100, 1000])
    frac = np.linspace(0, 1, 4)
    start = np.cumsum(rng.uniform(0.05, 0.1, 20))
    return summary, {
        "batch_tok": tok, "time_frac_prompt": frac, "time_frac_token": frac ** 2, "step_machine": np.arange(20) % 2.0,
        "step_start": start, "step_end": start + 0.05, "step_prompt_tok": 500.0 * (np.arange(20) % 3 == 0),
        "step_sequences": 1.0 * (np.arange(20) % 3 > 0), "move_end": start[::3]}


def cluster_provision(rng, design="Splitwise-HH", **_):
    p, t = (v.ravel() for v in np.meshgrid(np.arange(1.0, 31), np.arange(1.0, 6)))
    return ({"rate_rps": rng.uniform(50, 150), "n_prompt": 25 + rng.integers(4), "n_token": 3, "n_machines": 30,
             "cost_per_hour": rng.uniform(700, 1600), "power": rng.uniform(30, 70), "n_evaluated": 60, "sim_s": 1,
             "grid_cost_per_hour": 1100, "cost_over_grid": 1, "grid_power": 50},
            {"tried_prompt": p, "tried_token": t, "tried_value": 1.0 * (p + 5 * t > 35)})


def host_variance(rng, numbers="card", **_):
    levels = "kind machine time order rest".split()
    share = rng.dirichlet(np.ones(5))
    summary = {"share_" + n: v for n, v in zip(levels, share)}
    summary.update({"sd_%s_frac" % n: v for n, v in zip(levels, share)})
    for count, most in (("rounds", 2000), ("runs", 900), ("hosts", 4000)):
        summary.update({"%s_%d" % (count, e): float(int(2 + most / e ** 2)) for e in (2, 5, 10, 27)})
    summary.update(planted_error_frac=0.05, n_series=30, n_values=400, n_kinds=5, n_machines=9, n_claims=100, n_claims_one_kind=80)
    return summary, {}


def grammar_cost(rng, schema="flat", **_):
    us = {"flat": 20, "nested": 25, "large": 60, "texts": 90}.get(schema, 30) * rng.uniform(0.8, 1.2)
    return ({"tpot_ms": 6.5, "cost_us": us, "cost_new_us": 2 * us, "cost_frac": us / 6500, "cost_new_frac": us / 3250,
             "worst_us": 6 * us, "worst_new_us": 9 * us, "tpot_ratio": 1.01, "ratio_again": 1.002, "detectable_frac": 0.02,
             "compile_ms": rng.uniform(0.1, 3), "vocab_ms": 12, "allowed_frac": 0.4, "schema_kb": 1.5, "n_vocab": 32000}, {})


def prediction_calibration(rng, control="none", **_):
    share = {"none": 1.0, "halved": 0.8, "exchanged": 0.3}[control]
    summary = {"inside_%d" % n: share * n / 100 for n in (50, 80, 95)}
    summary.update({"half_%d" % n: float(rng.uniform(1, 2) * n) for n in (50, 80, 95)})
    summary.update({"scored_inside_%d" % n: n / 100 for n in (50, 80, 95)})
    summary.update(narrow_frac=0.4, n_headlines=600, n_experiments=50, n_experiments_two=42, n_machines=5, scored_records=8,
                   scored_headlines=90, scored_narrow_frac=0.6)
    return summary, {}


CLUSTER = {"design": ["Baseline-H100", "Splitwise-AA", "Splitwise-HHcap"], "rules": ["paper", "splitwise_sim"]}


# stem: how, axes in the order of the job
SLICING = {"model": ["llama-2-70b", "mixtral-8x7b", "qwen2-57b-a14b", "phi-moe"], "testbed": ["A", "B", "C"],
           "budget_gb": [12.0, 24.0], "n_tok": [1, 1024], "accel_tmacs": [0.0, 100.0]}
STUDIES = {
    "batching_policies": (batching, {"precision": ["exact", "relaxed"], "batch": [1, 4, 8, 16]}),
    "allreduce_bench": (allreduce, {"mode": ["threads", "processes"], "ranks": [2, 4],
                                    "bytes": [4, 1024, 65536, 4194304]}),
    "fig01_characterization": (characterization, {"phase": ["prefill", "decode"],
                                                  "batch": [1, 4, 16]}),
    "fig02a_block_thread": (block_thread, {"matrix": ["paper 1152x2304", "odd 1104x2304"],
                                           "dealing": ["slices", "m", "n", "k"]}),
    "fig02b_block_growth": (block_growth, {"along": ["m", "n"], "mr": [4, 8], "np": [1, 2]}),
    "fig07_gemm_vs_vendors": (gemm_vendors, {"matrix": MATRICES, "type": ["f32", "bf16"],
                                             "weights": ["cold", "warm"], "m": [1, 16, 128, 1024]}),
    "fig08_policies": (policies, {"seed": [1, 2, 3], "matrix": MATRICES}),
    "odma_fig04_throughput": (kv_serving, {"fit": ["alpaca", "sharegpt"], "budget_seqs": [4, 8],
                                           "clients": [24], "seed": [1, 2, 3]}),
    "odma_fig05_utilization": (kv_serving, {"fit": ["alpaca", "sharegpt"], "budget_seqs": [4, 8], "seed": [1, 2]}),
    "odma_ablation": (odma_replay, {"stream": ["sharegpt", "alpaca+sharegpt"], "seed": [1, 2],
                                    "change": ["none", "bounds=once", "alpha=2", "quantiles=0.5 0.9", "alloc=odma_paper",
                                               "paper=true;lengths=output;alloc=odma_paper;large_pool_frac=0.125;tau=0.8"]}),
    "odma_drift": (odma_replay, {"stream": ["alpaca+sharegpt", "sharegpt+alpaca"], "predictor": ["oracle", "learned"],
                                 "change": ["none", "bounds=once", "bounds=never", "calibrate=256"], "seed": [1, 2]}),
    "odma_fig03_accuracy": (odma_replay, {"stream": ["alpaca/alpaca_sample_dev.json",
                                                     "natural_questions/NQ-open.dev.jsonl",
                                                     "sharegpt/sharegpt_v3_sample_dev.json.gz", "sharegpt",
                                                     "alpaca+sharegpt"],
                                          "predictor": ["constant", "learned"], "alloc": ["s3", "odma", "odma_paper"],
                                          "paper": [False, True], "seed": [1, 2]}),
    "odma_fig03_frontier": (odma_replay, {"stream": ["alpaca/alpaca_sample_dev.json", "natural_questions/NQ-open.dev.jsonl"],
                                          "alloc": ["s3", "odma"], "max_tok": [0, 256], "change": [
                                              "n_buckets=2", "n_buckets=16", "n_buckets=10;overflow=0.05"]}),
    "odma_cluster": (odma_replay, {"stream": ["sharegpt", "alpaca+sharegpt"], "devices": ["16 8 8 4", "9 9 9 9"],
                                   "change": ["none", "route=in_turn", "alloc=static"], "seed": [1, 2]}),
    "odma_replay": (odma_replay, {"stream": ["alpaca", "alpaca+sharegpt"], "predictor": ["noisy", "oracle"],
                                  "alloc": ["static", "s3", "odma", "paged"], "budget_seqs": [8, 32]}),
    "odma_random_access": (paged_attention, {"pages": ["huge", "small"], "order": ["random", "sequence"],
                                             "head_dim": [64, 128], "group": [1, 4]}),
    "splitwise_fig12_provisioning": (cluster_provision, {"rules": CLUSTER["rules"], "target_rate": [70.0],
                                                         "seed": [1, 2]}),
    "splitwise_fig14_15_transfer": (cluster_load, {
        "design": ["Baseline-A100", "Baseline-H100", "Splitwise-AA", "Splitwise-HH"], "layer_wise_tok": [1 << 30, 0, 512],
        "prompt_tok": [0, 512, 1500]}),
    "splitwise_fig18_isopower_isocost": (cluster_provision, {**CLUSTER, "limit": ["power", "cost", "printed"], "limit_h100": [40],
                                                             "seed": [1, 2]}),
    "splitwise_fig19_isothroughput": (cluster_provision, {**CLUSTER, "goal": ["power", "cost"], "target_rate": [70.0],
                                                          "seed": [1, 2]}),
    "splitwise_fig20_robustness": (cluster_provision, {
        **CLUSTER, "model": ["bloom-176b", "llama2-70b"], "sized_for": ["conversation", "coding"], "seed": [1, 2]}),
    "grammar_cost": (grammar_cost, {"model": ["a-bf16.gguf", "b-q4_0.gguf"], "schema": ["flat", "nested", "large", "texts"]}),
    "host_variance": (host_variance, {"numbers": ["card", "times", "ratios"], "values": ["published", "planted", "shuffled"]}),
    "prediction_calibration": (prediction_calibration, {
        "predictor": ["narrowest", "records", "roof", "unit"], "machine": ["known", "new"], "numbers": ["seen", "all"],
        "pool": ["unit", "evidence", "all"], "control": ["none", "halved", "exchanged"]}),
    "splitwise_batch_jobs": (cluster_load, {**CLUSTER, "rate": [300.0], "seed": [1, 2]}),
    "splitwise_quirks": (cluster_provision, {
        "design": ["Baseline-A100", "Baseline-H100", "Splitwise-AA", "Splitwise-HA", "Splitwise-HHcap"],
        "rules": CLUSTER["rules"], "toggle": ["none", "flat_token_time", "return_when_idle"], "seed": [1, 2]}),
    "splitwise_gantt": (cluster_load, {"design": ["Baseline-H100", "Splitwise-HH"], "layer_wise_tok": [1 << 30, 512]}),
    "splitwise_simulator_speed": (cluster_load, {"trace": ["conversation", "coding"], "rules": CLUSTER["rules"]}),
    "sandwich_dual_ir": (dual_ir, {"vectors": ["widest", "256_bit"], "weights": ["cold", "warm"], "matrix": MATRICES,
                                   "m": [1, 16, 64]}),
    "sandwich_kernel_raise": (kernel_raise, {"vectors": ["widest", "256_bit"], "kernel": [
        "gemm_f32", "gemm_f32 uM=6,uN=1,vN=8", "attn_f32 vD=8", "attn_f32 vD=8,sD=8", "rope", "rope vI=8,uI=2"]}),
    "mnn_graph_rewrite": (graph_rewrite, {"norm": ["division", "layer_norm"],
                                          "passes": ["none", "fold", "fold,merge", "all"]}),
    "scheinfer_fig06_fiddler": (slicing, SLICING),
    "scheinfer_fig07_llamacpp": (slicing, SLICING),
    "scheinfer_cpu_half": (product_times, {"type": ["bf16", "q4_0"], "n_threads": [1, 2]}),
    "scheinfer_overlap": (sliced_layer, {"type": ["bf16", "q4_0"], "n_tok": [1, 16], "link_gbps": [2.0, 8.0], "gg_frac": [0.0]}),
    "scheinfer_policies": (slicing_policy, {
        "policy": ["scheinfer", "whole_layers", "fiddler", "ktransformers", "fit", "pshard", "oracle"],
        "model": ["llama-2-70b", "mixtral-8x7b"], "budget_gb": [12.0, 24.0], "n_tok": [1, 8, 1024],
        "accel_tmacs": [0.0, 100.0]}),
    "scheinfer_predicted": (sliced_decode, {"model": ["build/models/llama-160m-bf16.gguf", "build/models/sheared-llama-1.3b-q4_0.gguf"],
                                            "link_gbps": [4.0, 8.0]}),
    "scheinfer_threads": (slicing, {"model": ["mixtral-8x7b"], "testbed": ["A", "B"], "cpu_factor": [1, 2, 4, 8]}),
    "scheinfer_slicing_rates": (slicing, {"model": ["llama-2-70b", "mixtral-8x7b"], "cpu_factor": [0.5, 1, 2, 4, 8]}),
    "scheinfer_memory": (slicing, {"model": ["mixtral-8x7b", "llama-2-70b"], "budget_gb": [12.0, 24.0, 32.0]}),
    "scheinfer_tokens": (slicing, {"model": ["mixtral-8x7b", "llama-2-70b"], "budget_gb": [12.0, 24.0],
                                   "n_tok": [64, 256, 1024], "accel_tmacs": [0.0, 100.0]}),
    "splitwise_fig16_latency_load": (cluster_load, {**CLUSTER, "trace": ["conversation", "coding"],
                                                    "rate": [30.0, 70.0, 110.0], "seed": [1, 2]}),
    "splitwise_fig17_batched_tokens": (cluster_load, {**CLUSTER, "rate": [70.0, 130.0], "seed": [1, 2]}),
    "tab02_topk_tuned": (topk_tuned, {"k": [1, 2, 4]}),
    "tuner_regret": (tuner_regret, {
        "machine": ["plain", "noisy"], "seed": [1, 2, 3],
        "tuner": ["sandwich", "sandwich_again", "sandwich_3", "sandwich_paper", "sandwich_paper_3", "roller", "roller_topk", "ansor",
                  "ansor_100", "dietcode", "mikpoly", "random", "random_100", "oracle"]}),
    "tab03_window": (window, {"sigma": [5, 10, 15, 20], "freeze": [5, 20], "seed": [1, 2, 3]}),
    "tab04_graph_tuning": (plan_search, {"model": ["a-bf16.gguf", "llama-160m:f32@kunpeng920x4"],
                                         "fit": ["sharegpt", "lmsys"]}),
    "fig08b_tuning_cost": (policies, {"matrix": MATRICES}),
    "tab04_tuning_cost": (policies, {"matrix": MATRICES, "policies": [" ".join(POLICIES)]}),
    "tab01_ablation": (ablation, {"model": ["a-bf16.gguf", "llama-3.2-3b@xeon8272clx2"],
                                  "batch": [1, 8], "n_output_tok": [32],
                                  "policy": ["sandwich", "sandwich_paper"]}),
    "speculation_breakeven": (speculation, {
        "model": ["a-bf16.gguf", "a-q4_0.gguf"], "draft_tok": [2, 4, 8], "draft_cost": [0.0, 0.15]}),
    "long_context": (long_context, {"kv_type": ["bf16", "q8"], "n_ctx_tok": [512, 4096, 16384]}),
    "engines_roofline": (engines, {"model": ["build/models/a-bf16.gguf", "build/models/a-q4_0.gguf"]}),
    "engines_moe": (engines, {"model": ["build/models/a-bf16.gguf"]}),
    "accuracy_frontier": (accuracy_frontier, {"model": ["build/models/a-{weights}.gguf"]}),
    "levers": (levers, {"work": ["fma", "stream", "cache", "prefill", "decode_1", "decode_4", "decode_8", "decode_16",
                                 "serving_8"]}),
    "neighbours": (neighbours, {"policy": ["continuous", "chunked"], "threads": [0, 1]}),
    "team_runtimes": (team_runtimes, {"busy": [0, 2]}),
    "cold_start": (cold_start, {"model": ["build/models/a-bf16.gguf", "build/models/a-q4_0.gguf"],
                                "cache": ["warm", "cold"]}),
    "phase_switch": (phase_switch, {"model": ["a-bf16.gguf"], "decode_ranks": [1, 2],
                                    "decode_threads": [1]}),
    **made_up_machine.STUDIES,
    **made_up_topo.STUDIES,
    **made_up_splitwise.STUDIES,
}


def describe(cell, more):
    """Add to what attributes_json says of a cell."""
    doc = json.loads(cell["attributes_json"][()]) if "attributes_json" in cell else {}
    if doc:
        del cell["attributes_json"]
    cell["attributes_json"] = json.dumps({**doc, **more}, default=float)


def write(f, rng, stem, missing):
    how, axes = STUDIES[stem]
    for i, values in enumerate(itertools.product(*axes.values())):
        at = dict(zip(axes, values))
        cell = f.create_group("cells/%04d" % i)
        # kinds: of evidence by name, "*" of all others; without any, the record's
        summary, series, attrs, kinds = (*how(rng, **at), {}, {})[:4]
        study = {"study." + k: v for k, v in at.items()}
        describe(cell, {"state": "done", **study, **attrs, "axes": study})
        for name, value in summary.items():
            value, *interval = value if isinstance(value, tuple) else (value,)  # (value, lo, hi)
            cell["summary/" + name] = np.nan if missing else float(value)
            if interval and not missing:
                cell["summary/" + name].attrs.update(lo=float(interval[0]), hi=float(interval[1]))
            cell["summary/" + name].attrs["why"] = "made up" if missing else ""
        for name, values in series.items():
            if missing and how is made_up_topo.topo_tree:
                continue  # half a tree is none
            cell["series/" + name] = values * np.nan if missing and "gflops" in name else values
        for part in "summary", "series":
            for name, d in cell[part].items() if kinds and part in cell else ():
                d.attrs["evidence"] = kinds.get(name, kinds.get("*", "measured_small"))
