/* A step as it is asked for: checked, then computed by the team's threads or by the ranks'
 * processes. */
#include "ranks/procs.h"
#include "step/step.h"

static int check_chunk(const struct model *m, const struct model_chunk *c, int i)
{
    if (c->n_tok < 1 || c->pos0 < 0)
        return err_set(ERR_ARG, "chunk %d: %lld tokens at %lld", i, (long long)c->n_tok,
                       (long long)c->pos0);
    if (c->n_tok > c->kv->cap_tok - c->pos0)
        return err_set(ERR_ARG, "chunk %d: %lld tokens at %lld are past its slot of %lld",
                       i, (long long)c->n_tok, (long long)c->pos0,
                       (long long)c->kv->cap_tok);
    if (c->n_tok > m->max_tok - c->pos0)
        return err_set(ERR_ARG,
                       "chunk %d: %lld tokens at %lld, the longest sequence is %lld", i,
                       (long long)c->n_tok, (long long)c->pos0, (long long)m->max_tok);
    for (int64_t k = 0; k < c->n_tok; k++) {
        if (c->ids[k] < 0 || c->ids[k] >= m->c.vocab)
            return err_set(ERR_ARG, "chunk %d: token %lld: id %d outside [0, %d)", i,
                           (long long)k, c->ids[k], m->c.vocab);
    }
    return OK;
}

int model_forward(struct model_phase *p, const struct model_chunk *chunks, int n_chunks,
                  float *logits)
{
    struct model_step s = {
        .phase = p, .chunks = chunks, .n_chunks = n_chunks, .logits = logits};
    struct model *m = p->m;

    if (n_chunks < 1)
        return err_set(ERR_ARG, "a step of %d chunks", n_chunks);
    for (int i = 0; i < n_chunks; i++) {
        int rc = check_chunk(m, &chunks[i], i);

        if (rc != OK)
            return rc;
        if (chunks[i].n_tok > p->max_step_tok - s.n_tok)
            return err_set(ERR_ARG, "a step of more than %lld tokens",
                           (long long)p->max_step_tok);
        s.n_tok += chunks[i].n_tok;
        if (chunks[i].want_logits)
            m->rows[s.n_logits++] = s.n_tok - 1;
    }
    if (p->multiprocess)
        return model_procs_step(m->procs, &s);
    return model_step_run(m, &s);
}
