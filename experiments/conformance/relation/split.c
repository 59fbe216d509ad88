/* Answers that end with the prompt's own step, or right after it: where prompts and tokens are
 * computed by different machines, what one of them does alone against what both do. */
#include "experiments/conformance/relation.h"

static int check_round(struct conform_run *r)
{
    static const int64_t lengths[] = {1, 2, 3};
    const int64_t n = conform_opts_of(r)->prompt_tok;
    struct conform_answer *whole, *shorter;
    struct conform_request q, short_q;
    int32_t *prompt;

    TRY(conform_prompt(r, &prompt, n, NULL, 0));
    q = conform_request(r, prompt, n);
    TRY(conform_ask(r, &whole, &q, 1));
    for (int i = 0; i < 3; i++) {
        short_q = q;
        short_q.n_output = lengths[i];
        TRY(conform_ask(r, &shorter, &short_q, 1));
        TRY(conform_compare(
            r, &(struct conform_comparison){.q = &q,
                                            .want = whole,
                                            .got = shorter,
                                            .shorter = true,
                                            .when = "max_tokens was 1, 2 or 3"}));
    }
    return OK;
}

const struct conform_relation conform_split = {
    .name = "split",
    .about = "the first tokens of an answer, and an answer that ends with them",
    .round = check_round,
};
