#!/bin/sh
# Files of the program `sandwich`, in and out: output that is lost, targets that must not be
# replaced, inputs that are no files, and what an ended process leaves behind.
# Regression: `plan --out`, `tune --cache` and `model make --out` replaced their own input, a
# device, a pipe or a link.
set -u
. tests/support/tap.sh

check "make" "$sandwich" model make --arch tiny --out "$dir/tiny.gguf"
check "plan" "$sandwich" plan --out "$dir/plan.json" --decode-threads 1

# Output that is lost, whatever printed it.
for words in --help --version 'run --help' 'model inspect' 'plan --show' 'run' 'run --json'; do
    case $words in
    'model inspect') set -- model inspect "$dir/tiny.gguf" ;;
    'plan --show') set -- plan --show "$dir/plan.json" ;;
    run*) set -- $words --model "$dir/tiny.gguf" --prompt x -n 2 --no-pin ;;
    *) set -- $words ;;
    esac
    [ "$words" = 'run --help' ] && set -- run --help
    "$sandwich" "$@" >/dev/full 2>"$dir/err"
    check "$words: lost output is status 3" [ $? = 3 ]
    check "$words: and said" sh -c "tail -n 1 $dir/err | grep -q '^sandwich: standard output: '"
done

# What is written replaces neither an input nor what is not a file; what is read is a file.
mkfifo "$dir/pipe"
ln -s tiny.gguf "$dir/link"
for out in "$dir/tiny.gguf" "$dir/pipe" "$dir/link" "$dir" /dev/null ''; do
    check "model make --out '$out'" refuses 2 '' "$sandwich" model make --arch tiny \
        --tokenizer "$dir/tiny.gguf" --out "$out"
    check "plan --out '$out'" refuses 2 '' "$sandwich" plan --machine kunpeng920x4 \
        --model "$dir/tiny.gguf" --out "$out"
    check "tune --cache '$out'" refuses 2 '' "$sandwich" tune --model "$dir/tiny.gguf" \
        --cache "$out"
done
check "they are as before" sh -c "[ -p $dir/pipe ] && [ -L $dir/link ] && [ -c /dev/null ] &&
    $sandwich model inspect $dir/tiny.gguf"
for words in 'run --prompt x --model' "run --prompt x --model $dir/tiny.gguf --plan" \
    "run --prompt x --model $dir/tiny.gguf --schedules" \
    "run --prompt x --model $dir/tiny.gguf --tokenizer" 'plan --show' 'plan --machine' \
    "plan --machine kunpeng920x4 --model $dir/tiny.gguf --lengths" \
    "plan --model tiny --machine kunpeng920x4 --machine-params" 'model inspect'; do
    # shellcheck disable=SC2086
    check "$words a pipe" refuses 1 "$dir/pipe" timeout 10 "$sandwich" $words "$dir/pipe"
done

# Folders are made; what a killed process leaves is gone after the next one.
check "make parents" "$sandwich" model make --arch tiny --out "$dir/a/b/tiny.gguf"
for signal in TERM HUP KILL; do
    "$sandwich" model make --arch llama-160m --out "$dir/killed/m.gguf" 2>"$dir/err" &
    until [ -e "$dir"/killed/m.gguf.*.tmp ]; do
        kill -0 $! 2>"$dir/log" || break
    done
    kill -s $signal $!
    wait $!
    check "killed by $signal" [ ! -e "$dir/killed/m.gguf" ]
    [ $signal = KILL ] || check "killed by $signal: nothing is left" rmdir "$dir/killed"
done
check "kill -9 leaves a file" [ -e "$dir"/killed/m.gguf.*.tmp ]
check "made after it" "$sandwich" model make --arch tiny --out "$dir/killed/m.gguf"
check "nothing else is left" [ "$(ls "$dir/killed")" = m.gguf ]

# Two searches share a file, and both results stay in it.
for shape in 64x64 128x64; do
    "$sandwich" tune --shapes $shape --rows 1 --policy roller --cache "$dir/new/s.json" --rounds 0 \
        --threads 1 --no-pin >"$dir/out.$shape" 2>&1 &
done
wait
check "both are in it" python3 -c "
import json
assert [g['n'] for g in sorted(json.load(open('$dir/new/s.json'))['groups'], key=lambda g: g['n'])] == [64, 128]"
finish
