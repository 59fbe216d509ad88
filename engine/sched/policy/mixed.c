/* Mixed batches of whole prompts: a step holds prompts, in order of arrival, and a token of
 * each sequence that decodes, as far as there is room for it.
 *   - Several prompts share a step up to 2048 tokens. A longer one is the only prompt.
 *   - Sequences that were passed over MAX_PAUSED times in all go before prompts. Of the others,
 *     those that waited longest go first.
 * A sequence whose keys and values came from another machine has one token left and
 * counts as one that decodes. So the same policy serves prompt machines, token machines and
 * mixed ones.   Paper: Splitwise IV-B. */
#include "sched/batch.h"

/* The knee of the paper's Fig. 6a. */
#define MAX_BATCH_PROMPT_TOK 2048
/* The paper names no value; this one is ours. */
#define MAX_PAUSED 4
/* An age where there is no such sequence. */
#define NONE (-1)

struct batch {
    const struct sched_view *v;
    struct sched_batch_entry *entries;
    int n, max;
    int64_t tok; /* of the step, so far */
};

static bool is_decode(const struct sched_seq *s)
{
    return s->state == SCHED_DECODE ||
           (s->state == SCHED_PREFILL && s->n_prompt_left == 1 && s->n_ctx > 0);
}

static void add(struct batch *b, int seq, int64_t n_tok, bool admit)
{
    b->entries[b->n++] =
        (struct sched_batch_entry){.seq = seq, .n_tok = n_tok, .admit = admit};
    b->tok += n_tok;
}

/* Take those of this age that were passed over often, or less often. Returns the next lower age,
 * or NONE. */
static int64_t add_decodes(struct batch *b, int64_t limit_tok, int64_t age, bool often)
{
    int64_t next = NONE;

    for (int i = 0; i < b->v->n_seqs; i++) {
        const struct sched_seq *s = &b->v->seqs[i];

        if (!is_decode(s) || (s->n_paused >= MAX_PAUSED) != often || s->age > age)
            continue;
        if (s->age < age)
            next = s->age > next ? s->age : next;
        else if (b->n < b->max && b->tok < limit_tok)
            add(b, i, 1, false);
    }
    return next;
}

static void add_all_decodes(struct batch *b, int64_t limit_tok, bool often)
{
    int64_t age = INT64_MAX;

    while (age >= 0 && b->n < b->max && b->tok < limit_tok)
        age = add_decodes(b, limit_tok, age, often);
}

static void add_prompts(struct batch *b, int64_t share_tok)
{
    const struct sched_view *v = b->v;
    struct sched_memory left = sched_memory_of(v);
    int64_t sum = 0;

    for (int i = 0; i < v->n_seqs && b->n < b->max && b->tok < v->max_step_tok; i++) {
        const struct sched_seq *s = &v->seqs[i];
        int64_t rest = v->max_step_tok - b->tok;
        bool admit = s->state == SCHED_WAITING;

        if (is_decode(s))
            continue;
        if (sum > 0 && (sum + s->n_prompt_left > share_tok || s->n_prompt_left > rest))
            return;
        if (admit && !sched_memory_take(&left, s))
            continue;
        add(b, i, s->n_prompt_left < rest ? s->n_prompt_left : rest, admit);
        sum += s->n_prompt_left;
    }
}

static int mixed_step(const struct sched_view *v, struct sched_batch_entry *entries,
                      int max)
{
    int64_t share_tok =
        v->max_batch_prompt_tok ? v->max_batch_prompt_tok : MAX_BATCH_PROMPT_TOK;
    int64_t limit_tok = v->max_step_tok < share_tok ? v->max_step_tok : share_tok;
    struct batch b = {.v = v, .entries = entries, .max = max};

    add_all_decodes(&b, v->max_step_tok, true);
    add_prompts(&b, share_tok);
    add_all_decodes(&b, limit_tok, false);
    return b.n;
}

const struct sched_policy sched_policy_mixed = {.name = "mixed", .step = mixed_step};
