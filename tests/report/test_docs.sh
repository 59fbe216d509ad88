#!/bin/sh
# docs/ says what the published records say: `testbed artifact --appendix`, and numbers in tables.
# After a record was published, `make docs` makes these tests pass.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")

# The page of the published records: its links lead somewhere, and no sentence is contradicted.
links_resolve() { # page
    folder=$(dirname "$1")
    awk '/^\[[a-z0-9_]*\]:/ { name = $1; if (NF == 1) getline; print name, $NF }' "$1" | sort >"$dir/defined"
    grep -o '\[[a-z0-9_]*\]' "$1" | sort -u | sed 's/$/:/' >"$dir/used"
    sed 's/ .*//' "$dir/defined" | sort | comm -3 "$dir/used" - | grep . && return 1
    { sed 's/.* //' "$dir/defined" && grep -o '](\([^)]*\))' "$1" | sed 's/](//; s/)$//'; } >"$dir/links"
    [ "$(grep -c . "$dir/links")" -ge 20 ] || return 1
    while read -r link; do
        case $link in
        '#'*) sed -n 's/^##* //p' "$1" | tr 'A-Z ' 'a-z-' | grep -q -x -F -- "${link#?}" || { echo "$link"; return 1; } ;;
        *) [ -e "$folder/$link" ] || { echo "$link"; return 1; } ;;
        esac
    done <"$dir/links"
}
page=results/published/README.md
check "links of the results page resolve" links_resolve $page
check "README links to it" grep -q "]($page)" README.md
check "it begins with what was found" [ "$(grep -m 1 '^## ' $page)" = "## What was found" ]
check "in at least eight sentences" [ "$(grep -c '^[0-9]*[.] ' $page)" -ge 8 ]
check "the records bear all out that have one" \
    sh -c '! grep -q -E "not borne out|a number is missing" "$1"' sh $page

# On claims and records of its own.
top=$(pwd)
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
cd "$dir" || exit 1
mkdir -p experiments results
for name in small other; do
    cat >experiments/$name.json <<'JSON'
{"about": "a job", "evidence": "simulated", "system": {"adapter": "scripted"}, "cost": {"minutes": 1.5},
 "dataset": {"n": 3, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 3},
 "headline": [{"name": "n", "metric": "n_completed"}]}
JSON
done
claims() { # rule of c1
    cat >results/claims.json <<JSON
{"claims": [
 {"name": "c1", "paper": "P", "section": "1", "figure": "Fig. 2", "text": "three, of *all* that were sent in one run of this job, are done in the end", "experiment": "small", "reproduced": "$1", "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}]},
 {"name": "q1", "paper": "Q", "section": "I", "text": "t", "experiment": "small", "shape": "n = 3", "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}]},
 {"name": "c2", "paper": "P", "section": "2", "text": "t", "experiment": "other", "reproduced": "n = 3", "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}]},
 {"name": "c3", "paper": "P", "section": "3", "text": "t", "why": "no machine"}]}
JSON
}
SANDWICH_HOME=$dir
export SANDWICH_HOME
appendix() { "$testbed" artifact --appendix >out; }
has() { # a whole line
    grep -q -x -F -- "$1" out || { cat out; return 1; }
}

claims 'n = 3'
check "a run" "$testbed" run small --quiet
check "an appendix" appendix
check "papers in the order of their claims" [ "$(sed -n 's/^## //p' out | tr '\n' ' ')" = "P Q " ]
check "the command, its minutes and its figure" \
    grep -q '^`make experiment NAME=small` (1.5 min) draws `paper-figs/out/small.svg`' out
check "what is not tested yet has its command, too" \
    has '`make experiment NAME=other` (1.5 min) draws `paper-figs/out/other.svg`.'
check "verdicts are counted" has "1 reproduced, 1 not testable here, 1 no record yet."
check "a verdict, its evidence and its place" grep -q '^- \*\*reproduced\*\* (simulated) `c1`, sec. 1, Fig. 2: three' out
check "a claim of another paper with the same experiment" grep -q '^- \*\*reproduced in shape\*\* (.*`q1`, sec. I: t$' out
check "one without a record" has '- _no record yet_ `c2`, sec. 2: t'
check "one that cannot be tested, and why" has '- _not testable here_ `c3`, sec. 3: t. Why not: no machine'
check "no line is longer than a page" sh -c '! grep -q ".\{101\}" out'
check "what a claim says has no meaning in the page" sh -c '! grep -q " \*all\*" out && grep -q "all" out'
claims 'n = 4'
check "another rule" appendix
check "is another verdict" grep -q '^- \*\*not reproduced\*\* .*`c1`' out
check "nothing is run" [ ! -e results/other ]
check "a list of claims that is not there" refuses 2 absent.json "$testbed" artifact --appendix --claims absent.json
echo '{' >experiments/other.json
check "a broken experiment" refuses 2 'other.json' "$testbed" artifact --appendix

# Of the pages of the checkout, four of them made stale, just those are named, with what to do; renewed, they are
# as they were. So all pages are as make docs makes them.
unset SANDWICH_HOME
mkdir -p stale/tests/support stale/paper-figs stale/results
cp "$top/tests/support/docs.sh" "$top/tests/support/docs_values.py" stale/tests/support
cp -r "$top/docs" "$top/experiments" "$top/datasets" stale/
cp -r "$top"/results/*.json "$top"/results/*.md "$top/results/published" stale/results
cp -r "$top/paper-figs/gallery" stale/paper-figs
stale() { (cd stale && BUILD=$(dirname "$testbed") sh tests/support/docs.sh "$@"); }
sed -i '0,/reproduced in shape/s//not reproduced/' stale/docs/claims.md
sed 's/^| S3 right, [^|]*|/| S3 right |/' "$top/docs/odma.md" >odma.md
sed 's/^| S3 right |.* |\( `bucket_accuracy_s3_alpaca_2048` |\)$/| S3 right | 0.5 | measured |\1/' odma.md >stale/docs/odma.md
sed -i 's/^1[.] Sandwich: /&Now: /' stale/results/published/README.md
sed -i 's/^| `ttft_p50`.*/| `ttft_p50`, ms | 1 |/' stale/results/performance.md
just_these_are_named() {
    stale --check >said && return 1
    sed -n 's/: not as the published records have it; make docs renews it$//p' said >named
    [ "$(echo $(cat named))" = "docs/claims.md docs/odma.md results/published/README.md results/performance.md" ] || { cat said; return 1; }
}
check "stale pages, and no others, are named" just_these_are_named
check "they are renewed" stale
check "the number and its evidence, not the words" diff stale/docs/odma.md odma.md
for page in docs/claims.md results/published/README.md results/performance.md; do
    check "$page is as it was" diff "stale/$page" "$top/$page"
done
values() { (cd stale && SANDWICH_HOME=. /usr/bin/python3 tests/support/docs_values.py results/published docs/new.md); }
unknown() { # text of the error
    values >said 2>&1 && return 1
    [ "$(wc -l <said)" = 1 ] && grep -q -F -- "$1" said
}
printf 'That `nothing` is\n**reproduced**.\n' >stale/docs/new.md
check "a claim that is not there" unknown 'docs/new.md: no claim nothing'
printf 'That `mnn_counts` is\n**wrong**.\n' >stale/docs/new.md
check "a verdict is renewed" values
check "also on the next line" grep -q -x -F '**reproduced**.' stale/docs/new.md
printf '| what | value | evidence | `odma_drift` |\n|---|---|---|---|\n| a | | | `nothing` |\n' >stale/docs/new.md
check "a headline that is not there" unknown 'docs/new.md:3: the record of odma_drift has no headline nothing'
printf '\n| what | value | evidence | `quickstart_2` |\n' >stale/docs/new.md
check "an experiment without a record" unknown \
    'docs/new.md:2: expected a published record of quickstart_2, found none'

# A sentence about missing records names experiments, or claims, that have none.
# Regression: pages had said "no published record yet" of figures long after they were published.
printf 'That is so. Of `quickstart` there is no\npublished record yet.\n' >stale/docs/new.md
check "a record that is called missing" unknown 'docs/new.md: quickstart has a record, found "no record"'
printf 'Of `mnn_counts` there is no record.\n' >stale/docs/new.md
check "also of a claim" unknown 'docs/new.md: mnn_counts has a record'
printf 'The `--help` says more. There is no record of it.\n' >stale/docs/new.md
check "and one without a name" unknown 'expected its name in "There is no record of it."'
cp stale/experiments/quickstart.json stale/experiments/unrun.json
printf 'Of `unrun` there is no record yet; "no record" is a word. `quickstart` has one.\n' >stale/docs/new.md
check "a true one stays" values
check "as it is" grep -q '^Of `unrun` there is no record yet; "no' stale/docs/new.md
printf 'The published record of\n`unrun` is new.\n' >stale/docs/new.md
check "a record that is not there" unknown 'docs/new.md: unrun has no published record'
finish
