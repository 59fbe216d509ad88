#include "tests/support/test.h"

#include <math.h>

#include "format/config.h"
#include "make/make.h"

static struct model_config sound(void)
{
    struct model_config c;

    assert_ok(make_config("tiny", &c));
    return c;
}

TEST(sound_config_passes)
{
    struct model_config c = sound();

    assert_ok(model_config_check(&c, "x"));
}

TEST(unsound_numbers_are_refused)
{
    struct model_config c;

#define REFUSED(field, value, code, part)                                                \
    c = sound();                                                                         \
    c.field = (value);                                                                   \
    assert_err(model_config_check(&c, "file.x"), code, part);                            \
    assert_non_null(strstr(err_msg(), "file.x"))
    REFUSED(dim, 0, ERR_FORMAT, "dim: expected at least 1, found 0");
    REFUSED(dim, -5, ERR_FORMAT, "dim");
    REFUSED(dim, 1 << 30, ERR_LIMIT, "dim");
    REFUSED(hidden, 0, ERR_FORMAT, "hidden");
    REFUSED(vocab, 0, ERR_FORMAT, "vocab");
    REFUSED(vocab, INT32_MAX, ERR_LIMIT, "vocab");
    REFUSED(max_tok, 0, ERR_FORMAT, "max_tok");
    REFUSED(n_layers, MODEL_MAX_LAYERS + 1, ERR_LIMIT, "n_layers");
    REFUSED(n_heads, 5, ERR_FORMAT, "n_kv_heads"); /* 2 KV heads do not divide 5 */
    REFUSED(n_kv_heads, 0, ERR_FORMAT, "n_kv_heads");
    REFUSED(head_dim, 13, ERR_FORMAT, "even");
    REFUSED(head_dim, MODEL_HEAD_DIM_MAX + 2, ERR_LIMIT, "head_dim");
    REFUSED(norm_eps, 0.0f, ERR_FORMAT, "norm_eps");
    REFUSED(norm_eps, NAN, ERR_FORMAT, "norm_eps");
    REFUSED(rope_theta, INFINITY, ERR_FORMAT, "rope_theta");
    REFUSED(rope_factor[6], 0.0f, ERR_FORMAT, "rope_factor");
    REFUSED(bos_id, 1003, ERR_FORMAT, "bos_id");
    REFUSED(eos_id, -2, ERR_FORMAT, "eos_id");
    c = sound();
    c.n_heads = 258;
    assert_err(model_config_check(&c, "x"), ERR_LIMIT,
               "found 129"); /* rows of one KV head */
}

/* The published description, branch by branch, on wavelengths. */
static double llama3_factor(int i, int head_dim, double theta, double factor, double low,
                            double high, double original)
{
    double inv_freq = 1 / pow(theta, 2.0 * i / head_dim), wavelen = 2 * M_PI / inv_freq,
           smooth;

    if (wavelen < original / high)
        return 1;
    if (wavelen > original / low)
        return factor;
    smooth = (original / wavelen - low) / (high - low);
    return inv_freq / ((1 - smooth) * inv_freq / factor + smooth * inv_freq);
}

TEST(llama3_scaling_follows_the_wavelengths)
{
    struct model_config c;
    int i, n_kept = 0, n_full = 0;
    double want;

    assert_ok(make_config("llama-3.2-1b", &c));
    for (i = 0; i < c.head_dim / 2; i++) {
        want = llama3_factor(i, c.head_dim, 5e5, 32, 1, 4, 8192);
        assert_true(fabs((double)c.rope_factor[i] / want - 1) < 1e-6);
        n_kept += c.rope_factor[i] == 1;
        n_full += c.rope_factor[i] == 32;
    }
    /* all three branches were walked */
    assert_true(n_kept > 0 && n_full > 0 && n_kept + n_full < c.head_dim / 2);
}

TEST(parameters_of_published_models)
{
    static const struct {
        const char *name;
        int64_t n_params; /* as their publishers count them */
    } known[] = {
        {"llama-160m", 162417408},          {"llama-68m", 68030208},
        {"sheared-llama-1.3b", 1345423360}, {"llama-3.2-1b", 1235814400},
        {"llama-3.2-3b", 3212749824},       {"llama-3-8b", 8030261248},
        {"qwen-1.8b", 1836828672},          {"deepseek-r1-distill-qwen-7b", 7615616512},
        {"mistral-7b", 7248023552},         {"qwen3-0.6b", 596049920},
        {"phi-4-14b", 14659507200},         {"phi-4-mini", 3836021760},
        {"mistral-small-24b", 23572403200}, {"ministral-8b", 8019808256},
        {"olmo-3-7b", 7298011136},          {"gemma-2b", 2506172416},
        {"starcoder2-3b", 3030371328},      {"gpt-oss-20b", 20914757184},
    };
    struct model_config c;
    size_t i;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        assert_ok(make_config(known[i].name, &c));
        if (model_n_params(&c) != known[i].n_params)
            fail_msg("%s: %lld parameters, published %lld", known[i].name,
                     (long long)model_n_params(&c), (long long)known[i].n_params);
    }
}

TEST(parameters_by_hand)
{
    struct model_config c = sound(); /* 84 x 1003, untied; 3 layers */
    int64_t layer = 84 * 84 * 2 + 84 * 28 * 2 + 3 * 84 * 202, vectors = 7 * 84;

    assert_int_equal(model_n_params(&c), 2 * 1003 * 84 + 3 * layer + vectors);
    c.tied = true;
    c.qkv_bias = true;
    assert_int_equal(model_n_params(&c),
                     1003 * 84 + 3 * layer + vectors + 3 * (84 + 28 + 28));
    c.qk_norm = true;
    assert_int_equal(model_n_params(&c),
                     1003 * 84 + 3 * layer + vectors + 3 * (84 + 28 + 28) + 3 * 2 * 14);
}

/* transformers mixes inverse frequencies, and rounds the pairs between which it does unless a file
 * says truncate: false. The numbers are those of gpt-oss. */
TEST(yarn)
{
    struct model_config c = {.head_dim = 64, .rope_theta = 150000};
    const double base = log(150000);
    double low = 64 * log(4096 / (32 * 2 * M_PI)) / (2 * base);
    double high = 64 * log(4096 / (2 * M_PI)) / (2 * base);

    assert_true(low > 8 && low < 8.2 && high > 17.3 && high < 17.5);
    for (int whole = 0; whole < 2; whole++) {
        const double from = whole ? 8 : low, to = whole ? 18 : high;

        model_config_rope_yarn(&c, 32, 32, 1, 4096, whole);
        for (int i = 0; i < 32; i++) {
            double plain = exp(-base * i / 32), keep = 1 - (i - from) / (to - from), want;

            keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
            want = plain / 32 * (1 - keep) + plain * keep;
            assert_true(fabs(plain / (double)c.rope_factor[i] / want - 1) < 1e-6);
        }
        assert_true(c.rope_factor[8] == 1 && c.rope_factor[9] > 1);
        assert_true(c.rope_factor[17] < 32 && c.rope_factor[18] == 32);
    }
    assert_true(fabs(model_config_yarn_length(32, 1) - 1.3465735902799727) < 1e-12);
    assert_true(model_config_yarn_length(0.5, 1) == 1);
}

/* The base of transformers' dynamic scaling, for a text as long as the context. */
TEST(dynamic_ntk)
{
    struct model_config c = {
        .head_dim = 128, .rope_theta = 1e4f, .rope_ntk = 4, .rope_short_tok = 2048};
    double want = 1e4 * pow(4.0 * 8192 / 2048 - 3, 128.0 / 126);

    assert_true(model_config_rope_theta(&c, 2048) == 1e4);
    assert_true(fabs(model_config_rope_theta(&c, 8192) / want - 1) < 1e-12);
}
