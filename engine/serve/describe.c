/* Facts about an open engine, for the record: what was chosen, why, and whether it is so.
 */
#include <math.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "ranks/procs.h"
#include "serve/engine.h"

/* ---- the physical bounds ---- */

int64_t serve_token_bytes(const struct serve *api, int64_t ctx_tok)
{
    const struct serve_engine *s = (const struct serve_engine *)api;

    return (int64_t)model_cost_decode(&api->config, model_cost_types_of(s->model),
                                      (double)ctx_tok, 1)
        .read_bytes;
}

double serve_prefill_flop(const struct serve *api, int64_t n_tok)
{
    const struct serve_engine *s = (const struct serve_engine *)api;

    return model_cost_prefill(&api->config, model_cost_types_of(s->model), n_tok, 0).flop;
}

struct each {
    void (*fn)(void *ctx, int id, int n);
    void *ctx;
};

static void call_each(void *arg, struct par_self *self)
{
    const struct each *e = arg;

    e->fn(e->ctx, self->id, self->n);
}

void serve_each_thread(struct serve *s, void (*fn)(void *ctx, int id, int n), void *ctx)
{
    struct par_team *team = model_team(serve_engine_of(s)->model);
    struct each e = {fn, ctx};

    par_team_run(team, par_team_size(team), call_each, &e);
}

/* ---- the description ---- */

static json_t *describe_model(const struct serve_engine *s)
{
    const struct model_config *c = &s->api.config;
    const struct model_load_stat *l = model_load_stat_of(s->model);

    return json_pack(
        "{s:o, s:s, s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:b, "
        "s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:I}",
        "path", json_string_lossy(s->api.o.model), "format", s->model_format, "arch",
        c->arch, "name", json_string_lossy(c->name), "dim", c->dim, "n_layers",
        c->n_layers, "n_heads", c->n_heads, "n_kv_heads", c->n_kv_heads, "head_dim",
        c->head_dim, "hidden", c->hidden, "vocab", c->vocab, "tied", c->tied, "qkv_bias",
        c->qkv_bias, "qk_norm", c->qk_norm, "weight_type",
        kern_type_name(model_weight_type(s->model)), "token_weight_bytes",
        (json_int_t)serve_token_bytes(&s->api, 0), "tensor_bytes",
        (json_int_t)l->tensor_bytes, "packed_bytes", (json_int_t)l->packed_bytes,
        "file_bytes", (json_int_t)l->file_bytes, "load_s", l->load_s, "load_gbps",
        l->load_gbps, "load_rss_peak_bytes", (json_int_t)l->rss_peak_bytes);
}

static json_t *describe_load(const struct serve_engine *s)
{
#define KEY(name) #name "_s",
    static const char *const keys[] = {SERVE_LOAD_PHASES(KEY)};
#undef KEY
    const struct model_load_stat *l = model_load_stat_of(s->model);
    json_t *o =
        json_pack("{s:f, s:f, s:f, s:I}", "read_s", l->read_s, "pack_s", l->pack_s,
                  "choose_s", l->choose_s, "disk_bytes", (json_int_t)l->disk_bytes);
    double all = 0;

    for (int i = 0; i < SERVE_LOAD_N; i++) {
        json_object_set_new(o, keys[i], json_real(s->load_s[i]));
        all += s->load_s[i];
    }
    json_object_set_new(o, "all_s", json_real(all));
    return o;
}

const char *serve_precision_name(const struct serve_opts *o)
{
    return kern_precision_name(o->precision);
}

const char *serve_kv_type_name(const struct serve_opts *o)
{
    return kern_kv_type_name((enum kern_kv_type)o->kv_type);
}

static json_t *describe_kernels(const struct serve_engine *s)
{
    const struct kern_table *t = model_kern(s->model);
    json_t *o = json_object();

    for (int i = 0; i < KERN_N_OPS; i++)
        json_object_set_new(o, kern_op_name((enum kern_op)i), json_string(t->v[i]->name));
    return json_pack("{s:o, s:s, s:s, s:s}", "chosen", o, "isa", s->isa_words,
                     "precision", serve_precision_name(&s->api.o), "measured",
                     model_kern_note(s->model));
}

/* The sizes of messages, and how many microseconds each algorithm took. */
static json_t *describe_timings(const struct par_timings *t)
{
    json_t *a = json_array();

    for (int i = 0; i < t->n; i++) {
        json_t *o = json_pack("{s:I}", "message_bytes", (json_int_t)t->row[i].bytes);

        for (int k = 0; par_colls[k]; k++) {
            char key[40];

            snprintf(key, sizeof(key), "%s_us", par_colls[k]->name);
            json_object_set_new(o, key, json_number(1e6 * t->row[i].seconds[k]));
        }
        json_array_append_new(a, o);
    }
    return a;
}

/* How the ranks of a phase sum: the algorithms by message size, who chose them, and what was
 * measured for it. */
static json_t *describe_sums(const struct serve_engine *s, enum serve_phase which)
{
    bool one = s->decode == s->prefill;
    const struct plan_phase *f =
        which == SERVE_DECODE ? &s->plan.decode : &s->plan.prefill;
    const struct model_phase *p = which == SERVE_DECODE ? s->decode : s->prefill;

    if (f->n_ranks == 1 || s->api.o.deterministic)
        return json_pack("{s:s}", "by",
                         f->n_ranks == 1 ? "one rank" : "deterministic order");
    return json_pack("{s:s, s:o, s:o}", "by", f->allreduce.n > 0 ? "plan" : "measured",
                     "algorithms", plan_allreduce_to_json(model_phase_choice(p)),
                     "measured", describe_timings(&s->sums[one ? SERVE_PREFILL : which]));
}

static json_t *describe_phase(const struct serve_engine *s, enum serve_phase which)
{
    const struct plan_phase *f =
        which == SERVE_DECODE ? &s->plan.decode : &s->plan.prefill;

    return json_pack("{s:i, s:i, s:o, s:s, s:o}", "n_ranks", f->n_ranks, "n_threads",
                     f->n_threads, "expected_s",
                     isfinite(f->expected_s) ? json_real(f->expected_s) : json_null(),
                     "why", f->why, "allreduce", describe_sums(s, which));
}

static json_t *describe_plan(const struct serve_engine *s)
{
    const struct plan *p = &s->plan;
    char cpus[CPU_MAX * 5 + 1];

    cpu_list_print(p->cpus, p->n_cpus, cpus, sizeof(cpus));
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:s}", "source",
                     json_string_lossy(p->source), "machine", p->machine, "evidence",
                     p->evidence, "method", p->method, "cpus", cpus, "prefill",
                     describe_phase(s, SERVE_PREFILL), "decode",
                     describe_phase(s, SERVE_DECODE), "policy", s->policy->name);
}

/* The rule that decides under which phase a step runs, and how often it chose each. */
static json_t *describe_choice(const struct serve_engine *s)
{
    const struct serve_choice *c = &s->choice;

    return json_pack("{s:s, s:I, s:f, s:I, s:I}", "by", serve_choice_by_name(c),
                     "decode_rows_max", (json_int_t)c->decode_rows_max, "margin_frac",
                     SERVE_CHOICE_MARGIN_FRAC, "n_prefill_steps",
                     (json_int_t)c->n_steps[SERVE_PREFILL], "n_decode_steps",
                     (json_int_t)c->n_steps[SERVE_DECODE]);
}

/* How many of the schedules in use (matrices x numbers of rows x phases) were tuned; "hash"
 * differs where any of them does. */
static json_t *describe_schedules(const struct serve_engine *s)
{
    const char *file = s->api.o.schedules  ? s->api.o.schedules
                       : s->plan.schedules ? s->api.o.plan
                                           : NULL;
    char hash[9];

    snprintf(hash, sizeof(hash), "%08x",
             (unsigned)(s->schedules_hash ^ s->schedules_hash >> 32));
    return json_pack("{s:o, s:I, s:I, s:s}", "file",
                     file ? json_string_lossy(file) : json_null(), "n_schedules",
                     (json_int_t)s->n_schedules, "n_tuned", (json_int_t)s->n_tuned,
                     "hash", hash);
}

/* "hash" differs where the list does. */
static json_t *describe_operators(const struct serve_engine *s)
{
    const struct model_ops *o = model_phase_ops(s->prefill);
    uint64_t all = HASH_FNV1A;
    char hash[9];

    for (int i = 0; i < o->n; i++) {
        char line[64];

        snprintf(line, sizeof(line), "%d %s\n", o->op[i].layer, o->op[i].kind->name);
        all = hash_fnv1a(all, line);
    }
    snprintf(hash, sizeof(hash), "%08x", (unsigned)(all ^ all >> 32));
    return json_pack("{s:o, s:i, s:s}", "file",
                     s->api.o.operators ? json_string_lossy(s->api.o.operators)
                                        : json_null(),
                     "n", o->n, "hash", hash);
}

static json_t *describe_budget(const struct serve_engine *s)
{
    const struct cpu_budget *b = &s->budget;
    char cpus[CPU_MAX * 5 + 1];

    cpu_list_print(b->cpus, b->n, cpus, sizeof(cpus));
    return json_pack("{s:i, s:s, s:i, s:i, s:i, s:s}", "n", b->n, "cpus", cpus,
                     "n_online", b->n_online, "n_allowed", b->n_allowed, "n_cores",
                     b->n_cores, "reason", b->reason);
}

static json_t *describe_memory(const struct serve_engine *s)
{
    json_t *o = json_object();
    struct kv_stat kv;

    for (int t = 0; t < MEM_N_TAGS; t++) {
        json_t *one = json_pack("{s:I, s:I}", "used_bytes",
                                (json_int_t)mem_used_bytes((enum mem_tag)t), "peak_bytes",
                                (json_int_t)mem_peak_bytes((enum mem_tag)t));

        json_object_set_new(o, mem_tag_name((enum mem_tag)t), one);
    }
    kv_pool_stat(s->pool, &kv);
    json_object_set_new(o, "rss_bytes", json_integer((json_int_t)mem_rss_bytes()));
    json_object_set_new(o, "kv_pool_bytes", json_integer((json_int_t)kv.pool_bytes));
    json_object_set_new(o, "kv_reserved_total", json_integer(kv.n_reserved_total));
    json_object_set_new(o, "kv_budget_tok", json_integer(kv.limit_tok));
    return o;
}

/* Bytes of weights that one phase reads and the other does not. */
static int64_t copied_bytes(const struct serve_engine *s)
{
    return model_phase_moved_bytes(s->prefill, s->decode) +
           model_phase_moved_bytes(s->decode, s->prefill);
}

/* wait_frac: the share of the time for which a thread waited for the others. */
static json_t *describe_totals(const struct serve_totals *t)
{
    return json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:o}", "n_steps", (json_int_t)t->n_steps, "n_tok",
        (json_int_t)t->n_tok, "forward_s", (double)t->forward_ns * 1e-9, "sample_s",
        (double)t->sample_ns * 1e-9, "sched_s", (double)t->sched_ns * 1e-9, "wait_frac",
        t->forward_ns ? json_real((double)t->wait_ns / (double)t->forward_ns)
                      : json_null());
}

static json_t *share(double part, double whole)
{
    return whole > 0 ? json_real(part / whole) : json_null();
}

static json_t *points(const struct series *s)
{
    json_t *a = json_array();

    for (int i = 0; i < s->n; i++)
        json_array_append_new(a, json_real(s->mean[i]));
    return json_pack("{s:I, s:o}", "steps_each", (json_int_t)s->each, "mean", a);
}

/* The use of the memory for keys and values. utilization_inner: the share of the reserved memory
 * that holds keys and values, outer: the share of all memory; both are means over the time for
 * which any was reserved, and by steps. */
static json_t *describe_kv(const struct serve_engine *s)
{
    const struct serve_kv_use *u = &s->kv_use;
    const struct kv_buckets *b = s->lengths.buckets;
    double time = (double)u->time_ns, step_s = 0;
    struct serve_kv_stat kv;

    serve_engine_kv_stat(&s->api, &kv);
    for (int i = 0; i < SERVE_N_PHASES; i++)
        step_s += 1e-9 * (double)(s->totals[i].forward_ns + s->totals[i].sample_ns +
                                  s->totals[i].sched_ns);
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:f, s:o, s:I, s:f, s:I, s:f, "
        "s:o, s:o, s:o, s:o, s:I, s:I}",
        "alloc", s->api.o.kv_alloc ? s->api.o.kv_alloc : "static", "kv_pool_bytes",
        (json_int_t)kv.pool_bytes, "kv_used_bytes", (json_int_t)kv.used_bytes,
        "kv_reserved_bytes", (json_int_t)kv.reserved_bytes, "kv_overflow_total",
        (json_int_t)kv.n_overflow, "kv_preempt_total", (json_int_t)kv.n_preempted,
        "kv_migrated_bytes", (json_int_t)kv.migrated_bytes, "migrate_s", kv.migrate_s,
        "n_alloc", (json_int_t)kv.n_alloc, "alloc_s", kv.alloc_s, "alloc_frac",
        share(kv.alloc_s, step_s), "n_predicted", (json_int_t)kv.n_predicted, "predict_s",
        kv.predict_s, "bounds_epoch", (json_int_t)(b ? kv_buckets_bounds(b)->epoch : 0),
        "learn_s", (double)s->lengths.learn_ns * 1e-9, "utilization_inner",
        share(u->inner_ns, time), "utilization_outer", share(u->outer_ns, time),
        "utilization_inner_by_step", points(&u->inner), "utilization_outer_by_step",
        points(&u->outer), "n_reused", (json_int_t)kv.n_reused, "n_reused_tok",
        (json_int_t)kv.n_reused_tok);
}

/* Null without a draft. acceptance: of guesses whose predecessors were right. */
static json_t *describe_draft(const struct serve_engine *s)
{
    struct serve_draft_stat d;

    if (!s->api.o.draft)
        return json_null();
    serve_engine_draft_stat(&s->api, &d);
    return json_pack("{s:I, s:I, s:I, s:o, s:f, s:I}", "n_guessed",
                     (json_int_t)d.n_guessed, "n_checked", (json_int_t)d.n_checked,
                     "n_right", (json_int_t)d.n_right, "acceptance",
                     share((double)d.n_right, (double)d.n_checked), "draft_s", d.seconds,
                     "draft_bytes", (json_int_t)d.bytes);
}

static json_t *describe_work(const struct serve_engine *s)
{
    const struct serve_totals *p = &s->totals[SERVE_PREFILL], *d = p + 1;
    struct serve_kv_stat kv;

    serve_engine_kv_stat(&s->api, &kv);
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, "
        "s:o, s:o}",
        "n_steps", (json_int_t)s->n_steps, "n_switches", (json_int_t)s->n_switches,
        "switch_copied_bytes", (json_int_t)copied_bytes(s), "n_tok", (json_int_t)s->n_tok,
        "n_preempted", (json_int_t)kv.n_preempted, "n_recomputed_tok",
        (json_int_t)kv.n_recomputed_tok, "forward_s",
        (double)(p->forward_ns + d->forward_ns) * 1e-9, "linear_s",
        s->op_s[MODEL_T_LINEAR], "attn_s", s->op_s[MODEL_T_ATTN], "norm_rope_s",
        s->op_s[MODEL_T_NORM_ROPE], "head_s", s->op_s[MODEL_T_HEAD], "reduce_s",
        s->op_s[MODEL_T_REDUCE], "wait_s", s->op_s[MODEL_T_WAIT], "prefill",
        describe_totals(p), "decode", describe_totals(d), "kv", describe_kv(s), "draft",
        describe_draft(s));
}

/* The threads of all ranks. */
static int n_threads(const struct plan_phase *f)
{
    return f->n_ranks * f->n_threads;
}

int serve_engine_describe(struct serve *api, json_t **out)
{
    struct serve_engine *s = serve_engine_of(api);

    *out = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:I, "
        "s:s, s:s, s:i, s:i}",
        "system", "sandwich", "model", describe_model(s), "load", describe_load(s),
        "kernels", describe_kernels(s), "plan", describe_plan(s), "phase_choice",
        describe_choice(s), "schedules", describe_schedules(s), "operators",
        describe_operators(s), "cpu_budget", describe_budget(s), "placement",
        serve_describe_placement(s), "memory", describe_memory(s), "work",
        describe_work(s), "options", opt_to_json(serve_opt_table, &s->api.o), "tokenizer",
        s->api.tok ? tok_kind(s->api.tok) : "none", "max_tok", (json_int_t)s->api.max_tok,
        "weight_type", kern_type_name(model_weight_type(s->model)), "precision",
        serve_precision_name(&s->api.o), "prefill_threads", n_threads(&s->plan.prefill),
        "decode_threads", n_threads(&s->plan.decode));
    return *out ? OK : err_set(ERR_NOMEM, "cannot describe the engine");
}
