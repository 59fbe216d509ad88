/* Lists of operators: what a model's list is, which lists are legal, and that a phase runs the list
 * that it has. */
#include <math.h>

#include "base/mem.h"
#include "ranks/phase.h"
#include "tests/support/mutate.h"
#include "tests/support/step_model.h"
#include "tests/support/test.h"

#define TWO_LAYERS                                                                       \
    "embed\n"                                                                            \
    "0 attn_qkv\n"                                                                       \
    "0 attention\n"                                                                      \
    "0 stored\n"                                                                         \
    "0 attn_out\n"                                                                       \
    "0 mlp\n"                                                                            \
    "1 attn_qkv\n"                                                                       \
    "1 attention\n"                                                                      \
    "1 wanted_rows\n"                                                                    \
    "1 stored\n"                                                                         \
    "1 attn_out\n"                                                                       \
    "1 mlp\n"                                                                            \
    "lm_head\n"

static void parse(struct model_ops *o, const char *text)
{
    assert_ok(model_ops_parse(o, text, strlen(text)));
}

TEST(test_list_of_a_model)
{
    struct model_config c = {.n_layers = 2};
    struct model_ops o;
    char *text;

    assert_ok(model_ops_of(&o, &c));
    assert_ok(model_ops_check(&o, 2));
    assert_ok(model_ops_print(&text, &o));
    assert_string_equal(text, TWO_LAYERS);
    mem_free(text);
    model_ops_fini(&o);
    c = (struct model_config){.n_layers = 1, .n_experts = 4};
    assert_ok(model_ops_of(&o, &c));
    assert_ok(model_ops_check(&o, 1));
    assert_ok(model_ops_print(&text, &o));
    assert_string_equal(text, "embed\n0 attn_qkv\n0 attention\n0 wanted_rows\n0 stored\n"
                              "0 attn_out\n0 experts\nlm_head\n");
    mem_free(text);
    model_ops_fini(&o);
}

TEST(test_text)
{
    struct model_ops o;
    char *text;

    parse(&o, "# a step\n\n  embed # rows\n\t12 attn_qkv\n0 mlp");
    assert_ok(model_ops_print(&text, &o));
    assert_string_equal(text, "embed\n12 attn_qkv\n0 mlp\n");
    mem_free(text);
    model_ops_fini(&o);
}

static void not_text(const char *text, const char *why)
{
    struct model_ops o;

    assert_int_equal(model_ops_parse(&o, text, strlen(text)), ERR_FORMAT);
    assert_non_null(strstr(err_msg(), why));
    assert_null(o.op);
}

TEST(test_not_text)
{
    not_text("embed\n0 atention\n", "line 2: expected an operator, found \"atention\"");
    not_text("0\n", "line 1: expected an operator, found \"\"");
    not_text("0x mlp\n", "line 1: expected a layer, found \"0x\"");
    not_text("99999999999999999999 mlp\n", "line 1: expected a layer");
    not_text("embed 0\n", "line 1: expected the end of the line, found \"0\"");
    not_text("0 a_name_that_is_longer_than_any_operator_has\n", "expected an operator");
}

/* Damaged lists are read or refused, and checked, without harm. */
TEST(test_damaged)
{
    const size_t n = strlen(TWO_LAYERS);
    uint8_t *out = mem_new(MEM_TEST, n + MUTATE_EXTRA, 1);
    int n_read = 0, n_legal = 0;
    struct rng r;

    assert_non_null(out);
    rng_init(&r, test_seed(), "lists");
    for (int k = 0; k < 5000; k++) {
        size_t m = mutate(&r, (const uint8_t *)TWO_LAYERS, n, out);
        struct model_ops o, again;
        char *text;

        if (model_ops_parse(&o, (const char *)out, m) == OK) {
            n_read++;
            n_legal += model_ops_check(&o, 2) == OK;
            assert_ok(model_ops_print(&text, &o));
            parse(&again, text);
            assert_int_equal(again.n, o.n);
            model_ops_fini(&again);
            mem_free(text);
            model_ops_fini(&o);
        }
        err_clear();
    }
    assert_true(n_read > n_legal && n_legal > 0);
    mem_free(out);
}

static void illegal(const char *text, const char *why)
{
    struct model_ops o;

    parse(&o, text);
    assert_int_equal(model_ops_check(&o, 2), ERR_ARG);
    if (!strstr(err_msg(), why))
        fail_msg("found \"%s\", expected \"%s\"", err_msg(), why);
    model_ops_fini(&o);
}

/* The list of two layers with one of its lines replaced. */
static void illegal_with(const char *from, const char *to, const char *why)
{
    char text[sizeof(TWO_LAYERS) + 64];
    const char *at = strstr(TWO_LAYERS, from);

    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - TWO_LAYERS), TWO_LAYERS, to,
             at + strlen(from));
    illegal(text, why);
}

TEST(test_illegal)
{
    illegal("", "0 layers are computed, expected 2");
    illegal_with("lm_head\n", "", "no operator computes logits");
    illegal_with("embed\n", "", "operator 1: attn_qkv: expected the residual stream");
    illegal_with("0 attn_qkv\n", "attn_qkv\n", "expected layer 0 to 1, found -1");
    illegal_with("1 mlp\n", "2 mlp\n",
                 "operator 12: mlp: expected layer 0 to 1, found 2");
    illegal_with("embed\n", "3 embed\n", "embed: expected layer -1, found 3");
    illegal_with("0 attention\n", "",
                 "operator 3: stored: expected the heads that a thread attended with");
    illegal_with("0 attention\n", "1 attention\n", "expected layer 0, found 1");
    illegal_with("0 attention\n", "0 mlp\n0 attention\n",
                 "operator 3: mlp: expected an operator that reads queries");
    illegal_with("0 stored\n", "0 mlp\n0 stored\n",
                 "expected an operator that reads the heads");
    illegal_with("0 stored\n", "", "attn_out: expected what all heads attended to");
    illegal_with("0 attn_out\n", "1 attn_out\n", "expected layer 0, found 1");
    illegal_with("0 attn_out\n", "0 attn_out\n0 attn_out\n",
                 "operator 6: attn_out: expected what all heads attended to");
    illegal_with("1 wanted_rows\n", "", "lm_head: expected the wanted rows");
    illegal_with("0 stored\n", "0 wanted_rows\n0 stored\n",
                 "operator 8: attn_qkv: expected all rows");
    illegal_with("lm_head\n", "lm_head\nlm_head\n", "operator 14: lm_head: expected");
    illegal_with("lm_head\n", "lm_head\n1 mlp\n", "operator 14: mlp: expected");
    illegal(
        "embed\n0 attn_qkv\n0 attention\n0 wanted_rows\n0 stored\n0 attn_out\nlm_head\n",
        "1 layers are computed, expected 2");
    illegal("embed\n1 attn_qkv\n",
            "expected layer 0, as keys and values are stored once");
    illegal("embed\n0 attn_qkv\n0 attention\n0 stored\n0 attn_out\n0 attn_qkv\n",
            "expected layer 1, as keys");
}

/* An MLP may be left out, be run again, or come before attention's output is added. */
TEST(test_legal)
{
    struct model_ops o;

    parse(
        &o,
        "embed\n0 attn_qkv\n0 attention\n0 stored\n0 mlp\n0 attn_out\n0 mlp\n1 attn_qkv\n"
        "1 attention\n1 wanted_rows\n1 stored\n1 attn_out\nlm_head\n");
    assert_ok(model_ops_check(&o, 2));
    model_ops_fini(&o);
}

/* ---- a phase runs its list ---- */

/* Without its MLPs a model is the one whose MLPs add nothing. */
static void no_mlp_in_reference(struct step_model *x, const struct step_trait *t)
{
    for (int l = 0; l < t->n_layers; l++)
        memset(x->ref.layer[l][FORMAT_DOWN - FORMAT_ATTN_NORM], 0,
               (size_t)t->dim * (size_t)t->hidden * sizeof(double));
    x->max_abs = 0;
    for (int s = 0; s < STEP_MODEL_SEQS; s++) {
        ref_model_forward(&x->ref, x->ids[s], STEP_MODEL_TOK, x->want[s]);
        for (int i = 0; i < STEP_MODEL_TOK * x->vocab; i++)
            x->max_abs = fmax(x->max_abs, fabs(x->want[s][i]));
    }
}

static void leave_out(struct model_phase *p, const char *name)
{
    const struct model_ops *all = model_phase_ops(p);
    struct model_ops o = {.op = mem_new(MEM_TEST, (size_t)all->n, sizeof(*o.op))};

    assert_non_null(o.op);
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->op[i].kind->name, name) != 0)
            o.op[o.n++] = all->op[i];
    assert_true(o.n < all->n);
    assert_ok(model_phase_ops_set(p, &o));
    model_ops_fini(&o);
}

TEST(test_phase_without_mlp)
{
    const struct model_opts o = step_model_opts();

    for (int t = 0; t < step_n_traits; t++) {
        struct step_model x;

        if (step_traits[t].n_experts > 0)
            continue;
        step_model_open(&x, &step_traits[t], &o, 2);
        step_model_phase(&x, 1, 2);
        step_model_phase(&x, 1, 1);
        for (int p = 0; p < x.n_phases; p++)
            leave_out(x.phases[p], "mlp");
        no_mlp_in_reference(&x, &step_traits[t]);
        step_model_run(&x, 3, o.max_step_tok, 1e-4, test_seed() + (uint64_t)t,
                       step_traits[t].name);
        step_model_close(&x);
    }
}

TEST(test_phase_refuses)
{
    const struct model_opts o = step_model_opts();
    struct model_attend_by by = {0};
    struct step_model x;
    struct model_phase *p;
    char *before, *after;

    step_model_open(&x, &step_traits[0], &o, 2);
    step_model_phase(&x, 2, 1);
    p = x.phases[0];
    assert_ok(model_ops_print(&before, model_phase_ops(p)));
    assert_int_equal(model_phase_ops_replace(p, "mlp", "experts", NULL), ERR_UNSUPPORTED);
    assert_int_equal(model_phase_ops_replace(p, "attention", "attention_by", &by),
                     ERR_UNSUPPORTED);
    assert_int_equal(model_phase_ops_replace(p, "mlp", "lm_head", NULL), ERR_ARG);
    assert_int_equal(model_phase_ops_replace(p, "mlp", "nothing", NULL), ERR_ARG);
    assert_int_equal(model_phase_ops_replace(p, "nothing", "mlp", NULL), ERR_ARG);
    assert_ok(model_phase_ops_replace(p, "attention_by", "attention", NULL));
    assert_ok(model_ops_print(&after, model_phase_ops(p)));
    assert_string_equal(before, after);
    mem_free(before);
    mem_free(after);
    step_model_close(&x);
}
