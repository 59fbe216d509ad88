#!/bin/sh
# The program `sandwich` as a user meets it: make, inspect, run, plan, and what it says when the
# words are wrong.
# Regression: control tokens in a prompt could not be given, and the refusal of a long text did not
# name `--max-tok`.
set -u
. tests/support/tap.sh
data=${SANDWICH_DATA:-../shared/data}/models
same_output() { # expected file, command...
    want=$1
    shift
    "$@" >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; return 1; }
    diff "$want" "$dir/out"
}

check "help names the verbs" sh -c "$sandwich --help | grep -q ' model '"
check "a verb's help lists its options" sh -c "$sandwich run --help | grep -q -- --prompt-ids"
check "unknown verb" refuses 2 '"run"' "$sandwich" rnu
check "unknown option names the nearest" refuses 2 '--model' "$sandwich" run --modle x
check "no model" refuses 2 '--model is needed' "$sandwich" run --prompt x
check "no prompt" refuses 2 'prompt' "$sandwich" run --model x
check "no such file" refuses 1 'none.gguf' "$sandwich" run --model "$dir/none.gguf" --prompt x
check "unknown isa" refuses 2 '"auto"' "$sandwich" run --model x --prompt x --isa atuo
check "unknown architecture" refuses 1 'llama-160m' \
    "$sandwich" model make --arch llama-161m --out "$dir/x"

check "make" "$sandwich" model make --arch tiny --type f32 --out "$dir/tiny.gguf"
check "make safetensors" "$sandwich" model make --arch tiny --type f32 --format safetensors \
    --out "$dir/tiny"
check "inspect" sh -c "$sandwich model inspect $dir/tiny.gguf | grep -q layers"
check "help of model" sh -c "$sandwich model --help | grep -q 'sandwich model inspect --help'"
check "model alone is wrong usage" refuses 2 'expected make, quantize, inspect or explain-support' "$sandwich" model
check "what loads is listed with what others lack" sh -c "$sandwich model explain-support >$dir/table &&
    grep -q '^| granite  *| yes *| GraniteForCausalLM' $dir/table &&
    grep -q '^| mamba  *| no *| needs state-space layers' $dir/table &&
    grep -q '^| awq  *| w4g128  *| version gemm, 4 bits' $dir/table"
check "and as JSON, by architecture and method of quantisation" python3 -c "
import json, subprocess
rows = json.loads(subprocess.run(['$sandwich', 'model', 'explain-support', '--json'],
                                 capture_output=True, check=True).stdout)
assert [r['quant_method'] for r in rows if 'arch' not in r][0] == 'gptq', rows
rows = [r for r in rows if 'arch' in r]
names = [r['arch'] for r in rows]
assert len(names) == len(set(names)) >= 53, names
assert all(bool(r.get('missing')) != r['known'] for r in rows), rows
assert all(r['classes'] and r['shapes'] for r in rows if r['known']), rows"
check "inspect as JSON" sh -c "$sandwich model inspect --json $dir/tiny | python3 -m json.tool"
run="$sandwich run --no-pin --model $dir/tiny.gguf -n 12 --ignore-eos"
$run --prompt-ids 1,2,3 --ids >"$dir/ids" 2>"$dir/err"
check "one line of 12 ids" sh -c "[ \$(wc -l <$dir/ids) = 1 ] && [ \$(wc -w <$dir/ids) = 12 ]"
check "the same ids from safetensors" same_output "$dir/ids" \
    "$sandwich" run --no-pin --model "$dir/tiny" -n 12 --ignore-eos --prompt-ids 1,2,3 --ids
check "the same ids in plain C" same_output "$dir/ids" $run --prompt-ids 1,2,3 --ids --isa ref
check "the same ids with one thread" same_output "$dir/ids" \
    $run --prompt-ids 1,2,3 --ids --threads 1
printf '{"eos_token_id": [2, %s]}' "$(cut -d' ' -f5 "$dir/ids")" >"$dir/tiny/generation_config.json"
check "generation_config.json ends a text" sh -c "$sandwich run --no-pin --model $dir/tiny -n 12 \
    --prompt-ids 1,2,3 --json 2>/dev/null | grep -q '\"finish\": \"eos\"'"
check "it says where the time before the first token went" grep -q \
    '^first token .*: loading .* weights .*reading .*packing .* keys and values .*, prompt ' "$dir/err"
engine() { # expression of the report r, options...
    test=$1
    shift
    $run --prompt-ids 1,2,3 --json "$@" >"$dir/json" 2>"$dir/log"
    python3 -c "
import json
r = json.load(open('$dir/json'))
e = r['engine']
assert $test, (r, e)"
}
check "the phases of loading add up, and are before the first token" engine "\
    abs(sum(e['load'][p + '_s'] for p in 'team file weights steps kv tokenizer'.split()) \
    - e['load']['all_s']) < 1e-9 and r['start_to_first_token_s'] > e['load']['all_s'] + r['ttft_s']"
check "memory for what one prompt can need" engine "e['max_tok'] == 15"
check "as much as is asked for" engine "e['max_tok'] == 40" --max-tok 40
prompt_tok() { # options... : tokens of the prompt
    "$sandwich" run --no-pin --model "$dir/tiny.gguf" -n 1 --json "$@" 2>/dev/null |
        sed -n 's/.*"n_prompt_tok": \([0-9]*\).*/\1/p' | head -n 1
}
check "a control token in a prompt is text" [ "$(prompt_tok --prompt 'a</s>')" -gt 3 ]
check "with --special it is one token" [ "$(prompt_tok --prompt 'a</s>' --special)" = 3 ]
check "too long a text names the option" refuses 1 '--max-tok' $run --prompt-ids 1 -n 100000
check "unknown pre-tokenizer" refuses 1 'starcoder or tekken' \
    "$sandwich" run --no-pin --model "$dir/tiny" --prompt x --pre-tokenizer gpt-9
check "a pre-tokenizer is for byte-level vocabularies" refuses 2 'SentencePiece' \
    $run --prompt x --pre-tokenizer gpt-2
check "plan" "$sandwich" plan --out "$dir/plan.json" --decode-threads 1
check "the same ids by a plan" same_output "$dir/ids" \
    $run --prompt-ids 1,2,3 --ids --plan "$dir/plan.json"
check "plan: printed" sh -c "$sandwich plan --show $dir/plan.json | grep -q '^decode: 1 rank of 1 thread'"
search="--max-s 4 --final-repeats 2 --k 2"
check "plan measured on this host" sh -c "$sandwich plan --model $dir/tiny.gguf $search --explain \
    --out $dir/found.json >$dir/explained && grep -q '(measured)' $dir/explained &&
    grep -q '^Chosen' $dir/explained"
check "the same ids by a plan that was measured" same_output "$dir/ids" \
    "$sandwich" run --model "$dir/tiny.gguf" -n 12 --ignore-eos --prompt-ids 1,2,3 --ids \
    --plan "$dir/found.json"
methods="one_plan vllmpp"
[ "$(nproc)" -gt 1 ] && methods="$methods even_split:--ranks=2"
for m in $methods; do
    check "plan --method $m" sh -c "$sandwich plan --model $dir/tiny.gguf --max-s 1 \
        --method $(echo $m | tr ':' ' ') --out $dir/$m.json >$dir/out &&
        grep -q '(measured), from ${m%:*}\$' $dir/out"
    check "the same ids by $m" same_output "$dir/ids" "$sandwich" run --model "$dir/tiny.gguf" \
        -n 12 --ignore-eos --prompt-ids 1,2,3 --ids --plan "$dir/$m.json"
done
check "unknown method" refuses 1 '"even_split"' "$sandwich" plan --model "$dir/tiny.gguf" \
    --method evensplit
check "ranks are for one method" refuses 2 'for --method even_split' "$sandwich" plan \
    --model "$dir/tiny.gguf" --ranks 2
check "a method needs a model" refuses 2 '--model is needed' "$sandwich" plan --method vllmpp
check "plan --method on a simulated machine" sh -c "$sandwich plan --machine kunpeng920x4 \
    --model llama-160m --method even_split | grep -q 'ranks sum by master_copy'"
check "without a model nothing is measured" sh -c "$sandwich plan 2>&1 | grep -q 'nothing is measured'"
check "plan for a simulated machine" sh -c "$sandwich plan --machine kunpeng920x4 \
    --model llama-160m --out $dir/far.json | grep -q '(simulated)'"
"$sandwich" plan --machine kunpeng920x4 --model llama-160m --progress >"$dir/out" 2>"$dir/err"
check "plan --progress: what is searched, in order" sh -c \
    "cut -d: -f2 $dir/err | uniq | tr '\\n' , | grep -q -x ' decode, prefill, steps of both phases,'"
check "plan --progress: measurements and time" grep -q -E \
    '^sandwich plan: decode: 0 measurements, 0 of at most 25 s$' "$dir/err"
"$sandwich" plan --machine kunpeng920x4 --model llama-160m >"$dir/out" 2>"$dir/err"
check "without it, nothing where there is no terminal" [ ! -s "$dir/err" ]
check "its CPUs are refused" refuses 2 'CPU 2 is not one of this process' \
    $run --prompt-ids 1 --plan "$dir/far.json"
check "a shell reads its CPUs" sh -c "eval \"\$($sandwich plan --show $dir/far.json --render)\" &&
    [ \"\$(echo \$DECODE_CPUS | tr '|' '\\n' | wc -l)\" = \$DECODE_RANKS ]"
check "testbed describes it" sh -c "$build/testbed describe $dir/far.json | grep -q kunpeng920x4"
printf 'prompt,output\n100,10\n20,x\n' >"$dir/lengths.csv"
check "bad lengths" refuses 1 'lengths.csv:3: output' "$sandwich" plan --machine kunpeng920x4 \
    --model llama-160m --lengths "$dir/lengths.csv"
printf '[{"instruction": "Say yes.", "input": "", "output": "Yes."}]' >"$dir/texts.json"
check "texts have no lengths" refuses 1 'expected lengths in tokens, found texts (alpaca)' \
    "$sandwich" plan --machine kunpeng920x4 --model llama-160m --lengths "$dir/texts.json"
check "a topology without rates" refuses 2 'machine-params FILE gives them' \
    "$sandwich" plan --machine 'synthetic:core:4 pu:1' --model llama-160m
sed '/"NUMANode" os_index="3"/s/local_memory="[0-9]*"/local_memory="0"/' tests/fuzz/corpus/topology/good.xml \
    >"$dir/gap.xml"
check "what is assumed of a machine is said" sh -c "'$sandwich' plan --machine '$dir/gap.xml' --model llama-160m \
    --machine-params engine/simulate/machines/params/xeon6230x2.json 2>&1 >'$dir/out' |
    grep -q '^sandwich plan: gap: .*4 CPUs without a memory node of their own: given the nearest'"
check "no such machine" refuses 1 'kunpeng920x4' "$sandwich" plan --machine kunpeng920x5 --model tiny
check "measuring needs a file" refuses 2 'model make --arch tiny' "$sandwich" plan --model tiny
check "an old plan" refuses 1 'make a new one' $run --prompt-ids 1 \
    --plan tests/fuzz/corpus/plan/version1
check "a server that batches needs two sequences" sh -c "$sandwich serve --model none.gguf --port 0 \
    --policy chunked --max-seqs 1 2>&1 | grep -q 'policy chunked serves requests one at a time, because --max-seqs is 1'"
check "bad ids" refuses 2 'offset 2' $run --prompt-ids 1,x
check "id outside the vocabulary" refuses 2 'outside' $run --prompt-ids 1,99999999
$run --prompt hello --json >"$dir/json" 2>"$dir/err"
check "JSON" python3 -c "
import json, sys
d = json.load(open('$dir/json'))
assert len(d['ids']) == 12 and d['ttft_s'] > 0 and d['tpot_s'] > 0 and d['read_gbps'] > 0
assert d['engine']['kernels']['chosen'] and d['engine']['cpu_budget']['reason']"
if [ -r "$data/stories260K.bin" ] && [ -r "$data/stories260K.greedy.json" ]; then
    python3 -c "
import json
d = json.load(open('$data/stories260K.greedy.json'))
print(*d['greedy_tokens'][1:])" >"$dir/want"
    check "stories260K: the ids" same_output "$dir/want" "$sandwich" run --no-pin \
        --model "$data/stories260K.bin" --prompt '' --ids -n 200
    "$sandwich" run --no-pin --model "$data/stories260K.bin" --tokenizer "$data/tok512.bin" \
        --prompt '' -n 200 >"$dir/story" 2>"$dir/err"
    check "stories260K: the text" python3 -c "
import json
want = json.load(open('$data/stories260K.greedy.json'))['text'].strip()
got = open('$dir/story').read().strip()
assert got == want, got"
else
    skip "stories260K" "models/stories260K.bin is not in \$SANDWICH_DATA"
fi
finish
