/* tests/format/same_config.h - compares the configurations that two files gave. Include it
 * once in a test. */
#ifndef TESTS_FORMAT_SAME_CONFIG_H
#define TESTS_FORMAT_SAME_CONFIG_H

#include <math.h>

#include "format/family.h"
#include "tests/support/test.h"

/* All members but the type of the weights. `rope_error`: largest relative difference of a
 * rotary factor; 0: the same bits. */
static void same_config(const struct model_config *a, const struct model_config *b,
                        float rope_error)
{
    assert_string_equal(a->arch, b->arch);
    assert_int_equal(a->dim, b->dim);
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->n_kv_heads, b->n_kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->hidden, b->hidden);
    assert_int_equal(a->n_experts, b->n_experts);
    assert_int_equal(a->n_active, b->n_active);
    assert_int_equal(a->expert_hidden, b->expert_hidden);
    assert_int_equal(a->norm_topk, b->norm_topk);
    assert_int_equal(a->router_sigmoid, b->router_sigmoid);
    assert_int_equal(a->router_choice, b->router_choice);
    assert_int_equal(a->shared_plain, b->shared_plain);
    assert_int_equal(a->n_groups, b->n_groups);
    assert_int_equal(a->n_active_groups, b->n_active_groups);
    assert_int_equal(a->n_dense, b->n_dense);
    assert_int_equal(a->latent_dim, b->latent_dim);
    assert_int_equal(a->q_rank, b->q_rank);
    assert_int_equal(a->nope_dim, b->nope_dim);
    assert_int_equal(a->value_dim, b->value_dim);
    assert_int_equal(a->dense_hidden, b->dense_hidden);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->max_tok, b->max_tok);
    assert_true(a->norm_eps == b->norm_eps && a->rope_theta == b->rope_theta);
    assert_int_equal(a->tied, b->tied);
    assert_int_equal(a->qkv_bias, b->qkv_bias);
    assert_int_equal(a->o_bias, b->o_bias);
    assert_int_equal(a->qk_norm, b->qk_norm);
    assert_int_equal(a->qk_norm_row, b->qk_norm_row);
    assert_int_equal(a->norms, b->norms);
    for (int i = 0; i < FORMAT_N_NUMBERS; i++)
        assert_true(*format_number_of(a, i) == *format_number_of(b, i));
    assert_memory_equal(a->layer_flags, b->layer_flags, (size_t)a->n_layers);
    assert_int_equal(a->bos_id, b->bos_id);
    assert_int_equal(a->eos_id, b->eos_id);
    assert_int_equal(a->activation, b->activation);
    assert_int_equal(a->window, b->window);
    assert_true(a->rope_local_theta == b->rope_local_theta);
    assert_int_equal(a->layer_norm, b->layer_norm);
    assert_int_equal(a->norm_bias, b->norm_bias);
    assert_int_equal(a->parallel, b->parallel);
    assert_int_equal(a->no_gate, b->no_gate);
    assert_int_equal(a->mlp_bias, b->mlp_bias);
    assert_int_equal(a->sinks, b->sinks);
    assert_int_equal(a->expert_bias, b->expert_bias);
    assert_int_equal(a->rope_dims, b->rope_dims);
    assert_int_equal(a->rope_short_tok, b->rope_short_tok);
    assert_true(a->rope_length == b->rope_length && a->rope_ntk == b->rope_ntk);
    for (int i = 0; a->rope_short_tok > 0 && i < model_rope_dims(a) / 2; i++)
        assert_true(a->rope_long[i] == b->rope_long[i]);
    for (int i = 0; i < model_rope_dims(a) / 2; i++)
        assert_true(fabsf(a->rope_factor[i] / b->rope_factor[i] - 1) <= rope_error);
}

#endif
