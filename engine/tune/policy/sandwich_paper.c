/* Sandwich 6 as the paper describes it, for comparison with `sandwich`, our extension.
 *
 * Every micro-kernel in question (all of them for the first sigma shapes, those chosen for
 * the last sigma shapes afterwards) goes through fast start on one thread, up to the
 * paper's literal limit of parallelizability, and then through finetune on all threads
 * under every polymerization scheme. The fastest of all that was measured so is the
 * choice. Where the new slice is within theta of the average slice of the window, it is
 * kept for all larger shapes; the same holds for the scheme, separately. Then only what
 * is not fixed is searched, and nothing once both are. No other schedule is a start.
 *
 * What the paper leaves open is read so: dimensions take turns in fast start (K, N, M), a gain
 * is one beyond the noise of measuring (TUNE_GAIN), the average is that of a full window,
 * fast start runs on a part of the columns (a rate is what it compares), and when both
 * slice and scheme are fixed the micro-kernel is the one chosen last. */
#include <math.h>

#include "base/mem.h"
#include "tune/grow.h"

struct state {
    struct kern_schedule *chosen; /* [n_shapes], by shape */
    int n;
    bool slice_fixed, scheme_fixed;
    struct kern_schedule fixed; /* the slice and the scheme that are */
};

static void copy_slice(struct kern_schedule *to, const struct kern_schedule *from)
{
    to->bm = from->bm;
    to->bn = from->bn;
    to->bk = from->bk;
}

static void copy_scheme(struct kern_schedule *to, const struct kern_schedule *from)
{
    tune_set_scheme(to, (struct tune_scheme){from->pm, from->pn, from->pk});
}

/* The micro-kernels in question. Returns their number. */
static int window(const struct state *st, const struct tune_search *q,
                  struct tune_mk out[TUNE_MKS_MAX])
{
    int64_t sigma = q->c->o->sigma;
    int lo = st->n > sigma ? st->n - (int)sigma : 0, n = 0;

    if (st->n < sigma)
        return tune_mks(q->shape.v, q->shape.m, out);
    for (int i = st->n - 1; i >= lo; i--) {
        struct tune_mk mk = {st->chosen[i].mr, st->chosen[i].np};
        bool there = false;

        for (int k = 0; k < n; k++)
            there |= out[k].mr == mk.mr && out[k].np == mk.np;
        if (!there && n < TUNE_MKS_MAX)
            out[n++] = mk;
    }
    return n;
}

/* slice[n]: what each micro-kernel grows to, or the slice that is fixed. */
static int slices(struct tune_search *q, const struct state *st, const struct tune_mk *mk,
                  int n, struct kern_schedule *slice)
{
    const struct tune_bound bound = {.dim = {q->shape.m, q->w->n_panels, q->w->k_pad},
                                     .n_threads = q->c->n_threads,
                                     .literal = true};
    struct tune_shape whole = q->shape, trial;
    double seconds;
    int rc = OK;

    tune_trial_shape(&whole, q->w, &trial);
    if (!st->slice_fixed && trial.n != whole.n)
        rc = tune_search_shape(q, &trial);
    for (int i = 0; i < n && rc == OK; i++) {
        tune_first_tile(q, mk[i], &slice[i]);
        if (st->slice_fixed)
            copy_slice(&slice[i], &st->fixed);
        else
            rc = tune_fast_start(q, &slice[i], 1, &bound, false, &seconds);
    }
    if (rc == OK && q->shape.n != whole.n)
        rc = tune_search_shape(q, &whole);
    return rc;
}

/* Each slice under each scheme that is not ruled out, grown further unless it is fixed. */
static int finetune(struct tune_search *q, const struct state *st,
                    const struct kern_schedule *slice, int n)
{
    struct tune_scheme schemes[TUNE_SCHEMES_MAX];
    int n_threads = q->c->n_threads, rc = OK;
    int n_schemes =
        st->scheme_fixed ? 1 : tune_schemes(n_threads, q->c->o->split_k, schemes);

    for (int i = 0; i < n * n_schemes && rc == OK; i++) {
        struct kern_schedule s = slice[i / n_schemes];
        double seconds;

        if (st->scheme_fixed)
            copy_scheme(&s, &st->fixed);
        else
            tune_set_scheme(&s, schemes[i % n_schemes]);
        rc = st->slice_fixed ? tune_search_try(q, &s, n_threads, &seconds)
                             : tune_finetune(q, &s, n_threads, &seconds);
    }
    return rc;
}

static int one(void *arg, struct tune_search *q, int i, struct kern_schedule *s,
               struct measure_report *t)
{
    const struct state *st = arg;
    struct tune_mk mks[TUNE_MKS_MAX];
    struct kern_schedule *slice;
    int n = window(st, q, mks), rc;

    (void)i;
    if (st->slice_fixed && st->scheme_fixed) {
        *s = st->fixed;
        s->mr = mks[0].mr;
        s->np = mks[0].np;
        tune_clamp(s, q->w, q->shape.m);
        return OK;
    }
    slice = mem_new(MEM_OTHER, (size_t)n, sizeof(*slice));
    if (!slice)
        return ERR_NOMEM;
    rc = slices(q, st, mks, n, slice);
    if (rc == OK)
        rc = finetune(q, st, slice, n);
    if (rc == OK && isfinite(q->best_t.estimate)) {
        *s = q->best;
        *t = q->best_t;
    }
    mem_free(slice);
    return rc;
}

/* ---- reuse ---- */

enum { SLICE = 0, SCHEME = 3, N_NUMBERS = 6 };

static double number(const struct kern_schedule *s, int i)
{
    const double all[N_NUMBERS] = {(double)s->bm, (double)s->bn, (double)s->bk,
                                   s->pm,         s->pn,         s->pk};

    return all[i];
}

/* Are the three numbers of s from `first` on near their averages over a full window? */
static bool stable(const struct state *st, const struct tune_opts *o,
                   const struct kern_schedule *s, int first)
{
    if (st->n < o->sigma)
        return false;
    for (int k = first; k < first + 3; k++) {
        double mean = 0;

        for (int i = st->n - (int)o->sigma; i < st->n; i++)
            mean += number(&st->chosen[i], k) / (double)o->sigma;
        if (fabs(number(s, k) - mean) > o->theta * mean)
            return false;
    }
    return true;
}

static void took(void *arg, const struct tune_ctx *c, const struct kern_schedule *s)
{
    struct state *st = arg;

    if (!st->slice_fixed && stable(st, c->o, s, SLICE)) {
        st->slice_fixed = true;
        copy_slice(&st->fixed, s);
    }
    if (!st->scheme_fixed && stable(st, c->o, s, SCHEME)) {
        st->scheme_fixed = true;
        copy_scheme(&st->fixed, s);
    }
    st->chosen[st->n++] = *s;
}

static const struct tune_steps steps = {.one = one, .took = took};

static int run(struct tune_ctx *c, struct kern_schedule *out)
{
    struct state st = {0};
    int rc;

    st.chosen = mem_new(MEM_OTHER, (size_t)c->n_shapes + 1, sizeof(*st.chosen));
    if (!st.chosen)
        return ERR_NOMEM;
    rc = tune_search_run(c, out, &steps, &st);
    mem_free(st.chosen);
    return rc;
}

const struct tune_policy tune_policy_sandwich_paper = {
    .name = "sandwich_paper",
    .help =
        "the paper's algorithm: every micro-kernel, under every scheme; window, reuse",
    .run = run,
};
