"""Cells of the studies of machines with made-up numbers, as made_up_studies.py has them."""

import numpy as np


TRUST = "perf instructions|1|trusted\npapi PAPI_L3_TCM|nan|unavailable"


def characterize(rng, **_):
    names = ("latency_ns latency_small_ns random_frac_4k random_frac_4k_huge handoff_ns_min handoff_ns_max "
             "barrier_ns allreduce_ns_4k fault_small_ns fault_huge_ns share_speed_min noise_compute_cv "
             "noise_read_cv steal_ns_per_s decode_gbps decode_read_gbps card_s").split()
    summary = {n: rng.uniform(1, 100) for n in names}
    summary.update(steal_ns_per_s=13407971, read_gbps_1t=18, read_gbps_all=33, peak_gflops_f32=400, peak_gflops_bf16=400,
                   peak_gflops_bf16_dot=200, peak_gflops_bf16_tile=1500, peak_gflops_fp16=np.nan,
                   peak_gops_int8=1600,
                   decode_bandwidth_frac=0.87, prefill_peak_frac=0.7, decode_gflops=28, prefill_gflops=280,
                   decode_flop_per_byte=1, prefill_flop_per_byte=500, events_trusted=np.nan,
                   events_unavailable=np.nan)
    size, block = 2.0 ** np.arange(14, 28), 2.0 ** np.arange(6, 21, 2)
    series = {"arity": [1, 2, 0], "original_arity": [1, 2, 0], "cpus": [0, 1], "threads": [1, 2],
              "read_gbps": [18, 33], "copy_gbps": [20, 36], "triad_gbps": [21, np.nan],
              "latency_bytes": size, "latency_huge_ns": size ** 0.3, "latency_small_ns": size ** 0.32,
              "block_bytes": block, "random_huge_gbps": 33 * block / (block + 500),
              "random_small_gbps": 33 * block / (block + 4000), "sequential_small_gbps": 33 + 0 * block}
    return (summary, {k: np.array(v, float) for k, v in series.items()},
            {"notes.levels": "machine|L3|core+PU", "notes.cpu": "a CPU", "notes.trust_lines": TRUST})


def mnn_roofline(rng, **_):
    names = ("linear_prefill_gflop linear_decode_gflop linear_prefill_gb linear_decode_gb attention_prefill_gflop "
             "attention_decode_gflop attention_prefill_gb attention_decode_gb other_prefill_gb other_decode_gb "
             "prefill_tok_s decode_tok_s").split()
    return {n: rng.uniform(0.1, 900) for n in names}, {}, {"notes.slips": '["one", "two"]'}


def mnn_time_share(rng, n_tok, **_):
    attention = n_tok / 4000
    return ({"share_linear": 0.94 - attention, "share_attention": attention, "share_memory": 0.06,
             "wait_frac": 0.04, "tok_s": 100 / n_tok, "bound_tok_s": 120 / n_tok}, {})


def mnn_quant_error(rng, scheme, precision, **_):
    error = {"q8_0": 0.005, "q4_0": 0.09, "w4c": 0.14}[scheme]
    kl = (1 + (precision == "a8")) * error ** 2
    return ({"weight_error": error, "weight_bits": 4.5, "logit_error": 2 * error, "kl_mean": kl, "kl_max": 9 * kl,
             "same_top_frac": 1 - error, "perplexity": 9 * (1 + kl), "perplexity_ratio": 1 + kl, "n_plain": 0},
            {"kl_each": kl * rng.uniform(0.2, 2, 16)})


def mnn_ablation(rng, phase, **_):
    summary = {"gain_all": 1.5, "same_logits": 1, "unfused_error": 1e-6, "bound_tok_s": 30}
    for i, step in enumerate(("baseline", "fused", "unsigned", "transposed")):
        summary.update({"tok_s_" + step: 10 + 3 * i, "attention_s_" + step: 0.03 / (i + 1), "linear_s_" + step: 0.06})
    for gain, v in (("attention_fuse", 0.5), ("int4_to_uint4", 0.1), ("pre_transpose", -0.02)):
        summary["gain_" + gain] = v, v - 0.02, v + 0.02
    return summary, {}


def mnn_tile(rng, **_):
    summary = {"formula_over_best": 0.93, "formula_over_tuned": 0.9, "registers": 32, "n_tiles": 60}
    for i, which in enumerate(("formula", "best", "tuned")):
        summary[which + "_gflops"] = 300 + 20 * i
    for i, which in enumerate(("formula", "best", "tuned", "ideal")):
        summary.update({which + "_rows": 12 - i, which + "_cols": 16})
    return summary, {}


def mnn_linear_attention(rng, phase, **_):
    decode = phase == "decode"
    summary = {"other_s": 0.1, "step_s": 3, "tok_s": 200, "roof_tok_s": 300, "roof_frac": 0.67}
    for c in ("linear", "attention"):
        intensity = 2 if decode else 500
        roof = min(800, 30 * intensity)
        summary.update({c + "_" + n: v for n, v in (
            ("gflop", 100), ("gb", 100 / intensity), ("flop_per_byte", intensity), ("s", 0.2), ("gflops", 0.8 * roof),
            ("gbps", 20), ("roof_gflops", roof), ("roof_frac", 0.8), ("paper_gflop", 1591.13), ("paper_gb", 1.74),
            ("paper_flop_per_byte", 914))})
    return summary, {}


STUDIES = {
    "characterize": (characterize, {"model": ["a-bf16.gguf"]}),
    "mnn_roofline": (mnn_roofline, {"machine": ["paper", "host"], "weights": ["w4a8", "bf16"],
                                    "counts": ["as_printed", "corrected"]}),
    "mnn_fig_time_share": (mnn_time_share, {"model": ["a-bf16.gguf"], "phase": ["prefill", "decode"],
                                            "n_tok": [32, 256, 2048]}),
    "mnn_quant_error": (mnn_quant_error, {"model": ["a-f32.gguf", "b-bf16.gguf"], "scheme": ["q8_0", "q4_0", "w4c"],
                                          "precision": ["exact", "a8"]}),
    "mnn_ablation": (mnn_ablation, {"model": ["a-q4_0.gguf"], "phase": ["prefill", "decode"]}),
    "mnn_tile": (mnn_tile, {"matrix": ["a/qkv", "a/gate_up"], "type": ["w4a8", "bf16", "f32"]}),
    "mnn_linear_attention": (mnn_linear_attention, {"model": ["a-q4_0.gguf"], "phase": ["prefill", "decode"]}),
}
