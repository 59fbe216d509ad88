#include "plan/workload.h"

#include "model/limits.h"

/* ---- barriers ---- */

/* The waits of step/forward.c in a step, counted as it is read there. Once a step: the
 * embedding, and the team's return. In a layer: after QKV and after the rotation (which a
 * team saves whose threads divide the KV heads; the teams that a search is for have more
 * threads than that), after attention, after its output projection, after gate+up, after
 * down. With more rows than a block the threads also share out the packing of
 * activations, and wait for it before each of the four products; the last layer has one
 * row from its output projection on and packs once. Products split along K wait once more
 * each: that is the schedule's choice, not counted here. */
#define BARRIERS_STEP  2
#define BARRIERS_LAYER 6
#define BARRIERS_PACK  4

static double decode_barriers(const struct model_config *c)
{
    return BARRIERS_STEP + (double)BARRIERS_LAYER * c->n_layers;
}

/* Rows of a block of the wide micro-kernels, two panels of AVX-512. */
#define BLOCK_ROWS 14

static double prefill_barriers(const struct model_config *c)
{
    return decode_barriers(c) + (double)BARRIERS_PACK * (c->n_layers - 1) + 1;
}

/* ---- steps ---- */

/* The part that both phases have in common. A layer sums its rows over the ranks twice: n_rows of
 * them, in the last layer n_last. */
static void set_work(struct simulate_step *w, const struct model_config *c,
                     const struct model_cost *cost, double n_rows, double n_last)
{
    double mean_rows = ((c->n_layers - 1) * n_rows + n_last) / c->n_layers;

    *w = (struct simulate_step){
        .weight = 1,
        .flop = cost->flop,
        .weight_bytes = cost->weight_bytes,
        /* Once from memory: a block of queries finds in cache what the one before read. */
        .kv_bytes = cost->kv_read_bytes,
        .n_allreduces = 2.0 * c->n_layers,
        .allreduce_bytes = mean_rows * c->dim * (double)sizeof(float),
    };
}

/* n_tok tokens of a prompt after ctx_tok others. Operations are what bounds it, so they
 * decide which part of it attention is. */
static void prefill_work(struct simulate_step *w, const struct model_config *c,
                         struct model_cost_types types, int64_t n_tok, int64_t ctx_tok)
{
    struct model_cost cost = model_cost_prefill(c, types, n_tok, ctx_tok);

    set_work(w, c, &cost, (double)n_tok, 1);
    w->attention_frac = (cost.qkv.flop + cost.attn.flop + cost.o.flop) / cost.flop;
    w->n_barriers = n_tok > BLOCK_ROWS ? prefill_barriers(c) : decode_barriers(c);
}

/* ... and here the bytes of weights. */
static void decode_work(struct simulate_step *w, const struct model_config *c,
                        struct model_cost_types types, double ctx_tok, int batch)
{
    struct model_cost cost = model_cost_decode(c, types, ctx_tok, batch);

    set_work(w, c, &cost, batch, batch);
    w->attention_frac = (cost.qkv.weight_bytes + cost.o.weight_bytes) / cost.weight_bytes;
    w->n_barriers = decode_barriers(c);
}

/* ---- traces ---- */

int plan_workload(struct simulate_workload *out, const struct model_config *c,
                  struct model_cost_types types, enum topo_phase phase,
                  const struct plan_trace *t, int batch)
{
    const struct plan_points *p = phase == TOPO_PREFILL ? &t->prompts : &t->contexts;

    *out = (struct simulate_workload){.phase = phase};
    if (batch < 1)
        return err_set(ERR_ARG, "batch: expected 1 sequence or more, found %d", batch);
    for (int i = 0; i < p->n; i++) {
        struct simulate_step *w = &out->v[out->n++];

        if (phase == TOPO_PREFILL)
            prefill_work(w, c, types, plan_point_tok(&p->v[i]), 0);
        else
            decode_work(w, c, types, p->v[i].tok, batch);
        w->weight = p->v[i].weight;
    }
    return OK;
}

void plan_piece_workload(struct simulate_workload *out, const struct model_config *c,
                         struct model_cost_types types, int64_t n_tok, int64_t ctx_tok)
{
    *out = (struct simulate_workload){.phase = TOPO_PREFILL, .n = 1};
    prefill_work(&out->v[0], c, types, n_tok, ctx_tok);
}

static int check_ranks(const void *model, int n_ranks)
{
    return model_ranks_check(model, n_ranks);
}

void plan_limits(struct topo_limits *out, const struct model_config *c, bool strict)
{
    /* All ranks have a part of each MLP: of every expert, and of what every token has. */
    int narrowest = c->n_experts > 0 && (c->hidden == 0 || c->expert_hidden < c->hidden)
                        ? c->expert_hidden
                        : c->hidden;

    if (c->n_dense > 0 && c->dense_hidden < narrowest)
        narrowest = c->dense_hidden;
    *out = (struct topo_limits){
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .n_ffn_units = (narrowest + model_ffn_unit(c) - 1) / model_ffn_unit(c),
        .strict = strict,
        .check = check_ranks,
        .model = c,
    };
}
