#!/bin/sh
# tuner_regret: budgets, seeds and ends of every tuner, and what no tuner can miss.
set -u
python=${PYTHON:-/usr/bin/python3}
. tests/support/tap.sh
run() { # folder, settings...
    out=$dir/$1
    shift
    rm -rf "$out"
    "$build/testbed" run tuner_regret --smoke --quiet --fresh --out "$out" "$@" &&
        "$build/testbed" export "$out"/*.h5 --format json >"$out.json"
}
judge() { # a condition on c, the cells by (machine, seed, tuner), and d, those of a second record
    "$python" - "$dir" "$1" <<'EOS'
import json, sys

def cells(path):
    out = {}
    for cell in json.load(open(path))["cells"]:
        of = {k[len("axes.study."):]: v for k, v in cell["attributes"].items() if k.startswith("axes.study.")}
        if cell["summary"].get("best_s", {}).get("value"):
            out[of.get("machine"), of.get("seed"), of.get("tuner")] = {
                k: v["value"] for k, v in cell["summary"].items()}
    return out

c, d = cells(sys.argv[1] + "/one.json"), cells(sys.argv[1] + "/two.json")
sys.exit(not eval(sys.argv[2], globals()))
EOS
}
check "a small run" run one
check "the same again, by another instruction set" env SANDWICH_ISA=ref sh -c '"$0" run tuner_regret --smoke --quiet \
    --fresh --out "$1" && "$0" export "$1"/*.h5 --format json >"$1.json"' "$build/testbed" "$dir/two"
check "every tuner is there" judge 'len({t for _, _, t in c}) == 14 and len(c) == 56'
check "what is found follows from the seed" judge 'c == d'
check "a seed is another machine" judge \
    'all(c[m, 1, t]["best_s"] != c[m, 2, t]["best_s"] for m, s, t in c)'
check "all tuners of a machine have the same best, and begin alike" judge \
    'all(len({v[x] for k, v in c.items() if k[:2] == m}) == 1
         for m in {k[:2] for k in c} for x in ("best_s", "regret_0"))'
check "nothing is much faster than the best known" judge \
    'all(v[x] > -0.02 for v in c.values() for x in v if x.startswith("regret"))'
check "another seed of chance is another search, another window one of another length" judge \
    'all(c[k]["tuning_s"] != c[k[0], k[1], "sandwich_again"]["tuning_s"] and
         c[k]["n_measurements"] > c[k[0], k[1], "sandwich_3"]["n_measurements"] for k in c if k[2] == "sandwich")'
check "random makes the trials that it has, and measures six of each shape again" judge \
    'all(4 * n <= c[k]["n_measurements"] <= 4 * (n + 6) for k in c for t, n in (("random", 40), ("random_100", 100))
         if k[2] == t)'
check "trials and ten of a model are limits" judge \
    'all(c[k]["n_measurements"] <= 4 * (n + 6) for k in c for t, n in (("ansor", 40), ("roller_topk", 10))
         if k[2] == t)'
check "after the end a regret stays" judge \
    'all(v["regret_30000"] == v["regret_chosen"] for v in c.values() if v["n_measurements"] <= 30000)'
check "what ended within a second has its last regret there" judge \
    'all(v["regret_1s"] == v["regret_chosen"] for v in c.values() if v["tuning_s"] <= 1)'
check "before the first measurement all have the cost model" judge \
    'all(v["regret_0"] > 0 and v["n_measurements"] > 0 for v in c.values())'
check "tuners differ" judge 'len({v["regret_chosen"] for v in c.values()}) > 20'
check "a whole grid is near the best without noise to speak of" judge \
    'all(c[k]["regret_chosen"] < 0.25 for k in c if k[:1] + k[2:] == ("plain", "oracle"))'
check "more trials find more" judge '(sum(v["regret_chosen"] for k, v in c.items() if k[2] == "random_100")
    < sum(v["regret_chosen"] for k, v in c.items() if k[2] == "random"))'
unknown() {
    ! run three --set study.tuner=sandwhich && grep -q '"sandwich"' "$dir/log"
}
check "an unknown tuner is an error that names the nearest" unknown
finish
