/* A long prompt that a server computes in pieces: because others decode meanwhile, or because it
 * arrives piece by piece. */
#include "experiments/conformance/relation.h"

#define N_PIECES 4

/* Among n - 1 answers that are being written. */
static int among_others(struct conform_run *r, const struct conform_request *q,
                        const struct conform_answer *alone)
{
    const int n = (int)conform_opts_of(r)->concurrency;
    struct conform_request all[256];
    struct conform_answer *a;
    int32_t *prompt;

    for (int i = 0; i < n - 1; i++) {
        TRY(conform_prompt(r, &prompt, conform_opts_of(r)->prompt_tok / 2, NULL, 0));
        all[i] = conform_request(r, prompt, conform_opts_of(r)->prompt_tok / 2);
    }
    all[n - 1] = *q;
    TRY(conform_ask(r, &a, all, n));
    return conform_compare(r, &(struct conform_comparison){
                                  .q = q,
                                  .want = alone,
                                  .got = &a[n - 1],
                                  .when = "its long prompt was computed while others "
                                          "were answered"});
}

/* Each request has a piece more of the prompt than the last. */
static int piece_by_piece(struct conform_run *r, const struct conform_request *whole,
                          const struct conform_answer *alone)
{
    struct conform_request q = *whole;
    struct conform_answer *a;

    for (int i = 1; i <= N_PIECES; i++) {
        q.n_prompt = whole->n_prompt * i / N_PIECES;
        q.n_output = i < N_PIECES ? 1 : whole->n_output;
        TRY(conform_ask(r, &a, &q, 1));
    }
    return conform_compare(
        r, &(struct conform_comparison){.q = whole,
                                        .want = alone,
                                        .got = a,
                                        .when = "its long prompt came piece by piece"});
}

static int check_round(struct conform_run *r)
{
    const int64_t n = conform_long_tok(r);
    struct conform_answer *alone;
    struct conform_request q;
    int32_t *prompt;

    TRY(conform_prompt(r, &prompt, n, NULL, 0));
    q = conform_request(r, prompt, n);
    TRY(conform_ask(r, &alone, &q, 1));
    TRY(among_others(r, &q, alone));
    return piece_by_piece(r, &q, alone);
}

const struct conform_relation conform_chunked = {
    .name = "chunked",
    .about = "a long prompt alone, while others are answered, and piece by piece",
    .round = check_round,
};
