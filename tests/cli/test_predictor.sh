#!/bin/sh
# `sandwich predictor` as a user meets it: train, the same bytes again, evaluate on what was held
# out, and what it says of files that are damaged or were made otherwise.
set -u
. tests/support/tap.sh
predictor="$sandwich predictor"

# Instructions whose first word tells how long the answer is, most of the time.
awk 'BEGIN {
    split("name describe explain write", verb); split("12 60 200 500", letters)
    srand(1); printf "["
    for (i = 0; i < 800; i++) {
        k = 1 + int(4 * rand()); told = rand() < 0.9 ? k : 1 + int(4 * rand())
        n = int(letters[k] * (0.8 + 0.4 * rand())); out = ""
        while (length(out) < n) out = out "word "
        printf "%s{\"instruction\": \"%s thing number %d\", \"output\": \"%s\"}", i ? ",\n" : "", verb[told], i, out
    }
    print "]" }' >"$dir/alpaca.json"
train="$predictor train --data $dir/alpaca.json"
eval_="$predictor eval --data $dir/alpaca.json"

check "train" sh -c "$train --format alpaca --out $dir/p.json >$dir/said &&
    grep -q '^learned from [0-9]* requests (alpaca) in [0-9.]* s; [0-9]* are held out; written to ' $dir/said"
check "the same data give the same file" sh -c "$train -o $dir/again.json && cmp $dir/p.json $dir/again.json"
check "learned and held out are all" sh -c \
    "[ \$(sed 's/.*from \([0-9]*\) .* s; \([0-9]*\) .*/\1 + \2/' $dir/said | xargs expr) = 800 ]"
check "eval" sh -c "$eval_ --predictor $dir/p.json >$dir/table && grep -q 'part 1 of 5' $dir/table &&
    [ \$(grep -c '^constant  \|^learned  ' $dir/table) = 4 ]"
check "eval as JSON: what was learned is better than a constant" sh -c \
    "$eval_ --predictor $dir/p.json --json >$dir/j.json && python3 -c '
import json, sys
j = json.load(open(sys.argv[1]))
by = {(r[\"predictor\"], r[\"buckets\"]): r for r in j[\"results\"]}
assert len(by) == 4 and j[\"held_out\"] and j[\"n_requests\"] > 100 and j[\"predict_s\"] > 0, j
learned, constant = by[\"learned\", \"learned\"], by[\"constant\", \"learned\"]
assert learned[\"log_mae\"] < 0.5 * constant[\"log_mae\"], by
assert constant[\"kendall_tau\"] is None and learned[\"kendall_tau\"] > 0.5, by
for r in by.values():
    assert r[\"safe_frac\"] >= r[\"bucket_frac\"] and 0 < r[\"utilization_frac\"] <= 1, r
' $dir/j.json"
check "another part is of other requests" sh -c "$train --fold 2 -o $dir/p2.json >/dev/null &&
    $eval_ --predictor $dir/p2.json --json >$dir/j2.json && ! cmp -s $dir/j.json $dir/j2.json"
check "no part" sh -c "$train --fold 0 -o $dir/all.json >/dev/null &&
    $eval_ --predictor $dir/all.json | grep -q '^800 requests, which may have been learned from'"
check "a longest sequence leaves out requests" sh -c \
    "$eval_ --predictor $dir/all.json --max-tok 64 | grep -q '^[4-6][0-9][0-9] requests'"
check "a sample" sh -c "$train --n 100 -o $dir/s.json | grep -q ' from [6-9][0-9] '"

check "nothing given" refuses 2 '--data and --out are needed' $predictor train
check "no predictor" refuses 2 '--data and --predictor are needed' $eval_
check "no such verb" refuses 2 'expected train or eval, found "tarin"' $predictor tarin
check "no such data" refuses 1 'none.json' $predictor train --data "$dir/none.json" --out "$dir/x"
check "no such format" refuses 1 'did you mean "alpaca"' $train --format alpacca --out "$dir/x"
check "another format" refuses 1 'conversations' $train --format sharegpt --out "$dir/x"
check "over its own data" refuses 2 'alpaca.json' $train --out "$dir/alpaca.json"
printf 'prompt_len,output_len\n1,2\n' >"$dir/lengths.csv"
check "lengths only" refuses 2 'expected a text and its answer' \
    $predictor train --data "$dir/lengths.csv" --out "$dir/x"
check "too few" refuses 2 'expected at least 16' $train --n 8 --out "$dir/x"
check "no such part" refuses 2 'fold: expected 0 to 5, found 6' $train --fold 6 --out "$dir/x"
check "nothing was written" test ! -e "$dir/x"
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" 2>"$dir/err"
check "tokens by a model" sh -c "$train --tokenizer $dir/tiny.gguf -o $dir/t.json >/dev/null &&
    $eval_ --tokenizer $dir/tiny.gguf --predictor $dir/t.json | grep -q 'utilization'"
check "tokens counted otherwise" refuses 2 'expected what .* was trained with' \
    $eval_ --predictor "$dir/t.json"
generate="--n 60 --generate $dir/tiny.gguf --max-new 12"
check "lengths of generated answers" sh -c "$train $generate -o $dir/g.json >$dir/said 2>&1 &&
    grep -q 'tiny.gguf answered 60 prompts; [0-9]* answers were cut at 12 tokens' $dir/said &&
    $train $generate -o $dir/g2.json >/dev/null 2>&1 && cmp $dir/g.json $dir/g2.json &&
    grep -q 'of [0-9]*, generated' $dir/g.json && ! cmp -s $dir/g.json $dir/p.json"
check "eval on generated answers: none is longer than they may be" sh -c \
    "$eval_ $generate --predictor $dir/g.json --json 2>/dev/null | python3 -c '
import json, sys
j = json.load(sys.stdin)
assert j[\"constant_tok\"] <= 12 and j[\"n_requests\"] > 3, j'"
check "generated, judged by recorded answers" refuses 2 'expected what .* was trained with .*generated' \
    $eval_ --tokenizer "$dir/tiny.gguf" --predictor "$dir/g.json"
check "answers longer than the model's context" refuses 2 'max-new: expected less than' \
    $train --generate "$dir/tiny.gguf" --max-new 100000 -o "$dir/x"
head -c 5000 "$dir/p.json" >"$dir/cut.json"
check "a cut predictor" refuses 1 'cut.json' $eval_ --predictor "$dir/cut.json"
sed 's/"longest_log": [0-9.]*/"longest_log": 3.0/' "$dir/p.json" >"$dir/edited.json"
check "an edited predictor" refuses 1 'edited.json: checksum' $eval_ --predictor "$dir/edited.json"
sed 's/"version": 1/"version": 9/' "$dir/p.json" >"$dir/new.json"
check "another version" refuses 1 'new.json: version: expected' $eval_ --predictor "$dir/new.json"
finish
