/* tests/serve/twelve.h - twelve requests of different lengths, and what each of them gets alone. */
#ifndef TESTS_SERVE_TWELVE_H
#define TESTS_SERVE_TWELVE_H

#include "tests/serve/tiny.h"

#define N_REQUESTS 12

static inline int64_t n_prompt_of(int i)
{
    return 3 + (7 * i) % 12;
}

static inline int64_t max_new_of(int i)
{
    return 8 + (5 * i) % 17;
}

static inline struct serve_opts twelve_opts(const char *policy, int64_t budget_tok)
{
    struct serve_opts o = tiny_opts();

    assert_ok(opt_set(serve_opt_table, &o, "policy", policy, "test"));
    o.deterministic = true;
    o.max_seqs = 6;
    o.kv_admit = SERVE_ADMIT_NOW;
    o.kv_budget_tok = budget_tok;
    return o;
}

/* Every third one draws its tokens, by a generator that must not advance twice. */
static inline void twelve_submit(struct serve *s, int i, struct tiny_got *g, int64_t *id)
{
    int32_t ids[SEQ] = {0};
    int n = (int)n_prompt_of(i);
    struct serve_request r = tiny_request(ids, n, (int)max_new_of(i), g);

    tiny_prompt(ids, n, (uint64_t)i);
    if (i % 3 == 2)
        r.sampling = (struct serve_sampling){.temperature = 1, .top_p = 0.9, .seed = i};
    assert_ok(serve_submit(s, &r, id));
}

/* Each of them alone, with all the memory there is and keys and values of this type. */
static inline void twelve_alone_in(struct tiny_got *got, const char *kv_type)
{
    struct serve_opts o = twelve_opts("fcfs", 0);
    struct serve *s;
    struct serve_kv_stat kv;
    int64_t id;

    assert_ok(opt_set(serve_opt_table, &o, "kv_type", kv_type, "test"));
    s = tiny_open(&o);
    for (int i = 0; i < N_REQUESTS; i++) {
        twelve_submit(s, i, &got[i], &id);
        tiny_run(s);
        assert_int_equal(got[i].n, max_new_of(i));
    }
    serve_kv_stat(s, &kv);
    assert_int_equal(kv.n_preempted, 0);
    assert_int_equal(kv.n_recomputed_tok, 0);
    serve_close(&s);
}

static inline void twelve_alone(struct tiny_got *got)
{
    twelve_alone_in(got, "f32");
}

#endif
