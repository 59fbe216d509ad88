/* mixed: on random views, at and around each of its bounds, its choice is that of the stated rule,
 * which is written down here once more, by sorting. */
#include "tests/support/test.h"

#include "sched/sched.h"

#define VIEW_MAX   16
#define MAX_PAUSED 4    /* as in the policy */
#define SHARE_TOK  2048 /* as in the policy, where the view names none */

static bool decodes(const struct sched_seq *s)
{
    return s->state ==
               SCHED_DECODE || /* or its keys and values came from another machine */
           (s->state == SCHED_PREFILL && s->n_ctx > 0 && s->n_prompt_left == 1);
}

struct choice {
    struct sched_batch_entry e[VIEW_MAX];
    int n;
    int64_t tok;
};

static void choose(struct choice *c, int seq, int64_t n_tok, bool admit)
{
    c->e[c->n++] = (struct sched_batch_entry){.seq = seq, .n_tok = n_tok, .admit = admit};
    c->tok += n_tok;
}

/* Those that decode and were passed over often, or not often: the oldest first, of one age the
 * first to come. */
static void choose_decodes(struct choice *c, const struct sched_view *v, int max,
                           int64_t most_tok, bool often)
{
    int order[VIEW_MAX], n = 0;

    for (int i = 0; i < v->n_seqs; i++) {
        int at = n;

        if (!decodes(&v->seqs[i]) || (v->seqs[i].n_paused >= MAX_PAUSED) != often)
            continue;
        for (; at > 0 && v->seqs[order[at - 1]].age < v->seqs[i].age; at--)
            order[at] = order[at - 1];
        order[at] = i;
        n++;
    }
    for (int k = 0; k < n && c->n < max && c->tok < most_tok; k++)
        choose(c, order[k], 1, false);
}

static void choose_prompts(struct choice *c, const struct sched_view *v, int max,
                           int64_t share)
{
    int64_t prompts_tok = 0, slots = v->n_free_slots, free_tok = v->n_free_tok;
    bool refused = false, any = false;

    for (int i = 0; i < v->n_seqs; i++) {
        const struct sched_seq *s = &v->seqs[i];
        int64_t room = v->max_step_tok - c->tok;
        bool waits = s->state == SCHED_WAITING;

        if (decodes(s))
            continue;
        if (room < 1 || c->n == max)
            return;
        if (any && (prompts_tok + s->n_prompt_left > share || s->n_prompt_left > room))
            return;
        refused = refused || (waits && (slots < 1 || free_tok < s->n_reserve));
        if (waits && refused)
            continue;
        slots -= waits;
        free_tok -= waits ? s->n_reserve : 0;
        choose(c, i, s->n_prompt_left < room ? s->n_prompt_left : room, waits);
        prompts_tok += s->n_prompt_left;
        any = true;
    }
}

static struct choice by_rule(const struct sched_view *v, int max)
{
    int64_t share = v->max_batch_prompt_tok > 0 ? v->max_batch_prompt_tok : SHARE_TOK;
    struct choice c = {.n = 0};

    choose_decodes(&c, v, max, v->max_step_tok, true);
    choose_prompts(&c, v, max, share);
    choose_decodes(&c, v, max, v->max_step_tok < share ? v->max_step_tok : share, false);
    return c;
}

/* `unit`: what prompts and limits are multiples of, so that sums meet the limits. */
static void draw_view(struct sched_view *v, struct sched_seq *seqs, struct rng *r,
                      int64_t unit)
{
    *v = (struct sched_view){.seqs = seqs,
                             .n_seqs = (int)rng_below(r, VIEW_MAX + 1),
                             .max_step_tok = unit * (1 + (int64_t)rng_below(r, 12)),
                             .n_free_slots = (int64_t)rng_below(r, 4),
                             .n_free_tok = unit * (int64_t)rng_below(r, 8)};
    if (unit == 1)
        v->max_batch_prompt_tok = 1 + (int64_t)rng_below(r, 12);
    for (int i = 0; i < v->n_seqs; i++) {
        struct sched_seq *s = &seqs[i];

        *s = (struct sched_seq){.id = i,
                                .arrival = i,
                                .state = (enum sched_state)rng_below(r, 3),
                                .age = (int64_t)rng_below(r, 4),
                                .n_paused = (int64_t)rng_below(r, 7)};
        s->n_prompt_left =
            s->state == SCHED_DECODE ? 0 : unit * (1 + (int64_t)rng_below(r, 4));
        if (s->state == SCHED_PREFILL && rng_below(r, 3) == 0)
            s->n_prompt_left = 1 + (int64_t)rng_below(r, 2);
        s->n_ctx = s->state == SCHED_WAITING ? 0 : (int64_t)rng_below(r, 3);
        s->n_reserve =
            s->state == SCHED_WAITING ? unit * (1 + (int64_t)rng_below(r, 3)) : 0;
    }
}

TEST(chooses_by_the_rule)
{
    static const int64_t units[] = {1, 512}; /* 512: around the 2048 tokens of its own */
    const struct sched_policy *p;
    struct rng r;

    assert_ok(sched_policy_find("mixed", &p));
    rng_init(&r, test_seed(), "mixed");
    for (int k = 0; k < 40000; k++) {
        struct sched_batch_entry e[VIEW_MAX];
        struct sched_seq seqs[VIEW_MAX];
        struct sched_view v;
        struct choice want;
        int max = 1 + (int)rng_below(&r, VIEW_MAX), n;

        draw_view(&v, seqs, &r, units[k % 2]);
        want = by_rule(&v, max);
        n = p->step(&v, e, max);
        if (n != want.n)
            fail_msg("TEST_SEED=%llu view %d: %d entries, expected %d",
                     (unsigned long long)test_seed(), k, n, want.n);
        for (int i = 0; i < n; i++)
            if (e[i].seq != want.e[i].seq || e[i].n_tok != want.e[i].n_tok ||
                e[i].admit != want.e[i].admit)
                fail_msg(
                    "TEST_SEED=%llu view %d: entry %d is %lld of %d, expected %lld of %d",
                    (unsigned long long)test_seed(), k, i, (long long)e[i].n_tok,
                    e[i].seq, (long long)want.e[i].n_tok, want.e[i].seq);
    }
}
