/* Replays a trace with the engine: prompts of its lengths, and tokens after its contexts. */
#include "cli/plan_tune.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file_tmp.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "serve/serve.h"

/* Tokens that are decoded after each context, which they straddle. */
#define DECODED 16
/* Opening an engine: threads, memory, and packing weights at about this rate. */
#define OPEN_S    0.3
#define LOAD_GBPS 1.0

/* ---- how much ---- */

static int n_contexts(int size)
{
    return (size + 1) / 2;
}

static double replay_s(const struct cli_replay *r, const struct plan *p, int size)
{
    double prompt = plan_points_mean(&r->trace->prompts);
    double context = plan_points_mean(&r->trace->contexts);
    double before_s = p->prefill.expected_s * context / prompt * (double)r->batch;

    return OPEN_S + r->weight_bytes * 1e-9 / LOAD_GBPS + size * p->prefill.expected_s +
           n_contexts(size) * (before_s + DECODED * p->decode.expected_s);
}

int cli_replay_size(const struct cli_replay *r, const struct plan *p, double budget_s)
{
    int size = PLAN_POINTS_MAX;

    while (size > 1 && replay_s(r, p, size) > budget_s)
        size--;
    return size;
}

/* ---- requests ---- */

struct request {
    uint64_t submitted_ns, first_ns;
    int *n_left;
    bool failed;
};

static void on_token(void *ctx, int64_t id, int32_t token, const float *logits,
                     enum serve_finish finish)
{
    struct request *q = ctx;

    (void)id, (void)logits;
    if (token >= 0 && q->first_ns == 0)
        q->first_ns = clock_ns();
    q->failed |= token < 0;
    if (finish != SERVE_RUNNING)
        --*q->n_left;
}

/* n equal requests at once, until all have ended. */
static int run(struct serve *s, struct request *q, int n, int64_t n_prompt, int64_t n_new)
{
    int vocab = serve_vocab(s), n_left = n, rc = OK;
    int32_t *ids = mem_new(MEM_OTHER, (size_t)n_prompt, sizeof(*ids));
    bool busy = true;
    struct rng rng;

    if (!ids)
        return ERR_NOMEM;
    rng_init(&rng, 1, "replay");
    for (int64_t i = 0; i < n_prompt; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
    for (int i = 0; i < n && rc == OK; i++) {
        const struct serve_request r = {.prompt = ids,
                                        .n_prompt = n_prompt,
                                        .max_new = n_new,
                                        .ignore_eos = true,
                                        .sampling = {.top_p = 1},
                                        .on_token = on_token,
                                        .ctx = &q[i]};
        int64_t id;

        q[i] = (struct request){.submitted_ns = clock_ns(), .n_left = &n_left};
        rc = serve_submit(s, &r, &id);
    }
    while (rc == OK && n_left > 0)
        rc = serve_step(s, &busy);
    for (int i = 0; i < n && rc == OK; i++)
        if (q[i].failed)
            rc = err_set(ERR_STATE, "a request of the replay failed: %s", err_msg());
    mem_free(ids);
    return rc;
}

/* Weighted means: seconds of a prompt, and of a step that decodes. */
static int prompts(struct serve *s, const struct cli_replay *r, int size, double *mean_s)
{
    struct plan_points p = r->trace->prompts;
    double sum = 0, weight = 0;
    int rc = OK;

    plan_points_merge(&p, size);
    for (int i = 0; i < p.n && rc == OK; i++) {
        struct request q;

        rc = run(s, &q, 1, plan_point_tok(&p.v[i]), 1);
        if (rc == OK)
            sum += p.v[i].weight * (double)(q.first_ns - q.submitted_ns) * 1e-9;
        weight += p.v[i].weight;
    }
    *mean_s = sum / weight;
    return rc;
}

/* Tokens of the prompt whose decoded tokens straddle the context. */
static int64_t before(const struct plan_point *p, int64_t max_tok)
{
    int64_t n = plan_point_tok(p) - DECODED / 2;

    n = n < max_tok - DECODED - 1 ? n : max_tok - DECODED - 1;
    return n > 1 ? n : 1;
}

static int contexts(struct serve *s, const struct cli_replay *r, int size, double *mean_s)
{
    const struct serve_totals *t = serve_totals_of(s, SERVE_DECODE);
    struct plan_points p = r->trace->contexts;
    struct request *q = mem_new(MEM_OTHER, (size_t)r->batch, sizeof(*q));
    double sum = 0, weight = 0;
    int rc = q ? OK : ERR_NOMEM;

    plan_points_merge(&p, n_contexts(size));
    for (int i = 0; i < p.n && rc == OK; i++) {
        struct serve_totals t0 = *t;

        rc = run(s, q, (int)r->batch, before(&p.v[i], r->max_tok), DECODED + 1);
        sum += p.v[i].weight * (double)(t->forward_ns - t0.forward_ns) * 1e-9 /
               (double)(t->n_steps - t0.n_steps);
        weight += p.v[i].weight;
    }
    *mean_s = sum / weight;
    mem_free(q);
    return rc;
}

/* ---- the engine ---- */

/* What the engine chose, into the plan, so that later replays and the result have it. */
static int keep_allreduce(struct serve *s, struct plan *p)
{
    struct plan_phase *phases[] = {&p->prefill, &p->decode};
    static const char *const names[] = {"prefill", "decode"};
    json_t *d = NULL;
    int rc = serve_describe(s, &d);

    for (int i = 0; i < 2 && rc == OK; i++) {
        const json_t *sums = json_object_get(
            json_object_get(json_object_get(d, "plan"), names[i]), "allreduce");
        const json_t *chosen = json_object_get(sums, "algorithms");

        if (phases[i]->allreduce.n == 0 && chosen)
            rc = plan_allreduce_of_json(&phases[i]->allreduce, chosen, "engine");
    }
    json_decref(d);
    return rc;
}

static int open_engine(struct serve **s, const struct cli_replay *r, const char *plan)
{
    struct serve_opts o;
    int rc = opt_init(serve_opt_table, &o);

    if (rc == OK)
        rc = opt_set(serve_opt_table, &o, "model", r->model, "replay");
    if (rc == OK)
        rc = opt_set(serve_opt_table, &o, "plan", plan, "replay");
    if (rc == OK && r->batch > 1)
        rc = opt_set(serve_opt_table, &o, "policy", "continuous", "replay");
    o.precision = r->precision;
    o.kv_type = r->kv_type;
    o.max_seqs = r->batch;
    o.max_tok = r->max_tok;
    if (rc == OK)
        rc = serve_open(s, &o);
    opt_free(serve_opt_table, &o);
    return rc;
}

static int replay_plan(const struct cli_replay *r, struct plan *p, const char *file,
                       int size, double *seconds)
{
    double prefill_s = 0, decode_s = 0;
    struct serve *s = NULL;
    struct request warm;
    int rc = open_engine(&s, r, file);

    if (rc == OK)
        rc = keep_allreduce(s, p);
    if (rc == OK) /* caches, clocks, pages */
        rc = run(s, &warm, 1, DECODED < r->max_tok / 2 ? DECODED : 1, 2);
    if (rc == OK)
        rc = prompts(s, r, size, &prefill_s);
    if (rc == OK)
        rc = contexts(s, r, size, &decode_s);
    serve_close(&s);
    *seconds = plan_trace_s(r->trace, r->batch, prefill_s, decode_s);
    return rc;
}

/* As a user would run it: from a file. */
int cli_replay(const struct cli_replay *r, struct plan *p, int size, double *seconds)
{
    struct file_tmp t = {.fd = -1};
    json_t *j = plan_to_json(p);
    char *text = j ? json_text(j, JSON_COMPACT) : NULL;
    int rc = text ? file_tmp_open(&t, r->plan_path) : ERR_NOMEM;

    if (rc == OK && file_write_all(t.fd, text, strlen(text)) != 0)
        rc = err_set(ERR_IO, "%s: cannot write: %m", t.path);
    if (rc == OK)
        rc = replay_plan(r, p, t.path, size, seconds);
    if (text)
        file_tmp_close(&t);
    mem_free(text);
    json_decref(j);
    return rc;
}
