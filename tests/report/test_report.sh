#!/bin/sh
# `testbed report`: a page that is read without a network and without scripts, whose links all
# lead somewhere, also where records are missing or damaged; and tables in documents.
set -u
. tests/support/tap.sh
build=$(realpath "$build")
testbed=$build/testbed
top=$(pwd)
dir=$(realpath "$dir")
ln -s "$PWD/datasets" "$dir"
cd "$dir" || exit 1
mkdir -p experiments paper-figs/lib results
for name in small other; do
    cat >experiments/$name.json <<'JSON'
{"about": "a <small> job", "evidence": "simulated", "system": {"adapter": "scripted", "ttft_ms": 5}, "cost": {"minutes": 0.5},
 "claim": {"paper": "P", "section": "1", "figure": "Fig. 1", "text": "it is quick"}, "expect": "It is 0.5 ms. More of it is in the job.",
 "dataset": {"n": 5, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 5},
 "headline": [{"name": "t", "metric": "p50_ttft_ms", "better": "lower"}, {"name": "n", "metric": "n_completed"}]}
JSON
    # A figure that anybody can draw, with a second form.
    cat >paper-figs/$name.py <<PY
import os, sys
os.makedirs(sys.argv[2], exist_ok=True)
for ext in "svg", "tex":
    open("%s/$name.%s" % (sys.argv[2], ext), "w").write("<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>")
PY
done
cat >results/claims.json <<'JSON'
{"claims": [{"name": "served", "paper": "P", "section": "1", "text": "all are served", "experiment": "small", "reproduced": "n = 5",
             "compared": [{"names": "n", "values": [1, 2, 3, 4, 5, 6, 40]}]}]}
JSON
SANDWICH_HOME=$dir
export SANDWICH_HOME

reported() { # status, command words...
    want=$1
    shift
    "$testbed" report "$@" >out 2>err
    got=$?
    cat out err
    [ "$got" = "$want" ]
}

# Every link of both pages leads to a file, or to a heading of the page.
links_resolve() { # folder
    grep -o 'href="[^"]*"' "$1/index.html" | sed 's/href="//; s/"$//' >links
    grep -o ']([^)]*)' "$1/report.md" | sed 's/](//; s/)$//' >>links
    [ "$(grep -c . links)" -ge 4 ] || return 1
    while read -r link; do
        case $link in
        '#'*) grep -q "id=\"${link#?}\"" "$1/index.html" || { echo "$link"; return 1; } ;;
        *) [ -e "$1/$link" ] || { echo "$link"; return 1; } ;;
        esac
    done <links
}
is_alone() { # folder: nothing is fetched and nothing runs
    ! grep -E -i '<script|<link|<iframe|@import|url\(|(src|href)="[a-z]*://|(src|href)="/|javascript:' \
        "$1/index.html"
}

check "without a record" reported 0
check "the command that makes one is named" grep -q 'make experiment NAME=small' results/report/report.md
check "so are its minutes" grep -q '0.5 minutes' results/report/index.html
check "links resolve" links_resolve results/report
"$testbed" run small --quiet >out 2>&1
check "with one record of two" reported 0
check "where the page is stands on the terminal" grep -q '^results/report/index.html$' out
check "its figure is in the page" grep -q 'src="data:image/svg+xml;base64,' results/report/index.html
check "its other forms are linked" grep -q 'href="figures/small.tex"' results/report/index.html
check "one sentence says what is expected" grep -q "^. expected . It is 0.5 ms. .$" results/report/report.md
check "its verdict" grep -q '^| \[P\](#p) | 1 | 0 |' results/report/report.md
check "the other one has no record" grep -q 'no record' results/report/report.md
check "links resolve" links_resolve results/report
check "the page stands alone" is_alone results/report
check "another folder" reported 0 --out elsewhere/page
check "links resolve from there" links_resolve elsewhere/page
touch -d '2 hours ago' results/report/figures/small.svg
cp results/report/figures/small.svg before.svg
check "a figure older than its record" reported 0
check "is drawn again" [ results/report/figures/small.svg -nt before.svg ]
touch marker
check "again" reported 0
check "a newer one is not" [ marker -nt results/report/figures/small.svg ]
echo 'raise SystemExit("broken")' >paper-figs/small.py
check "a figure that cannot be drawn" reported 3
check "is a line of the page" grep -q 'no figure is drawn' results/report/report.md
check "and on the terminal" grep -q 'no figure is drawn' err
check "which is not asked for without drawing" reported 0 --no-draw
mkdir paper-figs/out
sed "s/<script/<title>drawn before<\/title><script/" results/report/figures/small.svg >paper-figs/out/small.svg
rm results/report/figures/small.*
check "without drawing" reported 0 --no-draw
check "what make figures has drawn is shown" grep -q "drawn before" results/report/figures/small.svg
rm results/report/figures/small.*
check "and not drawn again" reported 0
check "where it is newer than record and script" grep -q "drawn before" results/report/figures/small.svg
touch -d "2 hours ago" paper-figs/out/small.svg results/report/figures/small.svg
check "an old one is drawn again" reported 3
echo damaged | tee results/small/damaged.h5 >results/small/damaged.json
check "a damaged record" reported 3 --no-draw
check "is one line" [ "$(wc -l <err)" = 1 ]
check "which names it" grep -q 'results/small/damaged.json: ' err
check "on the page, too" grep -q 'results/small/damaged.json: ' results/report/index.html
check "and the other record is still there" grep -q 'src="data:image/svg' results/report/index.html
check "links resolve" links_resolve results/report
rm results/small/damaged.*
cp -r results/small kept
for record in results/small/*.h5; do echo damaged >"$record"; done
check "a page needs only the heads" reported 0 --no-draw
rm -r results/small && mv kept results/small

# The same record as if of another kind of machine.
python3 - results/small/20*.json <<'PY'
import json, shutil, sys
h = json.load(open(sys.argv[1]))
shutil.copy(sys.argv[1][:-5] + ".h5", "results/small/20000101T000000Z-0123456.h5")
h["file"], h["run"]["cpu_model"] = "20000101T000000Z-0123456.h5", "Other <CPU>"
json.dump(h, open("results/small/20000101T000000Z-0123456.json", "w"))
PY
check "two kinds of machines" reported 0 --no-draw --readme results/README.md
check "are drawn in the page" grep -q '<img src="data:image/svg+xml;base64,[^"]*" alt="small on each machine"' \
    results/report/index.html
check "links resolve" links_resolve results/report
check "the page stands alone" is_alone results/report
check "a page for the repository names both" sh -c "tr '\\n' ' ' <results/README.md | grep -q 'Other &lt;CPU&gt;.*, in this order:'"
check "and its links have targets" [ "$(sed -n 's/^\[small\]: //p' results/README.md)" = small ]
rm results/small/20000101*

printf 'before\n<!-- testbed report: small:t,n -->\nstale\n<!-- end of testbed report -->\nafter' >doc.md
printf 'before\n<!-- testbed report: other -->\nstale\n<!-- end of testbed report -->\nafter' >kept.md
cp kept.md kept.before
check "tables in two documents" reported 0 --no-draw --tables doc.md --tables kept.md
check "the numbers are there" grep -q '^| `n` | 5 |$' doc.md
check "the rest stays" sh -c "[ \"\$(head -n 1 doc.md)\" = before ] && [ \"\$(tail -c 5 doc.md)\" = after ]"
check "nothing old is left" sh -c '! grep -q stale doc.md'
check "without a record nothing changes" cmp kept.md kept.before
cp doc.md again.md
check "the same records, the same tables" reported 0 --no-draw --tables doc.md
check "to the byte" cmp doc.md again.md
printf 'no marks\n' >none.md
check "a document without marks" refuses 2 'none.md: expected a line' "$testbed" report --no-draw --tables none.md
check "is left as it was" sh -c '[ "$(cat none.md)" = "no marks" ]'
printf '<!-- testbed report: small -->\n' >open.md
check "one that is not closed" refuses 2 'open.md: line 1: the block is not closed' \
    "$testbed" report --no-draw --tables open.md
check "an absent one" refuses 2 'absent.md' "$testbed" report --no-draw --tables absent.md
check "an absent list of claims" refuses 2 'absent.json' "$testbed" report --claims absent.json
check "an argument" refuses 2 'expected 0 arguments' "$testbed" report small
check "a page in a folder that is not there" refuses 2 'absent' \
    "$testbed" report --no-draw --readme absent/README.md
mkdir -p blocked && touch blocked/page
check "a folder that cannot be made" refuses 3 'blocked/page' "$testbed" report --no-draw --out blocked/page

# `make report` changes no file of a checkout; `make docs` does, from published records (test_docs.sh).
recipe() { # target, options: the command that it runs, in a folder of its own
    make -s -n -C "$top" BUILD="$build" V=1 ARGS="${2-}" "$1" | sed -n '/testbed report/p'
}
changed_by() { # target, options: what git calls changed after it
    (cd checkout && sh -c "$(recipe "$1" "${2-}")" >../out 2>../err
        git status --short)
}
unset SANDWICH_HOME
if git clone -q "$top" checkout 2>err; then
    mkdir checkout/results/quickstart
    cp results/small/*.h5 results/small/*.json checkout/results/quickstart
    check "make report" sh -c "[ -n '$(recipe report)' ]"
    check "it changes no file of a checkout" [ -z "$(changed_by report --no-draw)" ]
    check "and writes its page" [ -s checkout/results/report/index.html ]
else
    skip "make report changes no file of a checkout" "git: $(cat err)"
fi

# What is shipped: experiments, claims, and documents with marks.
rm -rf results
cp "$top/results/performance.md" .
check "the shipped experiments, without records" reported 0 --tables performance.md
check "links resolve" links_resolve results/report
check "each is on the page" [ "$(grep -c '^#### ' results/report/report.md)" = "$(ls "$top"/experiments/*.json | wc -l)" ]
check "results/performance.md stays" cmp performance.md "$top/results/performance.md"
finish
