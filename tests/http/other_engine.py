"""Probabilities of made models in f32 next to those of another engine that reads the same file, at each position
of what that engine generates. Prints TAP. usage: other_engine.py SANDWICH SERVER FOLDER"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

CLOSE = 1e-4
# llama.cpp takes GELU from a table of f16.
TABLE = 2e-3
GELU = {"tiny-gemma", "tiny-gemma2", "tiny-gemma3", "tiny-starcoder2"}
# What it computes without the window that the file states.
NO_WINDOW = {"tiny-starcoder2"}
# Of a token of a text, which has one position, it reads four in 2025-02: what follows the positions in memory.
FOUR_POSITIONS = {"tiny-qwen2-vl"}

sandwich, server, folder = sys.argv[1:]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A program that serves HTTP, from its first answer on."""

    def __init__(self, *command):
        self.port = free_port()
        self.log = open(os.path.join(folder, "server.log"), "w+")
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=self.log, stderr=self.log)

    def __enter__(self):
        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen("http://127.0.0.1:%d/health" % self.port, timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.__exit__()
        self.log.seek(0)
        said = [line for line in self.log.read().splitlines() if re.search("error|fatal|ASSERT", line)]
        raise OSError((said or ["it did not start"])[0][-150:])

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def post(self, path, **body):
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.port, path), json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


def theirs(model, prompt, n):
    """The ids that the other engine generates, and for each its logarithm of a probability and those of the most
    probable tokens; None where the text ends within a character, of which it says nothing."""
    asked = {"temperature": 0, "n_probs": 10, "ignore_eos": True, "return_tokens": True}
    with Server(server, "-m", model, "-c", "256", "-t", "1", "-ctk", "f32", "-ctv", "f32", "--no-warmup") as s:
        ids = s.post("/completion", prompt=prompt, n_predict=n, **asked)["tokens"]
        said = [s.post("/completion", prompt=prompt + ids[:i], n_predict=1, **asked) for i in range(len(ids))]
    places = [one.get("completion_probabilities") for one in said]
    return ids, [p and (p[0]["logprob"], [x["logprob"] for x in p[0]["top_logprobs"]]) for p in places]


def worst_difference(model, prompt, ids, places):
    """Of a logarithm of a probability: of the tokens that were generated, and of the most probable ones."""
    with Server(sandwich, "serve", "-m", model, "--precision", "exact", "--kv-type", "f32") as s:
        said = s.post("/v1/completions", prompt=prompt + ids, max_tokens=0, echo=True, temperature=0, logprobs=10)
    ours = said["choices"][0]["logprobs"]
    worst = 0
    for place, chosen, top in zip(places, ours["token_logprobs"][len(prompt):], ours["top_logprobs"][len(prompt):]):
        if place:
            # Two tokens of one text are one in `top`, so that each is looked for.
            far = [min(abs(v - w) for w in place[1]) for v in top.values() if v > min(place[1])]
            worst = max(worst, abs(chosen - place[0]), *far)
    return worst


shapes = subprocess.run([sandwich, "model", "make", "--help"], capture_output=True, text=True, check=True).stdout
shapes = re.findall(r"\btiny[\w-]*", re.sub(r"\s+", " ", shapes).split("One of:")[1].split(". --")[0])
failed = 0
for n, shape in enumerate(shapes, 1):
    name = "%d - %s: probabilities as %s has them" % (n, shape, os.path.basename(server))
    model = os.path.join(folder, shape + ".gguf")
    subprocess.run([sandwich, "model", "make", "--arch", shape, "--type", "f32", "--out", model], check=True)
    prompt = [5 + 37 * i % 190 for i in range(2 if shape in NO_WINDOW else 24)]
    try:
        ids, places = theirs(model, prompt, 6 if shape in NO_WINDOW else 48)
    except OSError as e:
        print("# skip: not by that server: %s\nok %s # SKIP" % (str(e).replace(folder, ""), name), flush=True)
        continue
    worst, seen = worst_difference(model, prompt, ids, places), sum(map(bool, places))
    right = seen > 0 and worst <= (TABLE if shape in GELU else CLOSE)
    if not right and shape in FOUR_POSITIONS:
        print("# skip: positions that it reads are not those of a text\nok %s # SKIP" % name, flush=True)
        continue
    failed |= not right
    print("%sok %s\n# at %d positions, worst difference %.1e" % ("" if right else "not ", name, seen, worst), flush=True)
print("1..%d" % len(shapes))
sys.exit(failed)
