"""Results as the harness wrote them, for figures. Statistics are the record's own; a missing
number stays NaN and is drawn as "n/a".

    r = read.latest("quickstart")       # the file named by results/quickstart/latest.json
    for c in r.cells: c.setting("dataset.fit"), c.value("p50_ttft_ms"), c.measured("ttft_ms")
"""

import collections.abc
import glob
import io
import json
import lzma
import os
import re
import sys
import textwrap

import h5py
import numpy as np

RESULTS = os.environ.get("RESULTS", "results")
PUBLISHED = os.path.join("results", "published")  # the working directory's, or those installed with this
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if not os.path.exists(PUBLISHED) and HOME.endswith(os.path.join("share", "sandwich")):
    PUBLISHED = os.path.join(HOME, PUBLISHED)
FOOTER_LINES = 4  # of a figure
SCHEMA_VERSION = 2  # the newest layout that is read here (experiments/record/fields.h)


# A share of a measured bound above this says that the bound is wrong (engine/measure/card.h).
SHARE_MAX = 1.02
SHARES = ("bandwidth_frac", "peak_frac", "roof_frac", "roofline_frac", "_bound_frac")


def number(name, dataset):
    """A number and the reason why it is missing, also where it is a share of a bound that no
    machine reaches."""
    value, why = float(dataset[()]), plain(dataset.attrs.get("why", ""))
    unit = plain(dataset.attrs.get("unit", ""))
    if not unit and value > SHARE_MAX and any(s in name for s in SHARES):
        return float("nan"), "%.4g of its bound, above %g: the bound is wrong" % (value, SHARE_MAX)
    return value, why


def plain(value):
    """An HDF5 attribute or scalar as a Python value."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def dotted(doc, prefix=""):
    """The scalars of a document, nested ones by dotted name: {"load.rate_rps": 5}."""
    out = {}
    for key, v in doc.items():
        if isinstance(v, dict):
            out.update(dotted(v, prefix + key + "."))
        elif v is not None and not isinstance(v, list):
            out[prefix + key] = v
    return out


class Datasets(collections.abc.Mapping):
    """The datasets of a group by their names. Each is read when a figure first asks for it, since a
    figure needs few of many; `known` has those."""

    def __init__(self, group, value=lambda name, dataset: dataset[()]):
        self.group, self.value, self.known = group, value, {}

    def __getitem__(self, name):
        if name not in self.known:
            self.known[name] = self.value(name, self.group[name])
        return self.known[name]

    def __contains__(self, name):
        return name in self.group

    def __iter__(self):
        return iter(self.group)

    def __len__(self):
        return len(self.group)


class Cell:
    """One measured point: a system, a dataset, a load, a repeat."""

    def __init__(self, group, evidence):
        attributes = json.loads(plain(group["attributes_json"][()]))
        # of schema version 1 some are attributes in HDF5
        self.attrs = {**{k: plain(v) for k, v in group.attrs.items()}, **dotted(attributes)}
        self.evidence = evidence
        self.requests, self.tokens, self.series = (
            Datasets(group.get(part, {})) for part in ("requests", "tokens", "series"))
        numbers = group.get("summary", {})
        self.summary = Datasets(numbers, lambda name, dataset: number(name, dataset)[0])
        self.why = Datasets(numbers, lambda name, dataset: number(name, dataset)[1])
        self.read = set()  # the numbers of the summary that the figure reads
        self.axes = attributes.get("axes") or {}  # {"load.rate_rps": 5}
        self.warnings = attributes.get("warnings") or []  # {"code", "observed", "threshold", "text"}
        for name in numbers:
            if any(s in name for s in SHARES) and np.isnan(self.summary[name]) and not np.isnan(numbers[name][()]):
                self.warnings.append({"code": "bound_exceeded", "observed": float(numbers[name][()]),
                                      "threshold": SHARE_MAX})

    def bound(self, name):
        """The bound of a number without a value, ("<", 0.25), or None."""
        attrs = self.summary.group[name].attrs if name in self.summary else {}
        known = [(sign, float(attrs[key])) for key, sign in (("at_least", ">"), ("at_most", "<")) if key in attrs]
        return known[0] if known else None

    def warned(self, code):
        """The warnings of this code."""
        return [w for w in self.warnings if w["code"] == code]

    def setting(self, name, default="?"):
        """A setting of the job by its full name, such as "system.model"."""
        return self.attrs.get(name, default)

    def model(self):
        """llama-160m of build/models/llama-160m-bf16.gguf."""
        stem = os.path.basename(str(self.setting("system.model"))).split(".gguf")[0]
        for suffix in ("-bf16", "-f32", "-f16"):
            stem = stem.removesuffix(suffix)
        return stem

    def weights(self):
        """The type the weights are computed from, "bf16"."""
        asked = str(self.setting("system.weight_type"))
        path = str(self.setting("system.model"))
        from_file = [t for t in ("bf16", "f32", "f16") if "-" + t in os.path.basename(path)]
        return from_file[0] if asked == "file" and from_file else asked

    def dataset(self):
        """The file, the fit that its lengths are drawn from, or the reader."""
        if self.setting("dataset.reader") == "auto" and self.setting("dataset.path", ""):
            return os.path.basename(str(self.setting("dataset.path")))
        return str(self.setting("dataset.fit" if self.setting("dataset.reader") in ("synth", "auto")
                                else "dataset.reader"))

    def variant(self):
        """What serves it: the job's variant, or the weights where it has none."""
        return self.axes.get("variant") or self.weights()

    def system(self):
        """What serves: the variant's name, or the policy, or the adapter."""
        return str(self.axes.get("variant") or self.axes.get("system.policy") or
                   self.setting("system.adapter"))

    def read_gbps(self):
        """The machine's measured read bandwidth, NaN where unknown."""
        return float(self.setting("bound.read_gbps", "nan"))

    def read_gbps_least(self):
        """The same where memory was measured slowest, just before the cell or just after it."""
        looks = [float(self.setting("bound.%s.read_gbps" % when, "nan"))
                 for when in ("before", "after")]
        return self.read_gbps() * min(looks) / max(looks)

    def peak_gflops(self):
        """The machine's measured peak for this weight type, likewise."""
        return float(self.setting("bound.peak_gflops", "nan"))

    def value(self, name):
        """A number of the summary, NaN where it is missing."""
        self.read.add(name)
        return self.summary.get(name, float("nan"))

    def interval(self, name):
        """The 95 % interval of a number of the summary, (lo, hi); None where it has none."""
        self.read.add(name)
        if np.isnan(self.summary.get(name, np.nan)):
            return None
        ends = self.summary.group[name].attrs
        return (float(ends["lo"]), float(ends["hi"])) if "lo" in ends else None

    def kind(self, name):
        """What a number or an array rests on: "measured", "simulated" ..."""
        for part in self.series.group, self.summary.group:
            if name in part:
                return plain(part[name].attrs.get("evidence", self.evidence))
        return ""

    def measured(self, name):
        """A column of the requests that were measured and answered in full; besides those of
        the record, the latencies that follow from its times: ttft_ms, tpot_ms, e2e_ms."""
        r = self.requests
        keep = (r["warmup"] == 0) & (r["status"] == 0)
        if name not in LATENCIES:
            return np.asarray(r[name], dtype=float)[keep]
        v = LATENCIES[name](self)[keep]
        self.check_median(name, v[~np.isnan(v)])
        return v

    def last_token_ns(self):
        offset = self.tokens["offset"]
        none = offset[1:] == offset[:-1]
        last = self.tokens["time_ns"][np.maximum(offset[1:] - 1, 0)] if len(
            self.tokens["time_ns"]) else np.zeros(len(none))
        return np.where(none, np.nan, last)

    def check_median(self, name, v):
        """The harness defines these; should the two ever differ, no figure is drawn."""
        recorded = self.value("p50_" + name)
        if len(v) and not np.isnan(recorded):
            median = np.sort(v)[(len(v) + 1) // 2 - 1]
            if abs(median - recorded) > 1e-6 * recorded:
                sys.exit("%s: the times give a median of %g, the record says %g" %
                         (name, median, recorded))


def ttft_ms(c):
    first = np.where(c.requests["n_tok"] > 0, c.requests["first_token_ns"], np.nan)
    return (first - c.requests["intended_ns"]) / 1e6


def e2e_ms(c):
    return (c.last_token_ns() - c.requests["intended_ns"]) / 1e6


def tpot_ms(c):
    n = np.where(c.requests["n_tok"] > 1, c.requests["n_tok"], np.nan)
    return (c.last_token_ns() - c.requests["first_token_ns"]) / 1e6 / (n - 1)


LATENCIES = {"ttft_ms": ttft_ms, "e2e_ms": e2e_ms, "tpot_ms": tpot_ms}


def ratio(a, b):
    return a / b if b > 0 else float("nan")


def unique(values):
    """In the order of first appearance."""
    return list(dict.fromkeys(values))


def others(cell):
    """The axes that tell a cell from others of its variant, in words."""
    return " ".join(os.path.basename(str(v)) for k, v in cell.axes.items() if k != "variant")


def median(cells, name):
    """Of a summary metric over cells that are repeats; NaN where one has none."""
    v = sorted(c.value(name) for c in cells)
    if not v or any(np.isnan(v)):
        return float("nan")
    return (v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2


def why(cells, *metrics):
    """Why these metrics are missing: the reason that most of the cells give, or ""."""
    given = [c.why[m] for c in cells for m in (metrics or c.why)
             if np.isnan(c.summary.get(m, np.nan)) and c.why.get(m)]
    return max(unique(given), key=given.count, default="")


class Repeats(Cell):
    """A cell of a study that ran several times: the first one's, and each number is their median."""

    def __init__(self, cells):
        self.__dict__.update(cells[0].__dict__)
        self.cells = cells
        self.warnings = sum((c.warnings for c in cells), [])

    def value(self, name):
        self.read.add(name)
        return median(self.cells, name)

    def interval(self, name):
        """None: that of the first is not theirs."""
        self.read.add(name)


def of_repeats(cells):
    """One cell for those that differ by their repeat alone."""
    same = {}
    for c in cells:
        same.setdefault(json.dumps(c.axes, sort_keys=True), []).append(c)
    return [Repeats(of) if len(of) > 1 else of[0] for of in same.values()]


class Headline:
    """A number that stands for the experiment; a ratio has its interval, lo to hi, and the smallest
    difference that its A/A could have seen, as a share."""

    def __init__(self, name, dataset):
        self.value, self.why = number(name, dataset)
        self.lo = float(dataset.attrs.get("lo", "nan"))
        self.hi = float(dataset.attrs.get("hi", "nan"))
        self.detectable = float(dataset.attrs.get("detectable_frac", "nan"))


def unpacked(path):
    """What h5py opens: the file, or the bytes of one that is compressed."""
    if not path.endswith(".xz"):
        return path
    with lzma.open(path) as f:
        return io.BytesIO(f.read())


def in_turn(cells, job):
    """Variants change turns from repeat to repeat; here they have the order of the job's list."""
    names = [v["name"] for v in job.get("variants", [])]
    places = {}

    def key(c):
        rest = c.attrs.get("repeat"), *((k, str(v)) for k, v in c.axes.items() if k != "variant")
        name = c.axes.get("variant")
        return places.setdefault(rest, len(places)), names.index(name) if name in names else len(names)

    return sorted(cells, key=key) if names else cells


class Result:
    def __init__(self, path):
        self.path = path
        self.file = f = h5py.File(unpacked(path), "r")  # stays open: cells read when they are asked
        self.attrs = {k: plain(v) for k, v in f.attrs.items()}
        if not 1 <= self.attrs.get("schema_version", 0) <= SCHEMA_VERSION:
            sys.exit("%s: schema_version: expected 1 to %d, found %s: not a record of this version" %
                     (path, SCHEMA_VERSION, self.attrs.get("schema_version")))
        self.job = json.loads(plain(f["job_json"][()])) if "job_json" in f else {}
        self.headlines = {name: Headline(name, d) for name, d in f.get("headline", {}).items()}
        cells = f.get("cells", {})
        self.evidence = str(self.attrs.get("evidence", "evidence unknown"))
        # of two attempts at a cell, as after a failure, the later counts
        every = list({c.attrs.get("key", k): c
                      for k, c in ((k, Cell(cells[k], self.evidence)) for k in sorted(cells))}.values())
        self.trials = [c for c in every if "trial.of" in c.attrs]  # of searches, which are cells
        every = in_turn([c for c in every if c not in self.trials], self.job)
        done = [c for c in every if c.attrs.get("state", "done") == "done"]
        self.left_out = [c for c in every if c not in done]  # failed or skipped: "error"
        self.n_all = len(every)
        # the variant that ran a second time, which shows the noise and is no system of its own
        self.again = [c for c in done if c.axes.get("variant") == "%s'" % self.job.get("aa")]
        self.cells = [c for c in done if c not in self.again]
        if "study" in self.job:  # which has no requests to put together
            self.cells = of_repeats(self.cells)

    def ratios(self, name):
        """The headlines "NAME case=C variant=V", as [("case=C variant=V", Headline)]."""
        return [(full.split(" ", 1)[1], h) for full, h in self.headlines.items()
                if full.startswith(name + " ")]

    def same_systems(self):
        """Variants that are the same system, in words."""
        same, texts = {}, {}
        for c in self.cells:
            if "variant" in c.axes and "described.configuration" in c.attrs:
                what = others(c), c.attrs["described.configuration"]
                same.setdefault(what, []).append(c.axes["variant"])
        for (where, _), names in same.items():
            names = ", ".join(unique(names))
            if ", " in names:
                texts.setdefault("same configuration: " + names, []).append(where)
        return ["%s%s" % (t, " (%s)" % ", ".join(w) if any(w) else "") for t, w in texts.items()]

    def skipped(self):
        """{variant or cell: why it was skipped}"""
        found = {}
        for c in self.left_out:
            if c.attrs.get("state") == "skipped":
                why = str(c.attrs.get("error", "")).split(", see ")[0]
                found.setdefault(c.axes.get("variant", c.attrs.get("label", "?")), why)
        return found

    def notes(self):
        """What the footer sums up, one by one: the list in the Markdown file next to the figure."""
        return self.same_systems() + ["skipped: %s (%s)" % item for item in self.skipped().items()] + self.unseen() + (
            self.distrust())

    def remarks(self):
        """The same in a footer: what was skipped by its reasons."""
        skipped = self.skipped()
        texts = ["skipped: %s (%s)" % item for item in skipped.items()]
        if len(texts) > 2:
            (n, why), *more = alike(skipped.values())
            texts = ["%d cells skipped: %s" % (len(skipped), textwrap.shorten(why, 100, placeholder=" ..."))]
            if more:
                texts[0] += " (%d) and %d other reason%s" % (n, len(more), "s" * (len(more) > 1))
        return self.same_systems() + texts + self.unseen() + self.distrust()

    def unseen(self):
        """What the A/A could not have told apart, in words."""
        seen = [100 * h.detectable for h in self.headlines.values() if np.isfinite(h.detectable)]
        limits = unique("%s %%" % plain_digits(v) for v in (min(seen), max(seen))) if seen else []
        name = " of " + self.job["aa"] if self.again else ""
        return ["A/A%s: differences below %s cannot be seen" % (name, " to ".join(limits))] if seen else []

    def why_missing(self):
        """Why there is nothing to draw, for an axis whose script does not know it."""
        failed = ["%s: %s" % (c.attrs.get("state"), c.attrs.get("error", "no reason recorded"))
                  for c in self.left_out]
        if not any(np.isfinite(v) for c in self.cells for v in c.summary.values()):
            failed.append(why(self.cells))
        return next(filter(None, failed), "no value in this record")

    def axes(self):
        """The settings that tell cells apart, with their values: {"load.rate_rps": [5, 20]}."""
        names = unique(name for c in self.cells for name in c.axes)
        return {name: unique(c.axes.get(name) for c in self.cells) for name in names}

    def swept(self):
        """The axes that --set made of single values, which the experiment's own figure does
        not know of."""
        return str(self.attrs.get("swept", "")).split()

    def evidence_read(self):
        """The evidence of what the figure has read: one kind, or the record's own and then each
        other with what rests on it: the numbers, or the cells where they are of several kinds."""
        names, cells = {}, {}
        for c in self.cells:
            for name in c.read | set(c.series.known):
                if c.kind(name):
                    names.setdefault(c.kind(name), set()).add(name)
                    cells.setdefault(c.kind(name), set()).add(others(c) or "?")
        if len(names) < 2:
            return "".join(names) or self.evidence
        rest = self.evidence if self.evidence in names else max(names, key=lambda k: len(names[k]))

        def what(kind):
            elsewhere = set().union(*(names[k] for k in names if k != kind))
            return some(sorted((cells if names[kind] & elsewhere else names)[kind]))

        return "; ".join([rest] + ["%s: %s" % (k, what(k)) for k in sorted(names) if k != rest])

    def machine(self):
        """The processor and how many of its CPUs."""
        n = int(self.attrs.get("n_cpus", 0))
        return "%s, %d CPU%s" % (self.attrs["cpu_model"] or "unknown processor", n,
                                 "" if n == 1 else "s")

    def distrust(self):
        """Why to distrust the numbers: each warning of this kind with the number of cells that
        have it and the value farthest from its threshold."""
        texts = []
        for code in DISTRUST:
            found = [c.warned(code) for c in self.cells + self.trials]
            seen = [w for w in sum(found, []) if None not in (w.get("observed"), w.get("threshold"))]
            if not any(found):
                continue
            text = "%s in %d of %d cells" % (code, sum(map(bool, found)), len(found))
            if seen:
                worst = max(seen, key=lambda w: abs(w["observed"] - w["threshold"]))
                text += " (%.3g, threshold %.3g)" % (worst["observed"], worst["threshold"])
            texts.append(text)
        return texts

    def footer(self, width, full):
        """Where it was measured, what its evidence is and what speaks against it, in at most
        FOOTER_LINES lines of at most `width` characters; stands on every figure. full: where the whole
        list is, if it does not fit."""
        commit = str(self.attrs.get("commit", "unknown"))[:10]
        dirty = " + local changes" if self.attrs.get("dirty") else ""
        evidence = self.evidence_read()
        if self.attrs.get("smoke"):
            evidence += " (smoke run)"
        facts = [evidence, self.machine(), self.attrs.get("isa", ""),
                 "commit " + commit + dirty, self.attrs.get("utc", "")[:10]]
        drawn = lines(filter(None, facts), width) + lines(self.remarks(), width)
        if len(drawn) > FOOTER_LINES:
            end = " ... (all: %s)" % full
            drawn[FOOTER_LINES - 1:] = [drawn[FOOTER_LINES - 1][:width - len(end)].rsplit(" ", 1)[0] + end]
        return "\n".join(drawn)


# Warnings of the harness that a figure repeats.
DISTRUST = ["noisy_machine", "steal", "throttled", "unsteady_plan", "overloaded", "saturated",
            "search_at_limit", "search_unfinished", "dataset_stand_in", "bound_exceeded"]


NUMBER = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?)(?![\w.-])")  # not that in a name such as llama-2


def alike(texts):
    """[(how many, text)], most frequent first: texts that differ in numbers only are one, with the least
    and the greatest of these."""
    found = {}
    for t in texts:
        found.setdefault(tuple(NUMBER.split(t)[::2]), []).append(NUMBER.findall(t))
    out = []
    for words, numbers in found.items():
        ends = [unique(f(column, key=float) for f in (min, max)) for column in zip(*numbers)]
        out.append((len(numbers), "".join(w + " to ".join(e) for w, e in zip(words, ends + [[]]))))
    return sorted(out, key=lambda x: -x[0])


def plain_digits(v):
    """Two digits, never an exponent."""
    return "%.2g" % v if v < 99.5 else "%.0f" % v


def some(words, most=4):
    """The words with commas between them, and how many more there are."""
    more = len(words) - most
    return ", ".join(words[:most]) + (" and %d more" % more if more > 0 else "")


def lines(facts, width):
    """The facts with dots between them; a line that would be too long ends between two facts,
    or within one that is longer than a line."""
    out = []
    for f in facts:
        if out and len(out[-1]) + 3 + len(f) <= width:
            out[-1] += " · " + f
        else:
            out += textwrap.wrap(f, width)
    return out


def latest(stem):
    """The newest result of an experiment, or of the file given on the command line. Where
    there is none yet, say how to make it and end. A sweep is drawn as such, and this ends."""
    if len(sys.argv) > 1:
        return own_figure(Result(sys.argv[1]), stem)
    where, is_published = find(stem)
    if not where:
        print("%s: no result yet: make experiment NAME=%s" % (stem, stem))
        sys.exit(0)
    if is_published:
        print("%s: no record of your own: drawn from a published one" % stem)
    with open(where) as f:
        name = json.load(f)["file"]
    if os.path.basename(name) != name:
        sys.exit("%s: file: expected the name of a record in this folder, found %r" % (where, name))
    ending = ".xz" if is_published else ""
    return own_figure(Result(os.path.join(os.path.dirname(where), name + ending)), stem)


def find(stem):
    """The head of the newest record of an experiment, and whether it is a published one, which is
    taken where you have none of your own; (None, True): there is none."""
    own = os.path.join(RESULTS, stem, "latest.json")
    return (own, False) if os.path.exists(own) else (published(stem), True)


def published(stem):
    """The head of the newest record that comes with the program, or None."""
    heads = {}
    for path in sorted(glob.glob(os.path.join(PUBLISHED, "*", stem, "latest.json"))):
        with open(path) as f:
            heads[str(json.load(f).get("utc", ""))] = path
    return heads[max(heads)] if heads else None


def own_figure(result, stem):
    if result.swept():
        from lib import sweep  # which reads by this module
        sweep.draw(result, stem)
        sys.exit(0)
    return result
