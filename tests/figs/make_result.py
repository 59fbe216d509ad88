"""A result file with made-up numbers in the layout of experiments/record/record.h, so that the
figures can be tested without a run. usage: make_result.py FILE STEM [missing|swept|swept_missing]"""

import itertools
import json
import sys

import h5py
import made_up_studies
import numpy as np
from made_up_studies import describe

GBPS, GFLOPS = 33.0, 400.0
POLICIES = ["fcfs", "continuous", "chunked", "phase_priority"]
MODELS = {"llama-160m": 162e6, "sheared-llama-1.3b": 1.28e9}


def nearest_rank(x, q):
    return np.sort(x)[int(np.ceil(q * len(x))) - 1]


def add_requests(cell, rng, weights, bytes_each, n_out, missing):
    n = 40
    prompt = np.clip(np.exp(rng.normal(4, 1.7, n)), 16, 1024).astype("i8")
    flop = 2.0 * weights * prompt
    ttft = flop / (GFLOPS * 0.7e6) * rng.uniform(1, 1.3, n) + 2
    decode_bytes = np.full(n, weights * bytes_each * (n_out - 1))
    tpot = weights * bytes_each / (GBPS * 0.85e6) * rng.uniform(0.98, 1.1, n)
    intended = np.arange(n) * 10**9
    gaps = np.cumsum(np.repeat(tpot[:, None], n_out, 1), 1) - tpot[:, None]
    times = (intended[:, None] + (ttft[:, None] + gaps) * 1e6).astype("i8")
    ttft, e2e = (times[:, 0] - intended) / 1e6, (times[:, -1] - intended) / 1e6
    cell["tokens/time_ns"] = times.ravel()
    cell["tokens/offset"] = np.arange(n + 1) * n_out
    columns = {
        "warmup": (np.arange(n) < 2).astype("i1"), "status": np.zeros(n, "i1"),
        "n_prompt_tok": prompt, "n_output_tok": np.full(n, n_out),
        "n_tok": np.full(n, 0 if missing else n_out),
        "intended_ns": intended, "first_token_ns": times[:, 0],
        "prefill_flop": flop, "decode_bytes": decode_bytes,
    }
    for name, values in columns.items():
        cell["requests/" + name] = values
    summary = {
        "offered_rate_rps": 4.2, "request_throughput_rps": 3.9, "request_goodput_rps": 2.5,
        "mean_ttft_service_ms": ttft[2:].mean(), "mean_tpot_ms": tpot[2:].mean(),
        "p50_tpot_ms": nearest_rank(tpot[2:], 0.5), "p90_tpot_ms": nearest_rank(tpot[2:], 0.9),
        "mean_ttft_ms": ttft[2:].mean(), "p50_ttft_ms": nearest_rank(ttft[2:], 0.5),
        "p90_ttft_ms": nearest_rank(ttft[2:], 0.9), "decode_tok_s": 1e3 / tpot.mean(),
        "prefill_tok_s": 1e3 * prompt.sum() / ttft.sum(),
        "p50_e2e_ms": nearest_rank(e2e[2:], 0.5), "p90_e2e_ms": nearest_rank(e2e[2:], 0.9),
        "decode_bandwidth_frac": 0.83, "prefill_peak_frac": 0.62,
        "slo_attainment_frac": 1 - np.exp(-2),
    }
    for name, value in summary.items():
        cell["summary/" + name] = np.nan if missing else float(value)
        cell["summary/" + name].attrs["why"] = "made up" if missing else ""
    if not missing:
        describe(cell, {"bound.read_gbps": GBPS, "bound.peak_gflops": GFLOPS,
                        "bound.before.read_gbps": GBPS, "bound.after.read_gbps": 0.6 * GBPS})
    scale = np.array([0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20])
    cell["series/slo_scale"] = scale
    cell["series/slo_attainment_frac"] = 1 - np.exp(-2 * scale)


# Experiments that compare systems under load.
UNDER_LOAD = ("fig09_slo_scale", "fig12_goodput", "llamacpp_settings", "azure_conv_replay", "split_or_switch")


def add_system(f, rng, i, more, missing):
    cell = f.create_group("cells/%04d" % i)
    describe(cell, {"state": "done", "system.adapter": "sandwich", "load.rate_rps": 2.0, "slo.ttft_ms": 200.0,
                    "slo.tpot_ms": 100.0, "slo.target_frac": 0.9, **more})
    add_requests(cell, rng, 162e6, 2, 8, missing)
    cell["summary/p90_slo_scale"] = np.nan if missing else 0.7
    for k, v in (("rps", 4.0), ("low_rps", 3.5), ("high_rps", 4.6)):
        cell["summary/goodput_" + k] = np.nan if missing else v + i
    if more.get("pairing.by") and i % 4 == 3 and not missing:  # it fails at the lowest rate
        del cell["summary/goodput_rps"]
        cell["summary/goodput_rps"] = np.nan
        cell["summary/goodput_rps"].attrs.update(why="the objectives fail at the lowest rate", at_most=3.0)
    if not missing:
        cell["series/trial_rate_rps"] = np.array([1.0, 2, 4, 8]) + i
        cell["series/trial_slo_attainment_frac"] = np.array([1.0, 1, 0.93, 0.2])


def sweep(f, stem):
    """Cells as --set 'load.rate_rps=[...]' leaves them; of a study, its first two axes."""
    cells = list(f["cells"].values())
    axes = {"load.rate_rps": [4.0, 16.0], "system.weight_type": ["bf16", "f32"]}
    if stem in made_up_studies.STUDIES:
        axes = {"study." + k: v for k, v in made_up_studies.STUDIES[stem][1].items()}
    f.attrs["swept"] = " ".join(axes)
    settings = list(itertools.product(*axes.values()))
    for cell in cells[len(settings):]:
        del f[cell.name]
    f["job_json"] = json.dumps({"headline": []})
    for cell, values in zip(cells, settings):
        warnings = [{"code": "overloaded"}] if values[0] == 16 else []
        describe(cell, {"axes": dict(zip(axes, values)), "warnings": warnings})
        for name in ("offered_rate_rps", "request_throughput_rps"):
            if "summary/" + name in cell:
                cell["summary/" + name][()] *= values[0]


# stem: the headline that is a ratio, and the variant that it is relative to
VARIANTS = {"fig10_ttft": ("over_one_plan", "one_plan"), "fig11_throughput": ("over_one_plan", "one_plan"),
            "fig13_latency_cdf": ("", "one_plan"), "fig14_partition": ("ttft_over_even_split_2", "even_split_2"),
            "mnn_vs_engines": ("prefill512_over_llamacpp", "llama.cpp")}
NAMES = ["one_plan", "even_split", "even_split_2", "plan", "plan_tuned", "llama.cpp"]
AGAIN = "one_plan"  # runs twice


def turns(repeat):
    """The variants of a repeat in the order in which they ran."""
    names = NAMES + [AGAIN + "'"]
    return names if repeat else names[::-1]


def write_job(f):
    f["job_json"] = json.dumps({"aa": AGAIN, "variants": [{"name": n} for n in NAMES]})


def write_variants(f, rng, stem, missing):
    """Two cases, two repeats, variants of which two are the same system, one is skipped and one ran
    twice."""
    headline, base = VARIANTS[stem]
    write_job(f)
    for i, (repeat, (model, weights), name) in enumerate(
            (r, m, name) for r in (0, 1) for m in MODELS.items() for name in turns(r)):
        cell = f.create_group("cells/%04d" % i)
        axes = {"case": model, "variant": name}
        describe(cell, {
            "state": "done", "label": "case=%s variant=%s" % (model, name), "axes": axes, "repeat": repeat,
            "system.model": "build/models/%s-bf16.gguf" % model, "system.weight_type": "file",
            "dataset.reader": "synth", "dataset.fit": "sharegpt", "load.rate_rps": 1.0,
            "slo.ttft_ms": 200.0, "slo.tpot_ms": 100.0})
        if name == "llama.cpp":
            describe(cell, {"state": "skipped", "error": "llama-server: not found, see \"install\" in x.json"})
            continue
        describe(cell, {"described.configuration": "split" if "split" in name else "whole"})
        add_requests(cell, rng, weights, 2, 64, missing)
        if headline and name not in (base, AGAIN + "'") and not repeat:
            h = f.create_dataset("headline/%s case=%s variant=%s" % (headline, model, name),
                                 data=np.nan if missing else 1.07)
            h.attrs.update({} if missing else {"lo": 1.02, "hi": 1.13, "detectable_frac": 0.034})


def main(path, stem, kind):
    missing = kind in ("missing", "swept_missing")
    write(path, stem, missing)
    if kind.startswith("swept"):
        with h5py.File(path, "a") as f:
            sweep(f, stem)


def write(path, stem, missing):
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as f:
        f.attrs.update(schema_version=2, experiment=stem, evidence="measured_small", host="host",
                       cpu_model="CPU", n_cpus=2, utc="2026-01-31T00:00:00Z", commit="0123456789abcdef", dirty=0)
        if stem in made_up_studies.STUDIES:
            return made_up_studies.write(f, rng, stem, missing)
        if stem in VARIANTS:
            return write_variants(f, rng, stem, missing)
        if stem in UNDER_LOAD:
            write_job(f)
            repeats = (0,) if stem in ("azure_conv_replay", "fig12_goodput") else (0, 1)
            paired = {"pairing.by": "rate"} if stem == "fig12_goodput" else {}
            for i, (repeat, case, name) in enumerate(
                    (r, c, name) for r in repeats for c in ("160m", "1.3b") for name in turns(r)):
                add_system(f, rng, i, {"repeat": repeat, "axes": {"case": case, "variant": name}, **paired}, missing)
            return
        i = 0
        for model, weights in MODELS.items():
            for kind, bytes_each in (("bf16", 2), ("f32", 4)):
                for fit in ("sharegpt", "lmsys"):
                    if stem == "quickstart" and fit == "lmsys":
                        continue
                    cell = f.create_group("cells/%04d" % i)
                    describe(cell, {
                        "state": "done", "system.model": "build/models/%s-bf16.gguf" % model,
                        "system.weight_type": kind, "dataset.reader": "synth",
                        "dataset.fit": fit, "load.rate_rps": 1.0,
                        "slo.ttft_ms": 200.0, "slo.tpot_ms": 100.0})
                    if stem == "scheduling_policies":
                        describe(cell, {"load.rate_rps": [2.0, 6.0][i // 4], "axes": {"variant": POLICIES[i % 4]}})
                    if stem == "quickstart":
                        describe(cell, {"warnings": [{"code": "bound_changed"}]})
                    add_requests(cell, rng, weights, bytes_each, 64, missing)
                    i += 1


main(*(sys.argv[1:] + [""])[:3])
