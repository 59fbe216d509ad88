#!/bin/sh
# Answers under grammars and schemas: `sandwich serve` (grammar.py), then `run` and `chat`.
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf" 2>"$dir/log" || exit 1
SANDWICH=$sandwich TINY=$dir/tiny.gguf python3 tests/http/grammar.py >"$dir/tap"
sed '/^1\.\./d' "$dir/tap"
n=$(grep -c '^\(not \)\?ok ' "$dir/tap")
! grep -q '^not ok' "$dir/tap" && [ "$n" -ge 6 ] || failed=1

printf 'root ::= "<" [a-c]{4} ">"\n' >"$dir/g.gbnf"
printf '{"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "maxItems": 3}' >"$dir/s.json"
run="$sandwich run --no-pin --model $dir/tiny.gguf --prompt hello --temperature 1 --seed 3 --max-tok 200"
out() { # expression, command...
    want=$1
    shift
    "$@" >"$dir/text" 2>"$dir/err" </dev/null && grep -q -x -- "$want" "$dir/text" || { cat "$dir/text" "$dir/err"; return 1; }
}
check "run --grammar" out '<[abc]*>' $run --grammar "$dir/g.gbnf"
check "run --json-schema" sh -c "$run --json-schema $dir/s.json 2>/dev/null | tr -d ' \n\t' |
    grep -x '\[[12],[12],[12]\]'"
check "chat --grammar-file" out '<[abc]*>' "$sandwich" chat "$dir/tiny.gguf" hello --no-pin \
    --chat-template llama-2 --grammar-file "$dir/g.gbnf"
check "both are refused" refuses 2 'either --grammar or --json-schema' \
    $run --grammar "$dir/g.gbnf" --json-schema "$dir/s.json"
check "a file that is not there is named" refuses 1 "$dir/none" $run --grammar "$dir/none"
echo 'root ::= "a' >"$dir/bad.gbnf"
check "a bad grammar is one line" refuses 2 'grammar: offset 11: expected' $run --grammar "$dir/bad.gbnf"
check "--ignore-eos is refused with it" refuses 2 'ignore_eos: not together' \
    $run --grammar "$dir/g.gbnf" --ignore-eos
"$sandwich" model make --arch tiny --type f32 --format safetensors --out "$dir/st" 2>"$dir/log"
rm -f "$dir"/st/tokenizer*
check "without a tokenizer it is refused" sh -c "$sandwich run --no-pin --ids --model $dir/st \
    --prompt-ids 1,2 --grammar $dir/g.gbnf 2>&1 | grep 'grammar: .* has no tokenizer'"
finish
