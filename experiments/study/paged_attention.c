/* What it costs attention that keys and values are scattered: the attention of a decode step
 * over contiguous memory and over tables of blocks of 16 to 512 tokens, in turn, next to the
 * probe that reads blocks in random order; and what an allocator's operations add to a step.
 * Paper: ODMA 2.2, 3.5. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "characterize/pages.h"
#include "characterize/probe.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/kv_layout.h"
#include "experiments/study/support/kv_ops.h"
#include "experiments/study/support/rows.h"
#include "kernels/kv_type.h"

static const int sizes[] = {16, 32, 64, 128, 256, 512}; /* tokens of a block */
#define SEED        1 /* of the blocks' order and of the sequences' lengths */
#define N_SIZES     (int)(sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST_TOK 512
#define MEMORY_MIN  ((size_t)512 << 20)
#define ALLOCS_MAX  16
#define ROUNDS_MAX  199

struct opts {
    int kv_type, pages, order;
    int64_t n_layers, n_kv_heads, group, head_dim, ctx_tok, memory_mb, rounds, probe_mb,
        alloc_ops;
    double probe_s;
};

enum { PAGES_HUGE, PAGES_SMALL };
enum { ORDER_RANDOM, ORDER_SEQUENCE };

static const struct opt_row table[] = {
    ROW_KV_TYPE("bf16"),
    OPT_ROW(ENUM, pages, "huge", "Pages of the system in which keys and values are.",
            .values = "huge|small"),
    OPT_ROW(ENUM, order, "random",
            "Where the blocks of a sequence are: anywhere, or one after another, where "
            "only the table's own cost is left.",
            .values = "random|sequence"),
    OPT_ROW(INT, n_layers, "4", "Layers.", .min = 1, .max = 1024),
    OPT_ROW(INT, n_kv_heads, "8", "Heads of keys and values.", .min = 1, .max = 1024),
    OPT_ROW(INT, group, "1", "Query heads of each head of keys and values.", .min = 1,
            .max = KERN_ATTN_ROWS_MAX),
    OPT_ROW(INT, head_dim, "64", "Size of a head. An even number.", .min = 2,
            .max = KERN_HEAD_DIM_MAX),
    OPT_ROW(INT, ctx_tok, "1024", "Tokens of each sequence. A multiple of 512.",
            .unit = "tok", .min = LARGEST_TOK, .max = 1 << 20),
    OPT_ROW(INT, memory_mb, "0",
            "Memory of keys and values, which sets the number of sequences. 0: four "
            "times the last-level cache, at least 512.",
            .unit = "MiB", .min = 0, .max = 1 << 20),
    OPT_ROW(INT, rounds, "21", "Rounds in which all block sizes are measured.", .min = 3,
            .max = ROUNDS_MAX),
    OPT_ROW(F64, probe_s, "4", "Time of the probe that reads blocks.", .unit = "s",
            .min = 0.01, .max = 600),
    OPT_ROW(INT, probe_mb, "0",
            "Memory that the probe reads. 0: as for the machine card.", .unit = "MiB",
            .min = 0, .max = 1 << 20),
    OPT_ROW(INT, alloc_ops, "20000", "Operations of each allocator in a round.", .min = 1,
            .max = 10000000),
    {0},
};

static const struct study_metric metrics[] = {
    {"paged16_over_contiguous", "x", "lower",
     "time of attention over blocks of 16 tokens / over contiguous memory, median of the "
     "rounds"},
    {"paged32_over_contiguous", "x", "lower", "the same with blocks of 32 tokens"},
    {"paged64_over_contiguous", "x", "lower", "the same with blocks of 64 tokens"},
    {"paged128_over_contiguous", "x", "lower", "the same with blocks of 128 tokens"},
    {"paged256_over_contiguous", "x", "lower", "the same with blocks of 256 tokens"},
    {"paged512_over_contiguous", "x", "lower", "the same with blocks of 512 tokens"},
    {"contiguous_ms", "ms", "lower", "time of a step's attention over contiguous memory"},
    {"contiguous_gbps", "GB/s", "higher", "keys and values that it reads / its time"},
    {"sequential_gbps", "GB/s", "", "probe: read bandwidth of blocks in sequence"},
    {"random_frac_4k", "", "higher",
     "probe: bandwidth of blocks of 4 KiB in random order / in sequence"},
    {"kv_mb", "MiB", "", "keys and values of all sequences"},
    {"n_seqs", "", "", "sequences"},
    {"alloc_ops_per_s", "1/s", "higher",
     "operations per second of the slowest allocator: reserve, grow, release"},
    {"alloc_step_frac", "", "lower",
     "time of an allocator's operations per step / time of a step's attention over "
     "contiguous memory, which is less than that of the whole step; of the allocator "
     "with the largest share"},
    {0},
};

/* What the probe found; it measures both kinds of pages at once. */
struct page_values {
    struct measure_card_row values[64];
    int n_values, n_threads;
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_threads threads;
    const struct kern_variant *v;
    struct probe_pages memory;
    int64_t n_seqs;
    struct study_kv_layout layout;
    int32_t *blocks[N_SIZES]; /* [n_seqs][ctx_tok / sizes[i]] */
    float *q;                 /* [threads][2][group][head_dim]: queries and results */
    char *scratch;            /* [threads] */
    struct study_compare rounds, alloc_rounds;
    struct study_kv_ops ops[ALLOCS_MAX];
    int n_allocs;
};

/* --- keys and values */

static int open_memory(struct cell *f)
{
    const struct opts *o = f->o;
    size_t bytes = (size_t)o->memory_mb << 20, cache = cpu_cache_bytes(3), seq_bytes;

    if (!bytes)
        bytes = 4 * cache > MEMORY_MIN ? 4 * cache : MEMORY_MIN;
    f->layout = (struct study_kv_layout){
        .n_layers = o->n_layers,
        .n_kv_heads = o->n_kv_heads,
        .ctx_tok = o->ctx_tok,
        .vec_bytes = kern_kv_bytes((enum kern_kv_type)o->kv_type, (int)o->head_dim)};
    seq_bytes = (size_t)o->ctx_tok * study_kv_tok_bytes(&f->layout);
    f->n_seqs = (int64_t)((bytes + seq_bytes - 1) / seq_bytes);
    TRY(probe_pages_open(&f->memory, (size_t)f->n_seqs * seq_bytes,
                         o->pages == PAGES_HUGE));
    f->layout.memory = f->memory.p;
    return OK;
}

/* One byte pattern: small equal numbers in every type. */
static void touch(void *arg, struct par_self *self)
{
    const struct cell *f = arg;
    int64_t lo, hi;

    par_share((int64_t)f->memory.bytes, self->id, self->n, &lo, &hi);
    memset(f->memory.p + lo, 0x3c, (size_t)(hi - lo));
}

/* The tables of all sequences for blocks of sizes[i]. */
static int make_tables(struct cell *f, int i)
{
    int64_t n = f->n_seqs * f->o->ctx_tok / sizes[i];

    if (n > INT32_MAX)
        return err_set(ERR_LIMIT, "memory_mb: %lld blocks, at most %d", (long long)n,
                       INT32_MAX);
    f->blocks[i] = mem_new(MEM_OTHER, (size_t)n, sizeof(*f->blocks[i]));
    if (!f->blocks[i])
        return ERR_NOMEM;
    study_kv_number(f->blocks[i], (int32_t)n, f->o->order == ORDER_RANDOM, SEED);
    return OK;
}

static int open_work(struct cell *f)
{
    const struct opts *o = f->o;
    struct kern_table t;

    if (o->ctx_tok % LARGEST_TOK)
        return err_set(ERR_ARG, "ctx_tok: expected a multiple of %d, found %lld",
                       LARGEST_TOK, (long long)o->ctx_tok);
    if (o->head_dim % 2)
        return err_set(ERR_ARG, "head_dim: expected an even number, found %lld",
                       (long long)o->head_dim);
    kern_table_choose(&t, cpu_isa_usable(), KERN_EXACT);
    f->v = t.v[kern_kv_attn((enum kern_kv_type)o->kv_type)];
    TRY(study_threads_open(&f->threads, 0, 0));
    TRY(open_memory(f));
    par_team_run(f->threads.team, f->threads.n, touch, f);
    if (o->pages == PAGES_HUGE)
        TRY(probe_pages_check_huge(&f->memory));
    for (int i = 0; i < N_SIZES; i++)
        TRY(make_tables(f, i));
    f->q = mem_new(MEM_OTHER, (size_t)f->threads.n * 2,
                   (size_t)(o->group * o->head_dim) * sizeof(*f->q));
    f->scratch =
        mem_new(MEM_OTHER, (size_t)f->threads.n, KERN_ATTN_SCRATCH_BYTES(o->head_dim));
    return f->q && f->scratch ? OK : ERR_NOMEM;
}

/* --- a step */

/* A thread's share of all sequences' heads. */
static void attend(void *arg, struct par_self *self)
{
    const struct cell *f = arg;
    const struct opts *o = f->o;
    float *q = f->q + 2 * self->id * o->group * o->head_dim;
    struct kern_attn_args a = {
        .q = q,
        .out = q + o->group * o->head_dim,
        .q_stride = o->group * o->head_dim,
        .out_stride = o->group * o->head_dim,
        .scratch = f->scratch + (size_t)self->id * KERN_ATTN_SCRATCH_BYTES(o->head_dim),
        .kv_hi = o->ctx_tok,
        .pos0 = o->ctx_tok - 1,
        .n_tok = 1,
        .g = (int)o->group,
        .head_dim = (int)o->head_dim,
        .scale = 0.1f};
    int64_t lo, hi;

    par_share(f->n_seqs * o->n_kv_heads, self->id, self->n, &lo, &hi);
    for (int64_t layer = 0; layer < o->n_layers; layer++)
        for (int64_t i = lo; i < hi; i++) {
            study_kv_place(&f->layout, layer, i % o->n_kv_heads, i / o->n_kv_heads, &a);
            f->v->fn.attn(&a);
        }
}

/* Blocks of sizes[i], or, as the last one, contiguous memory. */
static int trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    uint64_t t0;

    f->layout.block_tok = i < N_SIZES ? sizes[i] : 0;
    f->layout.blocks = i < N_SIZES ? f->blocks[i] : NULL;
    t0 = clock_ns();
    par_team_run(f->threads.team, f->threads.n, attend, f);
    t->seconds = (double)(clock_ns() - t0) * 1e-9;
    return OK;
}

/* --- the probe */

static int run_probe(struct cell *f)
{
    struct page_values *k = study_kept(f->out);
    struct probe_ctx c = {.team = f->threads.team,
                          .n_threads_max = f->threads.n,
                          .full = true,
                          .budget_s = f->o->probe_s,
                          .buffer_bytes = (size_t)f->o->probe_mb << 20,
                          .values = k->values,
                          .max_values = (int)(sizeof(k->values) / sizeof(k->values[0]))};

    if (k->n_values && k->n_threads == f->threads.n)
        return OK;
    for (int i = 0; probes[i]; i++)
        if (strcmp(probes[i]->name, "blocks") == 0)
            TRY(probes[i]->run(&c));
    k->n_values = c.n_values;
    k->n_threads = f->threads.n;
    return OK;
}

/* Of the cell's kind of pages: reading blocks of `bytes` in random order, 0: in sequence. */
static double probe_gbps(const struct cell *f, int bytes)
{
    const char *pages = f->o->pages == PAGES_HUGE ? "huge" : "small";
    const struct page_values *k = study_kept(f->out);
    char name[48];

    snprintf(name, sizeof(name), "sequential_gbps_%s", pages);
    if (bytes)
        snprintf(name, sizeof(name), "random_gbps_%s_%dB", pages, bytes);
    for (int i = 0; i < k->n_values; i++)
        if (strcmp(k->values[i].name, name) == 0)
            return k->values[i].estimate;
    return NAN;
}

static void report_probe(const struct cell *f)
{
    double bytes[32], gbps[32], sequential = probe_gbps(f, 0);
    const struct study_number all[] = {
        {"sequential_gbps", sequential},
        {"random_frac_4k", probe_gbps(f, 4096) / sequential},
    };
    size_t n = 0;

    for (int b = 64; b <= 1 << 20; b *= 2)
        if (!isnan(probe_gbps(f, b))) {
            bytes[n] = b;
            gbps[n++] = probe_gbps(f, b);
        }
    STUDY_VALUES(f->out, all, "the probe found no such pages, or no memory");
    study_series(f->out, "probe_bytes", "B", bytes, n);
    study_series(f->out, "probe_random_gbps", "GB/s", gbps, n);
}

/* --- the allocators */

static int alloc_trial(void *arg, int i, struct measure_trial *t)
{
    struct cell *f = arg;
    int64_t before = f->ops[i].n_ops;
    uint64_t t0 = clock_ns();

    TRY(study_kv_ops_run(&f->ops[i], f->o->alloc_ops));
    t->seconds = (double)(clock_ns() - t0) * 1e-9 / (double)(f->ops[i].n_ops - before);
    return OK;
}

static int run_allocators(struct cell *f)
{
    for (; kv_allocs[f->n_allocs] && f->n_allocs < ALLOCS_MAX; f->n_allocs++) {
        struct study_kv_ops *k = &f->ops[f->n_allocs];

        TRY(study_kv_ops_open(k, kv_allocs[f->n_allocs], f->n_seqs, f->o->ctx_tok, SEED));
        TRY(study_kv_ops_run(k,
                             f->o->alloc_ops)); /* then they no longer begin together */
    }
    f->alloc_rounds =
        (struct study_compare){.doing = "operations of the allocators", .from = 0.9};
    return study_compare(&f->alloc_rounds, f->out, f->n_allocs, f->o->rounds, alloc_trial,
                         f);
}

/* `step_s`: of a step's attention. */
static void report_allocators(const struct cell *f, double step_s)
{
    double op_s[ALLOCS_MAX], ops_per_tok[ALLOCS_MAX], slowest = 0, most = 0;
    char names[256] = "";

    for (int i = 0; i < f->n_allocs; i++) {
        const struct study_kv_ops *k = &f->ops[i];

        op_s[i] = f->alloc_rounds.time[i].estimate;
        ops_per_tok[i] = (double)k->n_ops / (double)k->n_tok;
        slowest = fmax(slowest, op_s[i]);
        most = fmax(most, op_s[i] * ops_per_tok[i] * (double)f->n_seqs / step_s);
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                 i ? " " : "", k->alloc->name);
    }
    study_value(f->out, "alloc_ops_per_s", 1 / slowest, NULL);
    study_value(f->out, "alloc_step_frac", most, NULL);
    study_series(f->out, "alloc_op_s", "s", op_s, (size_t)f->n_allocs);
    study_series(f->out, "alloc_ops_per_tok", "", ops_per_tok, (size_t)f->n_allocs);
    study_note_text(f->out, "allocators", names);
}

/* --- the cell */

/* The ratios by the size of a block. */
static void report_ratios(const struct cell *f)
{
    double tok[N_SIZES], bytes[N_SIZES], over[N_SIZES];
    char name[48];

    for (int i = 0; i < N_SIZES; i++) {
        snprintf(name, sizeof(name), "paged%d_over_contiguous", sizes[i]);
        over[i] = study_compare_ratio(&f->rounds, name, i, N_SIZES, 0);
        tok[i] = sizes[i];
        bytes[i] = (double)sizes[i] * (double)f->layout.vec_bytes;
    }
    study_series(f->out, "block_tok", "tok", tok, N_SIZES);
    study_series(f->out, "block_run_bytes", "B", bytes, N_SIZES);
    study_series(f->out, "over_contiguous", "x", over, N_SIZES);
}

static void report(const struct cell *f)
{
    double bytes = (double)f->memory.bytes, step_s = f->rounds.time[N_SIZES].estimate;
    const struct study_number all[] = {
        {"contiguous_ms", step_s * 1e3},
        {"contiguous_gbps", bytes / step_s * 1e-9},
        {"kv_mb", bytes / (1 << 20)},
        {"n_seqs", (double)f->n_seqs},
    };

    STUDY_VALUES(f->out, all, "no round was undisturbed");
    report_ratios(f);
    report_probe(f);
    report_allocators(f, step_s);
    study_note_text(f->out, "variant", f->v->name);
    study_note_machine(f->out, &f->threads);
}

static int run(struct cell *f)
{
    TRY(open_work(f));
    study_progress(f->out, 0.1, "reading blocks in random order");
    TRY(run_probe(f));
    f->rounds = (struct study_compare){
        .series =
            (const char *const[]){"paged16_s", "paged32_s", "paged64_s", "paged128_s",
                                  "paged256_s", "paged512_s", "contiguous_s"},
        .doing = "attention by block size",
        .from = 0.4};
    TRY(study_compare(&f->rounds, f->out, N_SIZES + 1, f->o->rounds, trial, f));
    TRY(run_allocators(f));
    report(f);
    return OK;
}

static void end(struct cell *f)
{
    for (int i = 0; i < ALLOCS_MAX; i++)
        study_kv_ops_close(&f->ops[i]);
    for (int i = 0; i < N_SIZES; i++)
        mem_free(f->blocks[i]);
    study_compare_close(&f->rounds);
    study_compare_close(&f->alloc_rounds);
    mem_free(f->q);
    mem_free(f->scratch);
    probe_pages_close(&f->memory);
    study_threads_close(&f->threads);
}

STUDY(paged_attention,
      "attention over contiguous keys and values and over tables of blocks",
      .kept_bytes = sizeof(struct page_values));
