/* sandwich plan --tune: the tuner and the replay behind plan/pipeline.h, and what a run that
 * was interrupted depends on. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/file_tmp.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/plan.h"
#include "cli/tune.h"
#include "plan/pipeline.h"
#include "serve/serve.h"

/* The engine's default steps. */
#define STEP_TOK 512
#define COMPARED 5 /* rounds of a tuned schedule and the default one */
#define ROWS_MAX 64
/* The part of a time budget that is measuring; preparing operands and comparing take the rest. */
#define MEASURED_FRAC 0.7

struct replay {
    const char *model;
    const char *plan_path; /* a plan that is replayed is a temporary file next to it */
    const struct plan_trace *trace;
    int precision;          /* enum kern_precision */
    int kv_type;            /* enum kern_kv_type */
    int64_t batch, max_tok; /* max_tok: longest sequence */
    double weight_bytes;    /* that opening an engine packs */
};
struct job {
    const struct cli_plan_flags *f;
    struct plan_search_opts search;
    struct replay replay;
    double tune_until_s; /* of the clock */
};

/* ---- what is tuned ---- */

struct rows {
    int64_t v[ROWS_MAX];
    int n;
};

/* Ascending, each once. */
static void add_rows(struct rows *r, int64_t rows)
{
    int i = r->n;

    while (i > 0 && r->v[i - 1] > rows)
        i--;
    if ((i > 0 && r->v[i - 1] == rows) || r->n == ROWS_MAX)
        return;
    memmove(&r->v[i + 1], &r->v[i], (size_t)(r->n - i) * sizeof(r->v[0]));
    r->v[i] = rows;
    r->n++;
}

/* The matrices that each rank of a phase computes alone, or the head, which all of them
 * compute together. */
struct part {
    const struct plan_phase *phase;
    bool prefill, decode; /* whose steps it computes */
    bool head;
};

/* Rows of the steps that a phase computes of the trace. The head has a row for each sequence
 * whose next token is wanted, and so has the last layer of a prompt. */
static void rows_of(struct rows *r, const struct job *j, const struct part *part)
{
    const struct plan_points *p = &j->search.trace.prompts;

    if (part->decode)
        add_rows(r, j->replay.batch);
    if (part->prefill)
        add_rows(r, 1);
    for (int i = 0; i < p->n && part->prefill && !part->head; i++) {
        int64_t n = plan_point_tok(&p->v[i]);

        if (n > STEP_TOK)
            add_rows(r, STEP_TOK);
        if (n % STEP_TOK)
            add_rows(r, n % STEP_TOK);
    }
}

static int rows_text(struct text *t, const struct rows *r)
{
    for (int i = 0; i < r->n; i++)
        text_printf(t, "%s%lld", i ? "," : "", (long long)r->v[i]);
    text_put(t, "", 1);
    return t->rc;
}

static int keep(struct plan *p, const struct cli_tune_run *r)
{
    int rc = tune_cache_use(p->schedules, r->cpus, r->n_threads);

    for (int i = 0; i < r->jobs.n && rc == OK; i++)
        for (int k = 0; k < r->jobs.v[i].n_shapes && rc == OK; k++) {
            bool found;

            rc = tune_cache_copy(p->schedules, r->cache, &r->jobs.v[i].shapes[k], &found);
        }
    return rc;
}

static int tune_part(const struct job *j, struct plan *p, const struct part *part,
                     double budget_s)
{
    static struct cli_tune_run r; /* too large for the stack */
    const struct plan_phase *f = part->phase;
    struct cli_tune_ask ask = {.model = j->f->model,
                               .weight_type = "file",
                               .precision = (enum kern_precision)j->f->precision,
                               .m_max = STEP_TOK,
                               .n_ranks = f->n_ranks,
                               .one_rank = plan_has_one_rank(p),
                               .head_only = part->head};
    struct rows rows = {.n = 0};
    struct text text = {0};
    struct tune_opts o;
    int rc = opt_init(tune_opt_table, &o);

    rows_of(&rows, j, part);
    if (rc == OK)
        rc = rows_text(&text, &rows);
    ask.rows = text.p;
    o.budget_s = fmax(budget_s * MEASURED_FRAC, 1e-9);
    r = (struct cli_tune_run){.tune = &o,
                              .cache_path = j->f->cache,
                              .input = j->f->model,
                              .rounds = COMPARED,
                              .pin = true,
                              .only_new = true,
                              .n_threads = f->n_threads * (part->head ? f->n_ranks : 1)};
    memcpy(r.cpus, f->cpus, (size_t)r.n_threads * sizeof(r.cpus[0]));
    if (rc == OK)
        rc = cli_tune_jobs(&r.jobs, &ask);
    if (rc == OK)
        rc = cli_tune_run(&r);
    if (rc == OK)
        rc = keep(p, &r);
    cli_tune_run_close(&r);
    text_fini(&text);
    opt_free(tune_opt_table, &o);
    return rc;
}

static int tune(void *ctx, struct plan *p, double budget_s)
{
    const struct job *j = ctx;
    bool one = plan_is_one(p);
    struct part parts[4];
    uint64_t start_ns = clock_ns();
    int n = 0, rc = OK;

    for (int f = one; f < 2; f++) {
        struct part x = {f ? &p->decode : &p->prefill, one || !f, f, false};

        parts[n++] = x;
        x.head = true;
        parts[n++] = x;
    }
    if (!p->schedules)
        rc = tune_cache_of_json(&p->schedules, NULL, "schedules");
    for (int i = 0; i < n && rc == OK; i++) {
        double used_s = (double)(clock_ns() - start_ns) * 1e-9;

        rc = tune_part(j, p, &parts[i], fmax(budget_s - used_s, 0) / (n - i));
    }
    return rc;
}

/* ---- the replay: prompts of the trace's lengths, and tokens after its contexts ---- */

/* Tokens that are decoded after each context, which they straddle. */
#define DECODED 16
/* Opening an engine: threads, memory, and packing weights at about this rate. */
#define OPEN_S    0.3
#define LOAD_GBPS 1.0

static int n_contexts(int size)
{
    return (size + 1) / 2;
}

static double replay_s(const struct replay *r, const struct plan *p, int size)
{
    double prompt = plan_points_mean(&r->trace->prompts);
    double context = plan_points_mean(&r->trace->contexts);
    double before_s = p->prefill.expected_s * context / prompt * (double)r->batch;

    return OPEN_S + r->weight_bytes * 1e-9 / LOAD_GBPS + size * p->prefill.expected_s +
           n_contexts(size) * (before_s + DECODED * p->decode.expected_s);
}

/* How many of the trace's prompts a replay can run in about budget_s, 1 to PLAN_POINTS_MAX. */
static int replay_size(void *ctx, const struct plan *p, double budget_s)
{
    const struct job *j = ctx;
    int size = PLAN_POINTS_MAX;

    while (size > 1 && replay_s(&j->replay, p, size) > budget_s)
        size--;
    return size;
}

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
static int prompts(struct serve *s, const struct replay *r, int size, double *mean_s)
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

static int contexts(struct serve *s, const struct replay *r, int size, double *mean_s)
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

/* The engine's choice becomes part of the plan, so that later replays and the result have it. */
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

static int open_engine(struct serve **s, const struct replay *r, const char *plan)
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

static int replay_file(const struct replay *r, struct plan *p, const char *file, int size,
                       double *seconds)
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

/* Open the engine with the plan, from a file as a user would, run `size` prompts and half as many
 * contexts, and close it. *seconds: of a request. Where *p does not say how its ranks sum, it then
 * does. */
static int replay(void *ctx, struct plan *p, int size, double *seconds)
{
    const struct replay *r = &((struct job *)ctx)->replay;
    struct file_tmp t = {.fd = -1};
    json_t *j = plan_to_json(p);
    char *text = j ? json_text(j, JSON_COMPACT) : NULL;
    int rc = text ? file_tmp_open(&t, r->plan_path) : ERR_NOMEM;

    if (rc == OK && file_write_all(t.fd, text, strlen(text)) != 0)
        rc = err_set(ERR_IO, "%s: cannot write: %m", t.path);
    if (rc == OK)
        rc = replay_file(r, p, t.path, size, seconds);
    if (text)
        file_tmp_close(&t);
    mem_free(text);
    json_decref(j);
    return rc;
}

/* ---- what it depends on ---- */

static json_t *points_json(const struct plan_points *p)
{
    json_t *a = json_array();

    for (int i = 0; i < p->n; i++)
        json_array_append_new(a, json_pack("[f, f]", p->v[i].tok, p->v[i].weight));
    return a;
}

/* Not the budget: a larger one continues what a smaller one began. */
static int make_key(json_t **out, const struct job *j)
{
    const struct cli_plan_flags *f = j->f;
    json_t *search = opt_to_json(plan_tree_search_opt_table, &f->search);
    char cpus[CPU_MAX * 5 + 1];
    struct cpu_info info;
    struct stat st;

    *out = NULL;
    if (stat(f->model, &st) != 0) {
        json_decref(search);
        return err_set(ERR_IO, "%s: cannot open: %m", f->model);
    }
    cpu_info_get(&info);
    cpu_list_print(j->search.tree.cpus, j->search.tree.n_cpus, cpus, sizeof(cpus));
    if (search)
        json_object_del(search, "max_s");
    *out = json_pack(
        "{s:o, s:I, s:I, s:s, s:i, s:i, s:i, s:I, s:i, s:b, s:I, s:s, s:s, s:s, s:o, "
        "s:o, s:o}",
        "model", json_string_lossy(f->model), "model_bytes", (json_int_t)st.st_size,
        "model_time", (json_int_t)st.st_mtime, "method", f->method, "precision",
        f->precision, "kv_type", f->kv_type, "batch", (int)f->batch, "top_k",
        (json_int_t)f->top_k, "max_ranks", (int)f->max_ranks, "strict_tp", f->strict_tp,
        "ranks", (json_int_t)f->ranks, "cpu", info.model_name, "cpus", cpus, "commit",
        build_info.commit, "search", search, "prompts",
        points_json(&j->search.trace.prompts), "contexts",
        points_json(&j->search.trace.contexts));
    return *out ? OK : err_set(ERR_NOMEM, "no memory for the options");
}

/* ---- the command ---- */

static int64_t longest(const struct plan_trace *t)
{
    int64_t prompt = plan_point_tok(&t->prompts.v[t->prompts.n - 1]);
    int64_t context = plan_point_tok(&t->contexts.v[t->contexts.n - 1]);

    return prompt > context ? prompt : context;
}

static void set_replay(struct job *j)
{
    const struct plan_search_opts *s = &j->search;
    int64_t needed = longest(&s->trace) + 64, most = s->model->max_tok;

    j->replay = (struct replay){
        .model = j->f->model,
        .plan_path = j->f->out,
        .trace = &s->trace,
        .precision = j->f->precision,
        .kv_type = j->f->kv_type,
        .batch = j->f->batch,
        .max_tok = needed < most ? needed : most,
        .weight_bytes = model_cost_decode(s->model, s->types, 1, 1).weight_bytes};
}

/* Nothing of this is printed but the lines that say where the time went. */
static void report(const struct plan_pipeline_result *found)
{
    fprintf(stderr, "sandwich plan: search %.0f s, tuning %.0f s, replay %.0f s%s\n",
            found->search_s, found->tune_s, found->replay_s,
            found->n_known > 0 ? ", and what an earlier run had finished" : "");
}

int cli_plan_tune(struct cli_plan_job *plan_job, const struct cli_plan_flags *f,
                  const struct cli_plan_progress *progress,
                  int (*put)(const struct cli_plan_flags *f, const struct plan *p))
{
    static struct plan_pipeline_result found; /* too large for the stack */
    struct job j = {.f = f};
    struct plan_pipeline_opts o = {.search = &j.search,
                                   .top_k = (int)f->top_k,
                                   .tune = tune,
                                   .replay_size = replay_size,
                                   .replay = replay,
                                   .ctx = &j};
    struct text path = {0};
    json_t *key = NULL;
    int rc = opt_seconds(&o.budget_s, f->budget, "--budget");

    text_printf(&path, "%s.unfinished", f->out);
    text_put(&path, "", 1);
    o.state_path = path.p;
    if (rc == OK)
        rc = path.rc;
    if (rc == OK)
        rc = cli_plan_ask(plan_job, &j.search, &o.method, progress);
    if (rc == OK)
        rc = make_key(&key, &j);
    if (rc == OK) {
        set_replay(&j);
        o.key = key;
        cli_catch_interrupts();
        rc = plan_pipeline(&found, &o);
    }
    if (rc == OK) {
        report(&found);
        rc = put(f, &found.plan);
    }
    if (rc == OK)
        plan_pipeline_done(&o);
    if (rc == OK && f->explain && found.explain)
        fputs(found.explain, f->render ? stderr : stdout);
    plan_pipeline_result_free(&found);
    json_decref(key);
    text_fini(&path);
    return rc;
}
