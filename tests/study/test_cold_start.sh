#!/bin/sh
# The study cold_start on a `sandwich` and servers that are scripts: phases are those that the program
# tells, the fastest other server is found, and who is not installed, fails or refuses is named.
set -u
. tests/support/tap.sh
dir=$(realpath "$dir")
cp "$build/testbed" "$dir"
cat >"$dir/sandwich" <<'SH'
#!/bin/sh
echo "$*" >>calls
[ ! -e failing ] || { echo "no such luck" >&2; exit 3; }
cat <<'JSON'
{"start_to_first_token_s": 10, "ttft_s": 2, "engine": {"load": {"weights_s": 5, "read_s": 1, "pack_s": 3,
 "kv_s": 0.5, "disk_bytes": 50000}}}
JSON
SH
# Answers a prompt of four tokens, at once or after 0.2 s.
cat >"$dir/server" <<'PY'
#!/usr/bin/python3
import http.server
import json
import sys
import time

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_GET(self):
        self.answer(200)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.2 if sys.argv[2] == "slow" else 0)
        good = asked["max_tokens"] == 1 and len(asked["prompt"]) == 4 and sys.argv[3:] == ["--precision", "exact"]
        self.answer(500 if sys.argv[2] == "refuses" or not good else 200)

    def log_message(self, *args):
        pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
PY
chmod +x "$dir/sandwich" "$dir/server"
system() { # name, what it does
    cat >"$dir/$1.json" <<JSON
{"about": "a script", "install": ["make"], "program": "$dir/server", "command": ["{program}", "{port}", "$2",
 ["--precision", "{precision}"]], "ready": {"path": "/health", "limit_s": 30}, "stop_s": 1}
JSON
}
system first slow
system rival quick
system other slow
system refuses refuses
sed -e "s|$dir/server|no-such-server|" "$dir/first.json" >"$dir/absent.json"
head -c 100000 /dev/zero >"$dir/m.gguf"
job() { # systems, more members
    cat >"$dir/job.json" <<JSON
{"about": "starts", "study": {"name": "cold_start", "model": "m.gguf", "systems": "$1", "precision": "exact",
 "threads": 1, "n_prompt_tok": 4, "ctx_tok": 8, "rounds": 3${2:-}}}
JSON
}
cd "$dir" || exit 1
job "./first.json ./other.json ./rival.json ./absent.json"
check "it runs" ./testbed run ./job.json --quiet --out out
./testbed export out/*.h5 --format json-full >record.json 2>err
check "what is asked of the program" grep -q -x \
    'run --model m.gguf --prompt-ids 3,10,17,24 -n 1 --json --threads 1 --max-tok 8 --precision exact' calls
check "phases add up to the time to the first token" python3 - <<'PY'
import json
import statistics
text = json.load(open("record.json"))
def find(o, key):
    if isinstance(o, dict):
        if key in o:
            v = o[key]
            return v.get("value", v.get("v")) if isinstance(v, dict) else v
        o = list(o.values())
    for x in o if isinstance(o, list) else []:
        found = find(x, key)
        if found is not None:
            return found
want = {"run_first_token_s": 10, "read_s": 1, "pack_s": 3, "wait_s": 1, "kv_s": 0.5, "prompt_s": 2, "rest_s": 2.5,
        "file_mb": 0.1, "weights_gbps": 1e-4 / 5, "disk_frac": 0.5}
for key, value in want.items():
    got = find(text, key)
    assert got is not None and abs(got - value) < 1e-9, (key, got, value)
of = {s: statistics.median(find(text, "first_token_s_of_%s.json" % s)) for s in ("first", "other", "rival")}
assert abs(find(text, "first_token_s") - of["first"]) < 1e-9 and of["first"] >= find(text, "ready_s") + 0.2, of
assert abs(find(text, "rival_first_token_s") - min(of["other"], of["rival"])) < 1e-9, of
assert find(text, "first_token_over_rival") > 0
PY
check "who is not installed" grep -q 'no-such-server: not found, see' record.json
job "./first.json"
./testbed run ./job.json --fresh --out alone >text 2>&1
./testbed export alone/*.h5 --format json-full >record.json 2>err
check "one alone is compared with nothing" grep -q 'no other server is installed' record.json
job "./first.json ./refuses.json"
./testbed run ./job.json --fresh --out refused >text 2>&1
check "one that refuses" grep -q 'answered 500 to a prompt' text
job "./rival.json" ', "cache": "cold"'
./testbed run ./job.json --fresh --out cold >text 2>&1
check "a cold cache, or why it cannot be" grep -q 'run_first_token_s\|the page cache keeps\|cannot be dropped' text
touch failing
job "./rival.json"
./testbed run ./job.json --fresh --quiet --out failed >text 2>&1
check "a program that fails is named with its last line" grep -q 'sandwich run (no such luck): exited with status 3' text
finish
