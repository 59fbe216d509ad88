/* phase_priority: one phase in a step, by priority with ageing. On random views its choice is that
 * of the stated rule; while requests keep coming, no prompt and no sequence that decodes waits
 * longer than the rule allows. Also: no policy admits more than the memory holds. */
#include "tests/support/test.h"

#include "sched/sched.h"

#define VIEW_MAX    24
#define PROMPT_WAIT 4 /* as in the policy */

static const struct sched_policy *find(const char *name)
{
    const struct sched_policy *p;

    assert_ok(sched_policy_find(name, &p));
    return p;
}

/* ---- random views ---- */

/* Any view that a server could have, and some that it could not. */
static void draw_view(struct sched_view *v, struct sched_seq *seqs, struct rng *r)
{
    v->seqs = seqs;
    v->n_seqs = (int)rng_below(r, VIEW_MAX + 1);
    v->max_step_tok = 1 + (int64_t)rng_below(r, 30);
    v->n_free_slots = (int64_t)rng_below(r, 5);
    v->n_free_tok = (int64_t)rng_below(r, 80);
    for (int i = 0; i < v->n_seqs; i++) {
        struct sched_seq *s = &seqs[i];

        *s = (struct sched_seq){.id = 100 + i, .arrival = i};
        s->state = (enum sched_state)rng_below(r, 3);
        s->n_prompt_left = s->state == SCHED_DECODE ? 0 : 1 + (int64_t)rng_below(r, 30);
        s->n_ctx = s->state == SCHED_WAITING ? 0 : 1 + (int64_t)rng_below(r, 30);
        s->n_max = s->n_ctx + s->n_prompt_left + 5;
        s->n_reserve = s->state == SCHED_WAITING ? s->n_prompt_left + 1 : 0;
        s->age = (int64_t)rng_below(r, 7);
    }
}

/* What every policy owes to every view: each sequence once, tokens that it has, no more than
 * the step, no more sequences and tokens than the memory, nobody overtaken at admission. */
static void check_any(const struct sched_view *v, const struct sched_batch_entry *e,
                      int n, int max)
{
    int64_t tok = 0, slots = v->n_free_slots, free_tok = v->n_free_tok;
    bool taken[VIEW_MAX] = {false}, passed_over = false;

    assert_true(n >= 0 && n <= max);
    for (int i = 0; i < n; i++) {
        const struct sched_seq *s = &v->seqs[e[i].seq];
        bool decode = s->state == SCHED_DECODE;

        assert_true(e[i].seq >= 0 && e[i].seq < v->n_seqs && !taken[e[i].seq]);
        taken[e[i].seq] = true;
        assert_in_range(e[i].n_tok, 1, decode ? 1 : s->n_prompt_left);
        assert_int_equal(e[i].admit, s->state == SCHED_WAITING);
        tok += e[i].n_tok;
        slots -= e[i].admit;
        free_tok -= e[i].admit ? s->n_reserve : 0;
    }
    assert_true(tok <= v->max_step_tok && slots >= 0 && free_tok >= 0);
    for (int i = 0; i < v->n_seqs; i++) {
        if (v->seqs[i].state != SCHED_WAITING)
            continue;
        assert_false(taken[i] && passed_over);
        passed_over |= !taken[i];
    }
}

/* By the rule: does the step have prompts? */
static bool prompts_first(const struct sched_view *v, int max)
{
    int64_t per = v->max_step_tok < max ? v->max_step_tok : max, n_decode = 0, late = 0;
    int64_t slots = v->n_free_slots, tok = v->n_free_tok;
    bool any = false, aged = false, fits = true;

    for (int i = 0; i < v->n_seqs; i++)
        n_decode += v->seqs[i].state == SCHED_DECODE;
    for (int i = 0; i < v->n_seqs; i++) {
        const struct sched_seq *s = &v->seqs[i];

        if (s->state == SCHED_DECODE) {
            late += s->age * per >= n_decode;
            continue;
        }
        if (s->state == SCHED_WAITING) {
            fits = fits && slots > 0 && s->n_reserve <= tok;
            slots--;
            tok -= s->n_reserve;
        }
        if (s->state == SCHED_PREFILL || fits) {
            any = true;
            aged |= s->age >= PROMPT_WAIT;
        }
    }
    return any && (n_decode == 0 || (aged && late == 0));
}

/* Prompts in order of arrival; of sequences that decode, those that waited longest, by age
 * and then by arrival, all of them where they fit. */
static void check_order(const struct sched_view *v, const struct sched_batch_entry *e,
                        int n, int max, bool prompts)
{
    bool all = true;
    int n_decode = 0;

    for (int i = 0; i < n; i++)
        assert_true((v->seqs[e[i].seq].state == SCHED_DECODE) == !prompts);
    for (int i = 0; i < v->n_seqs; i++)
        n_decode += v->seqs[i].state == SCHED_DECODE;
    all = prompts || n_decode <= (v->max_step_tok < max ? v->max_step_tok : max);
    for (int i = 1; i < n; i++) {
        const struct sched_seq *a = &v->seqs[e[i - 1].seq], *b = &v->seqs[e[i].seq];

        assert_true(!all && a->age != b->age ? a->age > b->age : a->arrival < b->arrival);
    }
    if (prompts)
        return;
    assert_int_equal(n, all ? n_decode : (v->max_step_tok < max ? v->max_step_tok : max));
    for (int i = 0; i < v->n_seqs && n > 0 && !all; i++) {
        bool in = false;

        for (int k = 0; k < n; k++)
            in |= e[k].seq == i;
        if (!in && v->seqs[i].state == SCHED_DECODE)
            assert_true(v->seqs[i].age <= v->seqs[e[n - 1].seq].age);
    }
}

TEST(test_views)
{
    const struct sched_policy *p = find("phase_priority");
    struct sched_batch_entry e[VIEW_MAX], again[VIEW_MAX];
    struct sched_seq seqs[VIEW_MAX], before[VIEW_MAX];
    int n_prompts = 0, n_decodes = 0;
    struct sched_view v;
    struct rng r;

    rng_init(&r, test_seed(), "views");
    for (int k = 0; k < 20000; k++) {
        int max = 1 + (int)rng_below(&r, VIEW_MAX), n;
        bool prompts;

        draw_view(&v, seqs, &r);
        memcpy(before, seqs, sizeof(seqs));
        prompts = prompts_first(&v, max);
        n = p->step(&v, e, max);
        check_any(&v, e, n, max);
        check_order(&v, e, n, max, prompts);
        assert_true(n > 0 || !prompts);
        n_prompts += prompts;
        n_decodes += n > 0 && !prompts;
        /* pure: the view is as it was, and the same view has the same answer */
        assert_memory_equal(before, seqs, (size_t)v.n_seqs * sizeof(seqs[0]));
        assert_int_equal(p->step(&v, again, max), n);
        assert_memory_equal(e, again, (size_t)n * sizeof(e[0]));
    }
    assert_true(n_prompts > 2000 && n_decodes > 2000);
}

TEST(test_memory)
{
    struct sched_batch_entry e[VIEW_MAX];
    struct sched_seq seqs[VIEW_MAX];
    struct sched_view v;
    struct rng r;

    rng_init(&r, test_seed(), "memory");
    for (int k = 0; k < 5000; k++) {
        int max = 1 + (int)rng_below(&r, VIEW_MAX);

        draw_view(&v, seqs, &r);
        for (int i = 0; sched_policies[i]; i++)
            check_any(&v, e, sched_policies[i]->step(&v, e, max), max);
    }
}

/* ---- runs ---- */

#define N_REQUESTS 300

struct world {
    struct sched_seq seqs[VIEW_MAX];
    struct sched_batch_entry entries[VIEW_MAX];
    int n, n_entries, max_seqs;
    int64_t max_step_tok, n_came, n_ended;
    int64_t n_decode_max;
};

static void arrive(struct world *w, struct rng *r)
{
    int64_t prompt = 1 + (int64_t)rng_below(r, 60), more = 1 + (int64_t)rng_below(r, 30);

    w->seqs[w->n++] = (struct sched_seq){.id = w->n_came,
                                         .arrival = w->n_came,
                                         .n_prompt_left = prompt,
                                         .n_max = prompt + more};
    w->n_came++;
}

static void apply(struct world *w)
{
    bool had[VIEW_MAX] = {false};
    int n = 0;

    for (int i = 0; i < w->n_entries; i++) {
        struct sched_seq *s = &w->seqs[w->entries[i].seq];

        had[w->entries[i].seq] = true;
        s->n_ctx += w->entries[i].n_tok;
        if (s->state != SCHED_DECODE)
            s->n_prompt_left -= w->entries[i].n_tok;
        s->state = s->n_prompt_left > 0 ? SCHED_PREFILL : SCHED_DECODE;
    }
    for (int i = 0; i < w->n; i++) {
        w->seqs[i].age = had[i] ? 0 : w->seqs[i].age + 1;
        if (w->seqs[i].n_ctx >= w->seqs[i].n_max)
            w->n_ended++;
        else
            w->seqs[n++] = w->seqs[i];
    }
    w->n = n;
}

static int n_in(const struct world *w, enum sched_state state)
{
    int n = 0;

    for (int i = 0; i < w->n; i++)
        n += w->seqs[i].state == state;
    return n;
}

/* The bounds that the rule promises, of the ages after a step. */
static void check_waits(struct world *w)
{
    int64_t per = w->max_step_tok, round;
    bool oldest = true;

    w->n_decode_max =
        w->n_decode_max > n_in(w, SCHED_DECODE) ? w->n_decode_max : n_in(w, SCHED_DECODE);
    round = (w->n_decode_max + per - 1) / per;
    for (int i = 0; i < w->n; i++) {
        const struct sched_seq *s = &w->seqs[i];

        if (s->state == SCHED_DECODE)
            assert_true(s->age <= (round == 1 ? 1 : 2 * round));
        if (s->state != SCHED_PREFILL || !oldest)
            continue;
        oldest = false;
        assert_true(s->age <= PROMPT_WAIT + 2 * round);
    }
}

/* `max_step_tok` tokens and `max_seqs` sequences; new requests as long as some can wait, so that
 * prompts always wait and sequences always decode. */
static void endure(int64_t max_step_tok, int max_seqs, uint64_t seed)
{
    const struct sched_policy *p = find("phase_priority");
    struct world w = {.max_step_tok = max_step_tok, .max_seqs = max_seqs};
    int64_t prompt_steps = 0, steps = 0;
    struct rng r;

    rng_init(&r, seed, "endure");
    for (; w.n_ended < N_REQUESTS; steps++) {
        struct sched_view v = {.seqs = w.seqs, .max_step_tok = max_step_tok};

        while (w.n < VIEW_MAX && w.n_came < N_REQUESTS)
            arrive(&w, &r);
        v.n_seqs = w.n;
        v.n_free_slots = max_seqs - n_in(&w, SCHED_PREFILL) - n_in(&w, SCHED_DECODE);
        w.n_entries = p->step(&v, w.entries, max_seqs);
        assert_true(w.n_entries > 0); /* with work left it never stalls */
        check_any(&v, w.entries, w.n_entries, max_seqs);
        prompt_steps += w.seqs[w.entries[0].seq].state != SCHED_DECODE;
        apply(&w);
        check_waits(&w);
        assert_true(steps < 100000);
    }
    assert_true(prompt_steps > 0 && prompt_steps < steps);
}

TEST(test_nobody_starves)
{
    for (uint64_t i = 0; i < 10; i++) {
        endure(64, 8, test_seed() + i); /* a step holds all that decode */
        endure(8, 8, test_seed() + i);
        endure(3, 12, test_seed() + i); /* a round takes several steps */
        endure(1, 5, test_seed() + i);
    }
}
