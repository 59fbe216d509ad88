/* A machine that joins and deceives: any field of any of its messages has any value, under a right
 * checksum or a wrong one. Every request ends, with its text or an error, and no client gets
 * another text. What no front can know is left out: another token of the vocabulary, or one for
 * another request of the same machine that waits for one. */
#include "tests/roles/fake_machine.h"

#define N_MUTANTS 2000

struct mutant {
    struct rng r;
    int at; /* the message that is changed */
    bool sealed, done;
};
static char last[160]; /* mutant */

static uint64_t change_value(struct rng *r, uint64_t old)
{
    static const uint64_t extremes[] = {0,
                                        1,
                                        UINT64_MAX,
                                        INT64_MAX,
                                        (uint64_t)INT64_MIN,
                                        INT32_MAX,
                                        (uint64_t)INT32_MIN,
                                        UINT32_MAX};

    switch (rng_below(r, 4)) {
    case 0:
        return extremes[rng_below(r, sizeof(extremes) / sizeof(extremes[0]))];
    case 1:
        return old + (rng_below(r, 2) ? 1 : UINT64_MAX);
    case 2:
        return old ^ (UINT64_C(1) << rng_below(r, 64));
    default:
        return rng_u64(r);
    }
}

static void mutate_message(void *ctx, int i, struct roles_message *head, char *more,
                           size_t *n)
{
    struct mutant *m = ctx;
    const struct roles_message old = *head;
    size_t n_fields = 10 + head->n_more / 8, k, bytes;
    uint64_t value = 0;
    char *field;

    if (i != m->at)
        return;
    m->done = true;
    /* type, n_more, id, token, finish, peer, sends, at, both checksums; then what follows */
    k = rng_below(&m->r, n_fields);
    bytes = k == 2 || k >= 7 ? 8 : 4;
    field = k >= 10 ? more + 8 * (k - 10)
                    : (char *)head + (k < 3   ? 4 * k
                                      : k < 7 ? 4 * k + 4
                                              : 32 + 8 * (k - 7));
    memcpy(&value, field, bytes);
    value = change_value(&m->r, value);
    memcpy(field, &value, bytes);
    snprintf(last, sizeof(last), "message %d, type %u, field %zu: %016llx%s", i, old.type,
             k, (unsigned long long)value, m->sealed ? "" : ", unsealed");
    if (old.type == ROLES_TOKEN && head->token != old.token && head->token >= 0)
        head->token = INT32_MAX;
    if (rng_below(&m->r, 64) == 0)
        *n = 1 + rng_below(&m->r, *n - 1); /* and it is cut short */
    if (m->sealed && k < 8 && head->n_more == old.n_more)
        roles_message_seal(head, more);
    else if (m->sealed && k >= 10)
        roles_message_seal(head, more);
}

static int print_last(void **state)
{
    (void)state;
    print_message("# the last mutant: %s\n", last);
    return 0;
}

TEST_WITH(mutants, NULL, print_last)
{
    static struct world w;
    int n_texts = 0, n_changed = 0, n_lost = 0;

    for (int i = 0; i < N_MUTANTS; i++) {
        struct mutant m = {.sealed = i % 2};
        int n_asked = m.sealed ? 1 : N_ASKED, k = (i / 2) % N_FAKES;
        struct log_warning warnings[64];

        rng_init(&m.r, test_seed() + (uint64_t)i, "mutant");
        m.at = (int)rng_below(&m.r, 10);
        memset(&w, 0, sizeof(w));
        w.fakes[k].change = mutate_message;
        w.fakes[k].ctx = &m;
        open_world(&w);
        for (int again = 0; again < 3 && w.s && w.s->max_tok >= 16; again++) {
            n_texts += run_requests(&w, n_asked);
        }
        close_world(&w);
        n_changed += m.done;
        n_lost += log_warnings_take(warnings, 64) > 0;
    }
    print_message("# %d mutants, %d messages changed, %d machines lost, %d texts\n",
                  N_MUTANTS, n_changed, n_lost, n_texts);
    assert_true(n_changed > N_MUTANTS / 2 && n_lost > N_MUTANTS / 8);
}
