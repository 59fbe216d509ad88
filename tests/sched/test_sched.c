/* Every policy in the table drives random sequences to their end: no token is lost or
 * done twice, no step is over-full, memory is never over-committed. */
#include "tests/support/test.h"

#include "sched/sched.h"

#define N_SEQS 12

struct world {
    struct sched_seq seqs[N_SEQS]; /* live ones, ascending arrival */
    int n, n_slots;
    int64_t n_done_tok, max_step_tok;
};

static void finish(struct world *w, int i)
{
    w->n_slots++;
    for (w->n--; i < w->n; i++)
        w->seqs[i] = w->seqs[i + 1];
}

/* Apply one pick; returns 1 when the sequence ended (and was removed). */
static void apply(struct world *w, const struct sched_batch_entry *p)
{
    struct sched_seq *s = &w->seqs[p->seq];

    if (p->admit) {
        assert_int_equal(s->state, SCHED_WAITING);
        assert_true(w->n_slots > 0);
        w->n_slots--;
        s->state = SCHED_PREFILL;
    }
    assert_int_not_equal(s->state, SCHED_WAITING);
    assert_true(p->n_tok >= 1);
    if (s->state == SCHED_PREFILL) {
        assert_true(p->n_tok <= s->n_prompt_left);
        s->n_prompt_left -= p->n_tok;
        if (s->n_prompt_left == 0)
            s->state = SCHED_DECODE;
    } else {
        assert_int_equal(p->n_tok, 1);
    }
    s->n_ctx += p->n_tok;
    w->n_done_tok += p->n_tok;
}

static void drive(const struct sched_policy *policy, uint64_t seed)
{
    struct world w = {.n = N_SEQS, .n_slots = 3, .max_step_tok = 16};
    struct sched_batch_entry entries[N_SEQS];
    struct rng rng;
    int64_t total = 0, steps = 0;

    rng_init(&rng, seed, policy->name);
    for (int i = 0; i < N_SEQS; i++) {
        int64_t prompt = 1 + (int64_t)rng_below(&rng, 50);
        int64_t max_new = 1 + (int64_t)rng_below(&rng, 20);

        w.seqs[i] = (struct sched_seq){.id = i,
                                       .state = SCHED_WAITING,
                                       .n_prompt_left = prompt,
                                       .n_max = prompt + max_new,
                                       .arrival = i};
        total += prompt + max_new;
    }
    while (w.n > 0) {
        struct sched_view v = {.seqs = w.seqs,
                               .n_seqs = w.n,
                               .max_step_tok = w.max_step_tok,
                               .n_free_slots = w.n_slots};
        int n = policy->step(&v, entries, N_SEQS);
        int64_t tok = 0;

        assert_true(n >= 1 && n <= N_SEQS); /* with work left a policy never stalls */
        for (int i = 0; i < n; i++) {
            tok += entries[i].n_tok;
            apply(&w, &entries[i]);
        }
        assert_true(tok <= w.max_step_tok);
        for (int i = w.n - 1; i >= 0; i--)
            if (w.seqs[i].n_ctx >= w.seqs[i].n_max)
                finish(&w, i);
        assert_true(++steps < 10000);
    }
    assert_int_equal(w.n_done_tok, total);
    assert_int_equal(w.n_slots, 3);
}

TEST(test_drive)
{
    for (int i = 0; sched_policies[i]; i++)
        for (uint64_t s = 0; s < 20; s++)
            drive(sched_policies[i], test_seed() + s);
}

TEST(test_find)
{
    const struct sched_policy *p;

    assert_ok(sched_policy_find("fcfs", &p));
    assert_string_equal(p->name, "fcfs");
    assert_err(sched_policy_find("fcsf", &p), ERR_NOTFOUND, "fcfs");
    assert_null(p);
}

TEST(test_fcfs_waits_for_memory)
{
    const struct sched_seq s = {.state = SCHED_WAITING, .n_prompt_left = 4, .n_max = 5};
    struct sched_view v = {.seqs = &s, .n_seqs = 1, .max_step_tok = 8};
    const struct sched_policy *p;
    struct sched_batch_entry pick;

    assert_ok(sched_policy_find("fcfs", &p));
    assert_int_equal(p->step(&v, &pick, 1), 0);
    v.n_free_slots = 1;
    assert_int_equal(p->step(&v, &pick, 1), 1);
    assert_int_equal(pick.admit, 1);
    assert_int_equal(pick.n_tok, 4);
    v.n_seqs = 0;
    assert_int_equal(p->step(&v, &pick, 1), 0);
}

/* Prompts that fit go together; then all decode together; a waiting prompt does not overtake. */
TEST(test_continuous)
{
    struct sched_seq seqs[] = {
        {.id = 1, .state = SCHED_DECODE, .n_ctx = 9, .n_max = 20},
        {.id = 2, .state = SCHED_PREFILL, .n_prompt_left = 6, .n_ctx = 4, .n_max = 20},
        {.id = 3, .state = SCHED_WAITING, .n_prompt_left = 10, .n_max = 20},
        {.id = 4, .state = SCHED_WAITING, .n_prompt_left = 1, .n_max = 20},
    };
    struct sched_view v = {
        .seqs = seqs, .n_seqs = 4, .max_step_tok = 8, .n_free_slots = 1};
    const struct sched_policy *p;
    struct sched_batch_entry entries[4];

    assert_ok(sched_policy_find("continuous", &p));
    assert_int_equal(p->step(&v, entries, 4), 2);
    assert_int_equal(entries[0].seq, 1);
    assert_int_equal(entries[0].n_tok, 6);
    assert_int_equal(entries[0].admit, 0);
    assert_int_equal(entries[1].seq, 2);
    assert_int_equal(entries[1].n_tok, 2); /* what is left of the step */
    assert_int_equal(entries[1].admit, 1);
    v.n_free_slots = 0;
    assert_int_equal(p->step(&v, entries, 4),
                     1); /* the short one waits behind the long */
    seqs[1].state = SCHED_DECODE;
    assert_int_equal(p->step(&v, entries, 4), 2);
    assert_int_equal(entries[0].seq, 0);
    assert_int_equal(entries[1].seq, 1);
    assert_int_equal(entries[1].n_tok, 1);
}

/* ---- chunked ---- */

#define VIEW_MAX 24

/* Any view that a server could have, and some that it could not. */
static void draw_view(struct sched_view *v, struct sched_seq *seqs, struct rng *r)
{
    v->seqs = seqs;
    v->n_seqs = (int)rng_below(r, VIEW_MAX + 1);
    v->max_step_tok = 1 + (int64_t)rng_below(r, 40);
    v->n_free_slots = (int64_t)rng_below(r, 5);
    for (int i = 0; i < v->n_seqs; i++) {
        int64_t left = 1 + (int64_t)rng_below(r, 30), done = (int64_t)rng_below(r, 30);

        seqs[i] = (struct sched_seq){.id = 100 + i, .arrival = i};
        seqs[i].state = (enum sched_state)rng_below(r, 3);
        seqs[i].n_prompt_left = seqs[i].state == SCHED_DECODE ? 0 : left;
        seqs[i].n_ctx = seqs[i].state == SCHED_WAITING ? 0 : 1 + done;
        seqs[i].n_max = seqs[i].n_ctx + seqs[i].n_prompt_left + 5;
    }
}

static const struct sched_batch_entry *pick_of(const struct sched_batch_entry *entries,
                                               int n, int seq)
{
    const struct sched_batch_entry *found = NULL;

    for (int i = 0; i < n; i++) {
        if (entries[i].seq != seq)
            continue;
        assert_null(found); /* once at most */
        found = &entries[i];
    }
    return found;
}

/* In order of arrival: whoever decodes has its token while the step has room; then each
 * prompt, as much as fits, waiting prompts only where a region is left for it. Nothing that
 * could go on is left out, and nothing else is in. */
static void check_chunked(const struct sched_view *v,
                          const struct sched_batch_entry *entries, int n, int max)
{
    int64_t room = v->max_step_tok, slots = v->n_free_slots;
    int want = 0;

    for (int pass = 0; pass < 2; pass++) /* decode, then prompts */
        for (int i = 0; i < v->n_seqs; i++) {
            const struct sched_seq *s = &v->seqs[i];
            const struct sched_batch_entry *p = pick_of(entries, n, i);
            bool waits = s->state == SCHED_WAITING;
            bool in = want < max && room > 0 && (!waits || slots > 0);
            int64_t most = s->state == SCHED_DECODE ? 1 : s->n_prompt_left;

            if ((s->state == SCHED_DECODE) != (pass == 0))
                continue;
            assert_true((p != NULL) == in);
            if (!p)
                continue;
            assert_ptr_equal(p, &entries[want]);
            assert_int_equal(p->n_tok, most < room ? most : room);
            assert_int_equal(p->admit, waits);
            want++;
            room -= p->n_tok;
            slots -= waits;
        }
    assert_int_equal(n, want);
    assert_true(room >= 0 && slots >= 0);
}

TEST(test_chunked_views)
{
    const struct sched_policy *p;
    struct sched_batch_entry entries[VIEW_MAX];
    struct sched_seq seqs[VIEW_MAX];
    struct sched_view v;
    struct rng r;

    assert_ok(sched_policy_find("chunked", &p));
    rng_init(&r, test_seed(), "views");
    for (int k = 0; k < 5000; k++) {
        struct sched_seq before[VIEW_MAX];
        int max = 1 + (int)rng_below(&r, VIEW_MAX), n;

        draw_view(&v, seqs, &r);
        memcpy(before, seqs, sizeof(seqs));
        n = p->step(&v, entries, max);
        check_chunked(&v, entries, n, max);
        assert_memory_equal(before, seqs, (size_t)v.n_seqs * sizeof(seqs[0]));
    }
}

/* Prompts never hold up who decodes, and new ones never hold up a prompt that has begun:
 * while requests keep coming, each ends within the steps that those before it take. */
TEST(test_chunked_starves_nobody)
{
    const struct sched_policy *p;
    struct world w = {.n = 0, .n_slots = 4, .max_step_tok = 8};
    struct sched_batch_entry entries[N_SEQS];
    int64_t came[200], next = 0, ended = 0;
    struct rng r;

    assert_ok(sched_policy_find("chunked", &p));
    rng_init(&r, test_seed(), "arrivals");
    for (int64_t step = 0; ended < 200; step++) {
        struct sched_view v;
        int n;

        while (w.n < N_SEQS && next < 200) { /* as many as wait can wait */
            came[next] = step;
            w.seqs[w.n++] =
                (struct sched_seq){.id = next,
                                   .n_prompt_left = 1 + (int64_t)rng_below(&r, 50),
                                   .n_max = 60,
                                   .arrival = next};
            next++;
        }
        v = (struct sched_view){.seqs = w.seqs,
                                .n_seqs = w.n,
                                .max_step_tok = w.max_step_tok,
                                .n_free_slots = w.n_slots};
        n = p->step(&v, entries, N_SEQS);
        for (int i = 0; i < w.n; i++)
            assert_true(w.seqs[i].state != SCHED_DECODE || pick_of(entries, n, i));
        for (int i = 0; i < n; i++)
            apply(&w, &entries[i]);
        for (int i = w.n - 1; i >= 0; i--) {
            if (w.seqs[i].n_ctx < w.seqs[i].n_max)
                continue;
            /* At least a token a step for the oldest: 12 requests of 60 tokens. */
            assert_true(step - came[w.seqs[i].id] < 60 * N_SEQS);
            finish(&w, i);
            ended++;
        }
    }
}
