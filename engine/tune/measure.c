#include "tune/measure.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cpu/cpu.h"

/* A search measures many schedules once; those that matter are compared in rounds. */
#define ROUNDS_MIN 3
#define ROUNDS_MAX 25
#define ROTATE_OVER                                                                      \
    4 /* copies of the weights together fill this many last-level caches */
#define FILL_BYTES 65536 /* random numbers of one stream */
#define COPY_ALIGN 4096
#define BUFFER_STEP                                                                      \
    ((size_t)32 << 20) /* so that shapes of about one size share a buffer */

struct tune_bench {
    struct par_team *team;
    tune_model_fn model; /* or NULL: runs are real */
    void *model_arg;
    bool model_rounds;
    struct tune_bench_opts o;
    struct tune_shape shape;
    struct kern_mat mat; /* its data is the copy that the latest run read */
    char *weights;
    size_t weights_bytes, copy_bytes;
    enum kern_type filled; /* what the weights' bits are numbers of */
    int64_t n_copies, next_copy;
    float *x, *c, *partial;
    void *a;
    size_t x_bytes, c_bytes, a_bytes, partial_bytes;
    char *scratch;
    struct measure *measure; /* room for n_max schedules in rounds_max rounds */
    int n_max, rounds_max;
    struct tune_cost cost;
};

/* ---- operands ---- */

struct fill {
    char *to;
    size_t bytes;
    enum kern_type type;
    uint64_t seed;
};

/* Numbers of either sign with magnitudes in [0.25, 1), made by setting exponent bits. What is
 * quantised is filled as f16 is: its scales are such numbers, wherever they are. */
static void fill_block(char *to, size_t bytes, enum kern_type type, struct rng *r)
{
    static const uint64_t keep[KERN_N_PLAIN_TYPES] = {
        [KERN_F32] = UINT64_C(0x80ffffff80ffffff),
        [KERN_F16] = UINT64_C(0x87ff87ff87ff87ff),
        [KERN_BF16] = UINT64_C(0x80ff80ff80ff80ff)};
    static const uint64_t add[KERN_N_PLAIN_TYPES] = {
        [KERN_F32] = UINT64_C(0x3e8000003e800000),
        [KERN_F16] = UINT64_C(0x3400340034003400),
        [KERN_BF16] = UINT64_C(0x3e803e803e803e80)};

    type = kern_type_quantised(type) ? KERN_F16 : type;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = (rng_u64(r) & keep[type]) + add[type];

        memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static void fill_phase(void *arg, struct par_self *self)
{
    const struct fill *f = arg;
    int64_t lo, hi;

    par_share((int64_t)((f->bytes + FILL_BYTES - 1) / FILL_BYTES), self->id, self->n, &lo,
              &hi);
    for (int64_t i = lo; i < hi; i++) {
        size_t at = (size_t)i * FILL_BYTES;
        struct rng r;

        /* a stream for each block: the same numbers for any number of threads */
        rng_init(&r, f->seed + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15), "tune");
        fill_block(f->to + at, f->bytes - at < FILL_BYTES ? f->bytes - at : FILL_BYTES,
                   f->type, &r);
    }
}

static void fill(struct tune_bench *b, void *to, size_t bytes, enum kern_type type)
{
    struct fill f = {to, bytes, type, (uint64_t)b->o.seed};

    par_team_run(b->team, par_team_size(b->team), fill_phase, &f);
}

static int reserve(void **p, size_t *have, size_t bytes)
{
    if (*p && *have >= bytes)
        return OK;
    mem_free(*p);
    *have = 0;
    *p = mem_new(MEM_ACTIVATIONS, bytes, 1);
    if (!*p)
        return ERR_NOMEM;
    *have = bytes;
    return OK;
}

/* Copies of the matrix, in one mapping that is kept while it is large enough: any layout
 * of a type's random numbers is as good as another. */
static int make_weights(struct tune_bench *b)
{
    size_t over = ROTATE_OVER * b->o.cache_bytes, bytes;

    b->copy_bytes = (b->mat.bytes + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
    b->n_copies = b->o.warm ? 1 : (int64_t)((over + b->copy_bytes - 1) / b->copy_bytes);
    b->next_copy %= b->n_copies; /* goes on, where only the variant is another */
    bytes = (size_t)b->n_copies * b->copy_bytes;
    if (b->weights && b->weights_bytes >= bytes && b->filled == b->mat.type)
        return OK;
    if (b->weights_bytes < bytes) {
        mem_unmap(MEM_WEIGHTS, b->weights, b->weights_bytes);
        b->weights_bytes = 0;
        bytes = (bytes / BUFFER_STEP + 1) * BUFFER_STEP;
        b->weights = mem_map(MEM_WEIGHTS, bytes, MEM_NODE_ANY);
        if (!b->weights)
            return ERR_NOMEM;
        b->weights_bytes = bytes;
    }
    fill(b, b->weights, b->weights_bytes, b->mat.type);
    b->filled = b->mat.type;
    return OK;
}

static int make_activations(struct tune_bench *b)
{
    const struct tune_shape *s = &b->shape;
    size_t x_bytes = (size_t)s->m * (size_t)s->k * sizeof(float);
    bool stale = !b->x || b->x_bytes < x_bytes;

    TRY(reserve((void **)&b->x, &b->x_bytes, x_bytes));
    if (stale)
        fill(b, b->x, b->x_bytes, KERN_F32);
    TRY(reserve(&b->a, &b->a_bytes, kern_a_bytes(s->v->a_format, s->m, b->mat.k_pad)));
    return reserve((void **)&b->c, &b->c_bytes,
                   (size_t)(s->m * b->mat.n_panels * KERN_PANEL) * sizeof(float));
}

int tune_bench_shape(struct tune_bench *b, const struct tune_shape *s)
{
    enum kern_type type = (enum kern_type)(s->v->op - KERN_GEMM_F32);
    int rc = OK;

    if (s->m < 1 || s->n < 1 || s->k < 1 || s->k_unit < 0 || s->k_unit % 2)
        return err_set(ERR_ARG, "no GEMM of m %lld, n %lld, k %lld in units of %lld",
                       (long long)s->m, (long long)s->n, (long long)s->k,
                       (long long)s->k_unit);
    if (s->k % kern_type_block(type))
        return err_set(ERR_ARG, "k %lld: expected a multiple of %d for weights in %s",
                       (long long)s->k, kern_type_block(type), kern_type_name(type));
    b->shape = *s;
    kern_mat_layout(&b->mat, type, s->n, s->k, s->k_unit);
    if (!b->model) {
        rc = make_weights(b);
        b->mat.data = b->weights;
        if (rc == OK)
            rc = make_activations(b);
    }
    if (rc != OK)
        b->shape.m = 0; /* not ready */
    return rc;
}

const struct kern_mat *tune_bench_mat(const struct tune_bench *b)
{
    return &b->mat;
}

const float *tune_bench_a(const struct tune_bench *b)
{
    return b->x;
}

const float *tune_bench_c(const struct tune_bench *b, int64_t *ldc)
{
    *ldc = b->mat.n_panels * KERN_PANEL;
    return b->c;
}

/* ---- one run ---- */

struct phase {
    const struct tune_bench *b;
    struct kern_gemm_job job;
};

static void pack_share(const struct tune_bench *b, const struct kern_schedule *s,
                       const struct par_self *self)
{
    const struct tune_shape *shape = &b->shape;
    enum kern_a_format fmt = shape->v->a_format;
    int64_t n_blocks = kern_a_blocks(shape->m, s->mr), lo, hi;

    par_share(n_blocks, self->id, self->n, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int64_t r0 = kern_a_row(shape->m, n_blocks, i);
        int64_t r1 = kern_a_row(shape->m, n_blocks, i + 1);

        kern_a_pack(b->shape.v, (char *)b->a + kern_a_bytes(fmt, r0, b->mat.k_pad),
                    b->x + r0 * shape->k, shape->k, r1 - r0, shape->k, b->mat.k_pad);
    }
}

static void gemm_phase(void *arg, struct par_self *self)
{
    const struct phase *p = arg;
    struct kern_gemm_job j = p->job;

    pack_share(p->b, &j.s, self);
    par_barrier(self);
    j.scratch = p->b->scratch + (size_t)self->id * KERN_GEMM_SCRATCH_BYTES;
    kern_gemm_part(&j, 1, self->id);
    kern_gemm_run(&j);
    if (j.s.pk > 1) {
        par_barrier(self);
        kern_gemm_reduce(&j, self->id, self->n);
    }
}

/* Check the schedule and take what it needs, before any clock is read. */
static int prepare(struct tune_bench *b, const struct kern_schedule *s, int n_threads)
{
    struct kern_gemm_job j = {.v = b->shape.v, .w = &b->mat, .s = *s, .m = b->shape.m};
    int rc;

    if (b->shape.m < 1)
        return err_set(ERR_STATE, "nothing to measure before tune_bench_shape()");
    if (!b->model && n_threads > par_team_size(b->team))
        return err_set(ERR_ARG, "%d threads of a team of %d", n_threads,
                       par_team_size(b->team));
    rc = kern_schedule_check(s, b->shape.v, &b->mat, b->shape.m, n_threads);
    if (rc != OK || b->model)
        return rc;
    return reserve((void **)&b->partial, &b->partial_bytes, kern_gemm_partial_bytes(&j));
}

static double run(struct tune_bench *b, const struct kern_schedule *s, int n_threads)
{
    struct phase p = {.b = b,
                      .job = {.v = b->shape.v,
                              .w = &b->mat,
                              .s = *s,
                              .a_packed = b->a,
                              .m = b->shape.m,
                              .c = b->c,
                              .ldc = b->mat.n_panels * KERN_PANEL,
                              .epilogue = KERN_STORE,
                              .partial = b->partial}};
    uint64_t t0;

    b->cost.n_runs++;
    if (b->model)
        return b->model(b->model_arg, &b->shape, s, n_threads);
    b->mat.data = b->weights + (size_t)b->next_copy * b->copy_bytes;
    b->next_copy = (b->next_copy + 1) % b->n_copies;
    t0 = clock_ns();
    par_team_run(b->team, n_threads, gemm_phase, &p);
    return (double)(clock_ns() - t0) * 1e-9;
}

int tune_run_once(struct tune_bench *b, const struct kern_schedule *s, int n_threads,
                  double *seconds)
{
    int rc = prepare(b, s, n_threads);

    *seconds = NAN;
    if (rc == OK)
        *seconds = run(b, s, n_threads);
    return rc;
}

/* ---- measurements ---- */

/* Room that grows before the first run: nothing allocates between two. */
static int open_measure(struct tune_bench *b, int n, int rounds)
{
    if (b->measure && n <= b->n_max && rounds <= b->rounds_max)
        return OK;
    measure_close(&b->measure);
    b->n_max = n > b->n_max ? n : b->n_max;
    b->rounds_max = rounds > b->rounds_max ? rounds : b->rounds_max;
    return measure_open(&b->measure, b->n_max, b->rounds_max);
}

struct job {
    struct tune_bench *b;
    const struct kern_schedule *s;
    int n_threads;
    double seconds; /* of all runs */
};

static int trial(void *arg, int i, struct measure_trial *t)
{
    struct job *j = arg;

    t->seconds = run(j->b, &j->s[i], j->n_threads);
    j->seconds += t->seconds;
    return OK;
}

static uint64_t model_now_ns(void *arg)
{
    return (uint64_t)(1e9 * ((const struct job *)arg)->seconds);
}

static int compare(struct tune_bench *b, const struct kern_schedule *s, int n,
                   int n_threads, struct measure_opts o, struct measure_report *out)
{
    struct job j = {b, s, n_threads, 0};
    const struct measure_clock model_clock = {model_now_ns, &j};
    uint64_t t0 = clock_ns();
    int rc = open_measure(b, n, o.max_rounds);

    for (int i = 0; i < n && rc == OK; i++)
        rc = prepare(b, &s[i], n_threads);
    if (b->model) {
        o.clock = b->model_rounds ? &model_clock : &measure_no_clock;
        o.n_warm_up = b->model_rounds ? o.n_warm_up : -1;
    }
    if (rc == OK)
        rc = measure_compare(b->measure, n, &o, trial, &j);
    for (int i = 0; i < n && rc == OK; i++)
        measure_report(b->measure, i, &out[i]);
    b->cost.n_measurements += rc == OK ? n : 0;
    b->cost.seconds += b->model ? j.seconds : (double)(clock_ns() - t0) * 1e-9;
    return rc;
}

int tune_measure(struct tune_bench *b, const struct kern_schedule *s, int n_threads,
                 struct measure_report *out)
{
    struct measure_opts o = b->o.measure;

    memset(out, 0, sizeof(*out));
    if (b->model && !b->model_rounds)
        o = (struct measure_opts){MEASURE_EXACTLY(1)};
    return compare(b, s, 1, n_threads, o, out);
}

int tune_compare(struct tune_bench *b, const struct kern_schedule *s, int n,
                 int n_threads, int rounds, struct measure_report *out)
{
    if (n < 1 || rounds < 1)
        return err_set(ERR_ARG, "%d schedules in %d rounds, expected one or more", n,
                       rounds);
    return compare(b, s, n, n_threads,
                   (struct measure_opts){MEASURE_EXACTLY(rounds),
                                         .n_warm_up = rounds > 1 ? 1 : -1,
                                         .seed = b->o.seed},
                   out);
}

void tune_cost_of(const struct tune_bench *b, struct tune_cost *out)
{
    *out = b->cost;
}

void tune_cost_take(struct tune_bench *b, struct tune_cost *out)
{
    *out = b->cost;
    memset(&b->cost, 0, sizeof(b->cost));
}

/* ---- open and close ---- */

static void set_defaults(struct tune_bench_opts *o)
{
    struct measure_opts *m = &o->measure;

    m->min_rounds = m->min_rounds > 0 ? m->min_rounds : ROUNDS_MIN;
    m->max_rounds = m->max_rounds > 0 ? m->max_rounds : ROUNDS_MAX;
    o->cache_bytes = o->cache_bytes > 0 ? o->cache_bytes : cpu_cache_bytes(3);
}

int tune_bench_open(struct tune_bench **out, struct par_team *team,
                    const struct tune_bench_opts *o)
{
    struct tune_bench *b;

    *out = NULL;
    b = mem_new(MEM_OTHER, 1, sizeof(*b));
    if (!b)
        return ERR_NOMEM;
    b->team = team;
    b->o = *o;
    set_defaults(&b->o);
    b->scratch =
        mem_new(MEM_ACTIVATIONS, (size_t)par_team_size(team), KERN_GEMM_SCRATCH_BYTES);
    if (!b->scratch) {
        tune_bench_close(&b);
        return ERR_NOMEM;
    }
    *out = b;
    return OK;
}

int tune_bench_open_model(struct tune_bench **out, tune_model_fn fn, void *arg)
{
    struct tune_bench *b;

    *out = NULL;
    b = mem_new(MEM_OTHER, 1, sizeof(*b));
    if (!b)
        return ERR_NOMEM;
    b->model = fn;
    b->model_arg = arg;
    set_defaults(&b->o);
    *out = b;
    return OK;
}

void tune_bench_model_rounds(struct tune_bench *b)
{
    b->model_rounds = true;
}

void tune_bench_close(struct tune_bench **b)
{
    struct tune_bench *old = *b;

    if (!old)
        return;
    if (old->weights)
        mem_unmap(MEM_WEIGHTS, old->weights, old->weights_bytes);
    mem_free(old->x);
    mem_free(old->a);
    mem_free(old->c);
    mem_free(old->partial);
    mem_free(old->scratch);
    measure_close(&old->measure);
    mem_free(old);
    *b = NULL;
}
