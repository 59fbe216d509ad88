/* Putting the engine together: budget, plan, team, file, weights, memory, tokenizer. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "ranks/procs.h"
#include "serve/draft.h"

#define DEFAULT_MAX_TOK 4096 /* a long model's full context would reserve gigabytes */

/* Before weights are packed. */
static int check_kv_opts(const struct serve_opts *o)
{
    const struct kv_predictor *predictor;
    const struct kv_alloc *alloc;

    TRY(kv_alloc_find(o->kv_alloc ? o->kv_alloc : "static", &alloc));
    if (alloc->paged)
        TRY(kv_block_tok_check(o->kv_block));
    return o->kv_predict ? kv_predictor_find(o->kv_predict, &predictor) : OK;
}

static int check_opts(const struct serve_opts *o)
{
    if (!o->model)
        return err_set(ERR_ARG, "model: no path given");
    if (o->max_seqs < 1 || o->max_seqs > SERVE_VIEW_MAX)
        return err_set(ERR_ARG, "max_seqs: expected 1 to %d, found %lld", SERVE_VIEW_MAX,
                       (long long)o->max_seqs);
    if (o->plan && o->threads > 0)
        return err_set(ERR_ARG, "threads and plan exclude each other");
    if (o->plan && o->ranks > 0)
        return err_set(ERR_ARG, "ranks and plan exclude each other");
    TRY(serve_draft_check(o));
    return check_kv_opts(o);
}

static bool in_processes(const struct serve_engine *s)
{
    return s->api.o.rank_mode == SERVE_RANKS_PROCESSES;
}

static int open_team(struct serve_engine *s)
{
    const struct par_team_kind *kind = &par_team_kind_pthread;

    TRY(s->api.o.team ? par_team_find(s->api.o.team, &kind) : OK);
    if (in_processes(s) && kind != &par_team_kind_pthread)
        return err_set(
            ERR_UNSUPPORTED,
            "team: ranks that are processes have threads of kind pthread only, "
            "found %s",
            kind->name);
    TRY(cpu_isa_limit(s->api.o.isa ? s->api.o.isa : "auto"));
    cpu_isa_words(cpu_isa_usable(), s->isa_words, sizeof(s->isa_words));
    TRY(cpu_budget_get(&s->budget));
    TRY(s->api.o.plan ? plan_read(&s->plan, s->api.o.plan)
                      : plan_default(&s->plan, &s->budget, (int)s->api.o.threads));
    TRY(serve_made_for(&s->api, s->plan.model_id, s->api.o.plan));
    if (s->api.o.ranks > 0)
        TRY(plan_split(&s->plan, (int)s->api.o.ranks));
    TRY(plan_runnable(&s->plan, &s->budget));
    return par_team_open_by(&s->team, kind, s->plan.cpus, s->plan.n_cpus, s->api.o.pin);
}

static int parse_types(const struct serve_opts *o, struct model_opts *out)
{
    int rc = OK;

    out->weight_type = KERN_N_TYPES;
    out->kv_type = (enum kern_kv_type)o->kv_type;
    if (o->weight_type && strcmp(o->weight_type, "file") != 0)
        rc = kern_type_parse(o->weight_type, &out->weight_type);
    return rc == OK ? OK : err_prefix(rc, "weight_type");
}

/* The pool of keys and values: as large as asked for, or for max_seqs sequences of max_tok. */
static int pool_opts(const struct serve_engine *s, const struct kv_shape *shape,
                     struct kv_pool_opts *out)
{
    const struct kv_buckets *b = s->lengths.buckets;

    *out = (struct kv_pool_opts){.alloc = s->api.o.kv_alloc,
                                 .budget_bytes = (size_t)s->api.o.kv_budget,
                                 .max_tok = s->api.max_tok,
                                 .block_tok = s->api.o.kv_block,
                                 .max_seqs = s->api.o.max_seqs +
                                             (s->api.o.kv_reuse ? SERVE_KEPT_MAX : 0),
                                 .shared = in_processes(s) || s->kv_mapped,
                                 .large_frac = s->api.o.kv_large_frac,
                                 .bounds = b ? kv_buckets_bounds(b) : NULL};
    return s->api.o.kv_budget > 0
               ? OK
               : kv_pool_bytes(&out->budget_bytes, shape, out, s->api.o.max_seqs);
}

/* The memory that the engine takes for requests. */
static int caller_bytes(const struct serve_engine *s, const struct model_config *c,
                        enum kern_kv_type kv_type, int64_t *bytes)
{
    struct kv_pool_opts pool;
    struct kv_shape shape;
    int rc;

    model_kv_shape_of(c, kv_type, &shape);
    rc = pool_opts(s, &shape, &pool);
    if (rc == OK)
        *bytes = (int64_t)pool.budget_bytes +
                 serve_draft_rows(&s->api.o) * c->vocab * (int64_t)sizeof(float);
    return rc;
}

/* A phase of opening has ended. */
static void loaded(struct serve_engine *s, enum serve_load_phase phase)
{
    uint64_t now = clock_ns();

    s->load_s[phase] += (double)(now - s->load_mark_ns) * 1e-9;
    s->load_mark_ns = now;
}

static int open_model(struct serve_engine *s, const struct serve_how *how)
{
    struct model_opts mo = {.precision = s->api.o.precision,
                            .deterministic = s->api.o.deterministic,
                            .one_rank = plan_has_one_rank(&s->plan) && !s->offload,
                            .shared = s->api.o.rank_mode == SERVE_RANKS_PROCESSES,
                            .max_step_tok = s->api.o.max_step_tok,
                            .progress = how->progress,
                            .progress_ctx = how->ctx};
    struct format_file *f = NULL;
    struct serve_numa_owners owners;
    int rc;

    TRY(parse_types(&s->api.o, &mo));
    TRY(serve_numa_owners(s, &owners));
    mo.owners = owners.of;
    TRY(format_open(&f, s->api.o.model));
    memcpy(s->model_format, f->format, sizeof(s->model_format));
    mo.max_tok = s->api.o.max_tok;
    if (mo.max_tok == 0)
        mo.max_tok =
            f->config.max_tok < DEFAULT_MAX_TOK ? f->config.max_tok : DEFAULT_MAX_TOK;
    if (s->api.o.max_tok == 0 && how->need_tok > 0 && how->need_tok < mo.max_tok)
        mo.max_tok = how->need_tok;
    s->api.max_tok = mo.max_tok;
    if (s->api.o.kv_budget_tok > 0 && s->api.o.kv_budget_tok < s->api.max_tok)
        s->api.max_tok = s->api.o.kv_budget_tok;
    rc = serve_lengths_open(s);
    if (rc == OK)
        rc = caller_bytes(s, &f->config, mo.kv_type, &mo.caller_bytes);
    loaded(s, SERVE_LOAD_file);
    if (rc == OK)
        rc = model_open(&s->model, f, s->team, &mo);
    format_close(&f);
    if (rc == OK) { /* what model_open() did besides is for steps */
        s->api.config = *model_config_of(s->model);
        s->load_s[SERVE_LOAD_weights] = model_load_stat_of(s->model)->load_s;
        s->load_s[SERVE_LOAD_steps] = -s->load_s[SERVE_LOAD_weights];
    }
    loaded(s, SERVE_LOAD_steps);
    return rc;
}

static int open_phase(struct serve_engine *s, const struct plan_phase *f,
                      int64_t max_step_tok, struct model_phase **out)
{
    int threads[CPU_MAX];
    const struct model_phase_opts o = {.n_ranks = f->n_ranks,
                                       .n_threads = f->n_threads,
                                       .threads = threads,
                                       .max_step_tok = max_step_tok};

    serve_number_threads(&s->plan, f, threads);
    return model_phase_open(out, s->model, &o);
}

static int open_phases(struct serve_engine *s)
{
    int rc = open_phase(s, &s->plan.prefill, s->api.o.max_step_tok, &s->prefill);

    serve_choice_init(&s->choice, &s->plan, serve_draft_rows(&s->api.o),
                      s->api.o.max_step_tok);
    if (rc == OK && !plan_is_one(&s->plan))
        return open_phase(s, &s->plan.decode, s->choice.decode_rows_max, &s->decode);
    s->decode = s->prefill;
    return rc;
}

/* How the ranks of a phase sum: as the plan says, otherwise as is fastest here and now. The
 * tokens of a plan that says nothing may so differ from run to run with more than two ranks.
 * A deterministic model has an order of its own. */
static int choose_sums(struct serve_engine *s, struct model_phase *phase,
                       const struct plan_phase *f, enum serve_phase which)
{
    if (f->n_ranks == 1 || s->api.o.deterministic)
        return OK;
    if (f->allreduce.n == 0)
        return model_phase_choice_measure(phase, &s->sums[which]);
    model_phase_choice_set(phase, &f->allreduce);
    return OK;
}

static int open_sums(struct serve_engine *s)
{
    int rc = choose_sums(s, s->prefill, &s->plan.prefill, SERVE_PREFILL);

    if (rc == OK && s->decode != s->prefill)
        rc = choose_sums(s, s->decode, &s->plan.decode, SERVE_DECODE);
    return rc;
}

/* A row of schedules out of the cache, as the model asks for it. */
struct tuned {
    struct serve_engine *s;
    struct tune_cache *cache;
};

static int tuned_row(void *ctx, const struct kern_variant *v, const struct kern_mat *w,
                     int64_t m_max, int n_threads, struct kern_schedule *out)
{
    struct tuned *t = ctx;
    int64_t n_tuned = 0;
    int rc = tune_table(t->cache, v, w, m_max, n_threads, out, &n_tuned);

    t->s->n_schedules += m_max;
    t->s->n_tuned += n_tuned;
    for (int64_t m = 0; m < m_max && rc == OK; m++) {
        char text[128];

        kern_schedule_print(&out[m], text, sizeof(text));
        t->s->schedules_hash = hash_fnv1a(t->s->schedules_hash, text);
    }
    return rc;
}

/* Take the schedules of the file asked for, otherwise the plan's. */
static int phase_schedules(struct serve_engine *s, struct model_phase *phase,
                           const struct plan_phase *f)
{
    struct tuned t = {.s = s};
    struct tune_cache *own = NULL;
    int rc;

    if (s->api.o.schedules) {
        rc =
            tune_cache_open(&own, s->api.o.schedules, f->cpus, f->n_ranks * f->n_threads);
        t.cache = own;
    } else {
        rc = plan_schedules(&s->plan, f, &t.cache);
    }
    if (rc == OK && t.cache)
        rc = model_phase_schedules(phase, tuned_row, &t);
    tune_cache_close(&own);
    return rc;
}

static int open_schedules(struct serve_engine *s)
{
    int rc;

    s->schedules_hash = HASH_FNV1A;
    if (s->api.o.schedules && access(s->api.o.schedules, R_OK) != 0)
        return err_set(ERR_IO, "%s: cannot open: %m",
                       s->api.o.schedules); /* as a tuner would not */
    rc = phase_schedules(s, s->prefill, &s->plan.prefill);
    if (rc == OK && s->decode != s->prefill)
        rc = phase_schedules(s, s->decode, &s->plan.decode);
    if (rc == OK && s->n_tuned == 0 && s->n_schedules > 0)
        log_warning("schedules_not_for_this", 0, (double)s->n_schedules,
                    "%s has no schedule for this model, CPU, threads and build: the cost "
                    "model chooses",
                    s->api.o.schedules ? s->api.o.schedules : s->api.o.plan);
    return rc;
}

#define OPERATORS_MAX ((size_t)1 << 20)

static int set_operators(struct serve_engine *s)
{
    struct model_ops o = {0};
    char *text;
    size_t n;
    int rc;

    TRY(file_read(&text, &n, s->api.o.operators, OPERATORS_MAX));
    rc = model_ops_parse(&o, text, n);
    if (rc == OK)
        rc = model_phase_ops_set(s->prefill, &o);
    if (rc == OK && s->decode != s->prefill)
        rc = model_phase_ops_set(s->decode, &o);
    model_ops_fini(&o);
    mem_free(text);
    return rc == OK ? OK : err_prefix(rc, "%s", s->api.o.operators);
}

static void touch_pool(void *arg, struct par_self *self)
{
    kv_pool_touch(arg, self->id, self->n);
}

static int open_pool(struct serve_engine *s)
{
    struct kv_pool_opts o;
    struct kv_shape shape;
    struct kv_stat kv;
    int rc;

    model_kv_shape(s->model, &shape);
    s->kv_token_bytes = (int64_t)kv_token_bytes(&shape);
    rc = pool_opts(s, &shape, &o);
    if (rc == OK)
        rc = kv_pool_open(&s->pool, &shape, &o);
    if (rc == ERR_NOMEM && s->api.o.kv_budget > 0)
        return err_prefix(rc, "kv_budget %lld", (long long)s->api.o.kv_budget);
    if (rc == OK)
        rc = model_kv_bind(s->model, s->pool);
    if (rc != OK)
        return rc;
    kv_pool_stat(s->pool, &kv);
    kv_pool_limit(s->pool,
                  s->api.o.kv_budget_tok > 0 ? s->api.o.kv_budget_tok : kv.pool_tok);
    par_team_run(s->team, par_team_size(s->team), touch_pool, s->pool);
    return serve_kv_numa_report(s);
}

int serve_requests_open(struct serve_engine *s)
{
    size_t n = (size_t)serve_draft_rows(&s->api.o);

    TRY(open_pool(s));
    s->chunks = mem_new(MEM_OTHER, n, sizeof(*s->chunks));
    s->logits =
        mem_new(MEM_ACTIVATIONS, n * (size_t)serve_vocab(&s->api), sizeof(*s->logits));
    s->new_ids = mem_new(MEM_OTHER, n, sizeof(*s->new_ids));
    if (!s->chunks || !s->logits || !s->new_ids)
        return ERR_NOMEM;
    return serve_loop_open(s, serve_seq_drop);
}

void serve_requests_close(struct serve_engine *s)
{
    sched_loop_close(&s->loop);
    mem_free(s->chunks);
    mem_free(s->logits);
    mem_free(s->new_ids);
    serve_reuse_close(s);
    kv_pool_close(&s->pool);
    serve_lengths_close(s);
}

static void wake(void *ctx)
{
    serve_engine_wake(ctx);
}

/* Last: the processes have all that was opened before, and the team that opened it is not
 * theirs. */
static int open_processes(struct serve_engine *s)
{
    struct model_phase *phases[] = {s->decode, s->prefill};
    const int *cpus[] = {s->plan.decode.cpus, s->plan.prefill.cpus};
    const struct model_procs_opts o = {.phases = phases,
                                       .n_phases = s->decode == s->prefill ? 1 : 2,
                                       .cpus = s->api.o.pin ? cpus : NULL,
                                       .max_chunks = s->api.o.max_seqs,
                                       .pool = s->pool,
                                       .on_fail = wake,
                                       .ctx = s};

    if (!in_processes(s))
        return OK;
    par_team_close(&s->team);
    return model_procs_open(s->model, &o);
}

static const struct serve_totals *totals(const struct serve *s, enum serve_phase phase)
{
    return &((const struct serve_engine *)s)->totals[phase];
}

static void close_engine(struct serve *s);
static const struct serve_ops engine_ops = {.submit = serve_engine_submit,
                                            .cancel = serve_engine_cancel,
                                            .step = serve_engine_step,
                                            .wait = serve_engine_wait,
                                            .wake = serve_engine_wake,
                                            .totals = totals,
                                            .kv_stat = serve_engine_kv_stat,
                                            .draft_stat = serve_engine_draft_stat,
                                            .describe = serve_engine_describe,
                                            .close = close_engine,
                                            .has_logits = true};

/* What grammars of requests need; nothing without a tokenizer, or a token that ends a text. */
static int open_vocab(struct serve_engine *s)
{
    int32_t ends[MODEL_STOP_MAX + TOK_STOP_MAX + SERVE_STOP_IDS_MAX];
    const int n = serve_ends(&s->api, &(struct serve_request){0}, ends);

    return s->api.tok && n > 0
               ? grammar_vocab_open(&s->vocab, s->api.tok, serve_vocab(&s->api), ends, n)
               : OK;
}

/* Up to where requests can be taken. */
static int open_steps(struct serve_engine *s, const struct serve_how *how)
{
    TRY(open_team(s));
    loaded(s, SERVE_LOAD_team);
    TRY(open_model(s, how));
    TRY(open_phases(s));
    TRY(open_sums(s));
    if (s->api.o.operators)
        TRY(set_operators(s));
    TRY(open_schedules(s));
    loaded(s, SERVE_LOAD_steps);
    return OK;
}

static int open_engine(struct serve_engine *s, const struct serve_opts *o,
                       const struct serve_how *how)
{
    struct model_phase *phases[2];
    int rc;

    s->queue_tail = &s->queue_head;
    TRY(thread_mutex_init(&s->lock));
    TRY(thread_mutex_init(&s->lengths.lock));
    TRY(thread_cond_init(&s->submitted));
    TRY(serve_init(&s->api, &engine_ops, o));
    s->load_mark_ns = clock_ns();
    s->kv_mapped = how->kv_mapped;
    s->offload = how->offload;
    s->pace = how->pace;
    TRY(sched_policy_find(o->policy ? o->policy : "fcfs", &s->policy));
    TRY(open_steps(s, how));
    TRY(serve_requests_open(s));
    loaded(s, SERVE_LOAD_kv);
    TRY(serve_open_tok(&s->api, s->model_format));
    TRY(open_vocab(s));
    loaded(s, SERVE_LOAD_tokenizer);
    TRY(serve_draft_open(s));
    loaded(s, SERVE_LOAD_weights);
    TRY(open_processes(s));
    phases[0] = s->prefill;
    phases[1] = s->decode;
    rc = !s->offload ? OK
                     : s->offload->open(s->offload->ctx, s->model, phases,
                                        s->decode == s->prefill ? 1 : 2);
    loaded(s, SERVE_LOAD_steps);
    return rc;
}

int serve_open_with(struct serve **out, const struct serve_opts *o,
                    const struct serve_how *how)
{
    struct serve_engine *s;
    int rc;

    *out = NULL;
    TRY(check_opts(o));
    s = mem_new(MEM_OTHER, 1, sizeof(*s));
    if (!s)
        return ERR_NOMEM;
    rc = open_engine(s, o, how);
    if (rc == OK)
        *out = &s->api;
    else
        close_engine(&s->api);
    return rc;
}

int serve_open(struct serve **out, const struct serve_opts *o)
{
    return serve_open_with(out, o, &(struct serve_how){0});
}

/* Requests end in the order they came, those in the queue last. */
static void end_all(struct serve_engine *s)
{
    for (int i = 0; i < s->loop.n_live; i++)
        serve_seq_end((struct serve_seq *)s->loop.live[i], -1, NULL, SERVE_CANCELED);
    if (s->loop.n_live > 0)
        serve_drop_ended(s);
    serve_outside_close(s);
    while (s->queue_head) {
        struct serve_seq *q = s->queue_head;

        s->queue_head = q->next;
        q->on_token(q->ctx, q->r.id, -1, NULL, SERVE_CANCELED);
        serve_seq_free(q);
    }
}

static void close_engine(struct serve *api)
{
    struct serve_engine *s = serve_engine_of(api);

    end_all(s);
    model_procs_close(s->model);
    serve_requests_close(s);
    serve_draft_close(s);
    if (s->offload)
        s->offload->close(s->offload->ctx);
    if (s->decode != s->prefill)
        model_phase_close(&s->decode);
    model_phase_close(&s->prefill);
    model_close(&s->model);
    par_team_close(&s->team);
    topo_machine_close(&s->machine);
    plan_fini(&s->plan);
    grammar_vocab_close(&s->vocab);
    serve_fini(&s->api);
    pthread_cond_destroy(&s->submitted);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->lengths.lock);
    mem_free(s);
}
