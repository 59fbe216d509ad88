/* tests/support/kv.h - pools of keys and values and their slots, in one line each. */
#ifndef TESTS_SUPPORT_KV_H
#define TESTS_SUPPORT_KV_H

#include "kv/kv.h"
#include "tests/support/test.h"

/* A pool for n_seqs sequences of o.max_tok tokens. */
static inline void test_kv_open(struct kv_pool **out, const struct kv_shape *of,
                                struct kv_pool_opts o, int64_t n_seqs)
{
    assert_ok(kv_pool_bytes(&o.budget_bytes, of, &o, n_seqs));
    assert_ok(kv_pool_open(out, of, &o));
}

static inline void test_kv_reserve(struct kv_pool *p, int64_t n_tok, struct kv_slot *out)
{
    assert_ok(kv_reserve(p, &(struct kv_need){.prompt_tok = n_tok}, out));
}

/* The name of one of all allocators. */
static inline const char *test_kv_alloc(uint64_t pick)
{
    uint64_t n = 0;

    while (kv_allocs[n])
        n++;
    return kv_allocs[pick % n]->name;
}

#endif
