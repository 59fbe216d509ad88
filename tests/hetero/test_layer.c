/* A sliced layer on the simulated accelerator: its values, its time, and that no operation uses
 * bytes which another one that no event orders writes. */
#include <math.h>

#include "hetero/layer.h"
#include "tests/support/test.h"

#define DIM    12
#define HIDDEN 24
#define TOK    5

struct layer {
    float gate[HIDDEN * DIM], up[HIDDEN * DIM], down[HIDDEN * DIM], x[TOK * DIM];
    struct hetero_mlp mlp;
};

static void make_layer(struct layer *l, uint64_t seed)
{
    struct rng r;
    float *all[] = {l->gate, l->up, l->down};

    rng_init(&r, seed, "layer");
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < HIDDEN * DIM; i++)
            all[k][i] = (float)rng_normal(&r);
    for (int i = 0; i < TOK * DIM; i++)
        l->x[i] = (float)rng_normal(&r);
    l->mlp = (struct hetero_mlp){l->gate, l->up, l->down, DIM, HIDDEN};
}

/* In f64, from the definition. */
static void whole(double *y, const struct layer *l, int n_tok)
{
    memset(y, 0, (size_t)(n_tok * DIM) * sizeof(*y));
    for (int t = 0; t < n_tok; t++)
        for (int u = 0; u < HIDDEN; u++) {
            double g = 0, p = 0;

            for (int d = 0; d < DIM; d++) {
                g += (double)l->x[t * DIM + d] * l->gate[u * DIM + d];
                p += (double)l->x[t * DIM + d] * l->up[u * DIM + d];
            }
            for (int d = 0; d < DIM; d++)
                y[t * DIM + d] += g / (1 + exp(-g)) * p * l->down[u * DIM + d];
        }
}

static struct hetero_machine random_machine(struct rng *r)
{
    struct hetero_machine m = {rng_f64(r) * 1e-5,
                               rng_f64(r) * 1e-6,
                               rng_f64(r) * 1e-8,
                               rng_f64(r) * 1e-6,
                               rng_f64(r) * 1e-8,
                               rng_f64(r) * 1e-6,
                               rng_f64(r) * 1e-8,
                               0,
                               0};

    if (rng_below(r, 2)) {
        m.accel_macs_per_s = 1e8 / (0.1 + rng_f64(r));
        m.cpu_macs_per_s = 1e8 / (0.1 + rng_f64(r));
    }
    return m;
}

static const struct accel_kind *sim(void)
{
    const struct accel_kind *k;

    assert_ok(accel_find("sim", &k));
    return k;
}

/* Any slices give the values of the whole layer; and with no tokens taken over, which the
 * closed form takes for one product, its time. */
TEST(values_and_times)
{
    struct rng r;

    rng_init(&r, test_seed(), "runs");
    for (int i = 0; i < 3000; i++) {
        struct hetero_machine m = random_machine(&r);
        int n_tok = 1 + (int)rng_below(&r, TOK), gg = (int)rng_below(&r, HIDDEN + 1);
        int cg = (int)rng_below(&r, (uint64_t)(HIDDEN - gg) + 1);
        struct hetero_slices s = {(double)cg / HIDDEN, (double)gg / HIDDEN,
                                  (int64_t)rng_below(&r, 2) *
                                      (int64_t)rng_below(&r, (uint64_t)n_tok + 1)};
        const struct hetero_gemm g = {n_tok, DIM, HIDDEN, 4};
        struct hetero_times t = hetero_times_of(&m, &g, &s, false);
        struct layer l;
        float y[TOK * DIM];
        double want[TOK * DIM], seconds, model = hetero_finish_s(&t, 3);

        make_layer(&l, test_seed() + (uint64_t)i);
        whole(want, &l, n_tok);
        assert_ok(hetero_mlp_run(y, &seconds, &l.mlp, l.x, n_tok, &s, sim(), &m));
        for (int k = 0; k < n_tok * DIM; k++)
            assert_true(fabs(y[k] - want[k]) < 1e-3 * (1 + fabs(want[k])));
        if (s.n_accel_tok == 0)
            assert_true(fabs(seconds - model) < 1e-9 * model + 1e-15);
        else
            assert_true(seconds < 1.5 * model + 1e-15 &&
                        seconds >=
                            3 * fmax(t.launch_s, fmax(t.link_s, t.accel_s)) - 1e-12);
    }
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}

TEST(slices_that_are_no_units)
{
    struct hetero_machine m = {0};
    struct hetero_slices s = {0.1, 0, 0};
    struct layer l;
    float y[TOK * DIM];
    double seconds;
    const struct accel_kind *k;

    make_layer(&l, 1);
    assert_err(hetero_mlp_run(y, &seconds, &l.mlp, l.x, 1, &s, sim(), &m), ERR_ARG,
               "2.4 of 24 hidden units");
    s = (struct hetero_slices){0.5, 0.75, 0};
    assert_err(hetero_mlp_run(y, &seconds, &l.mlp, l.x, 1, &s, sim(), &m), ERR_ARG,
               "slices of");
    s = (struct hetero_slices){0.5, 0.5, 2};
    assert_err(hetero_mlp_run(y, &seconds, &l.mlp, l.x, 1, &s, sim(), &m), ERR_ARG,
               "slices of");
    assert_err(accel_find("simm", &k), ERR_NOTFOUND, "sim");
}

TEST(short_of_memory)
{
    struct hetero_machine m = {0};
    struct hetero_slices s = {0.25, 0.25, 2};
    struct layer l;
    float y[TOK * DIM];
    double seconds;
    int rc = ERR_NOMEM;

    make_layer(&l, 1);
    for (long n = 0; rc != OK; n++) {
        mem_fail_after(n, 1);
        rc = hetero_mlp_run(y, &seconds, &l.mlp, l.x, TOK, &s, sim(), &m);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM || rc == ERR_STATE);
        assert_true(n < 200 && mem_used_bytes(MEM_OTHER) == 0);
    }
}

/* ---- races, planted ---- */

/* Two streams, a buffer: what each does to it, and whether an event is between. */
static int race(bool copy_first, bool fetch, bool same_bytes, bool event, bool other_way)
{
    struct hetero_machine m = {0};
    struct accel *a;
    int buffer, out, x, e, rc;
    float host[64] = {0};
    double seconds;
    const struct accel_kind *k = sim();
    struct accel_gemm g = {.n_tok = 1, .n_units = 4, .dim = 4};

    assert_ok(k->open(&a, &m));
    assert_ok(k->alloc(a, sizeof(host), &buffer));
    assert_ok(k->alloc(a, sizeof(host), &x));
    assert_ok(k->alloc(a, sizeof(host), &out));
    g.x.buffer = x;
    g.w.buffer = fetch ? x : buffer; /* it reads, or it writes what is fetched */
    g.y.buffer = fetch ? buffer : out;
    g.w.offset = fetch ? 64 : 0;
    for (int step = 0; step < 2; step++) {
        if ((step == 0) == copy_first) {
            size_t at = same_bytes ? 0 : 128;

            assert_ok(fetch ? k->fetch(a, host, buffer, at, 16)
                            : k->copy(a, buffer, at, host, 16));
        } else {
            assert_ok(k->gemm(a, &g));
        }
        if (step == 0 && event) {
            enum accel_stream first = copy_first ? ACCEL_COPY : ACCEL_COMPUTE;

            e = k->record(a, other_way ? (enum accel_stream) !first : first);
            k->wait(a, (enum accel_stream) !first, e);
        }
    }
    rc = k->finish(a, &seconds);
    k->close(&a);
    return rc;
}

TEST(races_are_found)
{
    for (int i = 0; i < 4; i++) {
        assert_err(race(i & 1, i & 2, true, false, false), ERR_STATE,
                   "no event orders them");
        assert_err(race(i & 1, i & 2, true, true, true), ERR_STATE,
                   "no event orders them");
        assert_int_equal(race(i & 1, i & 2, true, true, false), OK);
        assert_int_equal(race(i & 1, i & 2, false, false, false), OK);
    }
}
