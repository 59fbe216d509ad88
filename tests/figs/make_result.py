"""A result file with made-up numbers in the layout of experiments/harness/record.h, so that the
figures can be tested without a run. usage: make_result.py FILE STEM [missing]"""

import json
import sys

import h5py
import numpy as np

GBPS, GFLOPS = 33.0, 400.0
MODELS = {"llama-160m": 162e6, "sheared-llama-1.3b": 1.28e9}


def add_requests(cell, rng, weights, bytes_each, n_out, missing):
    n = 40
    prompt = np.clip(np.exp(rng.normal(4, 1.7, n)), 16, 1024).astype("i8")
    flop = 2.0 * weights * prompt
    ttft = flop / (GFLOPS * 0.7e6) * rng.uniform(1, 1.3, n) + 2
    decode_bytes = np.full(n, weights * bytes_each * (n_out - 1))
    tpot = weights * bytes_each / (GBPS * 0.85e6) * rng.uniform(0.98, 1.1, n)
    columns = {
        "warmup": (np.arange(n) < 2).astype("u1"), "status": np.zeros(n, "u1"),
        "n_prompt_tok": prompt, "n_output_tok": np.full(n, n_out), "prefill_flop": flop,
        "decode_bytes": decode_bytes, "ttft_ms": ttft, "tpot_ms": tpot,
        "e2e_ms": ttft + tpot * (n_out - 1),
    }
    for name, values in columns.items():
        cell.create_dataset("requests/" + name, data=values)
    summary = {
        "mean_ttft_ms": ttft.mean(), "p50_ttft_ms": np.median(ttft),
        "p90_ttft_ms": np.quantile(ttft, 0.9), "decode_tok_s": 1e3 / tpot.mean(),
        "p50_e2e_ms": np.median(columns["e2e_ms"]),
        "p90_e2e_ms": np.quantile(columns["e2e_ms"], 0.9),
        "decode_read_gbps": GBPS * 0.83, "decode_bandwidth_frac": 0.83,
        "prefill_gflops": GFLOPS * 0.62, "prefill_peak_frac": 0.62,
        "slo_attainment_frac": 1 - np.exp(-2),
    }
    for name, value in summary.items():
        d = cell.create_dataset("summary/" + name, data=np.nan if missing else float(value))
        d.attrs["why"] = "made up" if missing else ""
    scale = np.array([0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20])
    cell.create_dataset("series/slo_scale", data=scale)
    cell.create_dataset("series/slo_attainment_frac", data=1 - np.exp(-2 * scale))


def main(path, stem, missing):
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as f:
        f.attrs.update(experiment=stem, truth="measured_small", host="host",
                       utc="2026-01-31T00:00:00Z")
        f["provenance_json"] = json.dumps({"commit": "0123456789abcdef", "dirty": False})
        i = 0
        for model, weights in MODELS.items():
            for kind, bytes_each in (("bf16", 2), ("f32", 4)):
                for fit in ("sharegpt", "lmsys"):
                    if stem in ("quickstart", "fig13_latency_cdf") and fit == "lmsys":
                        continue
                    cell = f.create_group("cells/%04d" % i)
                    cell.attrs.update({
                        "state": "done", "system.model": "build/models/%s-bf16.gguf" % model,
                        "system.weight_type": kind, "dataset.reader": "synth",
                        "dataset.fit": fit, "slo.ttft_ms": 200.0, "slo.tpot_ms": 100.0})
                    add_requests(cell, rng, weights, bytes_each, 64, missing)
                    i += 1


main(sys.argv[1], sys.argv[2], len(sys.argv) > 3)
