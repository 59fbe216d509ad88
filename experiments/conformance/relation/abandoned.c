/* Clients leave in the middle of an answer; what they held is reused. */
#include "experiments/conformance/relation.h"

static int check_round(struct conform_run *r)
{
    const int n = (int)conform_opts_of(r)->concurrency;
    const int64_t n_tok = conform_opts_of(r)->prompt_tok;
    struct conform_answer *alone, *among, *after;
    struct conform_request q, all[256];
    int32_t *prompt;

    TRY(conform_prompt(r, &prompt, n_tok, NULL, 0));
    q = conform_request(r, prompt, n_tok);
    TRY(conform_ask(r, &alone, &q, 1));
    for (int i = 1; i < n; i++) {
        TRY(conform_prompt(r, &prompt, n_tok, NULL, 0));
        all[i] = conform_request(r, prompt, n_tok);
        all[i].stream = true;
        all[i].leave_after = 1 + i % 5;
    }
    all[0] = q;
    TRY(conform_ask(r, &among, all, n));
    TRY(conform_compare(r, &(struct conform_comparison){
                               .q = &q,
                               .want = alone,
                               .got = among,
                               .when = "other clients left in the middle of answers"}));
    TRY(conform_ask(r, &after, &q, 1));
    return conform_compare(
        r, &(struct conform_comparison){
               .q = &q, .want = alone, .got = after, .when = "other clients had left"});
}

const struct conform_relation conform_abandoned = {
    .name = "abandoned",
    .about = "an answer before, while and after other clients leave",
    .round = check_round,
};
