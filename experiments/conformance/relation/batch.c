/* Requests at the same time, and each of them alone. */
#include "experiments/conformance/relation.h"

static int check_round(struct conform_run *r)
{
    const int n = (int)conform_opts_of(r)->concurrency;
    const int64_t most = conform_opts_of(r)->prompt_tok;
    struct conform_answer *alone, *together;
    struct conform_request q[256];
    int32_t *prompt;

    for (int i = 0; i < n; i++) {
        const int64_t n_tok = 1 + (most - 1) * (i + 1) / n; /* of different lengths */

        TRY(conform_prompt(r, &prompt, n_tok, NULL, 0));
        q[i] = conform_request(r, prompt, n_tok);
        q[i].n_output = 1 + (q[i].n_output - 1) * (n - i) / n;
    }
    TRY(conform_ask(r, &together, q, n));
    for (int i = 0; i < n; i += (n + 3) / 4) {
        TRY(conform_ask(r, &alone, &q[i], 1));
        TRY(conform_compare(r, &(struct conform_comparison){
                                   .q = &q[i],
                                   .want = alone,
                                   .got = &together[i],
                                   .when = "it was answered together with others"}));
    }
    return OK;
}

const struct conform_relation conform_batch = {
    .name = "batch",
    .about = "a request alone, and together with others",
    .round = check_round,
};
