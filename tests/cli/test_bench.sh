#!/bin/sh
# `sandwich bench`: the rows and formats that users of llama-bench expect, kernels alone, and what
# is refused.
set -u
. tests/support/tap.sh

"$sandwich" model make --arch tiny --type f32 --out "$dir/a.gguf" >"$dir/log" 2>&1
"$sandwich" model make --arch tiny --type bf16 --out "$dir/b.gguf" >>"$dir/log" 2>&1
m="-m $dir/a.gguf"
small="-p 16 -n 4 -r 2 -t 1"

columns() { # file, column of a Markdown table
    awk -F'|' -v c="$2" 'NR > 2 { gsub(/ /, "", $(c + 1)); print $(c + 1) }' "$1" | tr '\n' ' '
}
prints() { # words wanted, file, column
    found=$(columns "$2" "$3")
    [ "$found" = "$1 " ] || { echo "found: $found"; return 1; }
}

"$sandwich" bench $m -p 16,64 -p 8 -n 4 -b 1,3 -t 1 -r 3 >"$dir/md" 2>"$dir/err"
check "its status" [ $? = 0 ]
check "the columns of llama-bench" grep -q -x \
    '| model *| *size | *params | backend | threads | *test | *t/s |' "$dir/md"
check "a row a test" prints "pp16 pp64 pp8 tg4 tg4b3" "$dir/md" 6
check "mean and deviation" sh -c "[ \$(grep -c '[0-9] ± [0-9.]* |\$' $dir/md) = 5 ]"
check "nothing else is printed" [ ! -s "$dir/err" ]
"$sandwich" bench $m -m "$dir/b.gguf" $small >"$dir/md" 2>&1
check "several models" prints "tinyf32 tinyf32 tinybf16 tinybf16" "$dir/md" 1
"$sandwich" bench $m,"$dir/b.gguf" -p 16 -n 0 >"$dir/md" 2>&1
check "several models, by commas; no decode" prints "pp16 pp16" "$dir/md" 6
check "one repetition has no deviation" sh -c \
    "$sandwich bench $m -p 16 -n 0 -r 1 | tail -n 1 | grep -q '[0-9] |\$' &&
     ! $sandwich bench $m -p 16 -n 0 -r 1 | grep -q ±"

"$sandwich" bench $m $small -b 1,3 -o json >"$dir/json" 2>"$dir/err"
check "JSON: rates, samples and their mean" python3 -c "
import json, statistics
rows = json.load(open('$dir/json'))
assert [r['test'] for r in rows] == ['pp16', 'tg4', 'tg4 b3'], rows
for r, tok in zip(rows, (16, 4, 12)):
    assert len(r['samples_ts']) == 2 and r['model_n_params'] == 378252
    assert all(abs(tok * 1e9 / ns - ts) < 1e-6 * ts for ns, ts in zip(r['samples_ns'], r['samples_ts']))
    assert abs(statistics.mean(r['samples_ts']) - r['avg_ts']) < 1e-6 * r['avg_ts']
    assert abs(statistics.stdev(r['samples_ts']) - r['stddev_ts']) <= 1e-6 * r['avg_ts']
    assert r['estimate_lo_ts'] <= r['estimate_ts'] <= r['estimate_hi_ts']
    assert r['n_threads'] == 1 and r['n_prompt'] + r['n_gen'] == tok // r['n_seqs']"
"$sandwich" bench $m $small -o csv >"$dir/csv" 2>"$dir/err"
check "CSV: one head, the same keys" python3 -c "
import csv, json
rows = list(csv.DictReader(open('$dir/csv')))
keys = [k for k, v in json.load(open('$dir/json'))[0].items() if not isinstance(v, list)]
assert [list(r) for r in rows] == [keys, keys], rows
assert [r['test'] for r in rows] == ['pp16', 'tg4'] and float(rows[0]['avg_ts']) > 0"

# The middle one of 255 decoded tokens has a context of 128.
"$sandwich" bench $m -p 128 -n 255 -r 1 -t 1 -o json >"$dir/json" 2>"$dir/err"
"$sandwich" model inspect --json "$dir/a.gguf" >"$dir/inspect"
check "the work of a test is that of the inspection" python3 -c "
import json
prompt, decode = json.load(open('$dir/json'))
cost = json.load(open('$dir/inspect'))
flop = [c['flop'] for c in cost['prompt'] if c['n_tok'] == 128]
read = [c['bytes'] for c in cost['decoded_token'] if c['ctx_tok'] == 128]
assert [prompt['bound_work']] == flop and [decode['bound_work']] == [255 * b for b in read]"
"$sandwich" bench $m -p 16 -n 4 -t 1 -r 1 --deterministic -o json >"$dir/json" 2>"$dir/err"
check "the deterministic mode" python3 -c "
import json
assert [(r['test'], r['deterministic'], r['n_ranks']) for r in json.load(open('$dir/json'))] == [
    ('pp16', True, 1), ('tg4', True, 1)]"
check "energy, or why it is not known" python3 -c "
import json
for r in json.load(open('$dir/json')):
    assert (r['joules_per_tok'] is None) != (r['no_energy'] is None), r
    assert r['joules_per_tok'] is None or r['joules_per_tok'] >= 0, r"
if [ "$(nproc)" -ge 2 ]; then
    "$sandwich" bench $m -p 16 -n 4 -b 1,3 -t 2 --ranks 1,2 -r 1 >"$dir/md" 2>&1
    check "ranks that share the threads" prints "pp16 tg4 tg4b3 pp16r2 tg4r2 tg4b3r2" "$dir/md" 6
    check "ranks that do not divide the threads" refuses 2 '2 ranks do not divide 1 threads' \
        "$sandwich" bench $m -t 1 --ranks 2
else
    skip "ranks that share the threads" "one CPU"
    skip "ranks that do not divide the threads" "one CPU"
fi

"$sandwich" bench --ops --only gemm_f32,rmsnorm -t 1 -r 2 -o json >"$dir/json" 2>"$dir/err"
check "operators: every variant of those asked for, with samples and a rate" python3 -c "
import json
rows = json.load(open('$dir/json'))
assert {r['op'] for r in rows} == {'gemm_f32', 'rmsnorm'}
shapes = [r['shape'].split('x')[0] for r in rows if r['op'] == 'gemm_f32' and r['variant'] == 'ref']
assert shapes == ['1', '8', '32'], shapes
for r in rows:
    assert len(r['samples_ns']) == 2 and 0 < r['rate_lo'] <= r['rate'] <= r['rate_hi']
    work = 2048 if r['op'] == 'rmsnorm' else 2 * 5504 * 2048 * int(r['shape'].split('x')[0])
    assert abs(work / min(r['samples_ns']) / r['rate'] - 1) < 1e-6, r
    assert (r['bound'] is None) == (r['op'] == 'rmsnorm')"
"$sandwich" bench --ops --only add,argmax -r 1 --isa ref >"$dir/md" 2>"$dir/err"
check "operators as a table, of plain C only" prints "ref ref" "$dir/md" 2
"$sandwich" bench --ops --only add -r 1 -o csv >"$dir/csv" 2>"$dir/err"
check "operators as CSV" sh -c "head -n 1 $dir/csv | grep -q ',op,variant,shape,' && grep -q ',add,ref,' $dir/csv"

check "an unknown operator" refuses 2 'no operator "gem_f32"; did you mean "gemm_f32"' \
    "$sandwich" bench --ops --only add,gem_f32
check "operators of a model" refuses 2 'ops measures kernels, not a model: remove -m' \
    "$sandwich" bench --ops $m
check "operators that are not measured" refuses 2 'only selects operators of --ops, which is missing' \
    "$sandwich" bench $m --only add
check "no model" refuses 2 '-m is needed' "$sandwich" bench
check "no such model" refuses 1 'none.gguf' "$sandwich" bench -m "$dir/none.gguf"
check "the second model is missing, and nothing is measured" refuses 1 'none.gguf' \
    "$sandwich" bench $m -m "$dir/none.gguf" $small
check "a word for a length" refuses 2 '^sandwich bench: -p: .* found "x"' "$sandwich" bench $m -p x
check "half a list" refuses 2 'found "16,"' "$sandwich" bench $m -p 16,
check "a negative length" refuses 2 '^sandwich bench: -n: ' "$sandwich" bench $m -n=-1
check "too many threads" refuses 2 '^sandwich bench: -t: ' "$sandwich" bench $m -t 9999
check "no sequence" refuses 2 '^sandwich bench: -b: ' "$sandwich" bench $m -b 0
check "nothing to do" refuses 2 'nothing to measure' "$sandwich" bench $m -p 0 -n 0
check "longer than the model is made for" refuses 2 'made for sequences of 256 tokens, found 512' \
    "$sandwich" bench $m -p 512
check "an unknown format" refuses 2 'did you mean "md"' "$sandwich" bench $m -o mdd
check "no repetition" refuses 2 '-r: expected an integer' "$sandwich" bench $m -r 0
finish
