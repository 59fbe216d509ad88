"""MLPs and experts in slices on the CPU and an accelerator, as a client of `sandwich serve` meets them: the ids of the
CPU alone, one request at a time and many at once, for any slices."""
import json
import os
import subprocess
import threading

from serving import Server, Skip, Tap, arguments

sandwich, tiny = arguments()
moe = os.path.join(os.path.dirname(tiny), "tiny-moe.gguf")
tap = Tap()
ENGINE = ("--threads", "1", "--max-step-tok", "32")
PROMPTS = [[1 + (7 * i + k) % 200 for k in range(3 + 11 * i)] for i in range(5)]
N_NEW = 24
SLICES = [(-1, -1), (0, 0), (1, 0), (0, 1), (0.5, 0), (0.3, 0.4)]


def flags(accel, cg, gg):
    profile = os.path.join(os.path.dirname(tiny), accel + ".json")
    return ("--accel", accel, "--accel-profile", profile, "--accel-cg", str(cg), "--accel-gg", str(gg))


def answer(s, prompt):
    body = dict(prompt=prompt, max_tokens=N_NEW, temperature=0, ignore_eos=True, return_token_ids=True)
    return s.complete(**body)["choices"][0]["token_ids"]


def served(model, *more):
    """The ids of each prompt, alone, and then of all at once."""
    s = Server(sandwich, model, *ENGINE, *more)
    try:
        alone, together = [answer(s, p) for p in PROMPTS], [None] * len(PROMPTS)

        def ask(i):
            together[i] = answer(s, PROMPTS[i])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(PROMPTS))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        status, err = s.stop()
    assert status == 0, err
    return alone, together


def command(verb, *more, model=tiny):
    return subprocess.run([sandwich, verb, "--model", model, *ENGINE, *more], capture_output=True, text=True)


def run(model, prompt, *more):
    r = command("run", "--prompt-ids", ",".join(map(str, prompt)), "-n", str(N_NEW), "--ids", "--ignore-eos",
                *more, model=model)
    assert r.returncode == 0, r.stderr
    return [int(i) for i in r.stdout.split()]


want = {}
for model in tiny, moe:
    want[model], together = served(model)
    assert want[model] == together and all(len(ids) == N_NEW for ids in together), (want, together)


def ids(model, accel, cg, gg):
    alone, together = served(model, *flags(accel, cg, gg))
    assert alone == want[model], (alone, want[model])
    assert together == want[model], (together, want[model])


def ids_of_run(model, accel):
    for cg, gg in SLICES:
        got = run(model, PROMPTS[2], *flags(accel, cg, gg))
        assert got == want[model][2], (cg, gg, got, want[model][2])


def ids_of_opencl(model):
    """By a profile of other times, since to measure PoCL takes a minute."""
    if os.environ.get("SAN"):
        raise Skip("OpenCL's library is not built with a sanitizer")
    folder = os.path.dirname(tiny)
    with open(os.path.join(folder, "sim.json")) as f:
        profile = json.load(f)
    profile["accel"]["name"] = "opencl"
    with open(os.path.join(folder, "opencl.json"), "w") as f:
        json.dump(profile, f)
    r = command("run", "--prompt-ids", "1,2", "-n", "1", "--ids", *flags("opencl", 1, 0), model=model)
    if r.returncode == 1 and "accelerator opencl: " in r.stderr:
        raise Skip(r.stderr.strip())
    ids_of_run(model, "opencl")
    ids(model, "opencl", 0.5, 0.25)


def no_device():
    """One line where there is no device: no library, or no platform."""
    r = subprocess.run([sandwich, "profile", "--types", "f32", "--threads", "1", "--max-tok", "2", "--min-ms", "0",
                        "--accel", "opencl"], env=dict(os.environ, OCL_ICD_VENDORS="/nonexistent"),
                       capture_output=True, text=True)
    lines = r.stderr.splitlines()
    assert r.returncode == 1 and len(lines) == 1 and "accelerator opencl: " in lines[0], r.stderr


def plans():
    """Both verbs have the same slices; --explain says them."""
    more = (*flags("sim", -1, -1), "--dry-run", "--gpu-budget", "1MB")
    plan = [json.loads(command(v, *a, *more).stdout)
            for v, a in (("serve", ()), ("run", ("--prompt-ids", "1,2")))]
    assert plan[0]["layers"] == plan[1]["layers"] and plan[0]["layers"], plan
    s = Server(sandwich, tiny, *ENGINE, *flags("sim", 0.5, 0.5), "--explain")
    answer(s, PROMPTS[0])
    status, err = s.stop()
    assert status == 0 and "predicted: " in err, err


def refused():
    accel = flags("sim", -1, -1)
    for more, text in (((*accel, "--roles", "prompt=1,token=1"), "--roles"),
                       ((*accel, "--ranks", "2"), "--ranks"),
                       ((*accel, "--rank-mode", "processes"), "--rank-mode"),
                       ((*accel, "--deterministic"), "--deterministic"),
                       (("--accel", "sim"), "--accel-profile"),
                       (("--dry-run",), "need --accel")):
        r = command("serve", "--port", "0", *more)
        lines = [l for l in r.stderr.splitlines() if l.startswith("sandwich serve: ")]
        assert r.returncode == 2 and len(lines) == 1 and text in lines[0], (more, r.stderr)
        assert not r.stdout, r.stdout


for model, what in (tiny, "MLPs"), (moe, "experts"):
    for cg, gg in SLICES:
        tap.check("%s on sim with %g sent and %g there: the ids of the CPU alone" % (what, cg, gg), ids, model,
                  "sim", cg, gg)
    tap.check("%s on paced: the ids of the CPU alone" % what, ids, model, "paced", 0.5, 0.25)
    for accel in "sim", "paced":
        tap.check("%s: sandwich run on %s" % (what, accel), ids_of_run, model, accel)
    tap.check("%s on OpenCL" % what, ids_of_opencl, model)
tap.check("serve and run have one plan", plans)
tap.check("no OpenCL device", no_device)
tap.check("what an accelerator is refused with", refused)
tap.finish()
