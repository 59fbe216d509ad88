"""What must hold in a record of counters or of a whole machine card. usage:
check_record.py counters|card FILE.h5; prints what does not hold, and then ends with 1."""

import json
import math
import sys

import h5py

HARDWARE = "ipc l3lpki dtlb_miss rar mclpki mcipki buspki".split()
TWINS = "bytes_per_tok flop_per_byte gbps gflops cycles_per_tok tick_ghz".split()
HEADLINE = ("read_gbps_1t read_gbps_all peak_gflops_f32 peak_gflops_bf16 peak_gflops_bf16_dot "
            "peak_gflops_bf16_tile peak_gflops_fp16 peak_gops_int8 decode_bandwidth_frac prefill_peak_frac "
            "events_trusted events_unavailable").split()
CURVES = {"threads": ["read_gbps", "copy_gbps", "triad_gbps"], "latency_bytes": ["latency_small_ns"],
          "block_bytes": ["random_small_gbps", "sequential_small_gbps"]}
faults = []


def check(holds, what):
    if not holds:
        faults.append(what)


def numbers(cell):
    """Every number of the summary; one that is missing must have its reason as an attribute."""
    values = {}
    for name, d in cell["summary"].items():
        values[name] = float(d[()])
        why = d.attrs.get("why", b"")
        check(math.isnan(values[name]) == (len(why) > 0), "%s: %g, why %r" % (d.name, values[name], why))
    return values


def counters(cell):
    v = numbers(cell)
    for name in HARDWARE:
        check(math.isnan(v[name]) or v[name] > 0, "%s: %g was not measured" % (name, v[name]))
    for name in TWINS:
        check(v["estimated_" + name] > 0, "estimated_%s: %g" % (name, v["estimated_" + name]))
    described = json.loads(cell["attributes_json"][()])
    study = described["study"]
    tok = int(study["batch"]) * int(study["steps" if study["phase"] == "decode" else "prompt_tok"])
    check(v["sde_tok"] == tok, "%g tokens in the steps, %d were asked for" % (v["sde_tok"], tok))
    names = described["notes"]["raw_events"].split("|")
    for series in ("raw_count", "raw_enabled_ns", "raw_running_ns"):
        check(len(cell["series/" + series]) == len(names), "%s: not one for each of %s" % (series, names))
    for count, ran in zip(cell["series/raw_count"], cell["series/raw_running_ns"]):
        check(math.isnan(count) or ran > 0, "counted %g in no time" % count)


def card(cell):
    v = numbers(cell)
    for name in HEADLINE:
        check(name in v, "%s: not there" % name)
    for name in "read_gbps_all", "peak_gflops_f32", "decode_bandwidth_frac":
        why = bytes(cell["summary/" + name].attrs.get("why", b""))  # a busy machine's bounds are not trusted
        disturbed = any(w in why for w in (b"trials spread", b"of the CPUs while", b"the bound is wrong"))
        check(v[name] > 0 or disturbed, "no %s: %r" % (name, why))
    for x, ys in CURVES.items():
        check(len(cell["series/" + x]) > 0, "%s: no point" % x)
        for y in ys:
            check(len(cell["series/" + y]) == len(cell["series/" + x]), "%s: as long as %s" % (y, x))
    text = cell["attributes_json"][()]
    check(b"n_trusted" in text, "no table of trust")
    notes = json.loads(text).get("notes", {})
    for note in ("levels", "root", "trust_lines"):
        check(len(notes.get(note, "")) > 0, "no %s" % note)
    check(len(cell["series/cpus"]) > 0, "no topology")


with h5py.File(sys.argv[2], "r") as f:
    for c in f["cells"].values():
        {"counters": counters, "card": card}[sys.argv[1]](c)
    check(len(f["cells"]) > 0, "no cell")
print("\n".join(faults))
sys.exit(bool(faults))
