/* The parts that all implementations of serve.h share: options, tokenizer, the rules of a
 * request. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "format/format.h"
#include "serve/handoff.h"

int serve_init(struct serve *s, const struct serve_ops *ops, const struct serve_opts *o)
{
    s->ops = ops;
    return opt_copy(serve_opt_table, &s->o, o, sizeof(*o));
}

void serve_fini(struct serve *s)
{
    tok_close(&s->tok);
    opt_free(serve_opt_table, &s->o);
}

int serve_open_tok(struct serve *s, const char *format)
{
    const struct tok_opts o = {.pre = s->o.pre_tokenizer};
    int rc;

    if (s->o.tokenizer || s->o.pre_tokenizer) {
        rc = tok_open(&s->tok, s->o.tokenizer ? s->o.tokenizer : s->o.model, &o);
        if (rc != OK)
            return rc;
    } else if (strcmp(format, "llama2c") != 0) {
        rc = tok_open(&s->tok, s->o.model, NULL);
        if (rc == ERR_NOMEM)
            return rc;
        if (rc != OK)
            log_warn("no tokenizer: %s", err_msg());
    }
    if (s->tok)
        s->n_stop = tok_stops(s->tok, s->stops);
    if (s->tok && tok_vocab(s->tok) > serve_vocab(s))
        log_warning("tokenizer_larger_than_model", tok_vocab(s->tok), serve_vocab(s),
                    "the tokenizer has %d ids, the model %d", tok_vocab(s->tok),
                    serve_vocab(s));
    return OK;
}

int serve_open_head(struct serve *s)
{
    struct format_file *f;
    int rc;

    if (!s->o.model)
        return err_set(ERR_ARG, "model: no path given");
    TRY(format_open(&f, s->o.model));
    s->config = f->config;
    rc = serve_open_tok(s, f->format);
    s->identity = format_identity(f) ^ (s->tok ? tok_identity(s->tok) : 0);
    format_close(&f);
    return rc;
}

int serve_made_for(const struct serve *s, const char *model_id, const char *path)
{
    char own[FORMAT_IDENTITY_BYTES];

    if (!*model_id)
        return OK;
    TRY(format_identity_of(own, s->o.model));
    if (strcmp(model_id, own) != 0)
        log_warning("made_for_another_model", NAN, NAN,
                    "%s: expected a file made for %s (model %s), found one for model %s",
                    path, s->o.model, own, model_id);
    return OK;
}

int serve_vocab(const struct serve *s)
{
    return s->config.vocab;
}

int serve_bos(const struct serve *s)
{
    return s->tok && tok_bos(s->tok) >= 0 ? tok_bos(s->tok) : s->config.bos_id;
}

bool serve_is_stop(const struct serve *s, int32_t id)
{
    bool found = false;

    for (int i = 0; i < s->config.n_stop; i++)
        found |= s->config.stop_ids[i] == id;
    for (int i = 0; i < s->n_stop; i++)
        found |= s->stops[i] == id;
    return found;
}

int serve_encode(struct serve *s, const char *text, size_t n, unsigned flags,
                 int32_t **ids, size_t *n_ids)
{
    bool bos = flags & SERVE_BOS && s->tok && tok_adds_bos(s->tok);
    int rc;

    *ids = NULL;
    *n_ids = 0;
    if (!s->tok)
        return err_set(ERR_STATE, "%s has no tokenizer: give one with tokenizer",
                       s->o.model);
    rc = tok_encode(s->tok, text, n,
                    (bos ? TOK_BOS : 0) | (flags & SERVE_SPECIAL ? TOK_SPECIAL : 0), ids,
                    n_ids);
    if (rc == OK && bos && *n_ids > 1 && (*ids)[1] == tok_bos(s->tok))
        log_warning(
            "two_bos", 2, 1,
            "the prompt begins with BOS, and the tokenizer puts another before it");
    return rc;
}

int serve_ends(const struct serve *s, const struct serve_request *r, int32_t *out)
{
    int n = 0;

    for (int i = 0; i < r->n_stop_ids; i++)
        out[n++] = r->stop_ids[i];
    for (int i = 0; !r->ignore_eos && i < s->config.n_stop; i++)
        out[n++] = s->config.stop_ids[i];
    for (int i = 0; !r->ignore_eos && i < s->n_stop; i++)
        if (s->stops[i] < serve_vocab(s)) /* a tokenizer may have more ids */
            out[n++] = s->stops[i];
    return n;
}

/* What machines in other processes are not told. */
static int check_local(const struct serve *s, const struct serve_request *r)
{
    if (r->n_stop_ids < 0 || r->n_stop_ids > SERVE_STOP_IDS_MAX)
        return err_set(ERR_LIMIT, "request: %d stop_token_ids: expected at most %d",
                       r->n_stop_ids, SERVE_STOP_IDS_MAX);
    if (r->min_new < 0 || r->min_new > r->max_new)
        return err_set(ERR_ARG,
                       "request: min_tokens: expected 0 to %lld, the most new tokens, "
                       "found %lld",
                       (long long)r->max_new, (long long)r->min_new);
    if (!s->ops->has_logits &&
        (r->n_stop_ids > 0 || r->n_bias > 0 || r->min_new > 0 || r->grammar.text))
        return err_set(ERR_UNSUPPORTED,
                       "request: logit_bias, stop_token_ids, min_tokens, grammars and "
                       "schemas are not available with --roles");
    if (r->grammar.text && r->ignore_eos)
        return err_set(ERR_ARG, "request: ignore_eos: not together with a grammar, which "
                                "says where the text ends");
    return OK;
}

int serve_check_request(const struct serve *s, const struct serve_request *r)
{
    int vocab = serve_vocab(s);

    TRY(check_local(s, r));
    if (r->n_prompt < 1 || r->max_new < 0 || r->max_new + r->n_scored < 1 || !r->on_token)
        return err_set(ERR_ARG, "request: %lld prompt tokens, %lld new: expected >= 1",
                       (long long)r->n_prompt, (long long)r->max_new);
    if (r->n_scored < 0 || r->n_scored >= r->n_prompt)
        return err_set(ERR_ARG,
                       "request: %lld of %lld prompt tokens scored: expected fewer",
                       (long long)r->n_scored, (long long)r->n_prompt);
    if (r->n_drawn < 0 || r->n_drawn >= r->n_prompt)
        return err_set(ERR_ARG,
                       "request: %lld of %lld prompt tokens drawn before: expected fewer",
                       (long long)r->n_drawn, (long long)r->n_prompt);
    if (r->n_scored > 0 && (r->handoff || !s->ops->has_logits))
        return err_set(ERR_UNSUPPORTED,
                       "request: %lld prompt tokens scored: only by an "
                       "engine that computes all of it in this process",
                       (long long)r->n_scored);
    if (r->n_prompt > s->max_tok || r->max_new > s->max_tok - r->n_prompt)
        return err_set(ERR_LIMIT,
                       "request: %lld prompt and %lld new tokens: expected at most %lld "
                       "together; %s",
                       (long long)r->n_prompt, (long long)r->max_new,
                       (long long)s->max_tok,
                       s->max_tok == s->o.kv_budget_tok
                           ? "--kv-budget-tok (kv_budget_tok) raises this"
                           : "--max-tok (max_tok) raises this up to the model's limit");
    if (r->handoff && r->handoff->side == SERVE_PROMPT_SIDE && r->max_new != 1)
        return err_set(ERR_ARG,
                       "request: %lld new tokens: the prompt side computes 1, the first",
                       (long long)r->max_new);
    for (int64_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab)
            return err_set(ERR_ARG, "request: prompt token %lld: id %d outside [0, %d)",
                           (long long)i, r->prompt[i], vocab);
    }
    return OK;
}

struct serve_totals serve_totals_since(const struct serve_totals *now,
                                       const struct serve_totals *before)
{
    return (struct serve_totals){.n_steps = now->n_steps - before->n_steps,
                                 .n_tok = now->n_tok - before->n_tok,
                                 .weight_bytes = now->weight_bytes - before->weight_bytes,
                                 .kv_bytes = now->kv_bytes - before->kv_bytes,
                                 .flop = now->flop - before->flop,
                                 .forward_ns = now->forward_ns - before->forward_ns,
                                 .wait_ns = now->wait_ns - before->wait_ns,
                                 .sample_ns = now->sample_ns - before->sample_ns,
                                 .sched_ns = now->sched_ns - before->sched_ns};
}
