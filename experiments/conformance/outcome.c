/* What an answer says of itself must agree with what it is. A client that trusts it would not
 * notice: hence "silent". */
#include <stdio.h>
#include <string.h>

#include "experiments/conformance/impl.h"

struct subject {
    const struct conform_request *q;
    const struct conform_answer *a;
    const struct sut_openai_probe *probe;
};

static bool is_malformed(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": %s", s->a->malformed);
    return s->a->malformed[0];
}

static bool lacks_finish(const struct subject *s, char *why, size_t n)
{
    (void)why, (void)n;
    return !s->a->has_finish && !s->a->malformed[0];
}

static bool lacks_done(const struct subject *s, char *why, size_t n)
{
    if (s->a->n_events == 0)
        snprintf(why, n, ", and without any event");
    return s->q->stream && !s->a->done;
}

static bool goes_on(const struct subject *s, char *why, size_t n)
{
    (void)why, (void)n;
    return s->a->after_done;
}

static bool asks_usage(const struct subject *s)
{
    return !s->q->stream || s->probe->extras & 4u; /* stream_options */
}

static bool lacks_usage(const struct subject *s, char *why, size_t n)
{
    (void)why, (void)n;
    return asks_usage(s) && !s->a->malformed[0] && s->a->usage_completion < 0;
}

static bool miscounts_new(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": it counts %lld tokens and holds %lld",
             (long long)s->a->usage_completion, (long long)s->a->n_ids);
    return s->a->has_ids && s->a->usage_completion >= 0 &&
           s->a->usage_completion != s->a->n_ids;
}

static bool miscounts_prompt(const struct subject *s, char *why, size_t n)
{
    const int64_t want = s->q->n_prompt + s->probe->n_prompt_extra;

    snprintf(why, n, ": it counts %lld tokens of a prompt of %lld",
             (long long)s->a->usage_prompt, (long long)want);
    return !s->probe->as_text && s->a->usage_prompt >= 0 && s->a->usage_prompt != want;
}

static bool miscounts_total(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": %lld, of %lld and %lld", (long long)s->a->usage_total,
             (long long)s->a->usage_prompt, (long long)s->a->usage_completion);
    return s->a->usage_total >= 0 && s->a->usage_prompt >= 0 &&
           s->a->usage_completion >= 0 &&
           s->a->usage_total != s->a->usage_prompt + s->a->usage_completion;
}

/* By the ids that came, or else as the server counts; -1: unknown. */
static int64_t n_tokens(const struct subject *s)
{
    return s->a->has_ids ? s->a->n_ids : s->a->usage_completion;
}

static bool misses_length(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": %lld tokens of %lld", (long long)n_tokens(s),
             (long long)s->q->n_output);
    return strcmp(s->a->finish, "length") == 0 && n_tokens(s) >= 0 &&
           n_tokens(s) != s->q->n_output;
}

static bool exceeds_length(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": %lld tokens of %lld", (long long)n_tokens(s),
             (long long)s->q->n_output);
    return strcmp(s->a->finish, "length") != 0 && n_tokens(s) > s->q->n_output;
}

static const struct rule {
    const char *what;
    bool (*broken)(const struct subject *s, char *why, size_t n);
} rules[] = {
    {"an answer of status 200 is not one of the protocol", is_malformed},
    {"an answer ends without finish_reason", lacks_finish},
    {"a stream ends without [DONE]", lacks_done},
    {"a stream goes on after [DONE]", goes_on},
    {"an answer has no usage", lacks_usage},
    {"usage.completion_tokens disagrees with the answer", miscounts_new},
    {"usage.prompt_tokens disagrees with the prompt", miscounts_prompt},
    {"usage.total_tokens is not the sum", miscounts_total},
    {"finish_reason is length at another length", misses_length},
    {"an answer is longer than max_tokens", exceeds_length},
};

void conform_check_answer(struct conform_run *r, const struct conform_request *q,
                          const struct conform_answer *a,
                          const struct sut_openai_probe *probe)
{
    const struct subject s = {q, a, probe};

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct conform_finding f = {.kind = CONFORM_SILENT, .streamed = q->stream};
        char why[160] = "";

        if (!rules[i].broken(&s, why, sizeof(why)))
            continue;
        snprintf(f.what, sizeof(f.what), "%s%s", rules[i].what, why);
        conform_add_finding(r, &f);
    }
}
