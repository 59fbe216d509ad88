/* Our own engine, behind the same interface as the baselines: one thread opens it, steps it and
 * closes it. That thread becomes thread 0 of the engine's team, so the harness's threads
 * never compute. */
#include "baselines/sut.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/opt_join.h"
#include "base/opt.h"
#include "base/thread.h"
#include "baselines/plan_cache.h"
#include "cpu/cpu.h"
#include "roles/roles.h"
#include "serve/serve.h"

#define N_CLOCKS 1024
#define IDLE_NS  100000000 /* how long an idle engine sleeps before it checks for work */

/* The engine's options, then the adapter's own. */
struct sandwich_opts {
    struct serve_opts serve;
    int plan_by; /* enum sut_plan_by */
    int64_t plan_ranks;
    char *plan_budget;
    struct roles_opts roles;
};

#define OPT_OF struct sandwich_opts
static const struct opt_row own_rows[] = {
    OPT_ROW(
        ENUM, plan_by, "none",
        "Make the plan with `sandwich plan` where this machine has none yet, and keep "
        "it in " SUT_PLAN_DIR ". one_plan: one rank on all CPUs. even_split: a rank on "
        "each memory node, one of which sums for all. vllmpp: the best number of equal "
        "ranks. search: searched "
        "by phase. tuned: searched, with tuned schedules. The time that it takes is "
        "not part of any metric.",
        .values = SUT_PLAN_NAMES),
    OPT_ROW(INT, plan_ranks, "0",
            "With plan_by=even_split: the number of ranks. 0: one for each memory node.",
            .min = 0, .max = 64),
    OPT_ROW(STR, plan_budget, NULL,
            "With plan_by=tuned: the longest time to make the plan, such as 90s or 10m. "
            "Default: that of `sandwich plan`.",
            .unit = "TIME"),
    {0},
};

#define ROWS_MAX 128
static struct opt_row rows[ROWS_MAX]; /* of all tables */

__attribute__((constructor)) static void join_rows(void)
{
    static const struct opt_part parts[] = {
        {serve_opt_table, offsetof(struct sandwich_opts, serve), NULL},
        {own_rows, 0, NULL},
        {roles_opt_table, offsetof(struct sandwich_opts, roles), NULL},
        {0}};

    opt_join_at_start(rows, ROWS_MAX, parts);
}

/* One request on its way: from the engine's callback back to the harness's number. */
struct flight {
    struct sut *sut;
    int64_t request, id; /* the harness's number, the engine's */
    struct flight *next;
};

struct sut {
    struct sandwich_opts o;
    struct sut_plan plan; /* with plan_by */
    struct serve *serve;
    sut_event_fn on_event;
    void *ctx;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool opened; /* serve_open() has returned, with open_rc */
    int open_rc;
    char why[512];        /* of open_rc, or of the step that failed */
    bool closing, broken; /* broken: a step failed, the engine takes no more */
    bool want_describe;   /* a describe() waits for the engine's thread */
    json_t *description;
    int describe_rc;
    struct flight *flights;     /* live ones */
    clockid_t clocks[N_CLOCKS]; /* [n_clocks] CPU time of each thread of the engine */
    int n_clocks; /* 0: not known, as some are in other processes, or there are too many */
};

/* ---- events, on the engine's thread ---- */

static void unlink_flight(struct sut *s, struct flight *f)
{
    struct flight **p;

    pthread_mutex_lock(&s->lock);
    for (p = &s->flights; *p != f; p = &(*p)->next)
        ;
    *p = f->next;
    pthread_mutex_unlock(&s->lock);
}

static void on_token(void *ctx, int64_t id, int32_t token, const float *logits,
                     enum serve_finish finish)
{
    struct flight *f = ctx;
    struct sut *s = f->sut;
    struct sut_event e = {.request = f->request, .kind = SUT_TOKEN, .token = token};

    (void)id, (void)logits;
    if (token >= 0)
        s->on_event(s->ctx, &e);
    if (finish == SERVE_RUNNING)
        return;
    unlink_flight(s, f);
    mem_free(f);
    e.kind = finish == SERVE_LENGTH || finish == SERVE_EOS ? SUT_DONE : SUT_FAILED;
    e.error = finish != SERVE_CANCELED ? err_msg() : s->broken ? s->why : "canceled";
    s->on_event(s->ctx, &e);
}

/* ---- the engine's thread ---- */

/* Between two steps: answer describe(), and see whether it is time to go. */
static bool is_closing(struct sut *s)
{
    bool closing;

    pthread_mutex_lock(&s->lock);
    if (s->want_describe) {
        s->describe_rc =
            s->o.roles.roles ? OK : serve_describe(s->serve, &s->description);
        if (s->describe_rc != OK)
            strncpy(s->why, err_msg(), sizeof(s->why) - 1);
        s->want_describe = false;
        pthread_cond_broadcast(&s->changed);
    }
    closing = s->closing;
    pthread_mutex_unlock(&s->lock);
    return closing;
}

/* Every request of a failed engine ends as failed, at the next step. */
static void fail_engine(struct sut *s)
{
    pthread_mutex_lock(&s->lock);
    s->broken = true;
    strncpy(s->why, err_msg(), sizeof(s->why) - 1);
    for (struct flight *f = s->flights; f; f = f->next)
        serve_cancel(s->serve, f->id);
    pthread_mutex_unlock(&s->lock);
}

static void keep_clock(void *ctx, int id, int n)
{
    struct sut *s = ctx;

    if (n <= N_CLOCKS)
        pthread_getcpuclockid(pthread_self(), &s->clocks[id]);
    if (id == 0)
        s->n_clocks = n <= N_CLOCKS ? n : 0;
}

static void *engine_main(void *arg)
{
    struct sut *s = arg;
    bool busy;
    int rc = s->o.roles.roles ? roles_open(&s->serve, &s->o.serve, &s->o.roles)
                              : serve_open(&s->serve, &s->o.serve);

    if (rc == OK && !s->o.roles.roles && s->o.serve.rank_mode == SERVE_RANKS_THREADS)
        serve_each_thread(s->serve, keep_clock, s);
    pthread_mutex_lock(&s->lock);
    s->opened = true;
    s->open_rc = rc;
    if (rc != OK)
        strncpy(s->why, err_msg(), sizeof(s->why) - 1);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (rc != OK)
        return NULL;
    while (!is_closing(s)) {
        if (serve_step(s->serve, &busy) != OK)
            fail_engine(s);
        if (!busy)
            serve_wait(s->serve, IDLE_NS);
    }
    serve_close(&s->serve); /* ends what still lives, through on_token() */
    return NULL;
}

/* ---- the harness's side ---- */

static void sandwich_close(struct sut **sp)
{
    struct sut *s = *sp;

    if (!s)
        return;
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        s->closing = true;
        if (s->serve)
            serve_wake(s->serve);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    opt_free(rows, &s->o);
    mem_free(s);
    *sp = NULL;
}

static int wait_until_open(struct sut *s)
{
    int rc;

    pthread_mutex_lock(&s->lock);
    while (!s->opened)
        pthread_cond_wait(&s->changed, &s->lock);
    rc = s->open_rc;
    pthread_mutex_unlock(&s->lock);
    return rc == OK ? OK : err_set(rc, "%s", s->why); /* the message was its thread's */
}

static int get_plan(struct sut *s)
{
    struct serve_opts *o = &s->o.serve;
    const struct sut_plan_request r = {.by = (enum sut_plan_by)s->o.plan_by,
                                       .model = o->model,
                                       .weight_type = o->weight_type,
                                       .precision = serve_precision_name(o),
                                       .kv_type = serve_kv_type_name(o),
                                       .isa = o->isa,
                                       .ranks = s->o.plan_ranks,
                                       .budget = s->o.plan_budget};

    if (o->plan)
        return err_set(ERR_ARG, "sandwich: plan and plan_by exclude each other");
    if (!o->model)
        return err_set(ERR_ARG, "sandwich: plan_by needs a model");
    if (r.ranks > 0 && r.by != SUT_PLAN_EVEN_SPLIT)
        return err_set(ERR_ARG, "sandwich: plan_ranks is for plan_by=even_split");
    TRY(sut_plan_get(&s->plan, &r));
    o->plan = mem_strdup(MEM_HARNESS, s->plan.path);
    return OK;
}

/* A cell for more CPUs than there are is skipped, so that one sweep is for machines of any size. */
static int check_cpus(const struct sandwich_opts *o)
{
    const int64_t n = o->plan_ranks ? o->plan_ranks : o->serve.threads;
    struct cpu_budget b;

    TRY(cpu_budget_get(&b));
    return n <= b.n ? OK
                    : err_set(ERR_UNSUPPORTED, "%s: %lld asked for, %d allowed (%s)",
                              o->plan_ranks ? "plan_ranks" : "threads", (long long)n, b.n,
                              b.reason);
}

static int sandwich_open(struct sut **out, const json_t *config, sut_event_fn on_event,
                         void *ctx)
{
    struct sut *s = mem_new(MEM_HARNESS, 1, sizeof(*s));
    int rc;

    *out = NULL;
    s->on_event = on_event;
    s->ctx = ctx;
    rc = thread_mutex_init(&s->lock);
    if (rc == OK)
        rc = thread_cond_init(&s->changed);
    if (rc == OK)
        rc = opt_init(rows, &s->o);
    if (rc == OK)
        rc = opt_from_json(rows, &s->o, config, "sandwich");
    if (rc == OK)
        rc = check_cpus(&s->o);
    if (rc == OK && s->o.plan_by != SUT_PLAN_NONE)
        rc = get_plan(s);
    if (rc != OK)
        goto out;
    serve_warn_one_seq(&s->o.serve, "system.max_seqs");
    rc = thread_start(&s->thread, 0, engine_main, s, "sandwich");
    if (rc != OK)
        goto out;
    s->started = true;
    rc = wait_until_open(s);
    if (rc == OK)
        *out = s, s = NULL; /* the caller's now */
out:
    sandwich_close(&s);
    return rc;
}

static int sandwich_submit(struct sut *s, const struct sut_request *r)
{
    struct flight *f = mem_new(MEM_HARNESS, 1, sizeof(*f));
    const struct serve_request q = {.prompt = r->prompt,
                                    .n_prompt = r->n_prompt,
                                    .max_new = r->n_output,
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1, .seed = r->seed},
                                    .on_token = on_token,
                                    .ctx = f};
    int rc;

    f->sut = s;
    f->request = r->request;
    /* The lock holds its last event back until it is linked. */
    pthread_mutex_lock(&s->lock);
    if (s->broken)
        rc = err_set(ERR_STATE, "the engine has stopped: %s", s->why);
    else
        rc = serve_submit(s->serve, &q, &f->id);
    if (rc == OK) {
        f->next = s->flights;
        s->flights = f;
    }
    pthread_mutex_unlock(&s->lock);
    if (rc != OK)
        mem_free(f);
    return rc;
}

static void sandwich_cancel(struct sut *s, int64_t request)
{
    pthread_mutex_lock(&s->lock);
    for (struct flight *f = s->flights; f; f = f->next)
        if (f->request == request)
            serve_cancel(s->serve, f->id);
    pthread_mutex_unlock(&s->lock);
}

static int sandwich_encode(struct sut *s, const char *text, size_t n, int32_t **ids,
                           size_t *n_ids)
{
    *ids = NULL;
    *n_ids = 0;
    if (!s->serve->tok)
        return err_set(ERR_UNSUPPORTED, "%s has no tokenizer", s->o.serve.model);
    return serve_encode(s->serve, text, n, SERVE_BOS, ids, n_ids);
}

static int sandwich_limits(struct sut *s, int64_t *vocab, int64_t *max_tok)
{
    *vocab = serve_vocab(s->serve);
    *max_tok = s->serve->max_tok;
    return OK;
}

/* "2 x 8 threads, sums by master_copy" */
static void phase_text(char out[96], const json_t *f)
{
    const json_t *sum = json_object_get(f, "allreduce");
    const json_t *by = json_object_get(sum, "algorithms");
    const char *name = json_string_value(json_object_get(sum, "by"));
    int n_ranks = (int)json_integer_value(json_object_get(f, "n_ranks"));
    int n = snprintf(out, 96, "%d x %d threads", n_ranks,
                     (int)json_integer_value(json_object_get(f, "n_threads")));

    if (name && strcmp(name, "plan") == 0 && json_is_string(by))
        name = json_string_value(by);
    if (n_ranks > 1 && name)
        snprintf(out + n, (size_t)(96 - n), ", sums by %s", name);
}

/* The CPUs and threads of the phases, in words: variants that state the same are the same
 * system. */
static json_t *configuration(const json_t *described)
{
    const json_t *plan = json_object_get(described, "plan");
    const json_t *schedules = json_object_get(described, "schedules");
    const json_t *options = json_object_get(described, "options");
    int n_tuned = (int)json_integer_value(json_object_get(schedules, "n_tuned"));
    char prefill[96], decode[96], hash[32] = "";

    phase_text(prefill, json_object_get(plan, "prefill"));
    phase_text(decode, json_object_get(plan, "decode"));
    if (n_tuned > 0)
        snprintf(hash, sizeof(hash), " (%s)",
                 json_string_value(json_object_get(schedules, "hash")));
    return json_sprintf("prefill %s; decode %s; CPUs %s; %d tuned schedules%s; %s; %s%s",
                        prefill, decode, json_string_value(json_object_get(plan, "cpus")),
                        n_tuned, hash, json_string_value(json_object_get(plan, "policy")),
                        json_string_value(json_object_get(described, "precision")),
                        json_is_true(json_object_get(options, "kv_reuse"))
                            ? "; keys and values reused"
                            : "");
}

static void add_own(const struct sut *s, json_t *described)
{
    json_object_set_new(described, "configuration", configuration(described));
    if (s->o.plan_by != SUT_PLAN_NONE)
        json_object_set_new(described, "plan_made",
                            json_pack("{s:o, s:f, s:b}", "file",
                                      json_string_lossy(s->plan.path), "made_s",
                                      s->plan.made_s, "reused", s->plan.reused));
}

/* Machines are processes of their own: what they were asked for. */
static json_t *describe_roles(const struct sut *s)
{
    const struct sandwich_opts *o = &s->o;

    return json_pack("{s:s, s:s, s:o, s:s, s:o, s:o}", "system", "sandwich", "roles",
                     o->roles.roles, "configuration",
                     json_sprintf("roles %s; %s, %s; %s; %s", o->roles.roles,
                                  o->roles.transport, o->roles.router, o->serve.policy,
                                  serve_precision_name(&o->serve)),
                     "precision", serve_precision_name(&o->serve), "roles_options",
                     opt_to_json(roles_opt_table, &o->roles), "options",
                     opt_to_json(serve_opt_table, &o->serve));
}

/* The team's facts belong to the engine's thread: ask it, between two steps. */
static int sandwich_describe(struct sut *s, json_t **out)
{
    int rc;

    *out = NULL;
    pthread_mutex_lock(&s->lock);
    s->want_describe = true;
    serve_wake(s->serve);
    while (s->want_describe)
        pthread_cond_wait(&s->changed, &s->lock);
    rc = s->describe_rc;
    *out = s->description;
    s->description = NULL;
    if (rc != OK)
        rc = err_set(rc, "%s", s->why);
    else if (s->o.roles.roles)
        *out = describe_roles(s);
    else
        add_own(s, *out);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int64_t sandwich_token_bytes(struct sut *s, int64_t ctx_tok)
{
    return s->o.roles.roles ? 0 : serve_token_bytes(s->serve, ctx_tok);
}

/* Unknown where the first tokens of a prompt may be those of an earlier one. */
static double sandwich_prefill_flop(struct sut *s, int64_t n_tok)
{
    return s->o.roles.roles || s->o.serve.kv_reuse ? 0
                                                   : serve_prefill_flop(s->serve, n_tok);
}

static int sandwich_cpu_clocks(struct sut *s, const clockid_t **out)
{
    *out = s->clocks;
    return s->n_clocks;
}

const struct sut_adapter sut_adapter_sandwich = {
    .name = "sandwich",
    .help = "this project's engine, in this process",
    .opts = rows,
    .open = sandwich_open,
    .close = sandwich_close,
    .submit = sandwich_submit,
    .cancel = sandwich_cancel,
    .encode = sandwich_encode,
    .limits = sandwich_limits,
    .describe = sandwich_describe,
    .token_bytes = sandwich_token_bytes,
    .prefill_flop = sandwich_prefill_flop,
    .cpu_clocks = sandwich_cpu_clocks,
};
