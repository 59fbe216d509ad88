#!/bin/sh
# `testbed watch` and `testbed bisect` on a repository made here. Its engine is a script that runs a study
# of arithmetic: a step takes 16.7 + 287.1 times its factor, so what every commit measures is given. A
# script may vary its factor from run to run.
set -u
. tests/support/tap.sh
testbed=$(realpath "$build/testbed")
dir=$(realpath "$dir")
if ! git --version >"$dir/log" 2>&1; then
    skip "watch and bisect" "git is not here"
    finish
fi
cd "$dir" || exit 1
export REAL="$testbed" GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b \
    GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

cat >job.json <<'JSON'
{"about": "numbers that are given", "evidence": "model", "study": {"name": "slicing", "budget_gb": 8}}
JSON
engine() { # factors of run 1, 2, ... in turn
    cat >repo/engine.in <<SH
#!/bin/sh
for word; do [ "\$last" = --out ] && out=\$word; last=\$word; done
set -- "\$@" \$(ls "\$out" 2>/dev/null | grep -c h5\$) $*
while [ \$# -gt 0 ] && [ "\$1" != --out ]; do all="\$all \$1"; shift; done
out=\$2 n=\$3
shift 3
shift \$((n % \$#))
exec "\$REAL" \$all --out "\$out" --set study.cpu_factor=\$1
SH
}
commit() { # name, subject
    git -C repo add -A && git -C repo commit -q --allow-empty -m "$2" && git -C repo tag "$1"
}
steady="1.001 0.999 1 0.998 1.002"
slow="1.054 1.052 1.053 1.051 1.055"
wild="1 1.4 0.7 1.3 0.8"
git init -q -b main repo
echo 'cp engine.in engine && chmod +x engine && echo built' >repo/build.sh
# shellcheck disable=SC2086
{
    engine $steady && commit c0 "the beginning"
    echo 1 >repo/readme && commit c1 "a text"
    engine $wild && commit c2 "an engine that varies"
    engine $steady && echo 'echo no compiler; exit 7' >repo/build.sh && commit c3 "a build that fails"
    echo 'cp engine.in engine && chmod +x engine' >repo/build.sh && commit c4 "a build that does not"
    engine $slow && commit c5 "five per cent slower"
    echo 2 >repo/readme && commit c6 "another text"
    echo 3 >repo/readme && commit c7 "a third | text"
} >log 2>&1
sha() { git -C repo rev-parse "$1" | cut -c1-12; }
common="--repo repo --job ./job.json --testbed engine --margin 2% --metric step_ms_whole_layers --rounds-max 8"
try() { # status wanted, verb, options...
    want=$1
    verb=$2
    shift 2
    # shellcheck disable=SC2086
    "$testbed" "$verb" $common --build 'sh build.sh' "$@" >out 2>err
    got=$?
    [ "$got" = "$want" ] || { echo "status $got"; cat out err; return 1; }
}
verdict() { # commit, verdict
    grep -q "^$(sha "$1") .*: $2" out || { cat out; return 1; }
}

check "watch finds it" try 4 watch --since c0 --out w
check "a text is not worse" verdict c1 'not worse$'
check "what varies cannot be told" verdict c2 'cannot say$'
check "a build that fails is skipped, with its last line" verdict c3 \
    "skipped: .*--build exited with status 7: no compiler (.*builds/$(sha c3).log)"
check "the next is compared with the last good one" grep -q "| $(sha c4) .*| $(sha c1) | 6 | not worse |" w/report.md
check "five per cent are worse" verdict c5 'worse$'
check "and so are the commits after it" sh -c "[ \$(grep -c ': worse$' out) = 3 ]"
check "what is not clear gets more rounds" grep -q "| $(sha c2) .*| 8 | cannot say |" w/report.md
check "the page names the first" grep -q "^The first commit that is worse: $(sha c5) .* five per cent slower$" w/report.md
check "and counts all" grep -q '^Commits compared: 7. Not worse: 2, worse: 3, cannot say: 1, skipped: 1.$' w/report.md
check "and has no more tables than a page" sh -c "[ \$(grep -c '^## ' w/report.md) = 3 ] &&
    grep -q '^The records of 1 more are in' w/report.md"
check "with the comparison" grep -q '^  step_ms_whole_layers .* 1.05[0-9] .* worse$' w/report.md
check "and an A/A" grep -q 'from A again in the same rounds' w/report.md
check "the worktrees are gone" sh -c "[ \$(ls w/trees | wc -l) = 0 ] && [ \$(git -C repo worktree list | wc -l) = 1 ]"
cp out before
check "the same again" try 4 watch --since c0 --out w
check "runs nothing" sh -c "! grep -q 'round . of' err && cmp out before"
# shellcheck disable=SC2086
check "a repair" sh -c "cd repo && git show c4:engine.in >engine.in && git add -A && git commit -qm repaired && git tag c8"
check "the next watch" try 4 watch --out w
check "begins at the last good commit" sh -c "[ \$(grep -c : out) = 4 ] && tail -n 2 out | grep -q 'repaired: not worse$'"
check "and the one after it" try 0 watch --out w
check "has nothing to do" grep -q "^no commit after $(sha c8)" out
# shellcheck disable=SC2086
check "in the records, too, the looks are allowed for" sh -c \
    "'$testbed' compare w/compare/$(sha c4)-$(sha c5)-*/a w/compare/$(sha c4)-$(sha c5)-*/b --metric step_ms_whole_layers \
    2>&1 | grep -q 'as many as were needed'"

check "bisect finds it" try 0 bisect --good c0 --bad c7 --no-aa --out b
check "the first bad commit" grep -q "^The first bad commit: $(sha c5) .* five per cent slower$" out
check "past a build that fails" verdict c3 skipped
check "and one that cannot be told" verdict c2 'cannot say$'
check "it was compared with the one before it" grep -q "| $(sha c5) .*| $(sha c4) | 6 | worse |" b/report.md
check "a merge is one commit" sh -c "cd repo && git checkout -qb side c1 && echo 4 >new && git add -A && git commit -qm side &&
    git checkout -qb merged c4 && git merge -q --no-edit side && git show c5:engine.in >engine.in && git add -A &&
    git commit -q --amend -m merged && git checkout -q main"
check "and can be the bad one" try 0 bisect --good c4 --bad merged --no-aa --out m
check "by its subject" grep -q "^The first bad commit: .* merged$" out
check "a commit that cannot be tried before the bad one" sh -c "cd repo && git checkout -qb gap c1 &&
    git show c3:build.sh >build.sh && git add -A && git commit -qm d1 && git show c0:build.sh >build.sh &&
    git show c5:engine.in >engine.in && git add -A && git commit -qm d2 && git checkout -q main"
check "leaves both" try 5 bisect --good c1 --bad gap --no-aa --out g
check "by name" grep -q "^The first bad commit is one of these 2, .*: $(sha gap^) $(sha gap)$" out

cat >served.json <<'JSON'
{"about": "a small job", "system": {"adapter": "scripted"}, "dataset": {"n": 2, "max_prompt_tok": 8,
 "max_output_tok": 2}, "load": {"n_requests": 2}}
JSON
"$testbed" watch --repo repo --job ./served.json --build true --set 'system.log={tree}/log.csv' --since c0 --until c1 \
    --rounds-max 6 --no-aa --keep --margin 90% --metric mean_e2e_ms --out t >out 2>err
check "{tree} is the worktree of each commit" ls "t/trees/$(sha c0)/log.csv" "t/trees/$(sha c1)/log.csv"

check "no repository" refuses 2 '--repo: expected a git repository, found "job.json"' "$testbed" watch --repo job.json \
    --job ./job.json --testbed x --build true
check "no job" refuses 2 '--job: expected a value' "$testbed" watch --repo repo --testbed x --build true
check "a job that is not there" refuses 2 '--job: expected an experiment or its file, found "./no.json"' "$testbed" \
    watch --repo repo --job ./no.json --testbed x --build true
check "nothing of the commit" refuses 2 'nothing of a commit would be run' "$testbed" watch --repo repo \
    --job ./job.json --build true
check "no such commit" refuses 2 '--since: expected a commit of repo, found "nope"' "$testbed" watch --repo repo \
    --job ./job.json --build true --testbed x --since nope
check "one that looks like a flag" refuses 2 '--good: expected a commit' "$testbed" bisect --repo repo \
    --job ./job.json --build true --testbed x --good=--all
# shellcheck disable=SC2086
{
    check "a good commit that does not build" sh -c "'$testbed' bisect $common --build 'sh build.sh' --good c3 --bad c7 \
        --out x 2>&1 >out | grep -v '^build' | tee err; [ \$(wc -l <err) = 1 ] && grep -q 'status 7: no compiler' err"
    check "one that is no ancestor" refuses 2 "repo: $(sha c7) is not an ancestor of $(sha c0)" "$testbed" bisect \
        $common --build 'sh build.sh' --good c7 --bad c0
    check "the same twice" refuses 2 'expected a commit after --good' "$testbed" bisect $common --build 'sh build.sh' \
        --good c1 --bad c1
}
check "no program after the build" sh -c "'$testbed' bisect --repo repo --job ./job.json --build true --testbed none \
    --good c0 --bad c1 --out y 2>&1 | grep -q -- '--build ended, but --testbed none is not a program there'"
check "a bad commit that is not worse" try 3 bisect --good c0 --bad c1 --no-aa --out z
check "is said" grep -q 'expected a commit that is worse than --good by more than 2%, found one that is not' err
check "a metric that does not exist" try 2 bisect --good c0 --bad c5 --no-aa --out z --metric step_sm
check "no worktree is left" [ "$(git -C repo worktree list | grep -c -v '/t/trees/')" = 1 ]
finish
