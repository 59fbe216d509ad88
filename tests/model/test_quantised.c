/* Models with quantised weights compute what float64 loops over the dequantised weights do:
 * every type, types mixed as published files mix them, every ISA level of this machine, any
 * number of threads and ranks. */
#include <math.h>

#include "cpu/cpu.h"
#include "format/fill.h"
#include "format/make.h"
#include "model/impl.h"
#include "tests/support/kv.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"

static void run_trait(const struct step_trait *t, const char *isa,
                      const struct model_opts *o, int n_ranks, int n_threads,
                      double tolerance)
{
    struct step_model x;
    char what[160];

    snprintf(what, sizeof(what), "%s, isa %s, %d ranks", t->name, isa, n_ranks);
    step_model_open(&x, t, o, n_ranks * n_threads);
    step_model_phase(&x, n_ranks, n_threads);
    step_model_run(&x, 1, o->max_step_tok, tolerance, test_seed(), what);
    step_model_run(&x, STEP_MODEL_SEQS, o->max_step_tok, tolerance, test_seed() + 1,
                   what);
    step_model_close(&x);
}

static void exact_on(const char *isa)
{
    const struct model_opts o = step_model_opts();

    for (int t = 0; t < step_n_quant_traits; t++)
        for (int n = 1; n <= 2; n++)
            run_trait(&step_quant_traits[t], isa, &o, 1, n, 1e-4);
}

static void test_exact(void **state)
{
    (void)state;
    step_model_each_isa(exact_on);
}

static void test_as_f32(void **state)
{
    struct model_opts o = step_model_opts();

    (void)state;
    o.weight_type = KERN_F32;
    for (int t = 0; t < step_n_quant_traits; t++)
        run_trait(&step_quant_traits[t], "auto", &o, 1, 2, 1e-4);
}

/* Ranks whose rows are whole blocks; the others are refused before anything is computed. */
static void test_ranks(void **state)
{
    const struct model_opts o = step_model_opts();

    (void)state;
    for (int t = 0; t < step_n_quant_traits; t++)
        for (int n = 2; n <= 4; n++) {
            const struct step_trait *trait = &step_quant_traits[t];
            const struct model_phase_opts p = {.n_ranks = n, .n_threads = 1};
            struct model_phase *phase = NULL;
            struct step_model x;
            int rc;

            step_model_open(&x, trait, &o, n);
            rc = model_phase_open(&phase, x.model, &p);
            model_phase_close(&phase);
            step_model_close(&x);
            if (rc == OK)
                run_trait(trait, "auto", &o, n, 1, 1e-4);
            else if (rc != ERR_UNSUPPORTED || !strstr(err_msg(), "whole blocks"))
                fail_msg("%s, %d ranks: %s \"%s\"", trait->name, n, err_name(rc),
                         err_msg());
            /* heads of 16 and two groups; blocks of 256 are all heads */
            if ((t == 0 && n == 2) != (rc == OK) && (t == 0 || t == 3))
                fail_msg("%s, %d ranks: %s", trait->name, n, err_name(rc));
        }
}

static void test_v_is_split(void **state)
{
    const struct model_opts o = step_model_opts();
    struct step_model x;

    (void)state;
    for (int t = 0; t < step_n_quant_traits; t++) {
        const struct step_trait *trait = &step_quant_traits[t];
        const struct model_layer *l;
        bool mixed = trait->mixed;

        step_model_open(&x, trait, &o, 1);
        l = &x.model->layers[0];
        assert_int_equal(l->qkv.type, trait->type);
        assert_int_equal(l->v.n_panels > 0, mixed);
        if (mixed) {
            assert_int_equal(l->v.type, KERN_Q6_K);
            assert_int_equal(x.model->layers[1].v.type, trait->type);
            assert_int_equal(l->down.type, KERN_Q6_K);
        }
        assert_int_equal(l->gate_up.type, trait->type);
        assert_int_equal(model_weight_type(x.model), trait->type);
        step_model_close(&x);
    }
}

/* The same bits for any batch, threads and supported ranks. */
static void test_deterministic(void **state)
{
    struct model_opts o = step_model_opts();

    (void)state;
    o.deterministic = true;
    for (int t = 0; t < step_n_quant_traits; t++) {
        struct step_model x;

        step_model_open(&x, &step_quant_traits[t], &o, 2);
        step_model_phase(&x, 1, 1);
        step_model_phase(&x, 1, 2);
        if (t == 0)
            step_model_phase(&x, 2, 1);
        step_model_keep_bits(&x);
        step_model_run(&x, 3, o.max_step_tok, 1e-4, test_seed(),
                       step_quant_traits[t].name);
        step_model_close(&x);
    }
}

static void refused(const struct model_config *c, enum format_role role,
                    enum kern_type type, enum kern_type want, const char *part)
{
    static const int cpus[1];
    struct model_opts o = step_model_opts();
    struct par_team *team;
    struct ref_model r;
    struct model *m;

    ref_model_init(&r, c, false, false, test_seed());
    r.f.layer[0][role - FORMAT_ATTN_NORM].type = type;
    format_fill_types(&r.f);
    o.weight_type = want;
    assert_ok(par_team_open(&team, cpus, 1, 0));
    assert_err(model_open(&m, &r.f, team, &o), ERR_UNSUPPORTED, part);
    assert_null(m);
    par_team_close(&team);
    ref_model_fini(&r);
}

static void test_refusals(void **state)
{
    struct model_config c;

    (void)state;
    step_trait_config(&step_quant_traits[0], &c);
    refused(&c, FORMAT_K, KERN_Q4_1, KERN_N_TYPES,
            "the QKV projection: expected tensors of one quantised type, found q4_0 and "
            "q4_1");
    refused(&c, FORMAT_UP, KERN_Q8_0, KERN_N_TYPES, "gate and up: expected tensors");
    refused(&c, FORMAT_Q, KERN_Q4_0, KERN_BF16, "stored as q4_0");
    refused(&c, FORMAT_Q, KERN_Q4_0, KERN_Q8_0, "cannot be kept as q8_0");
}

/* ---- files ---- */

enum { N_PROMPT = 8, N_GREEDY = 64, N_IDS = N_PROMPT + N_GREEDY };

/* Greedy ids by the engine. logits: [N_GREEDY, vocab], what each was chosen from. */
static void greedy(const struct format_file *f, int32_t ids[N_IDS], float *logits)
{
    static const int cpus[2];
    struct model_opts o = step_model_opts();
    const struct model_phase_opts po = {.n_ranks = 1, .n_threads = 2};
    struct model_chunk c = {.ids = ids, .n_tok = N_PROMPT, .want_logits = true};
    int vocab = f->config.vocab;
    struct model_phase *phase;
    struct kv_shape shape;
    struct kv_pool *pool;
    struct par_team *team;
    struct kv_slot kv;
    struct model *m;
    struct rng rng;

    rng_init(&rng, test_seed(), "prompt");
    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)vocab);
    assert_ok(par_team_open(&team, cpus, 2, 0));
    assert_ok(model_open(&m, f, team, &o));
    assert_ok(model_phase_open(&phase, m, &po));
    model_kv_shape(m, &shape);
    test_kv_open(&pool, &shape, (struct kv_pool_opts){.max_tok = N_IDS}, 1);
    test_kv_reserve(pool, N_IDS, &kv);
    c.kv = &kv;
    for (int i = 0; i < N_GREEDY; i++, logits += vocab) {
        assert_ok(model_forward(phase, &c, 1, logits));
        ids[N_PROMPT + i] =
            (int32_t)model_kern(m)->v[KERN_ARGMAX]->fn.argmax(logits, vocab);
        c.pos0 += c.n_tok;
        c.ids = &ids[N_PROMPT + i], c.n_tok = 1;
    }
    kv_pool_close(&pool);
    model_phase_close(&phase);
    model_close(&m);
    par_team_close(&team);
}

/* The engine's greedy ids and logits are those of float64 over the dequantised weights. */
static void check_file(const char *path)
{
    double *want, max_abs = 0;
    struct format_file *f;
    struct ref_model ref;
    int32_t ids[N_IDS];
    float *logits;
    int vocab;

    assert_ok(format_open(&f, path));
    vocab = f->config.vocab;
    logits = mem_new(MEM_TEST, (size_t)(N_GREEDY * vocab), sizeof(*logits));
    want = mem_new(MEM_TEST, (size_t)(N_IDS * vocab), sizeof(*want));
    assert_true(logits && want);
    ref_model_of_file(&ref, f);
    greedy(f, ids, logits);
    format_close(&f);
    ref_model_forward(&ref, ids, N_IDS - 1, want);
    for (int i = 0; i < (N_IDS - 1) * vocab; i++)
        max_abs = fmax(max_abs, fabs(want[i]));
    for (int i = 0; i < N_GREEDY; i++) {
        const double *row = want + (N_PROMPT - 1 + i) * vocab;
        int best = 0;

        for (int k = 0; k < vocab; k++) {
            best = row[k] > row[best] ? k : best;
            if (!(fabs((double)logits[i * vocab + k] - row[k]) <= 1e-4 * max_abs))
                fail_msg("%s, token %d, logit %d: %.9g, reference %.9g", path, i, k,
                         (double)logits[i * vocab + k], row[k]);
        }
        if (ids[N_PROMPT + i] != best)
            fail_msg("%s: greedy id %d is %d, reference %d", path, i, ids[N_PROMPT + i],
                     best);
    }
    mem_free(want);
    mem_free(logits);
    ref_model_fini(&ref);
}

static struct format_make_opts tiny_quant(const char *path)
{
    return (struct format_make_opts){
        .arch = "tiny-quant", .seed = 1, .format = "gguf", .out = path, .n_threads = 2};
}

static void test_made_files(void **state)
{
    char path[400];

    (void)state;
    snprintf(path, sizeof(path), "%s/made.gguf", test_dir());
    for (const struct kern_quant_scheme *s = kern_quant_schemes; s->name; s++) {
        struct format_make_opts o = tiny_quant(path);

        o.scheme = s;
        assert_ok(format_make(&o));
        check_file(path);
    }
}

/* Files of the program that most published ones come from. */
static void test_llama_quantize(void **state)
{
    static const char *const types[] = {"Q8_0",   "Q4_0",   "Q4_1",
                                        "Q4_K_M", "Q5_K_M", "Q6_K"};
    char plain[400], path[400], command[1400];
    struct format_make_opts o = tiny_quant(plain);

    (void)state;
    if (system("command -v llama-quantize >/dev/null") != 0)
        test_skip("llama-quantize is not in PATH");
    snprintf(plain, sizeof(plain), "%s/plain.gguf", test_dir());
    snprintf(path, sizeof(path), "%s/quantised.gguf", test_dir());
    assert_ok(format_make(&o));
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        snprintf(command, sizeof(command), "llama-quantize %s %s %s >%s.log 2>&1", plain,
                 path, types[i], path);
        if (system(command) != 0)
            fail_msg("%s", command);
        check_file(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),         cmocka_unit_test(test_as_f32),
        cmocka_unit_test(test_ranks),         cmocka_unit_test(test_v_is_split),
        cmocka_unit_test(test_deterministic), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_made_files),    cmocka_unit_test(test_llama_quantize),

    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
