/* Under KERN_RELAXED several GEMM variants may qualify and none is always the faster: the
 * BF16 dot product runs at full rate on one processor and at half the f32 rate on
 * another. So they are timed on the model's own weights, once, and the faster is kept. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "kernels/gemm.h"
#include "model/impl.h"

/* Decode, where few rows are to pay for whatever a variant does once for all rows, and
 * prefill, bound by arithmetic; and between, to see from where on prefill's wins. */
static const int trial_rows[] = {4, 16, 64};
#define N_TRIALS       3
#define TRIAL_ROWS_MAX 64
/* Elements of the matrix: about a millisecond of arithmetic a trial. */
#define TRIAL_ELEMS   1000000
#define TRIAL_REPEATS 3

struct trial {
    struct kern_gemm_job job;
    float *x, *c;
    int64_t panels; /* of the matrix that take part */
    void *a, *scratch;
};

static uint64_t time_variant(struct trial *t, const struct kern_variant *v, int rows)
{
    const struct kern_mat *w = t->job.w;
    uint64_t best = UINT64_MAX;
    int64_t n_blocks;

    t->job.m = rows;
    kern_schedule_default(&t->job.s, v, w, rows, 1);
    n_blocks = kern_a_blocks(rows, t->job.s.mr);
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t r0 = kern_a_row(rows, n_blocks, b);
        int64_t r1 = kern_a_row(rows, n_blocks, b + 1);

        kern_a_pack(v, (char *)t->a + kern_a_bytes(v->a_format, r0, w->k_pad),
                    t->x + r0 * w->k, w->k, r1 - r0, w->k, w->k_pad);
    }
    t->job.v = v;
    kern_gemm_part(&t->job, 1, 0);
    t->job.p_hi = t->panels;
    for (int i = 0; i < TRIAL_REPEATS; i++) {
        uint64_t t0 = clock_ns(), dt;

        kern_gemm_run(&t->job);
        dt = clock_ns() - t0 + 1; /* never 0: it is divided by */
        best = dt < best ? dt : best;
    }
    return best;
}

static void trial_close(struct trial *t)
{
    mem_free(t->x);
    mem_free(t->c);
    mem_free(t->a);
    mem_free(t->scratch);
}

static int trial_open(struct trial *t, const struct kern_mat *w)
{
    int64_t panels = TRIAL_ELEMS / (w->k_pad * KERN_PANEL) + 1;

    memset(t, 0, sizeof(*t));
    t->panels = panels = panels < w->n_panels ? panels : w->n_panels;
    t->x = mem_new(MEM_ACTIVATIONS, (size_t)(TRIAL_ROWS_MAX * w->k), sizeof(float));
    t->c = mem_new(MEM_ACTIVATIONS, (size_t)(TRIAL_ROWS_MAX * panels * KERN_PANEL),
                   sizeof(float));
    t->a = mem_new(MEM_ACTIVATIONS, (size_t)(TRIAL_ROWS_MAX * (w->k_pad + 1)),
                   sizeof(float));
    t->scratch = mem_new(MEM_ACTIVATIONS, KERN_GEMM_SCRATCH_BYTES, 1);
    if (!t->x || !t->c || !t->a || !t->scratch)
        return ERR_NOMEM;
    for (int64_t i = 0; i < TRIAL_ROWS_MAX * w->k; i++)
        t->x[i] = (float)(i % 17 - 8) / 8;
    t->job = (struct kern_gemm_job){.w = w,
                                    .a_packed = t->a,
                                    .c = t->c,
                                    .ldc = panels * KERN_PANEL,
                                    .epilogue = KERN_STORE,
                                    .scratch = t->scratch};
    return OK;
}

/* The fastest of the qualified variants at each number of rows, and its time. */
static void time_all(struct trial *t, enum kern_op op, const struct kern_variant **best,
                     uint64_t *best_ns)
{
    uint64_t usable = cpu_isa_usable();

    for (int i = 0; kern_variants[i]; i++) {
        const struct kern_variant *v = kern_variants[i];

        if (v->op != op || v->isa == 0 || (v->isa & ~usable))
            continue;
        for (int n = 0; n < N_TRIALS; n++) {
            uint64_t ns = time_variant(t, v, trial_rows[n]);

            if (!best[n] || ns < best_ns[n]) {
                best[n] = v;
                best_ns[n] = ns;
            }
        }
    }
}

int model_choose_gemm(struct model *m, enum kern_precision precision)
{
    const struct kern_mat *w = &m->layers[0].qkv;
    enum kern_op op = KERN_GEMM_F32 + w->type;
    const struct kern_variant *best[N_TRIALS] = {0};
    uint64_t best_ns[N_TRIALS] = {0};
    struct trial t = {0};
    int rc = OK;

    m->kern_note[0] = 0;
    if (precision != KERN_RELAXED || m->kern.v[op]->isa == 0)
        return OK;
    rc = trial_open(&t, w);
    if (rc != OK)
        goto out;
    time_all(&t, op, best, best_ns);
    m->kern.v[op] = best[N_TRIALS - 1];
    if (best[0] != m->kern.v[op]) {
        m->small_m = best[0];
        m->small_m_rows =
            best[1] == m->kern.v[op] ? trial_rows[1] / 2 : trial_rows[1] * 2;
    }
    snprintf(m->kern_note, sizeof(m->kern_note),
             "%s: fastest at %d, %d, %d rows: %s, %s, %s (measured, one thread)",
             kern_op_name(op), trial_rows[0], trial_rows[1], trial_rows[2], best[0]->name,
             best[1]->name, best[2]->name);
out:
    trial_close(&t);
    return rc;
}
