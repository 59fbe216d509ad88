#!/bin/sh
# The study engines on bench programs and a server that are scripts: speeds are those that they print
# with the best of their settings, errors those of the probabilities that are told, and who is not
# installed or tells none is named.
set -u
. tests/support/tap.sh
dir=$(realpath "$dir")
cp "$build/testbed" "$dir"
"$sandwich" model make --arch tiny-quant --type q4_0 --out "$dir/m.gguf" 2>"$dir/log" || exit 1
cd "$dir" || exit 1

# Prints 100 tokens per second and prompt token, 10 per sequence; three times as many if told to be fast.
cat >bench <<'SH'
#!/bin/sh
[ "$1" != --version ] || { echo "bench 1"; exit; }
x=$1
case $* in *fast*) x=$((3 * x)) ;; esac
[ ! -e failing ] || exit 3
[ ! -e late ] || [ "$(wc -l <calls)" -lt 12 ] || { rm late; echo "what it said"; exit 3; }
echo "$*" >>calls
echo '| PP | TG | B | S_PP t/s | S_TG t/s |'
for b in 1 4; do echo "| 16 | 4 | $b | $((100 * x)) | $((10 * b * x)) |"; done
[ -e crashing ] && kill -SEGV $$
exit 0
SH
# Answers as llama.cpp does: that the first tokens are equally probable.
cat >server <<'PY'
#!/usr/bin/python3
import http.server
import json
import sys

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, j):
        text = json.dumps(j).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer(200, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if sys.argv[2] == "refuses" or len(asked["prompt"]) != 64:
            return self.answer(500, {"error": "no"})
        top = [{"id": i, "logprob": -5.0} for i in range(asked["logprobs"])]
        one = {"id": 0, "top_logprobs": top if sys.argv[2] == "tells" else []}
        self.answer(200, {"choices": [{"text": "", "logprobs": {"content": [one]}}]})

    def log_message(self, *args):
        pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
PY
chmod +x bench server
engine() { # name, speed, what its server does, more members of its bench
    cat >"$1.json" <<JSON
{"about": "a script", "install": ["make"], "program": "$dir/server", "command": ["{program}", "{port}", "$3"],
 "ready": {"path": "/health", "limit_s": 30}, "stop_s": 1,
 "bench": {"program": "$dir/bench", "version": ["{program}", "--version"],
  "prefill": ["{program}", "$2", "prefill", "{n_prompt}"], "decode": ["{program}", "$2", "decode", "{batch}"],
  "separator": "|", "columns": {"n_prompt": "PP", "n_output": "TG", "batch": "B", "prefill_tok_s": "S_PP t/s",
   "decode_tok_s": "S_TG t/s"}$4}}
JSON
}
engine first 4 tells ''
engine slow 1 refuses ''
engine rival 1 mute ', "settings": {"plain": ["plain"], "quick": ["fast"]}'
sed -e "s|$dir/bench|no-such-bench|" first.json >absent.json
cat >job.json <<'JSON'
{"about": "engines", "study": {"name": "engines", "model": "m.gguf",
 "systems": "./first.json ./slow.json ./rival.json ./absent.json", "max_prompt_tok": 16, "max_batch": 4,
 "n_output_tok": 4, "rounds": 3, "error_prompts": 4, "read_s": 0.02, "peak_s": 0.02}}
JSON
check "it runs" ./testbed run ./job.json --quiet --out out
./testbed export out/*.h5 --format json-full >record.json 2>err
value() { # name, expected, or a range
    /usr/bin/python3 - "$1" "$2" <<'PY'
import json
import sys
text = json.load(open("record.json"))
def find(o):
    if isinstance(o, dict):
        for k, v in o.items():
            if k == sys.argv[1]:
                return v
            found = find(v)
            if found is not None:
                return found
    if isinstance(o, list):
        for v in o:
            found = find(v)
            if found is not None:
                return found
    return None
v = find(text)
v = v.get("value", v.get("values")) if isinstance(v, dict) else v
print(sys.argv[1], v)
want = sys.argv[2]
low, _, high = want.partition("..")
sys.exit(not float(low) - 1e-6 < float(v) < float(high or low) + 1e-6)
PY
}
check "a prompt: the first" value tok_s_p16 400
check "the fastest other, with its best setting" value rival_tok_s_p16 300
check "their ratio" value over_rival_b4 1.3333333
check "rounds differ in nothing" value n_behind 0
check "nor does the first from itself" value over_again_p16 1
check "so that any difference is seen" value detectable_frac 0
check "over all points" value over_rival 1.3333333
check "the first is measured twice in each round" sh -c "[ \$(grep -c '^4 prefill 16' calls) = 7 ]"
check "the setting is named" grep -q '"quick"' record.json
check "who is not installed" sh -c "grep -q 'no-such-bench: not found, see' record.json"
check "who refuses to tell" sh -c "grep -q 'answered 500 to a request for the probabilities' record.json"
check "who tells nothing" sh -c "grep -q 'answers do not name the ids of probable tokens' record.json"
# Regression: the roof was none of the alternatives that ran, and what lay behind them was read.
check "bandwidth and peak are measured in the rounds" value read_gbps 0.1..10000
check "both" value peak_gflops 0.1..1000000
check "shares are of what they allow" value roof_frac_b4 1e-9..1.02
check "an error of those who tell" value logit_error 0.1..10
check "nobody to compare it with" sh -c \
    "tr -d ' \\n' <record.json | grep -q '\"logit_error_over_rival\":{[^}]*\"value\":null'"
check "settings are tried once, and the best is run in each round" sh -c \
    "[ \$(grep -c '^1 prefill 16 plain' calls) = 1 ] && [ \$(grep -c '^1 prefill 16 fast' calls) = 4 ]"
engine too 1 tells ''
sed -e 's/first.json .\/slow.json .\/rival.json/first.json .\/too.json .\/slow.json/' job.json >told.json
check "two of three tell" ./testbed run ./told.json --quiet --out told
./testbed export told/*.h5 --format json-full >record.json 2>err
check "they err equally, whoever else is silent" value logit_error_over_rival 1
printf '#!/bin/sh\n[ "$1" = --version ] || exit 4\n' >broken-bench
chmod +x broken-bench
sed -e "s|$dir/bench|$dir/broken-bench|" slow.json >broken.json
sed -e 's/.\/slow.json/.\/broken.json/' job.json >less.json
check "an engine that no setting makes work is left out" ./testbed run ./less.json --quiet --out less
./testbed export less/*.h5 --format json-full >record.json 2>err
check "with its reason" grep -q 'no setting measures every point' record.json
check "and others stay" value rival_tok_s_p16 300
sed -e 's/ .\/slow.json .\/rival.json//' job.json >alone.json
./testbed run ./alone.json --out alone >out.txt 2>&1
check "one alone is compared with nothing" grep -q 'of the engines .* one can be measured' out.txt
# Regression: one crash of llama.cpp in an hour, at the end of a program, took a whole cell.
: >calls
touch late
check "one that fails once in the rounds is asked again" ./testbed run ./job.json --quiet --out once
check "and named" sh -c "./testbed export once/*.h5 --format json-full | grep -q 'failed_once.*what it said'"
touch crashing
check "one that crashes behind its table has measured" ./testbed run ./job.json --quiet --out crashed
check "with a warning" sh -c "./testbed export crashed/*.h5 --format json-full | grep -q failed_after_measuring"
rm crashing
touch failing
./testbed run ./job.json --out failed >out.txt 2>&1
check "one that fails is named" grep -q 'first.json: no setting measures every point: first.json: exited with status 3' out.txt
finish
