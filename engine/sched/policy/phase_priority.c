/* One phase per step, chosen by priority with ageing, so that each phase runs on its own
 * service configuration and neither starves the other:
 *   - Decode goes first: a step computes one token of every sequence that decodes,
 *   - until a prompt that could be computed has waited for PROMPT_WAIT steps. The step then
 *     computes prompts, in order of arrival, as many as it and the memory hold.
 *   - Prompts wait again while a sequence that decodes has not had its token since the last step
 *     of prompts. So of two steps in a row one is decode, however many prompts wait.
 * Where the sequences that decode are more than a step holds, those that waited longest go
 * first, and a round of all of them counts as one step here.
 * Paper: Splitwise IV-B, where the priority of a token grows with its age. */
#include "sched/batch.h"

/* With 4, a step of prompts delays each of at least 4 tokens by a quarter of its time, and a
 * prompt waits for the time of 4 tokens, which is short compared with its own. */
#define PROMPT_WAIT 4

/* An age where there is no such sequence. */
#define NONE (-1)

struct waits {
    int64_t decode_age, n_decode;
    int64_t prompt_age; /* of the prompts that could be computed now */
};

static int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct waits look(const struct sched_view *v)
{
    struct sched_memory left = sched_memory_of(v);
    struct waits w = {NONE, 0, NONE};

    for (int i = 0; i < v->n_seqs; i++) {
        const struct sched_seq *s = &v->seqs[i];

        if (s->state == SCHED_DECODE) {
            w.n_decode++;
            w.decode_age = max(w.decode_age, s->age);
        } else if (s->state == SCHED_PREFILL || sched_memory_take(&left, s)) {
            w.prompt_age = max(w.prompt_age, s->age);
        }
    }
    return w;
}

/* More decode than a step holds: by age, those of one age in order of arrival. */
static int add_oldest(const struct sched_view *v, int64_t n_max, int64_t age,
                      struct sched_batch_entry *entries)
{
    int n = 0;

    while (age >= 0 && n < n_max) {
        int64_t next = NONE;

        for (int i = 0; i < v->n_seqs && n < n_max; i++) {
            const struct sched_seq *s = &v->seqs[i];

            if (s->state != SCHED_DECODE || s->age > age)
                continue;
            if (s->age == age)
                entries[n++] = (struct sched_batch_entry){.seq = i, .n_tok = 1};
            else
                next = max(next, s->age);
        }
        age = next;
    }
    return n;
}

static int phase_priority_step(const struct sched_view *v,
                               struct sched_batch_entry *entries, int max_entries)
{
    int64_t token_budget = v->max_step_tok, round;
    int64_t n_max = token_budget < max_entries ? token_budget : max_entries;
    struct waits w = look(v);

    if (n_max < 1)
        return 0;
    round = (w.n_decode + n_max - 1) / n_max;
    if (w.prompt_age >= 0 &&
        (w.n_decode == 0 || (w.prompt_age >= PROMPT_WAIT && w.decode_age < round)))
        return sched_add_prompts(v, &token_budget, entries, 0, max_entries);
    if (round > 1)
        return add_oldest(v, n_max, w.decode_age, entries);
    return sched_add_decodes(v, &token_budget, entries, 0, max_entries);
}

const struct sched_policy sched_policy_phase_priority = {.name = "phase_priority",
                                                         .step = phase_priority_step};
