/* A prompt that is in a cache, whole or in part. */
#include "experiments/conformance/relation.h"

static int check_round(struct conform_run *r)
{
    const int64_t n = conform_opts_of(r)->prompt_tok;
    struct conform_answer *cold, *other, *hit;
    struct conform_request q;
    int32_t *prompt, *sibling;

    TRY(conform_prompt(r, &prompt, n, NULL, 0));
    TRY(conform_prompt(r, &sibling, n, prompt, n / 2));
    q = conform_request(r, prompt, n);
    TRY(conform_ask(r, &cold, &q, 1));
    TRY(conform_ask(r, &hit, &q, 1));
    TRY(conform_compare(
        r, &(struct conform_comparison){.q = &q,
                                        .want = cold,
                                        .got = hit,
                                        .when = "its prompt had been computed before"}));
    q.prompt = sibling;
    TRY(conform_ask(r, &other, &q, 1));
    q.prompt = prompt;
    TRY(conform_ask(r, &hit, &q, 1));
    return conform_compare(
        r, &(struct conform_comparison){
               .q = &q,
               .want = cold,
               .got = hit,
               .when = "half of its prompt had been computed for another request"});
}

const struct conform_relation conform_prefix = {
    .name = "prefix",
    .about = "a prompt that was computed before, whole or in part, and one that was not",
    .round = check_round,
};
