#!/bin/sh
# A model with a weight that is NaN or infinite, as a user meets it: one line that says where, an
# exit status that is not 0, and in a record a failed request with its reason.
set -u
. tests/support/tap.sh
"$sandwich" model make --arch tiny --type f32 --format safetensors --out "$dir/sound" || exit 1

# Copy the model to $dir/bad with the first number of this tensor replaced by this value.
spoil() {
    rm -rf "$dir/bad"
    cp -r "$dir/sound" "$dir/bad"
    python3 - "$dir/bad/model.safetensors" "$1" "$2" <<'END_PYTHON'
import json, struct, sys

path, tensor, value = sys.argv[1:]
with open(path, "r+b") as f:
    (n,) = struct.unpack("<Q", f.read(8))
    at = json.loads(f.read(n))[tensor]["data_offsets"][0]
    f.seek(8 + n + at)
    f.write(struct.pack("<f", float(value)))
END_PYTHON
}
run="$sandwich run --no-pin --model $dir/bad --prompt-ids 1,2,3 --ids -n 4"
text='new token 1, at position 3: the logit of id [0-9]* is '
one_warning_and_error() {
    run_quietly "$@"
    [ $got = 1 ] && [ "$(grep -c . "$dir/err")" = 2 ] && [ ! -s "$dir/out" ] &&
        grep -q '^warning: weights_not_finite: 1 norm .*model.norm.weight: number 0 of ' "$dir/err" &&
        grep -q "^sandwich run: $text" "$dir/err"
}

spoil model.layers.1.self_attn.q_proj.weight nan
for mode in "" "--ranks 2" "--ranks 2 --rank-mode processes" "--temperature 1" "--isa ref"; do
    check "a matrix with NaN $mode" refuses 1 "$text" $run $mode
done
spoil model.norm.weight inf
check "a norm with infinity" one_warning_and_error $run
spoil model.norm.weight 1
check "the same file with a number" $run

# Speeds of a model that computes NaN were published.
spoil model.layers.1.self_attn.q_proj.weight nan
for steps in "-p 4 -n 0" "-p 0 -n 2" "-p 0 -n 2 -b 3"; do
    check "bench $steps" refuses 1 "^sandwich bench: sequence 0: the logit of id [0-9]* is " \
        "$sandwich" bench -m "$dir/bad" -r 1 $steps
done

spoil model.layers.0.mlp.down_proj.weight -inf
cat >"$dir/job.json" <<END
{"about": "all requests fail",
 "system": {"adapter": "sandwich", "model": "$dir/bad", "pin": false},
 "dataset": {"n": 3, "max_prompt_tok": 8, "max_output_tok": 3}, "load": {"n_requests": 3},
 "smoke": {"about": "all fail"}}
END
failed_with_reason() {
    "$build/testbed" run "$dir/job.json" --smoke --out "$dir/results" --quiet >"$dir/out" 2>&1
    status=$?
    cat "$dir/out"
    [ $status = 3 ] &&
        grep -q '3 of 3 requests failed; the first: new token 1, at position .* is ' "$dir/out"
}
check "testbed counts failed requests with the reason" failed_with_reason
check "a smoke run does not measure the machine" sh -c 'h5dump "$1"/*.h5 | tr -d " \n" |
    grep -q "\"before\":{\"handoff_ns\":null,\"peak_f32_gflops\":null,\"read_gbps\":null}"' sh "$dir/results"
finish
