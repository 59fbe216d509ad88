/* A sliced layer on accelerators that are not there: its values, its time, and that no operation
 * uses bytes which another one that no event orders writes. */
#include <math.h>

#include "base/thread.h"
#include "hetero/layer.h"
#include "tests/support/test.h"

#define DIM                                                                              \
    48 /* three panels: packed without gaps, so that bytes are those of the weights */
#define UNIT   32
#define UNITS  6
#define HIDDEN (UNIT * UNITS)
#define TOK    5

struct layer {
    float w[3][HIDDEN * DIM]; /* gate, up, down^T: a row for each hidden unit */
    float x[TOK * DIM];
    struct hetero_mlp mlp;
};

static float gate_of(const struct layer *l, int k, int u, int d)
{
    return l->w[k][u * DIM + d];
}

static void pack(struct kern_mat *m, int n, int k, int k_unit, const struct layer *l,
                 bool down)
{
    float *row = mem_new(MEM_TEST, (size_t)k, sizeof(*row));

    kern_mat_layout(m, KERN_F32, n, k, k_unit);
    m->data = mem_new(MEM_TEST, m->bytes, 1);
    for (int i = 0; i < n; i++) { /* panels of gate and up alternate */
        for (int j = 0; j < k; j++)
            row[j] = down ? gate_of(l, 2, j, i)
                          : gate_of(l, i / 16 % 2, i / 32 * 16 + i % 16, j);
        kern_mat_put_row(m, i, row, KERN_F32);
    }
    mem_free(row);
}

static void make_layer(struct layer *l, uint64_t seed)
{
    struct rng r;

    rng_init(&r, seed, "layer");
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < HIDDEN * DIM; i++)
            l->w[k][i] = 0.3F * (float)rng_normal(&r);
    for (int i = 0; i < TOK * DIM; i++)
        l->x[i] = (float)rng_normal(&r);
    pack(&l->mlp.gate_up, 2 * HIDDEN, DIM, 0, l, false);
    pack(&l->mlp.down, DIM, HIDDEN, UNIT, l, true);
}

static void free_layer(struct layer *l)
{
    mem_free(l->mlp.gate_up.data);
    mem_free(l->mlp.down.data);
}

/* In f64, from the definition. */
static void whole(double *y, const struct layer *l, int n_tok)
{
    memset(y, 0, (size_t)(n_tok * DIM) * sizeof(*y));
    for (int t = 0; t < n_tok; t++)
        for (int u = 0; u < HIDDEN; u++) {
            double g = 0, p = 0;

            for (int d = 0; d < DIM; d++) {
                g += (double)l->x[t * DIM + d] * gate_of(l, 0, u, d);
                p += (double)l->x[t * DIM + d] * gate_of(l, 1, u, d);
            }
            for (int d = 0; d < DIM; d++)
                y[t * DIM + d] += g / (1 + exp(-g)) * p * gate_of(l, 2, u, d);
        }
}

static struct hetero_machine random_machine(struct rng *r)
{
    struct hetero_machine m = {.launch_s = rng_f64(r) * 1e-5,
                               .link_start_s = rng_f64(r) * 1e-6,
                               .link_s_per_byte = rng_f64(r) * 1e-9,
                               .accel_start_s = rng_f64(r) * 1e-6,
                               .accel_s_per_mac = rng_f64(r) * 1e-9,
                               .cpu_start_s = rng_f64(r) * 1e-6,
                               .cpu_s_per_mac = rng_f64(r) * 1e-9};

    if (rng_below(r, 2)) {
        m.accel_macs_per_s = 1e9 / (0.1 + rng_f64(r));
        m.cpu_macs_per_s = 1e9 / (0.1 + rng_f64(r));
    }
    return m;
}

static const struct accel_kind *kind_of(const char *name)
{
    const struct accel_kind *k;

    assert_ok(accel_find(name, &k));
    return k;
}

static int run(float *y, struct hetero_run *out, const struct layer *l, const char *kind,
               const struct hetero_machine *m, struct hetero_units u, int n_tok,
               int n_accel_tok)
{
    const struct hetero_device_opts o = {.kind = kind_of(kind),
                                         .accel = {m, -1},
                                         .layers = &l->mlp,
                                         .units = &u,
                                         .n_layers = 1,
                                         .max_tok = TOK,
                                         .ld = DIM};

    return hetero_mlp_run(y, out, &o, l->x, n_tok, n_accel_tok, NULL, 1);
}

static void random_slices(struct rng *r, struct hetero_units *u, int *n_tok, int *n_accel)
{
    *n_tok = 1 + (int)rng_below(r, TOK);
    u->gg = (int)rng_below(r, UNITS + 1);
    u->cg = (int)rng_below(r, (uint64_t)(UNITS - u->gg) + 1);
    *n_accel = (int)rng_below(r, 2) * (int)rng_below(r, (uint64_t)*n_tok + 1);
}

static void check_values(const float *y, const struct layer *l, int n_tok)
{
    double want[TOK * DIM];

    whole(want, l, n_tok);
    for (int k = 0; k < n_tok * DIM; k++)
        assert_true(fabs(y[k] - want[k]) < 1e-3 * (1 + fabs(want[k])));
}

/* Any slices give the values of the whole layer; and with no tokens taken over, which the
 * closed form takes for one product, its time. */
TEST(values_and_times)
{
    struct layer l;
    struct rng r;

    make_layer(&l, test_seed());
    rng_init(&r, test_seed(), "runs");
    for (int i = 0; i < 1000; i++) {
        struct hetero_machine m = random_machine(&r);
        struct hetero_units u;
        int n_tok, n_accel;

        random_slices(&r, &u, &n_tok, &n_accel);
        {
            const struct hetero_slices s = {(double)u.cg / UNITS, (double)u.gg / UNITS,
                                            n_accel};
            const struct hetero_gemm g = {n_tok, DIM, HIDDEN, 4};
            struct hetero_times t = hetero_times_of(&m, &g, &s, false);
            double model = hetero_finish_s(&t, 3);
            struct hetero_run got;
            float y[TOK * DIM];

            assert_ok(run(y, &got, &l, "sim", &m, u, n_tok, n_accel));
            check_values(y, &l, n_tok);
            if (n_accel == 0)
                assert_true(fabs(got.seconds - model) < 1e-9 * model + 1e-15);
            else
                assert_true(got.seconds < 1.5 * model + 1e-15 &&
                            got.seconds >=
                                3 * fmax(t.launch_s, fmax(t.link_s, t.accel_s)) - 1e-12);
        }
    }
    free_layer(&l);
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}

/* In real time the values are the same to the last bit, and what the model says of the
 * accelerator is never undercut. */
TEST(real_time_has_the_same_values)
{
    struct layer l;
    struct rng r;

    make_layer(&l, test_seed());
    rng_init(&r, test_seed(), "paced");
    for (int i = 0; i < 60; i++) {
        struct hetero_machine m = random_machine(&r);
        struct hetero_units u;
        int n_tok, n_accel;

        random_slices(&r, &u, &n_tok, &n_accel);
        {
            float y[TOK * DIM], sim[TOK * DIM];
            struct hetero_run got, model;

            assert_ok(run(sim, &model, &l, "sim", &m, u, n_tok, n_accel));
            assert_ok(run(y, &got, &l, "paced", &m, u, n_tok, n_accel));
            assert_memory_equal(y, sim, (size_t)(n_tok * DIM) * sizeof(*y));
            assert_true(got.accel_s >= model.accel_s * (1 - 1e-6) - 2e-9);
        }
    }
    free_layer(&l);
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}

/* What is sent may lie anywhere: a product of an odd number of pairs has two unequal halves, one of
 * a single pair has none. */
TEST(a_slice_of_one_pair)
{
    struct hetero_machine m = {.launch_s = 1e-6};
    struct kern_mat gate_up = {0}, down = {0};
    struct layer l;
    struct hetero_mlp part;

    make_layer(&l, 5);
    gate_up = l.mlp.gate_up, down = l.mlp.down;
    kern_mat_layout(&l.mlp.down, KERN_F32, DIM, HIDDEN, 16);
    l.mlp.down.data = mem_new(MEM_TEST, l.mlp.down.bytes, 1);
    for (int i = 0; i < DIM; i++) {
        float row[HIDDEN];

        for (int j = 0; j < HIDDEN; j++)
            row[j] = gate_of(&l, 2, j, i);
        kern_mat_put_row(&l.mlp.down, i, row, KERN_F32);
    }
    hetero_mlp_slice(&part, &l.mlp, 3, 4);
    assert_int_equal(part.gate_up.n_panels, 2);
    assert_int_equal(part.down.k, 16);
    for (int cg = 0; cg <= 3; cg++) {
        struct hetero_run got;
        float y[TOK * DIM];

        assert_ok(run(y, &got, &l, "sim", &m, (struct hetero_units){cg, 1}, TOK, 2));
        check_values(y, &l, TOK);
    }
    free_layer(&l);
    l.mlp = (struct hetero_mlp){gate_up, down};
    mem_free(down.data);
}

TEST(slices_that_are_not_there)
{
    struct hetero_machine m = {0};
    struct hetero_run got;
    struct layer l;
    float y[TOK * DIM];
    const struct accel_kind *k;

    make_layer(&l, 1);
    assert_err(run(y, &got, &l, "sim", &m, (struct hetero_units){4, 3}, 1, 0), ERR_ARG,
               "4 and 3 units: expected at most 6");
    assert_err(run(y, &got, &l, "sim", &m, (struct hetero_units){-1, 3}, 1, 0), ERR_ARG,
               "-1 and 3");
    assert_err(run(y, &got, &l, "sim", &m, (struct hetero_units){3, 3}, 1, 2), ERR_ARG,
               "2 of 1 tokens");
    assert_err(run(y, &got, &l, "sim", &m, (struct hetero_units){3, 3}, TOK + 1, 0),
               ERR_ARG, "at most 5");
    assert_err(accel_find("simm", &k), ERR_NOTFOUND, "sim");
    free_layer(&l);
}

TEST(short_of_memory)
{
    static const char *const kinds[] = {"sim", "paced"};
    struct hetero_machine m = {0};
    struct layer l;

    make_layer(&l, 1);
    for (int i = 0; i < 2; i++) {
        int rc = ERR_NOMEM;

        for (long n = 0; rc != OK; n++) {
            struct hetero_run got;
            float y[TOK * DIM];

            mem_fail_after(n, 1);
            rc = run(y, &got, &l, kinds[i], &m, (struct hetero_units){2, 2}, TOK, 2);
            mem_fail_after(-1, 0);
            assert_true(rc == OK || rc == ERR_NOMEM || rc == ERR_STATE);
            assert_true(n < 300 && mem_used_bytes(MEM_OTHER) == 0);
        }
    }
    free_layer(&l);
}

/* Each thread and lock refused in turn. */
TEST(short_of_threads)
{
    struct hetero_machine m = {0};
    struct layer l;
    int rc = ERR_NOMEM;

    make_layer(&l, 1);
    for (long n = 0; rc != OK; n++) {
        struct hetero_run got;
        float y[TOK * DIM];

        thread_fail_after(n);
        rc = run(y, &got, &l, "paced", &m, (struct hetero_units){2, 2}, TOK, 2);
        thread_fail_after(-1);
        assert_true(rc == OK || rc == ERR_NOMEM);
        assert_true(n < 100 && mem_used_bytes(MEM_OTHER) == 0);
    }
    free_layer(&l);
}

/* ---- races, planted ---- */

/* Two streams, a buffer: what each does to it, and whether an event is between. */
static int race(const char *kind, bool copy_first, bool fetch, bool same_bytes,
                bool event, bool other_way)
{
    struct hetero_machine m = {0};
    struct accel *a;
    int buffer, out, x, e, rc;
    float host[128] = {0};
    double seconds;
    const struct accel_kind *k = kind_of(kind);
    struct accel_gemm g = {.n_tok = 1, .ldx = 4, .ldy = 16};

    kern_mat_layout(&g.layout, KERN_F32, 16, 2, 0);
    assert_ok(k->open(&a, &(struct accel_opts){&m, -1}));
    assert_ok(k->alloc(a, sizeof(host), &buffer));
    assert_ok(k->alloc(a, sizeof(host), &x));
    assert_ok(k->alloc(a, sizeof(host), &out));
    g.x.buffer = x;
    g.w.buffer = fetch ? x : buffer; /* it reads, or it writes what is fetched */
    g.y.buffer = fetch ? buffer : out;
    g.w.offset = fetch ? 64 : 0;
    for (int step = 0; step < 2; step++) {
        if ((step == 0) == copy_first) {
            struct accel_at at = {buffer, same_bytes ? 0 : 256};

            assert_ok(fetch ? k->fetch(a, host, at, 16) : k->copy(a, at, host, 16));
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
    static const char *const kinds[] = {"sim", "paced"};

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++) {
            assert_err(race(kinds[k], i & 1, i & 2, true, false, false), ERR_STATE,
                       "no event orders them");
            assert_err(race(kinds[k], i & 1, i & 2, true, true, true), ERR_STATE,
                       "no event orders them");
            assert_int_equal(race(kinds[k], i & 1, i & 2, true, true, false), OK);
            assert_int_equal(race(kinds[k], i & 1, i & 2, false, false, false), OK);
        }
}
