"""Cells of the studies about Splitwise with made-up numbers, as made_up_studies.py has them."""

SOURCES = ["llama2-70b:a100-80gb:8", "llama2-70b:h100-80gb:8"]


def perf_models(rng, **_):
    summary = {"%s_%s_mape" % (a, b): rng.uniform(1, 9) for a in ("rows", "points", "step", "inner")
               for b in ("prompt", "token")}
    summary.update({n + "_mape": rng.uniform(1, 90)
                    for n in ("batch_prompt", "long_prompt", "batch_token", "context_token", "rows", "points")})
    summary.update(n_not_one_batch=1, repeat_spread=1)
    return summary, {}, {}, {"*": "model"}


STUDIES = {
    "splitwise_perf_models": (perf_models, {"source": SOURCES, "perf": ["table", "distserve"],
                                            "keep": ["all", "one_batch"]}),
}
