/* The best computation slice of one thread compared with that of all threads. Whole slices are
 * dealt to the threads, as in the paper's sketch, or each thread cuts its own even part,
 * along M, N or K, into slices, as our driver does.   Paper: Sandwich 3.2, Fig. 2a. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/variant.h"

enum { DEAL_SLICES, DEAL_M, DEAL_N, DEAL_K };

#define OPTIONS(X)                                                                       \
    OPTION_MATRIX(X)                                                                     \
    OPTION_MODE(X)                                                                       \
    X(ENUM, dealing, "slices",                                                           \
      "How the product is divided among threads: whole slices in turn, or even parts "   \
      "along a side, which are then divided into slices.",                               \
      .values = "slices|m|n|k")                                                          \
    X(INT, m, "128", "Rows of activations.", .min = 1, .max = 65536)                     \
    OPTION_THREADS(                                                                      \
        X, "0", "Number of threads of the second sweep. 0: one per available CPU core.") \
    X(INT, mr, "0",                                                                      \
      "Rows of the micro-kernel. 0: up to 8, as many as the kernel has registers for.",  \
      .min = 0, .max = 64)                                                               \
    X(INT, np, "0", "Panels of 16 columns of the micro-kernel. 0: likewise.", .min = 0,  \
      .max = KERN_NP_MAX)                                                                \
    X(STR, bms, "16 32 64 128", "Rows of a slice. Example: \"16 32\"")                   \
    X(STR, bns, "96 144 192 288 384 576 1152", "Columns of a slice, multiples of 16.")   \
    X(STR, bks, "288 576 1152 2304", "Rows of K of a slice.")                            \
    X(INT, runs, "5", "Runs of each slice.", .min = 1, .max = 99)                        \
    X(INT, rounds, "31", "Rounds in which both winners are measured again, in turn.",    \
      .min = 1, .max = 99)

#define RESULTS(X)                                                                       \
    X(loss_frac, "", LOWER,                                                              \
      "share of the rate lost on all threads with the best slice of one thread")         \
    X(gflops_1, "GFLOP/s", HIGHER, "rate of one thread with its best slice")             \
    X(gflops_n, "GFLOP/s", HIGHER,                                                       \
      "rate of all threads with their best slice, measured again")                       \
    X(gflops_n_of_1, "GFLOP/s", HIGHER,                                                  \
      "rate of all threads with the best slice of one thread, measured again")           \
    X(bm_1, "rows", 0, "rows of the best slice of one thread")                           \
    X(bn_1, "columns", 0, "columns of the best slice of one thread")                     \
    X(bk_1, "rows", 0, "rows of K of the best slice of one thread")                      \
    X(bm_n, "rows", 0, "rows of the best slice of all threads")                          \
    X(bn_n, "columns", 0, "columns of the best slice of all threads")                    \
    X(bk_n, "rows", 0, "rows of K of the best slice of all threads")                     \
    X(n_slices_1, "", 0, "slices of C with the best slice of one thread")                \
    X(n_slices_n, "", 0, "slices of C with the best slice of all threads")

FRAME_TYPES;

#define MAX_SIDES  16
#define MAX_SLICES 1024

struct slice {
    int64_t bm, bn, bk; /* rows, columns, rows of K */
};

struct block_thread {
    FRAME_CELL;
    struct study_threads threads;
    struct tune_bench *bench;
    struct tune_shape shape;
    struct kern_gemm_job job;
    void *a;
    char *scratch;
    struct slice slices[MAX_SLICES];
    double gflops[2][MAX_SLICES]; /* one thread, all threads */
    const struct slice *now, *best[2];
    int64_t mr, np; /* of the micro-kernel */
                    /* of both numbers of threads; of both winners */
    int n;
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- one product */

/* Slices of C in turn: the thread with one more works while the others wait. */
static void deal_slices(struct kern_gemm_job *j, const struct par_self *self)
{
    int64_t blocks = kern_a_blocks(j->m, j->s.mr), panels = j->w->n_panels;
    int64_t high = ceil_div(j->s.bm, j->s.mr), wide = j->s.bn;
    int64_t n_high = ceil_div(blocks, high), n_wide = ceil_div(panels, wide);

    j->k_lo = 0;
    j->k_hi = j->w->k_pad;
    for (int64_t t = self->id; t < n_high * n_wide; t += self->n) {
        j->i_lo = t % n_high * high;
        j->i_hi = min64(j->i_lo + high, blocks);
        j->p_lo = t / n_high * wide;
        j->p_hi = min64(j->p_lo + wide, panels);
        kern_gemm_run(j);
    }
}

static void phase(void *arg, struct par_self *self)
{
    const struct block_thread *c = arg;
    struct kern_gemm_job j = c->job;

    j.scratch = c->scratch + (size_t)self->id * KERN_GEMM_SCRATCH_BYTES;
    if (c->o->dealing == DEAL_SLICES) {
        deal_slices(&j, self);
        return;
    }
    kern_gemm_part(&j, 1, self->id);
    kern_gemm_run(&j);
    if (j.s.pk > 1) {
        par_barrier(self);
        kern_gemm_reduce(&j, self->id, self->n);
    }
}

static double time_one(struct block_thread *c, const struct slice *s, int n_threads)
{
    uint64_t t0;

    c->job.s.bm = s->bm;
    c->job.s.bn = s->bn / KERN_PANEL;
    c->job.s.bk = s->bk;
    c->job.s.pm = c->o->dealing == DEAL_M ? n_threads : 1;
    c->job.s.pk = c->o->dealing == DEAL_K ? n_threads : 1;
    c->job.s.pn = n_threads / c->job.s.pm / c->job.s.pk;
    t0 = clock_ns();
    par_team_run(c->threads.team, n_threads, phase, c);
    return (double)(clock_ns() - t0) / 1e9;
}

/* --- the sweep */

static int list_slices(struct block_thread *c)
{
    int64_t bm[MAX_SIDES], bn[MAX_SIDES], bk[MAX_SIDES];
    int n[3];

    TRY(study_numbers_parse(c->o->bms, "study.bms", bm, MAX_SIDES, &n[0]));
    TRY(study_numbers_parse(c->o->bns, "study.bns", bn, MAX_SIDES, &n[1]));
    TRY(study_numbers_parse(c->o->bks, "study.bks", bk, MAX_SIDES, &n[2]));
    for (int i = 0; i < n[1]; i++)
        if (bn[i] % KERN_PANEL)
            return err_set(ERR_ARG, "study.bns: %lld is not a multiple of %d",
                           (long long)bn[i], KERN_PANEL);
    c->n = n[0] * n[1] * n[2];
    if (c->n > MAX_SLICES)
        return err_set(ERR_LIMIT, "%d slices, at most %d", c->n, MAX_SLICES);
    for (int i = 0; i < c->n; i++)
        c->slices[i] =
            (struct slice){bm[i / n[2] / n[1]], bn[i / n[2] % n[1]], bk[i % n[2]]};
    return OK;
}

/* A slice on one thread, and on all. */
static int try_slice(void *arg, int i, struct measure_trial *t)
{
    struct block_thread *c = arg;

    t->seconds = time_one(c, c->now, i == 0 ? 1 : c->threads.n);
    return OK;
}

static int sweep(struct block_thread *c)
{
    for (int i = 0; i < c->n; i++) {
        study_progress(c->out, 0.9 * i / c->n, "sweep");
        c->now = &c->slices[i];
        TRY(frame_rounds(c->f, NULL, 2, c->o->runs, try_slice, c));
        for (int k = 0; k < 2; k++)
            c->gflops[k][i] = study_gflops(&c->shape, frame_seconds(c->f, k));
    }
    return OK;
}

static int best_of(const struct block_thread *c, int k)
{
    int best = 0;

    for (int i = 1; i < c->n; i++)
        if (c->gflops[k][i] > c->gflops[k][best])
            best = i;
    return best;
}

/* --- what is reported */

static int64_t n_slices(const struct block_thread *c, const struct slice *s)
{
    return ceil_div(c->shape.m, s->bm) * ceil_div(c->shape.n, s->bn);
}

static void report_slice(struct block_thread *c, const struct slice *s, const char *of)
{
    *frame_named(c->f, "bm_%s", of) = (double)s->bm;

    *frame_named(c->f, "bn_%s", of) = (double)s->bn;
    *frame_named(c->f, "bk_%s", of) = (double)s->bk;
    *frame_named(c->f, "n_slices_%s", of) = (double)n_slices(c, s);
}

static int try_best(void *arg, int i, struct measure_trial *t)
{
    struct block_thread *c = arg;

    t->seconds = time_one(c, c->best[i], c->threads.n);
    return OK;
}

/* Both winners once more, in turn: a maximum over many slices flatters itself. */
static int report_loss(struct block_thread *c)
{
    int one = best_of(c, 0), all = best_of(c, 1);

    c->best[0] = &c->slices[one];
    c->best[1] = &c->slices[all];
    TRY(frame_rounds(c->f, NULL, 2, c->o->rounds, try_best, c));
    frame_times_series(c->f, "again_s_1", 0);
    frame_times_series(c->f, "again_s_n", 1);
    frame_ratio(c->f, &c->r->loss_frac, 1, 0, 0);
    c->r->loss_frac = one == all ? 0 : 1 - c->r->loss_frac;
    frame_interval(c->f, &c->r->loss_frac, NAN, NAN);
    c->r->gflops_1 = c->gflops[0][one];
    c->r->gflops_n = study_gflops(&c->shape, frame_seconds(c->f, 1));
    c->r->gflops_n_of_1 = study_gflops(&c->shape, frame_seconds(c->f, 0));
    report_slice(c, &c->slices[one], "1");
    report_slice(c, &c->slices[all], "n");
    return OK;
}

static void report_sweep(struct block_thread *c)
{
    double side[MAX_SLICES];
    size_t n = (size_t)c->n;

    for (int i = 0; i < c->n; i++)
        side[i] = (double)c->slices[i].bm;
    study_series(c->out, "bm", "rows", side, n);
    for (int i = 0; i < c->n; i++)
        side[i] = (double)c->slices[i].bn;
    study_series(c->out, "bn", "columns", side, n);
    for (int i = 0; i < c->n; i++)
        side[i] = (double)c->slices[i].bk;
    study_series(c->out, "bk", "rows", side, n);
    study_series(c->out, "sweep_gflops_1", "GFLOP/s", c->gflops[0], n);
    study_series(c->out, "sweep_gflops_n", "GFLOP/s", c->gflops[1], n);
    study_note_setting(c->out, &c->threads, c->o->mode, c->shape.v);
}

/* --- a cell */

static int pack(struct block_thread *c)
{
    const struct kern_mat *mat = tune_bench_mat(c->bench);
    enum kern_a_format fmt = c->shape.v->a_format;
    int mr = (int)c->mr;
    int64_t blocks = kern_a_blocks(c->shape.m, mr), ldc = mat->n_panels * KERN_PANEL;

    c->a = frame_new(c->f, kern_a_bytes(fmt, c->shape.m, mat->k_pad), 1);
    c->job.c = frame_new(c->f, (size_t)(c->shape.m * ldc), sizeof(float));
    c->scratch = frame_new(c->f, (size_t)c->threads.n, KERN_GEMM_SCRATCH_BYTES);
    for (int64_t i = 0; i < blocks; i++) {
        int64_t r0 = kern_a_row(c->shape.m, blocks, i);
        int64_t r1 = kern_a_row(c->shape.m, blocks, i + 1);

        kern_a_pack(c->shape.v, (char *)c->a + kern_a_bytes(fmt, r0, mat->k_pad),
                    tune_bench_a(c->bench) + r0 * c->shape.k, c->shape.k, r1 - r0,
                    c->shape.k, mat->k_pad);
    }
    c->job.a_packed = c->a;
    c->job.ldc = ldc;
    return OK;
}

/* The most partial sums there will be: with all threads along K. */
static int make_partial(struct block_thread *c)
{
    struct kern_gemm_job *j = &c->job;
    size_t bytes;

    j->s.pm = j->s.pn = 1;
    j->s.pk = c->o->dealing == DEAL_K ? c->threads.n : 1;
    bytes = kern_gemm_partial_bytes(j);
    if (!bytes)
        return OK;
    j->partial = mem_new(MEM_ACTIVATIONS, bytes, 1);
    return j->partial ? OK : ERR_NOMEM;
}

static int make_job(struct block_thread *c)
{
    const struct kern_mat *mat = tune_bench_mat(c->bench);
    struct kern_gemm_job *j = &c->job;

    j->v = c->shape.v;
    j->w = mat;
    j->m = c->shape.m;
    j->s = (struct kern_schedule){.mr = (int)c->mr,
                                  .np = (int)c->np,
                                  .bm = c->mr,
                                  .bn = 1,
                                  .bk = 2,
                                  .pm = 1,
                                  .pn = c->threads.n,
                                  .pk = 1,
                                  .order = KERN_ORDER_NMK};
    TRY(kern_schedule_check(&j->s, j->v, mat, j->m, c->threads.n));
    TRY(pack(c));
    return make_partial(c);
}

static int block_thread_run(struct block_thread *c)
{
    const struct opts *o = c->o;
    struct tune_bench_opts bench = {.seed = 1, .warm = true};

    FRAME_CLOSE(c->f, mem_free, c->job.partial); /*??*/
    FRAME_CLOSE(c->f, study_threads_close, &c->threads);
    FRAME_CLOSE(c->f, tune_bench_close, &c->bench);
    TRY(study_matrix_parse(o->matrix, o->m, &c->shape));
    TRY(list_slices(c));
    TRY(study_threads_open(&c->threads, o->threads, 0));
    TRY(tune_bench_open(&c->bench, c->threads.team, &bench));
    TRY(study_variant_choose(&c->shape, o->mode));
    c->mr = o->mr;
    c->np = o->np;
    TRY(study_tile(c->shape.v, &c->mr, &c->np));
    study_note(c->out, "micro_kernel_rows", json_integer(c->mr));
    study_note(c->out, "micro_kernel_panels", json_integer(c->np));
    TRY(tune_bench_shape(c->bench, &c->shape));
    TRY(make_job(c));
    TRY(sweep(c));
    TRY(report_loss(c));
    report_sweep(c);
    return OK;
}

STUDY(block_thread, "the best slice of one thread compared with that of all threads");
