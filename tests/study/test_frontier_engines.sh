#!/bin/sh
# accuracy_frontier with other engines that are scripts: each setting is a point with the speeds that it
# prints and the error of the probabilities that it tells; who is slower at the same error is dominated,
# who tells no error is no point, and who is not installed is counted.
set -u
. tests/support/tap.sh
dir=$(realpath "$dir")
cp "$build/testbed" "$dir"
for type in f32 q8_0; do
    "$sandwich" model make --arch tiny-quant --type $type --out "$dir/m-$type.gguf" 2>"$dir/log" || exit 1
done
cd "$dir" || exit 1

# Prints a speed that no processor reaches; four times that if told to be fast.
cat >bench <<'SH'
#!/bin/sh
[ "$1" != --version ] || { echo "bench 1"; exit; }
x=1
case $* in *fast*) x=4 ;; esac
echo '| PP | TG | B | S_PP t/s | S_TG t/s |'
for b in 1 2 4 8 16; do echo "| 16 | 4 | $b | ${x}00000000000 | ${x}00000000000 |"; done
SH
# Answers as llama.cpp does: that the first tokens are equally probable.
cat >server <<'PY'
#!/usr/bin/python3
import http.server
import json
import sys

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, j):
        text = json.dumps(j).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer({})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        top = [{"id": i, "logprob": -5.0} for i in range(asked["logprobs"])]
        one = {"id": 0, "top_logprobs": top if sys.argv[2] == "tells" else []}
        self.answer({"choices": [{"text": "", "logprobs": {"content": [one]}}]})

    def log_message(self, *args):
        pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
PY
chmod +x bench server
engine() { # name, what its server does, bench program
    cat >"$1.json" <<JSON
{"about": "a script", "install": ["make"], "program": "$dir/server", "command": ["{program}", "{port}", "$2"],
 "ready": {"path": "/health", "limit_s": 30}, "stop_s": 1,
 "bench": {"program": "$3", "version": ["{program}", "--version"], "settings": {"slow": [], "quick": ["fast"]},
  "prefill": ["{program}", "prefill", "{n_prompt}"], "decode": ["{program}", "decode", "{batch}"],
  "separator": "|", "columns": {"n_prompt": "PP", "n_output": "TG", "batch": "B", "prefill_tok_s": "S_PP t/s",
   "decode_tok_s": "S_TG t/s"}}}
JSON
}
engine two tells "$dir/bench"
engine mute mutters "$dir/bench"
engine absent tells no-such-bench
cat >job.json <<'JSON'
{"about": "a frontier", "study": {"name": "accuracy_frontier", "model": "m-{weights}.gguf",
 "variants": "f32/exact/f32 q8_0/a8/f16 ./two.json:q8_0 ./mute.json:q8_0 ./absent.json:q8_0",
 "n_prompt_tok": 16, "n_output_tok": 4, "rounds": 6, "error_prompts": 4}}
JSON
check "it runs" ./testbed run ./job.json --quiet --out out
check "the record has no fault" sh -c './testbed verify out/*.h5'
./testbed export out/*.h5 --format json-full >record.json 2>err
judge() { # a condition on s: series, v: numbers, n: notes
    /usr/bin/python3 - "$1" <<'PY'
import json
import sys

cell = json.load(open("record.json"))["cells"][0]
s = {k: x["v"] for k, x in cell["series"].items()}
v = {k: x["value"] for k, x in cell["summary"].items()}
n = cell["attributes"]
print({k: s[k] for k in ("goodput_rps", "error", "frontier")}, n)
sys.exit(not eval(sys.argv[1]))
PY
}
check "each setting is a point" judge \
    'n["notes.variants"] == "f32/exact/f32, q8_0/a8/f16, ./two.json:q8_0 slow, ./two.json:q8_0 quick"'
check "who tells no error is none, who is not installed is counted" judge 'v["n_variants"] == 4 and v["n_absent"] == 2'
check "the reasons are there" sh -c \
    "grep -q 'answers do not name the ids' record.json && grep -q 'no-such-bench: not found' record.json"
check "speeds are those that are printed" judge \
    's["prefill_tok_s"][2] == 1e11 and s["decode_tok_s"][2] == 1e11 and s["decode16_tok_s"][3] == 4e11'
check "the goodput follows" judge 'abs(s["goodput_rps"][2] / (1e11 / (16 + 3)) - 1) < 1e-9'
check "both err as their server says" judge 's["error"][2] == s["error"][3] > 0.1'
check "the slower one of two equal errors is dominated" judge 's["frontier"][2] == -1'
check "the faster one is on the frontier" judge 's["frontier"][3] == 1 and v["n_dominated"] == 1'
check "what errs less stays" judge 's["frontier"][0] == 1 and s["frontier"][1] >= 0'
finish
