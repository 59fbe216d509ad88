#include "experiments/study/support/lever_work.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "characterize/peak/peak.h"

#define BATCH_MAX 256

/* A quarter less, and at least one less; of one there is only more. */
static int64_t fewer(int64_t n)
{
    return n == 1 ? 2 : n - (n > 4 ? n / 4 : 1);
}

/* ---- controls ---- */

static const struct control {
    const char *name;
    int n_fma;
    size_t chunk_bytes; /* multiples of what the widest loop reads at a time */
} controls[] = {{"fma", 64, 4096}, {"stream", 1, 262144}, {"cache", 1, 262144}};
enum { FMA, STREAM, CACHE, N_CONTROLS };

#define L1_PART_BYTES (16 << 10)

static size_t control_bytes(int control, int n_threads, int64_t stream_bytes)
{
    return control == FMA      ? (size_t)n_threads * L1_PART_BYTES
           : control == STREAM ? (size_t)stream_bytes
                               : cpu_cache_bytes(3) / 2;
}

/* Chunks that a cache holds are read so often that a step takes about a millisecond. */
static int64_t times_of(const struct study_lever_work *w)
{
    int64_t times = (int64_t)((4 << 20) / w->part_bytes);

    return times > 1 ? times : 1;
}

static size_t stride_of(const struct study_lever_work *w)
{
    return w->fewer ? w->chunk_bytes / 4 * 3 : w->chunk_bytes;
}

static void write_part(void *arg, struct par_self *self)
{
    struct study_lever_work *w = arg;

    memset(w->buffer + (size_t)self->id * w->part_bytes, 0, w->part_bytes);
}

struct reading {
    struct study_lever_work *w;
    int n_fma;
};

static void read_part(void *arg, struct par_self *self)
{
    const struct reading *r = arg;
    const struct study_lever_work *w = r->w;
    const char *part = w->buffer + (size_t)self->id * w->part_bytes;
    size_t n_chunks = w->part_bytes / w->chunk_bytes, stride = stride_of(w);
    const struct probe_isa *isa = probe_widest();
    double sum = 0;

    for (int64_t i = 0; i < times_of(w); i++)
        for (size_t k = 0; k < n_chunks; k++)
            sum += isa->mixed(part + k * stride, w->chunk_bytes, r->n_fma);
    if (self->id == 0)
        r->w->sum = sum;
}

static int open_control(struct study_lever_work *w, int control,
                        const struct study_lever_opts *o)
{
    size_t each, all, chunk = controls[control].chunk_bytes;
    double read;

    TRY(cpu_budget_get(&w->budget));
    TRY(par_team_open(&w->own_team, w->budget.cpus, w->budget.n, 1));
    w->team = w->own_team;
    each = control_bytes(control, w->budget.n, o->stream_bytes) / (size_t)w->budget.n;
    w->chunk_bytes = chunk;
    w->part_bytes = each < chunk ? chunk : each / chunk * chunk;
    all = w->part_bytes * (size_t)w->budget.n;
    w->buffer = mem_map(MEM_HARNESS, all, MEM_NODE_ANY);
    if (!w->buffer)
        return ERR_NOMEM;
    par_team_run(w->team, w->budget.n, write_part, w);
    w->n[LEVER_BASE] = controls[control].n_fma;
    w->n[LEVER_FEWER] = fewer(w->n[LEVER_BASE]);
    read = (double)(all * (size_t)times_of(w));
    for (int i = 0; i < LEVER_N_SIZES; i++) {
        w->cost[i].flop = 2 * (double)w->n[i] * read / sizeof(float);
        w->cost[i].bytes = read;
    }
    w->fewer_bytes = read * (3 + (double)chunk / (double)w->part_bytes) / 4;
    return OK;
}

/* ---- the engine ---- */

/* From a panel to the next: as packed, or three quarters of that in whole blocks along K. */
static size_t panel_stride(const struct kern_mat *m, bool is_fewer)
{
    int64_t block = kern_type_block(m->type) > 2 ? kern_type_block(m->type) : 2;
    int64_t rows = m->k_unit * 3 / 4 / block * block;

    if (!is_fewer || m->n_units > 1 || kern_type_one_block(m->type) || rows == 0)
        rows = m->k_unit;
    return kern_panel_size(m->type, rows);
}

struct striding {
    bool fewer;
    double bytes, saved_bytes;
};

/* Matrices of the layers count when a phase is opened, which has views of them; that of the head
 * counts whenever a step is computed. */
static void set_stride(void *ctx, const struct kern_mat *m)
{
    struct striding *s = ctx;
    size_t packed = panel_stride(m, false);

    ((struct kern_mat *)m)->panel_bytes = panel_stride(m, s->fewer);
    s->bytes += (double)m->bytes;
    s->saved_bytes += (double)(m->n_panels - 1) * (double)(packed - m->panel_bytes);
}

static int open_fewer_phase(struct study_lever_work *w, double weight_bytes)
{
    struct striding few = {.fewer = true}, all = {0};
    int rc;

    model_mats_each(w->engine.model, set_stride, &few);
    rc = study_engine_phase(&w->engine, &w->fewer_phase, 1, w->budget.n);
    model_mats_each(w->engine.model, set_stride, &all);
    w->fewer_bytes =
        w->cost[LEVER_BASE].bytes - few.saved_bytes / few.bytes * weight_bytes;
    if (rc == OK && few.saved_bytes == 0)
        rc = err_set(ERR_UNSUPPORTED, "panels of %s cannot overlap",
                     kern_type_name(model_weight_type(w->engine.model)));
    return rc;
}

/* Add `times` such steps; returns the bytes of their weights. */
static double add_cost(struct study_lever_work *w, int size, struct model_cost c,
                       int64_t times)
{
    w->cost[size].flop += c.flop * (double)times;
    w->cost[size].bytes += c.read_bytes * (double)times;
    return c.weight_bytes * (double)times;
}

/* Returns the bytes of the weights that a step of this size reads. */
static double set_cost(struct study_lever_work *w, int size)
{
    const struct model_config *c = model_config_of(w->engine.model);
    struct model_cost_types types = model_cost_types_of(w->engine.model);
    double weights = 0;

    if (w->n_prompt_tok[size])
        weights +=
            add_cost(w, size, model_cost_prefill(c, types, w->n_prompt_tok[size], 0), 1);
    if (w->n_decode)
        weights += add_cost(
            w, size, model_cost_decode(c, types, (double)w->n_ctx_tok + 1, w->n[size]),
            w->n_decode);
    return weights;
}

static int64_t most_of(const int64_t of[LEVER_N_SIZES])
{
    return of[LEVER_BASE] > of[LEVER_FEWER] ? of[LEVER_BASE] : of[LEVER_FEWER];
}

static int open_engine(struct study_lever_work *w, const struct study_lever_opts *o)
{
    int64_t prompt = most_of(w->n_prompt_tok), seqs = w->n_decode ? most_of(w->n) : 1;
    int64_t ctx = w->n_decode ? w->n_ctx_tok + 1 : 0;
    const struct model_bench_opts eo = {.precision = (enum kern_precision)o->precision,
                                        .n_seqs = (int)seqs,
                                        .one_rank = true,
                                        .max_tok = prompt > ctx ? prompt : ctx,
                                        .step_tok = prompt > seqs ? prompt : seqs,
                                        .seed = 1};
    double weights;

    TRY(study_engine_open(&w->engine, o->model, &eo));
    w->budget = w->engine.budget;
    w->team = w->engine.team;
    TRY(study_engine_phase(&w->engine, &w->phase, 1, w->budget.n));
    (void)set_cost(w, LEVER_FEWER);
    weights = set_cost(w, LEVER_BASE);
    return open_fewer_phase(w, weights);
}

static int parse(struct study_lever_work *w, const struct study_lever_opts *o)
{
    bool serving = false, decode;
    long long n = 0;
    char end;

    decode = sscanf(o->work, "decode_%lld%c", &n, &end) == 1;
    if (!decode)
        serving = sscanf(o->work, "serving_%lld%c", &n, &end) == 1;
    if (strcmp(o->work, "prefill") == 0)
        n = o->n_prompt_tok;
    else if ((!decode && !serving) || n < 1 || n > BATCH_MAX)
        return err_set(ERR_ARG,
                       "study.work: expected fma, stream, cache, prefill, or decode_N or "
                       "serving_N of 1 to %d sequences, found \"%s\"",
                       BATCH_MAX, o->work);
    w->n[LEVER_BASE] = n;
    w->n[LEVER_FEWER] = fewer(n);
    w->n_ctx_tok = serving ? o->n_prompt_tok + o->n_output_tok / 2 : o->n_ctx_tok;
    w->n_decode = serving ? (o->n_output_tok + n - 1) / n : decode;
    if (!decode) {
        w->n_prompt_tok[LEVER_BASE] = o->n_prompt_tok;
        w->n_prompt_tok[LEVER_FEWER] = fewer(o->n_prompt_tok);
    }
    w->n_tok = w->n_decode ? n * w->n_decode : n;
    return OK;
}

int study_lever_open(struct study_lever_work *w, const struct study_lever_opts *o)
{
    memset(w, 0, sizeof(*w));
    for (int i = 0; i < N_CONTROLS; i++)
        if (strcmp(o->work, controls[i].name) == 0)
            return open_control(w, i, o);
    TRY(parse(w, o));
    return open_engine(w, o);
}

void study_lever_close(struct study_lever_work *w)
{
    model_phase_close(&w->fewer_phase);
    model_phase_close(&w->phase);
    model_bench_close(&w->engine);
    par_team_close(&w->own_team);
    mem_unmap(MEM_HARNESS, w->buffer, w->part_bytes * (size_t)w->budget.n);
    w->buffer = NULL;
    w->team = NULL;
}

/* ---- steps ---- */

static void control_step(struct study_lever_work *w, enum study_lever_size size,
                         double *seconds)
{
    struct reading r = {w, (int)w->n[size]};
    uint64_t t0 = clock_ns();

    par_team_run(w->team, w->budget.n, read_part, &r);
    *seconds = (double)(clock_ns() - t0) * 1e-9;
}

static int engine_step(struct study_lever_work *w, struct model_phase *p,
                       enum study_lever_size size, double *seconds)
{
    struct model_bench_steps *s = &w->engine.steps;
    double one;

    *seconds = 0;
    if (w->n_prompt_tok[size])
        TRY(model_bench_steps_prefill(s, p, w->n_prompt_tok[size], seconds));
    for (int64_t i = 0; i < w->n_decode; i++) {
        TRY(model_bench_steps_batch(s, p, (int)w->n[size], w->n_ctx_tok, &one));
        *seconds += one;
    }
    return OK;
}

int study_lever_step(struct study_lever_work *w, enum study_lever_size size,
                     double *seconds)
{
    struct model_phase *p = w->fewer ? w->fewer_phase : w->phase;

    if (p)
        return engine_step(w, p, size, seconds);
    control_step(w, size, seconds);
    return OK;
}

void study_lever_bytes_set(struct study_lever_work *w, bool is_fewer)
{
    struct striding s = {.fewer = is_fewer};

    w->fewer = is_fewer;
    if (w->phase)
        model_mats_each(w->engine.model, set_stride, &s);
}

struct clocks {
    double seconds[CPU_MAX];
};

static void read_clock(void *arg, struct par_self *self)
{
    struct clocks *c = arg;
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    c->seconds[self->id] = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double study_lever_cpu_s(struct study_lever_work *w)
{
    struct clocks c;
    double sum = 0;

    par_team_run(w->team, w->budget.n, read_clock, &c);
    for (int i = 0; i < w->budget.n; i++)
        sum += c.seconds[i];
    return sum / w->budget.n;
}
