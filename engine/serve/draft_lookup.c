/* Guesses by look-up: the tokens that followed when the sequence last ended like this, in its
 * prompt or its output. They cost no step, and come true where an answer repeats earlier text:
 * code, a document to summarise, lists. */
#include "serve/draft.h"

#include <string.h>

#define SHORTEST 2  /* tokens in which an earlier place has to end alike */
#define LONGEST  16 /* more say no more */

static int no_state(void **state, struct serve_engine *s, const char *from)
{
    (void)s, (void)from;
    *state = NULL;
    return OK;
}

static void nothing(void **state)
{
    (void)state;
}

/* How many of the last ids before a and before b are alike. */
static int64_t n_alike(const int32_t *ids, int64_t a, int64_t b)
{
    int64_t n = 0;

    while (n < LONGEST && n < a && ids[a - 1 - n] == ids[b - 1 - n])
        n++;
    return n;
}

/* Behind which place, before the end, most of the last ids are alike, the latest of several; 0:
 * behind none. */
static int64_t find(const int32_t *ids, int64_t n)
{
    int64_t best = SHORTEST - 1, at = 0;

    for (int64_t i = n - 1; i > 0 && best < LONGEST; i--) {
        int64_t alike = n_alike(ids, i, n);

        if (alike > best)
            best = alike, at = i;
    }
    return at;
}

static int guess(void *state, struct serve_seq **seqs, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        int64_t n_known = sched_request_n_known(&seqs[i]->r);
        int32_t *ids = seqs[i]->ids;
        int64_t at = find(ids, n_known);

        if (at == 0)
            seqs[i]->n_draft = 0;
        for (int k = 0; k < seqs[i]->n_draft; k++) /* it may go on into what it writes */
            ids[n_known + k] = ids[at + k];
    }
    return OK;
}

const struct serve_drafter serve_drafter_lookup = {
    .open = no_state, .close = nothing, .guess = guess};
