/* What the engine has done, by phase: integers, a few additions a step. */
#include "model/procs.h"
#include "serve/impl.h"

/* Elements of a layer's matrices: QKV; and output, gate, up and down, which in the last
 * layer only rows that want logits need. */
struct layer_elements {
    int64_t qkv, rest;
};

static struct layer_elements elements(const struct model_config *c)
{
    int64_t dim = c->dim, q = (int64_t)c->n_heads * c->head_dim;
    int64_t kv = 2 * (int64_t)c->n_kv_heads * c->head_dim;

    return (struct layer_elements){.qkv = dim * (q + kv),
                                   .rest = q * dim + 3 * dim * c->hidden};
}

/* Multiply and add count as two. `pairs`: of a query and a key it attends to. */
static int64_t chunk_flop(const struct model_config *c, const struct model_chunk *k)
{
    struct layer_elements e = elements(c);
    int64_t q = (int64_t)c->n_heads * c->head_dim, n = k->n_tok, wanted = k->want_logits;
    int64_t pairs = n * k->pos0 + n * (n + 1) / 2, last_pairs = wanted * (k->pos0 + n);

    return 2 * e.qkv * n * c->n_layers + 2 * e.rest * (n * (c->n_layers - 1) + wanted) +
           4 * q * (pairs * (c->n_layers - 1) + last_pairs) +
           2 * wanted * c->dim * c->vocab;
}

/* A step without logits stops in the last layer after its keys and values. */
static int64_t unread_bytes(const struct serve *s)
{
    const struct model_config *c = model_config_of(s->model);

    return (elements(c).rest + (int64_t)c->vocab * c->dim) *
           (int64_t)kern_type_bytes(model_weight_type(s->model));
}

void serve_totals_add(struct serve *s, enum serve_phase phase,
                      const struct model_chunk *chunks, int n_chunks, int64_t forward_ns,
                      int64_t wait_ns)
{
    const struct model_config *c = model_config_of(s->model);
    struct serve_totals *t = &s->totals[phase];
    bool logits = false;
    struct kv_shape shape;

    model_kv_shape(s->model, &shape);
    for (int i = 0; i < n_chunks; i++) {
        const struct model_chunk *k = &chunks[i];

        t->n_tok += k->n_tok;
        t->kv_bytes += model_token_kv_bytes(c, k->pos0 + k->n_tok, shape.elem_bytes);
        t->flop += chunk_flop(c, k);
        logits |= k->want_logits;
    }
    t->n_steps++;
    t->weight_bytes += model_token_weight_bytes(c, model_weight_type(s->model)) -
                       (logits ? 0 : unread_bytes(s));
    t->forward_ns += forward_ns;
    t->wait_ns += wait_ns;
}

const struct serve_totals *serve_totals_of(const struct serve *s, enum serve_phase phase)
{
    return &s->totals[phase];
}

struct each {
    void (*fn)(void *ctx, int id, int n);
    void *ctx;
};

static void call_each(void *arg, struct par_self *self)
{
    const struct each *e = arg;

    e->fn(e->ctx, self->id, self->n);
}

void serve_each_thread(struct serve *s, void (*fn)(void *ctx, int id, int n), void *ctx)
{
    struct each e = {fn, ctx};

    struct par_team *team = model_team(s->model);

    par_team_run(team, par_team_size(team), call_each, &e);
}
