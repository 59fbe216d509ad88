/* Models with quantised weights compute what float64 loops over the dequantised weights do:
 * every type, types mixed as published files mix them, every ISA level of this machine, any
 * number of threads and ranks. */
#include <math.h>

#include "cpu/cpu.h"
#include "format/fill.h"
#include "make/make.h"
#include "ranks/phase.h"
#include "step/context.h"
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

/* Matrices whole and split, of one thread and of two. */
static void exact_on(const char *isa)
{
    struct model_opts o = step_model_opts();

    for (int t = 0; t < step_n_quant_traits; t++)
        for (int i = 0; i < 2; i++) {
            o.one_rank = i;
            run_trait(&step_quant_traits[t], isa, &o, 1, 1 + (t + i) % 2, 1e-4);
        }
}

TEST(test_exact)
{
    step_model_each_isa(exact_on);
}

TEST(test_as_f32)
{
    struct model_opts o = step_model_opts();

    o.weight_type = KERN_F32;
    for (int t = 0; t < step_n_quant_traits; t++)
        run_trait(&step_quant_traits[t], "auto", &o, 1, 2, 1e-4);
}

/* Ranks whose rows are whole blocks; the others are refused before anything is computed. */
TEST(test_ranks)
{
    const struct model_opts o = step_model_opts();

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

TEST(test_v_is_split)
{
    const struct model_opts o = step_model_opts();
    struct step_model x;

    for (int t = 0; t < step_n_quant_traits; t++) {
        const struct step_trait *trait = &step_quant_traits[t];
        const struct model_layer *l;

        step_model_open(&x, trait, &o, 1);
        l = &x.model->layers[0];
        assert_int_equal(l->mats[MODEL_MAT_QKV].type, trait->type);
        assert_int_equal(l->mats[MODEL_MAT_V].n_panels > 0, trait->mixed != REF_SAME);
        if (trait->mixed == REF_MIXED_KEYS) {
            assert_int_equal(l->mats[MODEL_MAT_V].type, KERN_Q8_0);
            assert_int_equal(l->mats[MODEL_MAT_V].n, x.model->v_unit * trait->n_kv_heads);
            assert_true(x.model->v_unit >= 2 * trait->head_dim);
        }
        if (trait->mixed == REF_MIXED) {
            assert_int_equal(l->mats[MODEL_MAT_V].type, KERN_Q6_K);
            assert_int_equal(x.model->layers[1].mats[MODEL_MAT_V].type, trait->type);
            assert_int_equal(l->mats[MODEL_MAT_DOWN].type, KERN_Q6_K);
        }
        assert_int_equal(l->mats[MODEL_MAT_GATE_UP].type, trait->type);
        assert_int_equal(model_weight_type(x.model), trait->type);
        step_model_close(&x);
    }
}

/* The same bits for any batch, threads and supported ranks. */
TEST(test_deterministic)
{
    struct model_opts o = step_model_opts();

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

/* ---- activations of 8 bits ---- */

/* The levels of instruction sets with other kernels for products of 8 bits: plain C first. */
static int a8_levels(uint64_t mask[CPU_N_ISA + 1])
{
    const uint64_t usable = cpu_isa_usable();
    struct kern_table t, before;
    int n = 1;

    mask[0] = 0;
    kern_table_choose(&before, 0, KERN_A8);
    for (int b = 0; b < CPU_N_ISA; b++) {
        mask[n] = usable & ((UINT64_C(2) << b) - 1);
        kern_table_choose(&t, mask[n], KERN_A8);
        if (memcmp(&t.v[KERN_GEMM_Q8_0], &before.v[KERN_GEMM_Q8_0],
                   (KERN_ATTN_F32 - KERN_GEMM_Q8_0) * sizeof(t.v[0])) == 0)
            continue;
        before = t;
        n++;
    }
    return n;
}

/* Compute m's products as at that level, and everything else as before. */
static void set_products(struct model *m, uint64_t mask)
{
    struct kern_table t;

    kern_table_choose(&t, mask, KERN_A8);
    for (int op = KERN_GEMM_Q8_0; op < KERN_ATTN_F32; op++) {
        assert_int_equal(t.v[op]->precision, KERN_A8);
        m->kern.v[op] = t.v[op];
    }
}

/* The logits of one sequence in steps of several sizes, each but the last row of a step as
 * sequence says: [STEP_MODEL_TOK, vocab], zeros where none were asked for. */
static void step_logits(struct step_model *x, float *logits)
{
    static const int64_t steps[] = {13, 1, 2, 1, 5, 20, 1, 1, 4};
    struct kv_slot kv;
    int64_t pos = 0;

    step_model_phase(x, 1, 2);
    test_kv_reserve(x->pool, STEP_MODEL_TOK, &kv);
    memset(logits, 0, (size_t)(STEP_MODEL_TOK * x->vocab) * sizeof(*logits));
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const struct model_chunk c = {.kv = &kv,
                                      .ids = x->ids[0] + pos,
                                      .n_tok = steps[i],
                                      .pos0 = pos,
                                      .want_logits = true};

        pos += steps[i];
        assert_ok(model_forward(x->phases[0], &c, 1, logits + (pos - 1) * x->vocab));
    }
    assert_int_equal(pos, STEP_MODEL_TOK);
    kv_release(x->pool, &kv);
    step_model_close_phases(x);
}

/* The root mean square error of the logits in units of their root mean square. */
static double error_of(const struct step_model *x, const float *logits)
{
    double size = 0, error = 0;

    for (int i = 0; i < STEP_MODEL_TOK * x->vocab; i++) {
        double e = (double)logits[i] - x->want[0][i];

        if (logits[i / x->vocab * x->vocab] == 0)
            continue;
        size += x->want[0][i] * x->want[0][i];
        error += e * e;
    }
    return sqrt(error / size);
}

/* Each product states its error (kern_variant.error). A layer has five, and the head is one
 * more; to first order their errors add up, and the operators between them do not enlarge them.
 * Activations of these models have no outliers, so that a scale for a row does as well as one
 * for 32. All variants give the same bits. */
TEST(test_a8)
{
    uint64_t mask[CPU_N_ISA + 1];
    const int n_levels = a8_levels(mask);
    struct model_opts o = step_model_opts();

    o.precision = KERN_A8;
    for (int t = 0; t < step_n_quant_traits; t++) {
        const struct step_trait *trait = &step_quant_traits[t];
        const double bound = (5 * trait->n_layers + 1) * KERN_ERROR_A8;
        struct step_model x;
        size_t bytes;
        float *first, *again;

        step_model_open(&x, trait, &o, 2);
        bytes = (size_t)(STEP_MODEL_TOK * x.vocab) * sizeof(float);
        first = mem_new(MEM_TEST, bytes, 1);
        again = mem_new(MEM_TEST, bytes, 1);
        assert_true(first && again);
        for (int i = 0; i < n_levels; i++) {
            set_products(x.model, mask[i]);
            step_logits(&x, i == 0 ? first : again);
            if (i > 0 && memcmp(first, again, bytes) != 0)
                fail_msg("%s: other bits with %s than in plain C", trait->name,
                         x.model->kern.v[KERN_GEMM_F32 + trait->type]->name);
        }
        print_message("# %s, a8: error of the logits %.4f, bound %.4f\n", trait->name,
                      error_of(&x, first), bound);
        if (!(error_of(&x, first) <= bound))
            fail_msg("%s: error of the logits %g, bound %g", trait->name,
                     error_of(&x, first), bound);
        mem_free(first);
        mem_free(again);
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

    ref_model_init(&r, c, false, false, false, test_seed());
    r.f.layer[0][role - FORMAT_ATTN_NORM].type = type;
    format_fill_types(&r.f);
    o.weight_type = want;
    assert_ok(par_team_open(&team, cpus, 1, 0));
    assert_err(model_open(&m, &r.f, team, &o), ERR_UNSUPPORTED, part);
    assert_null(m);
    par_team_close(&team);
    ref_model_fini(&r);
}

TEST(test_refusals)
{
    struct model_config c;

    step_trait_config(&step_quant_traits[0], &c);
    refused(
        &c, FORMAT_K, KERN_Q4_1, KERN_N_TYPES,
        "the projections of K and V: expected tensors of one quantised type, found q4_1 "
        "and q4_0");
    refused(&c, FORMAT_UP, KERN_Q8_0, KERN_N_TYPES, "gate and up: expected tensors");
    refused(&c, FORMAT_Q, KERN_Q4_0, KERN_BF16, "stored as q4_0");
    refused(&c, FORMAT_Q, KERN_Q4_0, KERN_Q8_0, "cannot be kept as q8_0");
}

/* ---- files ---- */

enum { N_PROMPT = 8, N_GREEDY = 64, N_IDS = N_PROMPT + N_GREEDY };

/* Greedy ids by the engine. logits: [N_GREEDY, vocab], what each was chosen from. a8: NULL, or
 * products of 8 bits as at that level. */
static void greedy(const struct format_file *f, const uint64_t *a8, int32_t ids[N_IDS],
                   float *logits)
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
    o.precision = a8 ? KERN_A8 : KERN_EXACT;
    assert_ok(model_open(&m, f, team, &o));
    if (a8)
        set_products(m, *a8);
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
    greedy(f, NULL, ids, logits);
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

/* Products of 8 bits give the same ids and logits by all instruction sets. */
static void check_a8(const char *path)
{
    uint64_t mask[CPU_N_ISA + 1];
    const int n_levels = a8_levels(mask);
    int32_t first[N_IDS], again[N_IDS];
    struct format_file *f;
    float *logits[2];
    size_t bytes;

    assert_ok(format_open(&f, path));
    bytes = (size_t)(N_GREEDY * f->config.vocab) * sizeof(float);
    logits[0] = mem_new(MEM_TEST, bytes, 1);
    logits[1] = mem_new(MEM_TEST, bytes, 1);
    assert_true(logits[0] && logits[1]);
    for (int i = 0; i < n_levels; i++) {
        greedy(f, &mask[i], i == 0 ? first : again, logits[i > 0]);
        if (i == 0)
            continue;
        if (memcmp(first, again, sizeof(first)) != 0)
            fail_msg("%s: other greedy ids than in plain C", path);
        if (memcmp(logits[0], logits[1], bytes) != 0)
            fail_msg("%s: other logits than in plain C", path);
    }
    mem_free(logits[0]);
    mem_free(logits[1]);
    format_close(&f);
}

/* Where all blocks of a row have the same scales, panels keep them once. */
static void check_w4c(const char *path, const struct kern_quant_scheme *s)
{
    const enum kern_type type =
        s->type == KERN_Q4_1 && s->group == 0 ? KERN_W4C : s->type;
    struct format_file *f;

    assert_ok(format_open(&f, path));
    assert_int_equal(f->config.weight_type, type);
    assert_int_equal(f->global[FORMAT_HEAD].type, type);
    assert_int_equal(f->layer[0][FORMAT_DOWN - FORMAT_ATTN_NORM].type, type);
    format_close(&f);
}

static struct make_opts tiny_quant(const char *path)
{
    return (struct make_opts){
        .arch = "tiny-quant", .seed = 1, .format = "gguf", .out = path, .n_threads = 2};
}

/* Does a matrix `down` of the file have this type? */
static bool has_down(const char *path, enum kern_type type)
{
    struct format_file *f;
    bool has = false;

    assert_ok(format_open(&f, path));
    for (int i = 0; i < f->config.n_layers; i++)
        has |= f->layer[i][FORMAT_DOWN - FORMAT_ATTN_NORM].type == type;
    format_close(&f);
    return has;
}

TEST(test_made_files)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/made.gguf", test_dir());
    for (const struct kern_quant_scheme *s = kern_quant_schemes; s->name; s++) {
        struct make_opts o = tiny_quant(path);

        o.scheme = s;
        assert_ok(make_model(&o));
        check_w4c(path, s);
        check_file(path);
        check_a8(path);
    }
}

static void llama_quantize(const char *from, const char *to, const char *type)
{
    char command[1400];

    snprintf(command, sizeof(command), "llama-quantize %s %s %s >%s.log 2>&1", from, to,
             type, to);
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* Files of the program that most published ones come from. For rows that are not whole blocks of
 * 256 weights it falls back to types with blocks of 32. */
TEST(test_llama_quantize)
{
    static const struct {
        const char *type;
        enum kern_type down; /* of tiny-quant-32 */
    } fallback[] = {{"Q4_K_M", KERN_Q5_0}, {"Q5_K_M", KERN_Q5_1}, {"Q6_K", KERN_Q8_0}};
    static const char *const types[] = {"Q8_0", "Q4_0",   "Q4_1",   "Q5_0",
                                        "Q5_1", "Q4_K_M", "Q5_K_M", "Q6_K"};
    char plain[400], path[400];
    struct make_opts o = tiny_quant(plain);

    if (system("command -v llama-quantize >/dev/null") != 0)
        test_skip("llama-quantize is not in PATH");
    snprintf(plain, sizeof(plain), "%s/plain.gguf", test_dir());
    snprintf(path, sizeof(path), "%s/quantised.gguf", test_dir());
    assert_ok(make_model(&o));
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        llama_quantize(plain, path, types[i]);
        check_file(path);
    }
    o.arch = "tiny-quant-32";
    assert_ok(make_model(&o));
    for (size_t i = 0; i < sizeof(fallback) / sizeof(fallback[0]); i++) {
        llama_quantize(plain, path, fallback[i].type);
        assert_true(has_down(path, fallback[i].down));
        check_file(path);
    }
}
