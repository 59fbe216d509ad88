#!/bin/sh
# search_regret: budgets hold, the same seed finds the same, and what no search can miss none misses.
set -u
python=${PYTHON:-/usr/bin/python3}
. tests/support/tap.sh
run() { # folder, settings...
    out=$dir/$1
    shift
    rm -rf "$out"
    "$build/testbed" run search_regret --smoke --quiet --fresh --out "$out" "$@" &&
        "$build/testbed" export "$out"/*.h5 --format json >"$out.json"
}
judge() { # a condition on c, the cells by (machine, seed, search), and d, those of a second record
    "$python" - "$dir" "$1" <<'EOF'
import json, sys

def cells(path):
    out = {}
    for cell in json.load(open(path))["cells"]:
        of = {k[len("axes.study."):]: v for k, v in cell["attributes"].items() if k.startswith("axes.study.")}
        if cell["summary"].get("best_s", {}).get("value"):
            out[of.get("machine"), of.get("seed"), of["search"]] = {
                k: v["value"] for k, v in cell["summary"].items()}
    return out

c, d = cells(sys.argv[1] + "/one.json"), cells(sys.argv[1] + "/two.json")
sys.exit(not eval(sys.argv[2]))
EOF
}
check "a small run" run one
check "the same again" run two
check "every search is there" judge 'len({s for _, _, s in c}) >= 10'
check "no search makes more measurements than it may" judge 'all(0 < v["n_measurements"] <= 100 for v in c.values())'
check "searches that use their whole budget do" judge \
    'all(v["n_measurements"] == 100 for k, v in c.items() if k[2] in ("random", "annealing", "tpe", "random_again"))'
check "what is found follows from the seed" judge \
    'all(c[k][m] == d[k][m] for k in c for m in c[k] if m != "search_s")'
check "no plan is much better than the best known" judge 'all(v["regret_chosen"] > -0.02 for v in c.values())'
check "every search on a machine has the same best" judge \
    'all(len({v["best_s"] for k, v in c.items() if k[:2] == m}) == 1 for m in {k[:2] for k in c})'
check "after the end a regret stays" judge \
    'all(v["regret_100"] == v["regret_1000"] for v in c.values())'
check "searches differ" judge 'len({v["regret_10"] for v in c.values()}) > 4'
# Two PUs: there is hardly anything to choose, and every search finds the best.
check "a machine of two PUs" run one --set "study.machine=synthetic:package:1 node:1 core:2 pu:1" --set study.seed=1
check "has the same plan for all" judge 'all(v["regret_chosen"] < 0.02 for v in c.values())'
finish
