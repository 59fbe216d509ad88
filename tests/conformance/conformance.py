"""`testbed conformance` against a scripted server: every planted fault is named, a server without one
has no finding, and nothing waits for ever."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "http"))
from scripted import Scripted  # noqa: E402
from serving import Tap  # noqa: E402

testbed, dir_ = os.environ["TESTBED"], tempfile.mkdtemp(dir=os.environ["DIR"])
tap = Tap()
tap.n = int(os.environ["FIRST"])  # checks of the script that calls this one


def run(*words, limit_s=300):
    path = os.path.join(dir_, "report.json")
    if os.path.exists(path):
        os.remove(path)
    p = subprocess.run([testbed, "conformance", *words, "--json", path], capture_output=True, text=True,
                       timeout=limit_s)
    report = json.load(open(path)) if os.path.exists(path) else None
    return p.returncode, p.stdout, p.stderr, report


def check(fault, *flags, ids=True, budget=60, rounds=2):
    s = Scripted(fault, ids)
    try:
        return run(s.url, "--rounds", str(rounds), "--budget", str(budget), *flags)
    finally:
        s.stop()


def counts(r):
    return r["n_wrong"], r["n_silent"], r["n_hangs"], r["n_unchecked"]


def clean(ids):
    status, out, err, r = check(None, ids=ids)
    assert status == 0 and counts(r) == (0, 0, 0, 0) and not r["findings"], (status, out, err)
    assert r["noise_floor"] == {"n_repeats": 12, "n_differ": 0, "n_sampled": 6, "n_sampled_differ": 0}, r
    by_name = {x["name"]: x for x in r["relations"]}
    assert by_name["reference"]["unavailable"] and bool(by_name["continued"]["unavailable"]) == (not ids)
    assert all(x["n_cases"] > 0 for x in r["relations"] if not x["unavailable"]), r["relations"]
    assert by_name["preempted"]["note"].startswith("preemptions by"), by_name["preempted"]
    assert out.splitlines()[1].startswith("Noise floor: 0 of 12 repeats"), out


def wrong(fault, relations, ids=True, more=False):
    """These relations, and no others unless `more`, have wrong answers, and the place is right."""
    status, out, err, r = check(fault, ids=ids)
    found = {x["name"] for x in r["relations"] if x["wrong"]}
    assert status == 1 and (found >= set(relations) if more else found == set(relations)), (status, found, out, err)
    assert r["n_silent"] == 0 and r["n_hangs"] == 0, out
    assert r["noise_floor"]["n_differ"] == 0, r["noise_floor"]
    for f in r["findings"]:
        assert f["kind"] == "wrong" and f["above_noise"], f
        assert (f["at_tok"] >= 0) == bool(ids) and f["found"] != f["expected"], f
        if f["relation"] == fault == "prefix":
            assert f["at_tok"] == (3 if ids else -1), f
            assert f["before"].count("w") >= 3, f
    assert all("WRONG ANSWER %s" % name in out for name in relations), out
    assert ("may be wrong for this reason" in out) == ("prefix" in found), out


def silent(fault, says, streamed=None):
    status, out, err, r = check(fault, rounds=1)
    found = [f for f in r["findings"] if f["kind"] == "silent"]
    assert status == 1 and r["n_silent"] > 0, (status, out, err)
    assert any(says in f["what"] for f in found), found
    assert streamed is None or all(f["streamed"] == streamed for f in found), found
    assert "SILENT" in out and says in out, out


def hang(fault, n):
    status, out, err, r = check(fault, budget=6, rounds=1)
    assert status == 1 and r["n_hangs"] >= 1 and "HANG" in out, (status, out, err)
    assert n is None or r["n_hangs"] == n, (r["n_hangs"], out)


def noise():
    status, out, err, r = check("noise", rounds=4, budget=120)
    assert r["noise_floor"]["n_differ"] > 0 and "only what is above it counts" in out, out
    assert status in (0, 4) and r["n_wrong"] == 0, out
    assert any(x["n_differ"] for x in r["relations"]), r["relations"]
    status, out, err, r = check("noise", "--exact", rounds=1)
    assert status == 1 and r["n_wrong"] > 0, out


def above_noise():
    status, out, err, r = check("noise_and_prefix", rounds=8, budget=200)
    by_name = {x["name"]: x for x in r["relations"]}
    assert status == 1 and by_name["prefix"]["wrong"] and not by_name["batch"]["wrong"], out
    assert r["noise_floor"]["n_differ"] > 0, r["noise_floor"]


def noise_of_sampled_answers():
    """Greedy answers are judged by their own floor."""
    status, out, err, r = check("sampled_noise", rounds=4, budget=120)
    assert r["noise_floor"]["n_sampled_differ"] == r["noise_floor"]["n_differ"] > 0, r["noise_floor"]
    assert status == 0 and r["n_wrong"] == 0, out
    status, out, err, r = check("sampled_noise_and_batch", rounds=2, budget=120)
    found = {x["name"] for x in r["relations"] if x["wrong"]}
    assert status == 1 and found == {"batch"}, (found, out)


def no_ids():
    status, out, err, r = check("no_finish", "--no-ids", rounds=1)
    assert status == 1 and "answers without token ids" in out, out


def reference():
    a, b = Scripted(), Scripted("chunked")
    status, out, err, r = run(a.url, "--reference", b.url, "--rounds", "1", "--budget", "60")
    found = {x["name"] for x in r["relations"] if x["wrong"]}
    assert status == 1 and found == {"reference"}, (found, out, err)
    b.stop()
    status, out, err, r = run(a.url, "--reference", b.url, "--budget", "10")
    assert status == 3 and r is None and b.url in err, (status, err)
    a.stop()


def refused_requests():
    status, out, err, r = check("refuse", rounds=1)
    assert status == 4 and counts(r)[:3] == (0, 0, 0) and r["n_failed"] > 0, (status, out, err)
    assert "requests failed: no slot is free" in out, out


def wrong_words():
    for words, status, says in ((["http://127.0.0.1:1"], 3, "127.0.0.1:1"),
                                ([], 2, "expected a URL or --roles SPEC"),
                                (["http://a", "--roles", "mixed=1"], 2, "one of the two"),
                                (["--roles", "mixed=1"], 2, "--model FILE"),
                                (["ftp://a"], 2, "expected a URL such as"),
                                (["--roles", "promt=1", "--model", "none.gguf"], 3, "sandwich serve: not ready"),
                                (["http://127.0.0.1:1", "--rounds", "0"], 2, "rounds")):
        got, _, err, r = run(*words, "--budget", "5")
        assert got == status and says in err.splitlines()[-1] and r is None, (words, got, err)


for ids, name in (True, "ids"), (False, "words"), ("probs", "ids with probabilities"):
    tap.check("a server without fault has no finding, " + name, clean, ids)
tap.check("wrong after a prefix hit", wrong, "prefix", ["prefix"], True, True)
tap.check("wrong when continued, ids with probabilities", wrong, "continued", ["continued"], "probs")
tap.check("wrong after a prefix hit, by texts", wrong, "prefix", ["prefix"], False, True)
tap.check("wrong where a long prompt is computed among others", wrong, "chunked", ["chunked"])
tap.check("wrong in a batch", wrong, "batch", ["batch"])
tap.check("wrong when much is asked at once", wrong, "preempted", ["preempted"])
tap.check("wrong where an answer ends with the prompt's step", wrong, "split", ["split"])
tap.check("wrong when continued", wrong, "continued", ["continued"])
tap.check("wrong after clients left", wrong, "abandoned", ["abandoned"], True, True)
tap.check("a dropped chunk", silent, "dropped_chunk", "usage.completion_tokens disagrees", True)
tap.check("no finish_reason", silent, "no_finish", "an answer ends without finish_reason")
tap.check("no [DONE]", silent, "no_done", "a stream ends without [DONE]", True)
tap.check("a stream that is cut, and ends as if it were whole", silent, "cut_stream", "a stream ends without [DONE]", True)
tap.check("events after [DONE]", silent, "after_done", "a stream goes on after [DONE]", True)
tap.check("no usage", silent, "no_usage", "an answer has no usage", False)
tap.check("usage of the answer is off by one", silent, "usage_new", "usage.completion_tokens disagrees")
tap.check("usage of the prompt is off by one", silent, "usage_prompt", "usage.prompt_tokens disagrees")
tap.check("a total that is not the sum", silent, "usage_total", "usage.total_tokens is not the sum")
tap.check("finish_reason length after fewer tokens", silent, "short", "finish_reason is length at another length")
tap.check("a token more than was asked for", silent, "long", "finish_reason is length at another length")
tap.check("a page in place of an answer", silent, "html", "is not one of the protocol", False)
tap.check("one request hangs", hang, "hang_once", 1)
tap.check("all requests hang", hang, "hang", None)
tap.check("a stream hangs in the middle", hang, "hang_in_stream", None)
tap.check("noise is no finding, unless answers must be exact", noise)
tap.check("a fault above the noise is found", above_noise)
tap.check("noise of sampled answers", noise_of_sampled_answers)
tap.check("no ids are asked for", no_ids)
tap.check("a reference", reference)
tap.check("requests that are refused are no findings, and are not passed over", refused_requests)
tap.check("wrong words", wrong_words)
tap.finish()
