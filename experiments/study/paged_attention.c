/* The cost to attention of keys and values that are scattered: the attention of a decode step
 * over contiguous memory and over tables of blocks of 16 to 512 tokens, in turn, next to the
 * probe that reads blocks in random order; and what an allocator's operations add to a step.
 * Paper: ODMA 2.2, 3.5. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "characterize/pages.h"
#include "characterize/probe.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/kv_layout.h"
#include "experiments/study/support/kv_ops.h"
#include "experiments/study/support/options.h"
#include "kernels/kv_type.h"

static const int sizes[] = {16, 32, 64, 128, 256, 512}; /* tokens of a block */
#define SEED        1 /* of the blocks' order and of the sequences' lengths */
#define N_SIZES     (int)(sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST_TOK 512
#define MEMORY_MIN  ((size_t)512 << 20)
#define ALLOCS_MAX  16
#define ROUNDS_MAX  199

enum { PAGES_HUGE, PAGES_SMALL };
enum { ORDER_RANDOM, ORDER_SEQUENCE };

#define OPTIONS(X)                                                                       \
    OPTION_KV_TYPE(X, "bf16")                                                            \
    X(ENUM, pages, "huge", "Pages of the system in which keys and values are.",          \
      .values = "huge|small")                                                            \
    X(ENUM, order, "random",                                                             \
      "Where the blocks of a sequence are: anywhere, or one after another, where only "  \
      "the table's own cost is left.",                                                   \
      .values = "random|sequence")                                                       \
    X(INT, n_layers, "4", "Layers.", .min = 1, .max = 1024)                              \
    X(INT, n_kv_heads, "8", "Heads of keys and values.", .min = 1, .max = 1024)          \
    X(INT, group, "1", "Query heads of each head of keys and values.", .min = 1,         \
      .max = KERN_ATTN_ROWS_MAX)                                                         \
    X(INT, head_dim, "64", "Size of a head. An even number.", .min = 2,                  \
      .max = KERN_HEAD_DIM_MAX)                                                          \
    X(INT, ctx_tok, "1024", "Tokens of each sequence. A multiple of 512.",               \
      .unit = "tok", .min = LARGEST_TOK, .max = 1 << 20)                                 \
    X(INT, memory_mb, "0",                                                               \
      "Memory of keys and values, which sets the number of sequences. 0: four times "    \
      "the last-level cache, at least 512.",                                             \
      .unit = "MiB", .min = 0, .max = 1 << 20)                                           \
    X(INT, rounds, "21", "Rounds in which all block sizes are measured.", .min = 3,      \
      .max = ROUNDS_MAX)                                                                 \
    X(F64, probe_s, "4", "Time of the probe that reads blocks.", .unit = "s",            \
      .min = 0.01, .max = 600)                                                           \
    X(INT, probe_mb, "0", "Memory that the probe reads. 0: as for the machine card.",    \
      .unit = "MiB", .min = 0, .max = 1 << 20)                                           \
    X(INT, alloc_ops, "20000", "Operations of each allocator in a round.", .min = 1,     \
      .max = 10000000)

#define RESULTS(X)                                                                       \
    X(paged16_over_contiguous, "x", LOWER,                                               \
      "time of attention over blocks of 16 tokens / over contiguous memory, median of "  \
      "the rounds")                                                                      \
    X(paged32_over_contiguous, "x", LOWER, "the same with blocks of 32 tokens")          \
    X(paged64_over_contiguous, "x", LOWER, "the same with blocks of 64 tokens")          \
    X(paged128_over_contiguous, "x", LOWER, "the same with blocks of 128 tokens")        \
    X(paged256_over_contiguous, "x", LOWER, "the same with blocks of 256 tokens")        \
    X(paged512_over_contiguous, "x", LOWER, "the same with blocks of 512 tokens")        \
    X(contiguous_ms, "ms", LOWER, "time of a step's attention over contiguous memory")   \
    X(contiguous_gbps, "GB/s", HIGHER, "keys and values that it reads / its time")       \
    X(sequential_gbps, "GB/s", 0, "probe: read bandwidth of blocks in sequence")         \
    X(random_frac_4k, "", HIGHER,                                                        \
      "probe: bandwidth of blocks of 4 KiB in random order / in sequence")               \
    X(kv_mb, "MiB", 0, "keys and values of all sequences")                               \
    X(n_seqs, "", 0, "sequences")                                                        \
    X(alloc_ops_per_s, "1/s", HIGHER,                                                    \
      "operations per second of the slowest allocator: reserve, grow, release")          \
    X(alloc_step_frac, "", LOWER,                                                        \
      "time of an allocator's operations per step / time of a step's attention over "    \
      "contiguous memory, which is less than that of the whole step; of the allocator "  \
      "with the largest share")

FRAME_TYPES;

/* The values of the probe, which measures both kinds of pages at once. */
struct page_values {
    struct measure_card_row values[64];
    int n_values, n_threads;
};

struct paged_attention {
    FRAME_CELL;
    struct study_threads threads;
    const struct kern_variant *v;
    struct probe_pages memory;
    int64_t n_seqs;
    struct study_kv_layout layout;
    int32_t *blocks[N_SIZES]; /* [n_seqs][ctx_tok / sizes[i]] */
    float *q;                 /* [threads][2][group][head_dim]: queries and results */
    char *scratch;            /* [threads] */
    struct study_kv_ops ops[ALLOCS_MAX];
    int n_allocs;
};

/* --- keys and values */

static int open_memory(struct paged_attention *c)
{
    const struct opts *o = c->o;
    size_t bytes = (size_t)o->memory_mb << 20, cache = cpu_cache_bytes(3), seq_bytes;

    if (!bytes)
        bytes = 4 * cache > MEMORY_MIN ? 4 * cache : MEMORY_MIN;
    c->layout = (struct study_kv_layout){
        .n_layers = o->n_layers,
        .n_kv_heads = o->n_kv_heads,
        .ctx_tok = o->ctx_tok,
        .vec_bytes = kern_kv_bytes((enum kern_kv_type)o->kv_type, (int)o->head_dim)};
    seq_bytes = (size_t)o->ctx_tok * study_kv_tok_bytes(&c->layout);
    c->n_seqs = (int64_t)((bytes + seq_bytes - 1) / seq_bytes);
    TRY(probe_pages_open(&c->memory, (size_t)c->n_seqs * seq_bytes,
                         o->pages == PAGES_HUGE));
    c->layout.memory = c->memory.p;
    return OK;
}

/* One byte pattern: small equal numbers in every type. */
static void touch(void *arg, struct par_self *self)
{
    const struct paged_attention *c = arg;
    int64_t lo, hi;

    par_share((int64_t)c->memory.bytes, self->id, self->n, &lo, &hi);
    memset(c->memory.p + lo, 0x3c, (size_t)(hi - lo));
}

/* The tables of all sequences for blocks of sizes[i]. */
static int make_tables(struct paged_attention *c, int i)
{
    int64_t n = c->n_seqs * c->o->ctx_tok / sizes[i];

    if (n > INT32_MAX)
        return err_set(ERR_LIMIT, "memory_mb: %lld blocks, at most %d", (long long)n,
                       INT32_MAX);
    c->blocks[i] = mem_new(MEM_OTHER, (size_t)n, sizeof(*c->blocks[i]));
    if (!c->blocks[i])
        return ERR_NOMEM;
    study_kv_number(c->blocks[i], (int32_t)n, c->o->order == ORDER_RANDOM, SEED);
    return OK;
}

static int open_work(struct paged_attention *c)
{
    const struct opts *o = c->o;
    struct kern_table t;

    if (o->ctx_tok % LARGEST_TOK)
        return err_set(ERR_ARG, "ctx_tok: expected a multiple of %d, found %lld",
                       LARGEST_TOK, (long long)o->ctx_tok);
    if (o->head_dim % 2)
        return err_set(ERR_ARG, "head_dim: expected an even number, found %lld",
                       (long long)o->head_dim);
    kern_table_choose(&t, cpu_isa_usable(), KERN_EXACT);
    c->v = t.v[kern_kv_attn((enum kern_kv_type)o->kv_type)];
    TRY(study_threads_open(&c->threads, 0, 0));
    TRY(open_memory(c));
    par_team_run(c->threads.team, c->threads.n, touch, c);
    if (o->pages == PAGES_HUGE)
        TRY(probe_pages_check_huge(&c->memory));
    for (int i = 0; i < N_SIZES; i++)
        TRY(make_tables(c, i));
    c->q = mem_new(MEM_OTHER, (size_t)c->threads.n * 2,
                   (size_t)(o->group * o->head_dim) * sizeof(*c->q));
    c->scratch =
        mem_new(MEM_OTHER, (size_t)c->threads.n, KERN_ATTN_SCRATCH_BYTES(o->head_dim));
    return c->q && c->scratch ? OK : ERR_NOMEM;
}

/* --- a step */

/* A thread's share of all sequences' heads. */
static void attend(void *arg, struct par_self *self)
{
    const struct paged_attention *c = arg;
    const struct opts *o = c->o;
    float *q = c->q + 2 * self->id * o->group * o->head_dim;
    struct kern_attn_args a = {
        .q = q,
        .out = q + o->group * o->head_dim,
        .q_stride = o->group * o->head_dim,
        .out_stride = o->group * o->head_dim,
        .scratch = c->scratch + (size_t)self->id * KERN_ATTN_SCRATCH_BYTES(o->head_dim),
        .kv_hi = o->ctx_tok,
        .pos0 = o->ctx_tok - 1,
        .n_tok = 1,
        .g = (int)o->group,
        .head_dim = (int)o->head_dim,
        .scale = 0.1f};
    int64_t lo, hi;

    par_share(c->n_seqs * o->n_kv_heads, self->id, self->n, &lo, &hi);
    for (int64_t layer = 0; layer < o->n_layers; layer++)
        for (int64_t i = lo; i < hi; i++) {
            study_kv_place(&c->layout, layer, i % o->n_kv_heads, i / o->n_kv_heads, &a);
            c->v->fn.attn(&a);
        }
}

/* Blocks of sizes[i], or, as the last one, contiguous memory. */
static int paged_attention_trial(void *arg, int i, struct measure_trial *t)
{
    struct paged_attention *c = arg;
    uint64_t t0;

    c->layout.block_tok = i < N_SIZES ? sizes[i] : 0;
    c->layout.blocks = i < N_SIZES ? c->blocks[i] : NULL;
    t0 = clock_ns();
    par_team_run(c->threads.team, c->threads.n, attend, c);
    t->seconds = (double)(clock_ns() - t0) * 1e-9;
    return OK;
}

/* --- the probe */

static int run_probe(struct paged_attention *f)
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

/* The probe's rate for the cell's kind of pages: blocks of `bytes` in random order, 0: in
 * sequence. */
static double probe_gbps(const struct paged_attention *c, int bytes)
{
    const char *pages = c->o->pages == PAGES_HUGE ? "huge" : "small";
    const struct page_values *k = study_kept(c->out);
    char name[48];

    snprintf(name, sizeof(name), "sequential_gbps_%s", pages);
    if (bytes)
        snprintf(name, sizeof(name), "random_gbps_%s_%dB", pages, bytes);
    for (int i = 0; i < k->n_values; i++)
        if (strcmp(k->values[i].name, name) == 0)
            return k->values[i].estimate;
    return NAN;
}

static void report_probe(const struct paged_attention *c)
{
    double bytes[32], gbps[32];
    size_t n = 0;

    for (int b = 64; b <= 1 << 20; b *= 2)
        if (!isnan(probe_gbps(c, b))) {
            bytes[n] = b;
            gbps[n++] = probe_gbps(c, b);
        }
    c->r->sequential_gbps = probe_gbps(c, 0);
    c->r->random_frac_4k = probe_gbps(c, 4096) / c->r->sequential_gbps;
    frame_why(c->f, NULL, "the probe found no such pages, or no memory");
    study_series(c->out, "probe_bytes", "B", bytes, n);
    study_series(c->out, "probe_random_gbps", "GB/s", gbps, n);
}

/* --- the allocators */

static int alloc_trial(void *arg, int i, struct measure_trial *t)
{
    struct paged_attention *c = arg;
    int64_t before = c->ops[i].n_ops;
    uint64_t t0 = clock_ns();

    TRY(study_kv_ops_run(&c->ops[i], c->o->alloc_ops));
    t->seconds = (double)(clock_ns() - t0) * 1e-9 / (double)(c->ops[i].n_ops - before);
    return OK;
}

static int run_allocators(struct paged_attention *c)
{
    for (; kv_allocs[c->n_allocs] && c->n_allocs < ALLOCS_MAX; c->n_allocs++) {
        struct study_kv_ops *k = &c->ops[c->n_allocs];

        TRY(study_kv_ops_open(k, kv_allocs[c->n_allocs], c->n_seqs, c->o->ctx_tok, SEED));
        TRY(study_kv_ops_run(k,
                             c->o->alloc_ops)); /* then they no longer begin together */
    }
    c->f->progress = 0.9;
    return frame_rounds(c->f, "operations of the allocators", c->n_allocs, c->o->rounds,
                        alloc_trial, c);
}

static void report_allocators(struct paged_attention *c)
{
    double op_s[ALLOCS_MAX], ops_per_tok[ALLOCS_MAX], slowest = 0, most = 0;
    double step_s = c->r->contiguous_ms * 1e-3; /* of its attention */
    char names[256] = "";

    for (int i = 0; i < c->n_allocs; i++) {
        const struct study_kv_ops *k = &c->ops[i];

        op_s[i] = frame_seconds(c->f, i);
        ops_per_tok[i] = (double)k->n_ops / (double)k->n_tok;
        slowest = fmax(slowest, op_s[i]);
        most = fmax(most, op_s[i] * ops_per_tok[i] * (double)c->n_seqs / step_s);
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                 i ? " " : "", k->alloc->name);
    }
    c->r->alloc_ops_per_s = 1 / slowest;
    c->r->alloc_step_frac = most;
    study_series(c->out, "alloc_op_s", "s", op_s, (size_t)c->n_allocs);
    study_series(c->out, "alloc_ops_per_tok", "", ops_per_tok, (size_t)c->n_allocs);
    study_note_text(c->out, "allocators", names);
}

/* --- the cell */

/* Times and ratios by the size of a block. */
static void report_blocks(struct paged_attention *c)
{
    double tok[N_SIZES], bytes[N_SIZES], over[N_SIZES];
    double step_s = frame_seconds(c->f, N_SIZES);
    char name[48];

    for (int i = 0; i < N_SIZES; i++) {
        double *x = frame_named(c->f, "paged%d_over_contiguous", sizes[i]);

        frame_ratio(c->f, x, i, N_SIZES, 0);
        over[i] = *x;
        tok[i] = sizes[i];
        bytes[i] = (double)sizes[i] * (double)c->layout.vec_bytes;
        snprintf(name, sizeof(name), "paged%d_s", sizes[i]);
        frame_times_series(c->f, name, i);
    }
    frame_times_series(c->f, "contiguous_s", N_SIZES);
    c->r->contiguous_ms = step_s * 1e3;
    c->r->contiguous_gbps = (double)c->memory.bytes / step_s * 1e-9;
    c->r->kv_mb = (double)c->memory.bytes / (1 << 20);
    c->r->n_seqs = (double)c->n_seqs;
    frame_why(c->f, NULL, "no round was undisturbed");
    study_series(c->out, "block_tok", "tok", tok, N_SIZES);
    study_series(c->out, "block_run_bytes", "B", bytes, N_SIZES);
    study_series(c->out, "over_contiguous", "x", over, N_SIZES);
}

static void paged_attention_close(struct paged_attention *c)
{
    for (int i = 0; i < ALLOCS_MAX; i++)
        study_kv_ops_close(&c->ops[i]);
    for (int i = 0; i < N_SIZES; i++)
        mem_free(c->blocks[i]);
    mem_free(c->q);
    mem_free(c->scratch);
    probe_pages_close(&c->memory);
    study_threads_close(&c->threads);
}

static int paged_attention_run(struct paged_attention *c)
{
    FRAME_CLOSE(c->f, paged_attention_close, c);
    TRY(open_work(c));
    study_progress(c->out, 0.1, "reading blocks in random order");
    TRY(run_probe(c));
    c->f->progress = 0.4;
    TRY(frame_rounds(c->f, "attention by block size", N_SIZES + 1, c->o->rounds,
                     paged_attention_trial, c));
    report_blocks(c);
    report_probe(c);
    TRY(run_allocators(c));
    report_allocators(c);
    study_note_text(c->out, "variant", c->v->name);
    study_note_machine(c->out, &c->threads);
    return OK;
}

STUDY(paged_attention,
      "attention over contiguous keys and values and over tables of blocks",
      .kept_bytes = sizeof(struct page_values));
