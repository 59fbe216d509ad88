"""Works out the numbers of a record's cells again, from its raw columns or, of studies, the times of three
rounds, by what the record states as their meaning, not by the code that wrote them. usage: recompute.py FILE.h5 [--change METRIC];
prints what differs and how many numbers were compared, and ends with 1 if any differs. --change doubles
that number of each cell first, which must then be found."""

import json
import math
import sys

import h5py

NEVER = -2 ** 63
OK, FAILED, TIMEOUT, REJECTED = range(4)
FLOORS = {"p50": 1, "p90": 1, "p95": 72, "p99": 368, "p99.9": 3688}


def nearest_rank(values, percent):
    """The smallest value that at least so many per cent of all values do not exceed."""
    ordered = sorted(values)
    return next(v for i, v in enumerate(ordered) if (i + 1) * 100 >= percent * len(ordered) - 1e-9)


def spread(values):
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else math.nan


def statistics(name, values):
    """min_, mean_, p90_ ... of a metric that has many samples."""
    if not values:
        return {}
    out = {"min_" + name: min(values), "max_" + name: max(values), "mean_" + name: math.fsum(values) / len(values),
           "std_" + name: spread(values)}
    for p, floor in FLOORS.items():
        out["%s_%s" % (p, name)] = nearest_rank(values, float(p[1:])) if len(values) >= floor else math.nan
    return out


def described(cell):
    return json.loads(cell["attributes_json"][()])


def rows_of(cell):
    columns = {name: d[()] for name, d in cell["requests"].items()}
    offset, time = cell["tokens/offset"][()], cell["tokens/time_ns"][()]
    rows = [{name: c[i] for name, c in columns.items()} for i in range(len(offset) - 1)]
    for i, r in enumerate(rows):
        r["token_ns"] = [int(t) for t in time[offset[i]:offset[i + 1]]]
    return rows


def ratio(a, b):
    return a / b if b > 0 else math.nan


def served(cell):
    """Of the requests that are no warm-up: times in ns, rates in 1/s."""
    rows = [r for r in rows_of(cell) if not r["warmup"]]
    ok = [r for r in rows if r["status"] == OK]
    ttft = {id(r): (r["token_ns"][0] - int(r["intended_ns"])) / 1e6 for r in rows if r["token_ns"]}
    tpot = {id(r): (r["token_ns"][-1] - r["token_ns"][0]) / 1e6 / (len(r["token_ns"]) - 1)
            for r in rows if len(r["token_ns"]) > 1}
    begins, ends = [int(r["intended_ns"]) for r in rows], [int(r["done_ns"]) for r in rows]
    answered = [int(r["done_ns"]) for r in rows if r["status"] in (OK, FAILED)]
    seconds = (max(ends) - min(begins)) / 1e9
    gaps = [(b - a) / 1e6 for r in ok for a, b in zip(r["token_ns"], r["token_ns"][1:])]
    late = [(int(r["dispatch_ns"]) - int(r["intended_ns"])) / 1e6 for r in rows if r["dispatch_ns"] != NEVER]
    made, asked = sum(len(r["token_ns"]) for r in ok), sum(int(r["n_prompt_tok"]) for r in ok)
    slo = [float(described(cell).get("slo", {}).get(k, 0)) for k in ("ttft_ms", "tpot_ms")]

    def met(r, first, each):
        return (r["status"] == OK and not (first and ttft[id(r)] > first)
                and not (each and tpot.get(id(r), 0) > each))

    out = {"n_requests": len(rows), "n_completed": len(ok), "input_tok": asked, "output_tok": made,
           "n_failed": sum(r["status"] == FAILED for r in rows),
           "n_timeout": sum(r["status"] == TIMEOUT for r in rows),
           "n_rejected": sum(r["status"] == REJECTED for r in rows),
           "error_frac": ratio(len(rows) - len(ok), len(rows)), "duration_s": seconds,
           "request_throughput_rps": ratio(len(ok), seconds), "output_throughput_tok_s": ratio(made, seconds),
           "total_throughput_tok_s": ratio(made + asked, seconds),
           "offered_rate_rps": ratio(len(rows) - 1, (max(begins) - min(begins)) / 1e9),
           "achieved_rate_rps": ratio(len(answered) - 1, (max(answered) - min(answered)) / 1e9),
           "decode_tok_s": ratio(sum(len(r["token_ns"]) - 1 for r in ok if len(r["token_ns"]) > 1),
                                 sum(r["token_ns"][-1] - r["token_ns"][0] for r in ok if len(r["token_ns"]) > 1) / 1e9),
           # Little's law: the mean number in the system is all stays over the time
           "little_l": ratio(sum(e - b for b, e in zip(begins, ends)) / 1e9, seconds)}
    if any(slo):
        share = {"slo": slo, "ttft": (slo[0], 0), "tpot": (0, slo[1])}
        for name, limits in share.items():
            if any(limits):
                out[name + "_attainment_frac"] = ratio(sum(met(r, *limits) for r in rows), len(rows))
        out["request_goodput_rps"] = ratio(sum(met(r, *slo) for r in rows), seconds)
    service = [(r["token_ns"][0] - int(r["dispatch_ns"])) / 1e6 for r in ok if r["token_ns"]]
    for name, values in (("ttft_ms", [ttft[id(r)] for r in ok if r["token_ns"]]), ("ttft_service_ms", service),
                         ("tpot_ms", [tpot[id(r)] for r in ok if id(r) in tpot]), ("itl_ms", gaps),
                         ("e2e_ms", [(r["token_ns"][-1] - int(r["intended_ns"])) / 1e6 for r in ok if r["token_ns"]]),
                         ("lateness_ms", late)):
        out.update(statistics(name, values))
    return out


def middle(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def phase_switch(s, study):
    plans = ["request_s_prefill_plan", "request_s_decode_plan"]
    better = s(min(plans, key=lambda p: min(s(p))))
    out = {name: min(s(name)) for name in ["request_s"] + plans}
    out["switch_us_p50"] = middle(s("switch_us"))
    out["speedup_vs_best_one_plan"] = middle([a / b for a, b in zip(better, s("request_s"))])
    return out


def block_growth(s, study):
    side, rate = s("side"), s("gflops")
    return {"gflops_first": rate[0], "gflops_best": max(rate), "growth": max(rate) / rate[0],
            "knee": next(x for x, r in zip(side, rate) if r >= 0.95 * max(rate)),
            "best_side": side[rate.index(max(rate))]}


def block_thread(s, study):
    n, k = (int(v) for v in study["matrix"].split()[1].split("x"))
    flop, out, best = 2e-9 * float(study["m"]) * n * k, {}, []
    for of in "1", "n":
        rate = s("sweep_gflops_" + of)
        best.append(rate.index(max(rate)))
        out.update({side + "_" + of: s(side)[best[-1]] for side in ("bm", "bn", "bk")})
        out["n_slices_" + of] = math.ceil(float(study["m"]) / out["bm_" + of]) * math.ceil(n / out["bn_" + of])
    one, every = s("again_s_1"), s("again_s_n")
    out.update(gflops_1=max(s("sweep_gflops_1")), gflops_n=flop / min(every), gflops_n_of_1=flop / min(one),
               loss_frac=1 - middle([a / b for a, b in zip(every, one)]) if best[0] != best[1] else 0.0)
    return out


def ablation(s, study):
    n_tok, out = float(study["batch"]) * float(study["n_output_tok"]), {}
    for step in "one_plan rank_shifted communication service_config kernel_tuning split_k".split():
        for kept in "", "raw_":
            out["%stok_s_%s" % (kept, step)] = n_tok / nearest_rank(s("%srequest_s_%s" % (kept, step)), 10)
    steps = "one_plan communication service_config kernel_tuning split_k".split()
    gain = lambda kind, a, b: middle([x / y for x, y in zip(s(kind + a), s(kind + b))])
    out.update({"gain_" + b: gain("raw_request_s_", a, b) for a, b in zip(steps, steps[1:])})
    out["speedup_all"] = gain("request_s_", steps[0], steps[-1])
    return out


def window(s, study):
    out, n_tok = {}, float(study["n_output_tok"])
    for which in "", "_default":
        prefill, decode = min(s("prefill_s" + which)), min(s("decode_s" + which))
        out.update({"ttft_ms" + which: 1e3 * prefill, "tok_s" + which: n_tok / (prefill + decode)})
    out["ttft_gain"] = middle([a / b for a, b in zip(s("prefill_s_default"), s("prefill_s"))])
    return out


STUDIES = {"ablation": ablation, "window": window, "phase_switch": phase_switch, "block_growth": block_growth,
           "block_thread": block_thread}


def studied(cell):
    study = described(cell)["study"]
    work_out = STUDIES.get(study["name"])
    return work_out(lambda name: [float(v) for v in cell["series/" + name]], study) if work_out else {}


def same(a, b):
    return math.isnan(a) and math.isnan(b) or abs(a - b) <= max(1e-9 * max(abs(a), abs(b)), 1e-12)


changed = sys.argv[sys.argv.index("--change") + 1] if "--change" in sys.argv else None
faults, compared = [], 0
with h5py.File(sys.argv[1], "r") as f:
    for key, c in f["cells"].items():
        for metric, mine in (served(c) if "requests" in c else studied(c)).items():
            if metric not in c["summary"]:
                faults.append("%s: no %s, which is %g" % (key, metric, mine))
                continue
            theirs = float(c["summary"][metric][()]) * (2 if metric == changed else 1)
            compared += 1
            if not same(mine, theirs):
                faults.append("%s: %s is %.12g in the record, %.12g by its rows" % (key, metric, theirs, mine))
print("\n".join(faults + ["%d numbers compared" % compared]))
sys.exit(bool(faults) or compared == 0)
