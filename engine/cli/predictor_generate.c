/* sandwich predictor --generate: how long a model's own answers to the prompts are, in place of
 * the answers of the data. ODMA learns from the lengths of what is served. */
#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/predictor.h"
#include "serve/serve.h"

#define N_AT_ONCE 8

struct answers {
    struct serve *serve;
    struct kv_example *e; /* [n] */
    int64_t n, n_sent, n_done, n_cut;
    int64_t *n_tok; /* [n] tokens generated */
    bool failed;
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct answers *a = ctx;

    (void)logits;
    a->n_tok[request] += id >= 0;
    a->n_done += finish != SERVE_RUNNING;
    a->n_cut += finish == SERVE_LENGTH;
    a->failed = a->failed || finish == SERVE_ERROR || finish == SERVE_CANCELED;
}

/* A prompt that is too long loses its end. Requests are numbered in the order of submission. */
static int send_next(struct answers *a, int64_t max_new)
{
    const struct kv_example *e = &a->e[a->n_sent];
    int64_t most = a->serve->max_tok - max_new, id;
    struct serve_request r = {
        .max_new = max_new, .sampling = {.top_p = 1}, .on_token = on_token, .ctx = a};
    int32_t *ids;
    size_t n;
    int rc;

    TRY(serve_encode(a->serve, e->text, e->text_bytes, SERVE_BOS, &ids, &n));
    r.prompt = ids;
    r.n_prompt = (int64_t)n < most ? (int64_t)n : most;
    rc = serve_submit(a->serve, &r, &id);
    mem_free(ids);
    assert(rc != OK || id == a->n_sent);
    a->n_sent++;
    return rc;
}

static int open_model(struct answers *a, const struct cli_predictor_flags *f)
{
    struct serve_opts o;
    int rc = opt_init(serve_opt_table, &o);

    if (rc != OK)
        return rc;
    rc = opt_set(serve_opt_table, &o, "model", f->generate, "--generate");
    if (rc == OK)
        rc = opt_set(serve_opt_table, &o, "policy", "continuous", "--generate");
    if (rc == OK && f->tokenizer)
        rc = opt_set(serve_opt_table, &o, "tokenizer", f->tokenizer, "--tokenizer");
    o.max_seqs = N_AT_ONCE;
    o.deterministic = true; /* so that the same data give the same file */
    if (rc == OK)
        rc = serve_open(&a->serve, &o);
    opt_free(serve_opt_table, &o);
    if (rc == OK && a->serve->max_tok <= f->max_new)
        rc = err_set(ERR_ARG,
                     "--max-new: expected less than the %lld tokens of the longest "
                     "sequence of %s, found %lld",
                     (long long)a->serve->max_tok, f->generate, (long long)f->max_new);
    return rc;
}

int cli_predictor_generate(struct dataset_examples *x,
                           const struct cli_predictor_flags *f)
{
    struct answers a = {.e = x->e, .n = x->n_learn + x->n_held_out};
    bool busy = true;
    int rc = open_model(&a, f);

    if (rc == OK) {
        a.n_tok = mem_new(MEM_OTHER, (size_t)a.n, sizeof(*a.n_tok));
        rc = a.n_tok ? OK : ERR_NOMEM;
    }
    while (rc == OK && a.n_done < a.n) {
        while (rc == OK && a.n_sent < a.n && a.n_sent - a.n_done < N_AT_ONCE)
            rc = send_next(&a, f->max_new);
        if (rc == OK)
            rc = serve_step(a.serve, &busy);
        if (rc == OK && a.failed)
            rc = err_set(ERR_STATE, "%s: a request failed: %s", f->generate, err_msg());
    }
    for (int64_t i = 0; i < a.n && rc == OK; i++)
        a.e[i].output_tok = a.n_tok[i] > 1 ? a.n_tok[i] : 1;
    if (rc == OK)
        fprintf(stderr,
                "%s answered %lld prompts; %lld answers were cut at %lld tokens\n",
                f->generate, (long long)a.n, (long long)a.n_cut, (long long)f->max_new);
    serve_close(&a.serve);
    mem_free(a.n_tok);
    return rc;
}
