/* Folders in each quantised scheme compute what float64 loops over the weights of their definition
 * do, and so does the folder in f32 with these weights: at every ISA level, by threads and ranks,
 * and the same with activations of 8 bits, as far as these go. */
#include "placement/open.h"
#include "tests/format/quant_folder.h"
#include "tests/support/kv.h"
#include "tests/support/ref_model.h"
#include "tests/support/step_model.h"

enum { N_TOK = 12 };

static const int32_t ids[N_TOK] = {1, 4, 2, 0, 3, 3, 1, 2, 4, 0, 0, 1};

/* The reference of the folder that was written last, in f32. */
static void reference(double want[QF_VOCAB])
{
    static double all[N_TOK * QF_VOCAB];
    struct format_file *f;
    struct ref_model r;

    assert_ok(format_open(&f, qf.dir));
    ref_model_of_file(&r, f);
    format_close(&f);
    ref_model_forward(&r, ids, N_TOK, all);
    memcpy(want, all + (N_TOK - 1) * QF_VOCAB, sizeof(*all) * QF_VOCAB);
    ref_model_fini(&r);
}

struct folder_run {
    const char *path, *name;
    enum kern_precision precision;
    int n_ranks, n_threads;
    double tolerance; /* of the largest logit */
};

static void check_run(const struct folder_run *x, const double want[QF_VOCAB])
{
    static const int cpus[4];
    const struct model_opts o = {.weight_type = KERN_N_TYPES,
                                 .kv_type = KERN_KV_F32,
                                 .precision = x->precision,
                                 .max_step_tok = N_TOK};
    const struct model_phase_opts po = {.n_ranks = x->n_ranks, .n_threads = x->n_threads};
    const struct kv_pool_opts kvo = {.alloc = test_kv_alloc((uint64_t)x->n_ranks),
                                     .max_tok = 64,
                                     .block_tok = 16,
                                     .max_seqs = 1};
    struct model_chunk c = {.want_logits = true, .ids = ids, .n_tok = N_TOK};
    struct format_file *f;
    struct par_team *team;
    struct model_phase *phase;
    struct model *m;
    struct kv_pool *pool;
    struct kv_shape shape;
    struct kv_slot kv;
    float logits[QF_VOCAB];
    double largest = 0;

    assert_ok(format_open(&f, x->path));
    assert_ok(par_team_open(&team, cpus, x->n_ranks * x->n_threads, 0));
    assert_ok(model_open(&m, f, team, &o));
    assert_ok(model_phase_open(&phase, m, &po));
    model_kv_shape(m, &shape);
    test_kv_open(&pool, &shape, kvo, 3);
    test_kv_reserve(pool, N_TOK, &kv);
    c.kv = &kv;
    assert_ok(model_forward(phase, &c, 1, logits));
    for (int i = 0; i < QF_VOCAB; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int i = 0; i < QF_VOCAB; i++)
        if (!(fabs((double)logits[i] - want[i]) <= x->tolerance * largest))
            fail_msg("%s, %d ranks of %d threads: logit %d: %.9g, reference %.9g",
                     x->name, x->n_ranks, x->n_threads, i, (double)logits[i], want[i]);
    kv_pool_close(&pool);
    model_phase_close(&phase);
    model_close(&m);
    format_close(&f);
    par_team_close(&team);
}

static void every_scheme(const char *isa)
{
    for (int s = 0; s < QF_N_SCHEMES; s++) {
        char quantised[300], name[120];
        struct folder_run x = {quantised, name, KERN_EXACT, 1, 1 + s % 2, 1e-4};
        double want[QF_VOCAB];
        struct rng r;

        rng_init(&r, test_seed(), "folders");
        snprintf(name, sizeof(name), "%s, isa %s", qf_schemes[s].name, isa);
        qf_write("q", &qf_schemes[s], r);
        memcpy(quantised, qf.dir, sizeof(quantised));
        qf_write("plain", NULL, r);
        reference(want);
        check_run(&x, want);
        x.precision = KERN_A8, x.tolerance = 5e-2;
        check_run(&x, want);
        x.precision = KERN_EXACT, x.tolerance = 1e-4;
        x.n_ranks = 2; /* heads of 64, two groups */
        check_run(&x, want);
        x.n_ranks = 1, x.path = qf.dir;
        check_run(&x, want);
    }
}

TEST(folders_are_their_definition)
{
    step_model_each_isa(every_scheme);
}
