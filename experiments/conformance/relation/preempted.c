/* More and longer answers at once than a server's memory may hold, so that it takes memory from
 * some and computes them again, or makes them wait. */
#include "experiments/conformance/relation.h"

#define LONGER 4 /* times the length of other answers */

static int64_t length(const struct conform_run *r)
{
    const int64_t most = conform_probe_of(r)->max_tok - conform_opts_of(r)->prompt_tok;
    const int64_t n = LONGER * conform_opts_of(r)->output_tok;

    return n < most ? n : most > 1 ? most : 1;
}

static int check_round(struct conform_run *r)
{
    const int n = 2 * (int)conform_opts_of(r)->concurrency;
    const int64_t n_tok = conform_opts_of(r)->prompt_tok;
    const double before = conform_preemptions(r);
    struct conform_answer *alone, *together;
    struct conform_request q[512];
    int32_t *prompt;

    for (int i = 0; i < n; i++) {
        TRY(conform_prompt(r, &prompt, n_tok, NULL, 0));
        q[i] = conform_request(r, prompt, n_tok);
        q[i].n_output = length(r);
    }
    TRY(conform_ask(r, &together, q, n));
    if (before >= 0)
        conform_note(r, "%s by its /metrics in the last round",
                     conform_preemptions(r) > before ? "preemptions" : "no preemption");
    for (int i = 0; i < n; i += n / 4) {
        TRY(conform_ask(r, &alone, &q[i], 1));
        TRY(conform_compare(r, &(struct conform_comparison){
                                   .q = &q[i],
                                   .want = alone,
                                   .got = &together[i],
                                   .when = "many long answers were written at once"}));
    }
    return OK;
}

const struct conform_relation conform_preempted = {
    .name = "preempted",
    .about = "a long answer alone, and among more than may fit into memory",
    .round = check_round,
};
