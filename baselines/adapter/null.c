/* A system that answers at once, in the caller's thread. What is then measured is the cost
 * of the harness itself. */
#include "baselines/sut.h"

#include "base/mem.h"
#include "base/opt.h"

struct sut {
    int64_t vocab, max_tok;
    sut_event_fn on_event;
    void *ctx;
};

#define OPT_OF struct sut
static const struct opt_row null_opts[] = {
    OPT_ROW(INT, vocab, "32000", "Number of token ids.", .unit = "tok", .min = 4,
            .max = 1e9),
    OPT_ROW(INT, max_tok, "1048576", "Longest sequence.", .unit = "tok", .min = 2,
            .max = 1e9),
    {0},
};

static void null_close(struct sut **s)
{
    mem_free(*s);
    *s = NULL;
}

static int null_open(struct sut **out, const json_t *config, sut_event_fn on_event,
                     void *ctx)
{
    struct sut *s = mem_new(MEM_HARNESS, 1, sizeof(*s));
    int rc = opt_init(null_opts, s);

    *out = NULL;
    if (rc == OK)
        rc = opt_from_json(null_opts, s, config, "null");
    if (rc != OK) {
        null_close(&s);
        return rc;
    }
    s->on_event = on_event;
    s->ctx = ctx;
    *out = s;
    return OK;
}

static int null_submit(struct sut *s, const struct sut_request *r)
{
    struct sut_event e = {.request = r->request, .kind = SUT_TOKEN, .token = 3};

    for (int64_t i = 0; i < r->n_output; i++)
        s->on_event(s->ctx, &e);
    e.kind = SUT_DONE;
    s->on_event(s->ctx, &e);
    return OK;
}

static void null_cancel(struct sut *s, int64_t request)
{
    (void)s; /* every request has ended before submit returned */
    (void)request;
}

static int null_limits(struct sut *s, int64_t *vocab, int64_t *max_tok)
{
    *vocab = s->vocab;
    *max_tok = s->max_tok;
    return OK;
}

static int null_describe(struct sut *s, json_t **out)
{
    *out =
        json_pack("{s:s, s:o}", "system", "null", "options", opt_to_json(null_opts, s));
    return OK;
}

const struct sut_adapter sut_adapter_null = {
    .name = "null",
    .help = "Answers at once, which measures the cost of the harness itself.",
    .opts = null_opts,
    .open = null_open,
    .close = null_close,
    .submit = null_submit,
    .cancel = null_cancel,
    .limits = null_limits,
    .describe = null_describe,
};
