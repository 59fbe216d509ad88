/* What the types of keys and values cost in the answers of whole models: a trained one, the
 * golden ones and a made one, one token after another through the ids of their greedy answers.
 * Logits are compared with those of f32 keys and values. The figures are printed. */
#include <math.h>

#include "base/json.h"
#include "kv/kv.h"
#include "placement/open.h"
#include "ranks/phase.h"
#include "tests/support/kv.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"

#define TOK_MAX   512
#define VOCAB_MAX 1024

/* What one type costs in a model: the largest error of a logit over the largest logit; the mean
 * Kullback-Leibler divergence of the next token from that of f32, in nats; and the tokens that
 * f32 finds most likely and this type does not. */
struct cost {
    double logit_error, kl;
    int n_other;
};

static int read_ids(const char *path, const char *key, int32_t *ids, int n)
{
    const json_t *a;
    json_t *root;

    assert_ok(json_read_file(&root, path, 1 << 20));
    a = json_object_get(root, key);
    for (size_t i = 0; i < json_array_size(a) && n < TOK_MAX; i++)
        ids[n++] = (int32_t)json_integer_value(json_array_get(a, i));
    json_decref(root);
    return n;
}

/* The logits after each of the ids. */
static void run(const struct format_file *f, enum kern_kv_type type, const int32_t *ids,
                int n, float *logits)
{
    static const int cpus[1];
    const struct model_opts o = {
        .weight_type = KERN_N_TYPES, .kv_type = type, .max_step_tok = 1};
    const struct model_phase_opts po = {.n_ranks = 1, .n_threads = 1};
    struct model_phase *phase;
    struct kv_shape shape;
    struct par_team *team;
    struct kv_pool *pool;
    struct kv_slot kv;
    struct model *m;

    assert_ok(par_team_open(&team, cpus, 1, 0));
    assert_ok(model_open(&m, f, team, &o));
    assert_ok(model_phase_open(&phase, m, &po));
    model_kv_shape(m, &shape);
    assert_int_equal(shape.vec_bytes, kern_kv_bytes(type, f->config.head_dim));
    test_kv_open(&pool, &shape, (struct kv_pool_opts){.max_tok = TOK_MAX}, 1);
    test_kv_reserve(pool, n, &kv);
    for (int i = 0; i < n; i++) {
        const struct model_chunk c = {
            .kv = &kv, .ids = ids + i, .n_tok = 1, .pos0 = i, .want_logits = true};

        assert_ok(
            model_forward(phase, &c, 1, logits + (size_t)i * (size_t)f->config.vocab));
    }
    kv_release(pool, &kv);
    kv_pool_close(&pool);
    model_phase_close(&phase);
    model_close(&m);
    par_team_close(&team);
}

static int largest(const float *x, int n)
{
    int best = 0;

    for (int i = 0; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static double log_sum_exp(const float *x, int n)
{
    double max = x[largest(x, n)], sum = 0;

    for (int i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

static struct cost compare(const float *got, const float *want, int n_tok, int vocab)
{
    struct cost c = {0};
    double error = 0, size = 0;

    for (int t = 0; t < n_tok; t++, got += vocab, want += vocab) {
        double z = log_sum_exp(got, vocab), z_want = log_sum_exp(want, vocab);

        for (int i = 0; i < vocab; i++) {
            double log_p = want[i] - z_want;

            c.kl += exp(log_p) * (log_p - (got[i] - z)) / n_tok;
            error = fmax(error, fabs((double)got[i] - want[i]));
            size = fmax(size, fabs(want[i]));
        }
        c.n_other += largest(got, vocab) != largest(want, vocab);
    }
    c.logit_error = error / size;
    return c;
}

/* No type may cost more than `most`; f32 itself costs nothing. */
static void check(const char *path, const int32_t *ids, int n, const struct cost most)
{
    static float logits[KERN_N_KV_TYPES][TOK_MAX * VOCAB_MAX];
    const char *name = strrchr(path, '/') + 1;
    struct format_file *f;

    assert_ok(format_open(&f, path));
    assert_true(f->config.vocab <= VOCAB_MAX);
    for (enum kern_kv_type t = 0; t < KERN_N_KV_TYPES; t++) {
        struct cost c;

        run(f, t, ids, n, logits[t]);
        c = compare(logits[t], logits[KERN_KV_F32], n, f->config.vocab);
        print_message("# %s, %s: logit error %.2g, KL %.2g nats, %d of %d other ids\n",
                      name, kern_kv_type_name(t), c.logit_error, c.kl, c.n_other, n);
        assert_true(t != KERN_KV_F32 || (c.logit_error == 0 && c.n_other == 0));
        if (!(c.logit_error <= most.logit_error && c.kl <= most.kl &&
              c.n_other <= most.n_other))
            fail_msg("%s, %s: logit error %g, KL %g, %d of %d other ids", path,
                     kern_kv_type_name(t), c.logit_error, c.kl, c.n_other, n);
    }
    format_close(&f);
}

TEST(trained)
{
    const char *model = test_need_data("models/stories260K.bin");
    const char *json = test_need_data("models/stories260K.greedy.json");
    int32_t ids[TOK_MAX];
    int n = read_ids(json, "greedy_tokens", ids, 0);

    check(model, ids, n, (struct cost){1e-1, 2e-3, n / 20});
}

TEST(golden)
{
    static const char *const names[] = {"llama-mha-f32", "llama-gqa-ragged-f32",
                                        "llama-head64-bf16", "llama3-scaled-bf16",
                                        "qwen2-bias-f16"};

    test_need_data("models/golden");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char file[128], model[600];
        int32_t ids[TOK_MAX];
        const char *json;
        int n;

        snprintf(file, sizeof(file), "models/golden/%s.gguf", names[i]);
        snprintf(model, sizeof(model), "%s", test_need_data(file));
        snprintf(file, sizeof(file), "models/golden/%s.json", names[i]);
        json = test_need_data(file);
        n = read_ids(json, "prompt_ids", ids, 0);
        n = read_ids(json, "greedy_ids", ids, n);
        check(model, ids, n, (struct cost){7e-2, 5e-4, n / 10});
    }
}

TEST(made)
{
    int32_t ids[96];

    for (int i = 0; i < 96; i++)
        ids[i] = 5 + i * 37 % 200;
    check(tiny_model(KERN_F32), ids, 96, (struct cost){4e-2, 5e-4, 9});
}
