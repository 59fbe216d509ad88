/* The prompt with the first k tokens of its answer: the rest of the answer must follow. Keys and
 * values of these tokens are then computed as a prompt's, not one by one. */
#include <string.h>

#include "experiments/conformance/relation.h"

static const char *unavailable(const struct conform_run *r)
{
    if (conform_probe_of(r)->as_text)
        return "the server takes no prompts of token ids";
    return conform_has_ids(r) ? NULL : "the server sends no token ids";
}

static int continue_at(struct conform_run *r, const struct conform_request *q,
                       const struct conform_answer *whole, int64_t k)
{
    struct conform_request rest = *q;
    struct conform_answer *a;
    int32_t *prompt;

    TRY(conform_tokens(r, &prompt, q->n_prompt + k));
    memcpy(prompt, q->prompt, (size_t)q->n_prompt * sizeof(*prompt));
    memcpy(prompt + q->n_prompt, whole->ids, (size_t)k * sizeof(*prompt));
    rest.prompt = prompt;
    rest.n_prompt += k;
    rest.n_output -= k;
    TRY(conform_ask(r, &a, &rest, 1));
    return conform_compare(
        r, &(struct conform_comparison){.q = q,
                                        .want = whole,
                                        .got = a,
                                        .skip = k,
                                        .when = "its beginning was part of the prompt"});
}

static int check_round(struct conform_run *r)
{
    const int64_t n = conform_opts_of(r)->prompt_tok;
    struct conform_answer *whole;
    struct conform_request q;
    int32_t *prompt;

    TRY(conform_prompt(r, &prompt, n, NULL, 0));
    q = conform_request(r, prompt, n);
    q.seed = 0; /* random numbers of a new request would begin again */
    TRY(conform_ask(r, &whole, &q, 1));
    if (!conform_answer_whole(whole) || whole->n_ids != q.n_output)
        return OK;
    TRY(continue_at(r, &q, whole, 1));
    return continue_at(r, &q, whole, q.n_output / 2);
}

const struct conform_relation conform_continued = {
    .name = "continued",
    .about =
        "the rest of an answer, and what follows the prompt and the answer's beginning",
    .unavailable = unavailable,
    .round = check_round,
};
