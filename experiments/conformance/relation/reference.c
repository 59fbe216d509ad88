/* The same requests to another server: of prompt and token machines, to one process. */
#include "experiments/conformance/relation.h"

static const char *unavailable(const struct conform_run *r)
{
    return conform_has_reference(r) ? NULL : "no --reference, and no --roles";
}

static int check_round(struct conform_run *r)
{
    const int n = (int)conform_opts_of(r)->concurrency;
    const int64_t most = conform_long_tok(r);
    struct conform_answer *ours, *theirs;
    struct conform_request q[256];
    int32_t *prompt;

    for (int i = 0; i < n; i++) {
        const int64_t n_tok = 1 + (most - 1) * i / n;

        TRY(conform_prompt(r, &prompt, n_tok, NULL, 0));
        q[i] = conform_request(r, prompt, n_tok);
        q[i].stream = i % 2;
    }
    TRY(conform_ask(r, &ours, q, n));
    TRY(conform_ask_reference(r, &theirs, q, n));
    for (int i = 0; i < n; i++)
        TRY(conform_compare(
            r, &(struct conform_comparison){.q = &q[i],
                                            .want = &theirs[i],
                                            .got = &ours[i],
                                            .when = "the reference was asked"}));
    return OK;
}

const struct conform_relation conform_reference = {
    .name = "reference",
    .about = "the server, and the reference",
    .unavailable = unavailable,
    .round = check_round,
};
