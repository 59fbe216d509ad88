/* An answer in events, and whole. */
#include "experiments/conformance/relation.h"

static int check_round(struct conform_run *r)
{
    const int64_t n = conform_opts_of(r)->prompt_tok;
    struct conform_answer *whole, *events;
    struct conform_request q, stream;
    int32_t *prompt;

    TRY(conform_prompt(r, &prompt, n, NULL, 0));
    q = stream = conform_request(r, prompt, n);
    stream.stream = true;
    TRY(conform_ask(r, &whole, &q, 1));
    TRY(conform_ask(r, &events, &stream, 1));
    return conform_compare(
        r, &(struct conform_comparison){
               .q = &q, .want = whole, .got = events, .when = "it was streamed"});
}

const struct conform_relation conform_streamed = {
    .name = "streamed",
    .about = "an answer in events, and whole",
    .round = check_round,
};
