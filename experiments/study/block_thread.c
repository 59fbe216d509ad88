/* The best computation slice of one thread compared with that of all threads. Whole slices are
 * dealt to the threads, as in the paper's sketch, or each thread cuts its own even part,
 * along M, N or K, into slices, as our driver does.   Paper: Sandwich 3.2, Fig. 2a. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "experiments/load/study.h"
#include "experiments/study/support/compare.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/variant.h"

struct opts {
    char *matrix, *bms, *bns, *bks;
    int64_t m, threads, mr, np, runs, rounds;
    int mode, dealing;
};

enum { DEAL_SLICES, DEAL_M, DEAL_N, DEAL_K };

static const struct opt_row table[] = {
    ROW_MATRIX,
    ROW_MODE,
    OPT_ROW(ENUM, dealing, "slices",
            "How the product is divided among threads: whole slices in turn, or even "
            "parts along a side, which are then divided into slices.",
            .values = "slices|m|n|k"),
    OPT_ROW(INT, m, "128", "Rows of activations.", .min = 1, .max = 65536),
    ROW_THREADS("0",
                "Number of threads of the second sweep. 0: one per available CPU core."),
    OPT_ROW(
        INT, mr, "0",
        "Rows of the micro-kernel. 0: up to 8, as many as the kernel has registers for.",
        .min = 0, .max = 64),
    OPT_ROW(INT, np, "0", "Panels of 16 columns of the micro-kernel. 0: likewise.",
            .min = 0, .max = KERN_NP_MAX),
    OPT_ROW(STR, bms, "16 32 64 128", "Rows of a slice. Example: \"16 32\""),
    OPT_ROW(STR, bns, "96 144 192 288 384 576 1152",
            "Columns of a slice, multiples of 16."),
    OPT_ROW(STR, bks, "288 576 1152 2304", "Rows of K of a slice."),
    OPT_ROW(INT, runs, "5", "Runs of each slice.", .min = 1, .max = 99),
    OPT_ROW(INT, rounds, "31",
            "Rounds in which both winners are measured again, in turn.", .min = 1,
            .max = 99),
    {0},
};

static const struct study_metric metrics[] = {
    {"loss_frac", "", "lower",
     "share of the rate lost on all threads with the best slice of one thread"},
    {"gflops_1", "GFLOP/s", "higher", "rate of one thread with its best slice"},
    {"gflops_n", "GFLOP/s", "higher",
     "rate of all threads with their best slice, measured again"},
    {"gflops_n_of_1", "GFLOP/s", "higher",
     "rate of all threads with the best slice of one thread, measured again"},
    {"bm_1", "rows", "", "rows of the best slice of one thread"},
    {"bn_1", "columns", "", "columns of the best slice of one thread"},
    {"bk_1", "rows", "", "rows of K of the best slice of one thread"},
    {"bm_n", "rows", "", "rows of the best slice of all threads"},
    {"bn_n", "columns", "", "columns of the best slice of all threads"},
    {"bk_n", "rows", "", "rows of K of the best slice of all threads"},
    {"n_slices_1", "", "", "slices of C with the best slice of one thread"},
    {"n_slices_n", "", "", "slices of C with the best slice of all threads"},
    {0},
};

#define MAX_SIDES  16
#define MAX_SLICES 1024

struct slice {
    int64_t bm, bn, bk; /* rows, columns, rows of K */
};

struct cell {
    struct study_cell *out;
    const struct opts *o;
    struct study_threads threads;
    struct tune_bench *bench;
    struct tune_shape shape;
    struct kern_gemm_job job;
    void *a;
    char *scratch;
    struct slice slices[MAX_SLICES];
    double gflops[2][MAX_SLICES]; /* one thread, all threads */
    const struct slice *now, *best[2];
    int64_t mr, np;              /* of the micro-kernel */
    struct study_compare rounds; /* of both numbers of threads; of both winners */
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
    const struct cell *w = arg;
    struct kern_gemm_job j = w->job;

    j.scratch = w->scratch + (size_t)self->id * KERN_GEMM_SCRATCH_BYTES;
    if (w->o->dealing == DEAL_SLICES) {
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

static double time_one(struct cell *w, const struct slice *s, int n_threads)
{
    uint64_t t0;

    w->job.s.bm = s->bm;
    w->job.s.bn = s->bn / KERN_PANEL;
    w->job.s.bk = s->bk;
    w->job.s.pm = w->o->dealing == DEAL_M ? n_threads : 1;
    w->job.s.pk = w->o->dealing == DEAL_K ? n_threads : 1;
    w->job.s.pn = n_threads / w->job.s.pm / w->job.s.pk;
    t0 = clock_ns();
    par_team_run(w->threads.team, n_threads, phase, w);
    return (double)(clock_ns() - t0) / 1e9;
}

/* --- the sweep */

static int list_slices(struct cell *w)
{
    int64_t bm[MAX_SIDES], bn[MAX_SIDES], bk[MAX_SIDES];
    int n[3];

    TRY(study_numbers_parse(w->o->bms, "study.bms", bm, MAX_SIDES, &n[0]));
    TRY(study_numbers_parse(w->o->bns, "study.bns", bn, MAX_SIDES, &n[1]));
    TRY(study_numbers_parse(w->o->bks, "study.bks", bk, MAX_SIDES, &n[2]));
    for (int i = 0; i < n[1]; i++)
        if (bn[i] % KERN_PANEL)
            return err_set(ERR_ARG, "study.bns: %lld is not a multiple of %d",
                           (long long)bn[i], KERN_PANEL);
    w->n = n[0] * n[1] * n[2];
    if (w->n > MAX_SLICES)
        return err_set(ERR_LIMIT, "%d slices, at most %d", w->n, MAX_SLICES);
    for (int i = 0; i < w->n; i++)
        w->slices[i] =
            (struct slice){bm[i / n[2] / n[1]], bn[i / n[2] % n[1]], bk[i % n[2]]};
    return OK;
}

/* A slice on one thread, and on all. */
static int try_slice(void *arg, int i, struct measure_trial *t)
{
    struct cell *w = arg;

    t->seconds = time_one(w, w->now, i == 0 ? 1 : w->threads.n);
    return OK;
}

static int sweep(struct cell *w, struct study_cell *out)
{
    for (int i = 0; i < w->n; i++) {
        study_progress(out, 0.9 * i / w->n, "sweep");
        w->now = &w->slices[i];
        TRY(study_compare(&w->rounds, out, 2, w->o->runs, try_slice, w));
        for (int k = 0; k < 2; k++)
            w->gflops[k][i] = study_gflops(&w->shape, w->rounds.time[k].estimate);
    }
    return OK;
}

static int best_of(const struct cell *w, int k)
{
    int best = 0;

    for (int i = 1; i < w->n; i++)
        if (w->gflops[k][i] > w->gflops[k][best])
            best = i;
    return best;
}

/* --- what is said */

static int64_t n_slices(const struct cell *w, const struct slice *s)
{
    return ceil_div(w->shape.m, s->bm) * ceil_div(w->shape.n, s->bn);
}

static void report_slice(const struct cell *w, const struct slice *s, const char *of,
                         struct study_cell *out)
{
    const struct {
        const char *prefix;
        int64_t value;
    } all[] = {
        {"bm_", s->bm}, {"bn_", s->bn}, {"bk_", s->bk}, {"n_slices_", n_slices(w, s)}};
    char name[32];

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        snprintf(name, sizeof(name), "%s%s", all[i].prefix, of);
        study_value(out, name, (double)all[i].value, NULL);
    }
}

static int try_best(void *arg, int i, struct measure_trial *t)
{
    struct cell *w = arg;

    t->seconds = time_one(w, w->best[i], w->threads.n);
    return OK;
}

/* Both winners once more, in turn: a maximum over many slices flatters itself. */
static int report_loss(struct cell *w, struct study_cell *out)
{
    const struct measure_report *time = w->rounds.time;
    struct measure_report ratio;
    int one = best_of(w, 0), all = best_of(w, 1);

    w->best[0] = &w->slices[one];
    w->best[1] = &w->slices[all];
    w->rounds.series = (const char *const[]){"again_s_1", "again_s_n"};
    TRY(study_compare(&w->rounds, out, 2, w->o->rounds, try_best, w));
    measure_ratio(w->rounds.measure, 1, 0, &ratio);
    study_value(out, "loss_frac", one == all ? 0 : 1 - ratio.estimate, NULL);
    study_value(out, "gflops_1", w->gflops[0][one], NULL);
    study_value(out, "gflops_n", study_gflops(&w->shape, time[1].estimate), NULL);
    study_value(out, "gflops_n_of_1", study_gflops(&w->shape, time[0].estimate), NULL);
    report_slice(w, &w->slices[one], "1", out);
    report_slice(w, &w->slices[all], "n", out);
    return OK;
}

static void report_sweep(const struct cell *w, struct study_cell *out)
{
    double side[MAX_SLICES];
    size_t n = (size_t)w->n;

    for (int i = 0; i < w->n; i++)
        side[i] = (double)w->slices[i].bm;
    study_series(out, "bm", "rows", side, n);
    for (int i = 0; i < w->n; i++)
        side[i] = (double)w->slices[i].bn;
    study_series(out, "bn", "columns", side, n);
    for (int i = 0; i < w->n; i++)
        side[i] = (double)w->slices[i].bk;
    study_series(out, "bk", "rows", side, n);
    study_series(out, "sweep_gflops_1", "GFLOP/s", w->gflops[0], n);
    study_series(out, "sweep_gflops_n", "GFLOP/s", w->gflops[1], n);
    study_note_setting(out, &w->threads, w->o->mode, w->shape.v);
}

/* --- a cell */

static int pack(struct cell *w)
{
    const struct kern_mat *mat = tune_bench_mat(w->bench);
    enum kern_a_format fmt = w->shape.v->a_format;
    int mr = (int)w->mr;
    int64_t blocks = kern_a_blocks(w->shape.m, mr), ldc = mat->n_panels * KERN_PANEL;

    w->a = mem_new(MEM_ACTIVATIONS, kern_a_bytes(fmt, w->shape.m, mat->k_pad), 1);
    w->job.c = mem_new(MEM_ACTIVATIONS, (size_t)(w->shape.m * ldc), sizeof(float));
    w->scratch = mem_new(MEM_ACTIVATIONS, (size_t)w->threads.n, KERN_GEMM_SCRATCH_BYTES);
    if (!w->a || !w->job.c || !w->scratch)
        return ERR_NOMEM;
    for (int64_t i = 0; i < blocks; i++) {
        int64_t r0 = kern_a_row(w->shape.m, blocks, i);
        int64_t r1 = kern_a_row(w->shape.m, blocks, i + 1);

        kern_a_pack(w->shape.v, (char *)w->a + kern_a_bytes(fmt, r0, mat->k_pad),
                    tune_bench_a(w->bench) + r0 * w->shape.k, w->shape.k, r1 - r0,
                    w->shape.k, mat->k_pad);
    }
    w->job.a_packed = w->a;
    w->job.ldc = ldc;
    return OK;
}

/* The most partial sums there will be: with all threads along K. */
static int make_partial(struct cell *w)
{
    struct kern_gemm_job *j = &w->job;
    size_t bytes;

    j->s.pm = j->s.pn = 1;
    j->s.pk = w->o->dealing == DEAL_K ? w->threads.n : 1;
    bytes = kern_gemm_partial_bytes(j);
    if (!bytes)
        return OK;
    j->partial = mem_new(MEM_ACTIVATIONS, bytes, 1);
    return j->partial ? OK : ERR_NOMEM;
}

static int make_job(struct cell *w)
{
    const struct kern_mat *mat = tune_bench_mat(w->bench);
    struct kern_gemm_job *j = &w->job;

    j->v = w->shape.v;
    j->w = mat;
    j->m = w->shape.m;
    j->s = (struct kern_schedule){.mr = (int)w->mr,
                                  .np = (int)w->np,
                                  .bm = w->mr,
                                  .bn = 1,
                                  .bk = 2,
                                  .pm = 1,
                                  .pn = w->threads.n,
                                  .pk = 1,
                                  .order = KERN_ORDER_NMK};
    TRY(kern_schedule_check(&j->s, j->v, mat, j->m, w->threads.n));
    TRY(pack(w));
    return make_partial(w);
}

static int run(struct cell *w)
{
    const struct opts *o = w->o;
    struct tune_bench_opts bench = {.seed = 1, .warm = true};

    TRY(study_matrix_parse(o->matrix, o->m, &w->shape));
    TRY(list_slices(w));
    TRY(study_threads_open(&w->threads, o->threads, 0));
    TRY(tune_bench_open(&w->bench, w->threads.team, &bench));
    TRY(study_variant_choose(&w->shape, o->mode));
    w->mr = o->mr;
    w->np = o->np;
    TRY(study_tile(w->shape.v, &w->mr, &w->np));
    study_note(w->out, "micro_kernel_rows", json_integer(w->mr));
    study_note(w->out, "micro_kernel_panels", json_integer(w->np));
    TRY(tune_bench_shape(w->bench, &w->shape));
    TRY(make_job(w));
    TRY(sweep(w, w->out));
    TRY(report_loss(w, w->out));
    report_sweep(w, w->out);
    return OK;
}

static void end(struct cell *w)
{
    study_compare_close(&w->rounds);
    tune_bench_close(&w->bench);
    study_threads_close(&w->threads);
    mem_free(w->a);
    mem_free(w->job.c);
    mem_free(w->job.partial);
    mem_free(w->scratch);
}

STUDY(block_thread, "the best slice of one thread compared with that of all threads");
