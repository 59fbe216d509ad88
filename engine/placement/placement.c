/* Computes which thread owns which packed weights, and binds pages to the memory nodes of
 * their owners. */
#include <assert.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "model/limits.h"
#include "placement/placement.h"
#include "placement/weights.h"

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- owners and domains ---- */

static int node_of(const struct model_numa_owners *o, int thread)
{
    return o->nodes ? o->nodes[thread] : -1;
}

/* The domain of a node; a new one where there is none and `add`, else -1. */
static int domain_of(struct model_placement *p, int node, bool add)
{
    for (int d = 0; d < p->n_domains; d++)
        if (p->node[d] == node)
            return d;
    if (!add)
        return -1;
    p->node[p->n_domains] = node;
    return p->n_domains++;
}

static int take_arrays(struct model_placement *p, int n_team)
{
    p->shards = mem_new(MEM_WEIGHTS, (size_t)p->n_ranks, sizeof(*p->shards));
    p->domain = mem_new(MEM_WEIGHTS, (size_t)p->n_owners, sizeof(*p->domain));
    p->node = mem_new(MEM_WEIGHTS, (size_t)p->n_owners, sizeof(*p->node));
    p->helpers = mem_new(MEM_WEIGHTS, (size_t)n_team, sizeof(*p->helpers));
    return p->shards && p->domain && p->node && p->helpers ? OK : ERR_NOMEM;
}

/* Set the domain of each owner, then that of every thread of the team. */
static int set_domains(struct model_placement *p, const struct model_numa_owners *o,
                       int n_team)
{
    struct model_thread_slot *slots =
        mem_new(MEM_WEIGHTS, (size_t)p->n_owners, sizeof(*slots));
    int rc = slots ? model_thread_slots(slots, p->n_ranks, p->n_threads, o->threads)
                   : ERR_NOMEM;

    for (int t = 0; t < p->n_owners && rc == OK; t++)
        p->domain[slots[t].rank * p->n_threads + slots[t].id] =
            domain_of(p, node_of(o, t), true);
    for (int t = 0; t < n_team && rc == OK; t++) {
        p->helpers[t].domain = domain_of(p, node_of(o, t), false);
        p->multi_node |= node_of(o, t) != node_of(o, 0);
    }
    mem_free(slots);
    return rc;
}

int model_placement_open(struct model *m, const struct model_numa_owners *o)
{
    int n_team = m->n_threads, rc;
    struct model_placement *p;

    p = m->placement = mem_new(MEM_WEIGHTS, 1, sizeof(*p));
    if (!p)
        return ERR_NOMEM;
    p->n_ranks = o->n_ranks > 0 ? o->n_ranks : 1;
    p->n_threads = o->n_ranks > 0 ? o->n_threads : n_team;
    rc = model_thread_slots_check(m, p->n_ranks, p->n_threads);
    if (rc == OK)
        rc = model_ranks_check(&m->c, p->n_ranks);
    if (rc != OK)
        return err_prefix(rc, "owners");
    p->n_owners = p->n_ranks * p->n_threads;
    rc = take_arrays(p, n_team);
    for (int r = 0; r < p->n_ranks && rc == OK; r++)
        model_tp_shard_of(m, r, p->n_ranks, &p->shards[r]);
    if (rc == OK)
        rc = set_domains(p, o, n_team);
    return rc == OK ? OK : err_prefix(rc, "owners");
}

void model_placement_close(struct model_placement **pp)
{
    struct model_placement *p = *pp;

    if (!p)
        return;
    mem_free(p->shards);
    mem_free(p->domain);
    mem_free(p->node);
    mem_free(p->helpers);
    mem_free(p);
    *pp = NULL;
}

/* ---- pieces ---- */

/* Set the view of the rank, and where it begins; returns how many panels stay with one
 * thread. */
static int64_t view_of(const struct model *m, int layer, int i, int rank,
                       struct model_piece *out)
{
    const struct model_placement *pl = m->placement;
    const struct model_tp_shard *part = &pl->shards[rank];
    enum model_mat kind = model_layer_mat_kind(i);

    model_view_of(&m->layers[layer], i, part, &out->w);
    switch (kind) {
    case MODEL_MAT_QKV:
        out->p0 = part->mat_lo / KERN_PANEL;
        if (m->c.latent_dim > 0)
            return 1;
        return model_groups_whole(m, part, pl->n_threads) ? m->qkv_unit / KERN_PANEL : 1;
    case MODEL_MAT_V:
        out->p0 = part->v_lo / KERN_PANEL;
        return model_groups_whole(m, part, pl->n_threads) ? m->v_unit / KERN_PANEL : 1;
    case MODEL_MAT_LATENT_K:
        out->p0 = (int64_t)part->q_lo * m->c.latent_dim / KERN_PANEL;
        return m->c.latent_dim / KERN_PANEL;
    case MODEL_MAT_LATENT_V:
        out->p0 = (int64_t)part->q_lo * m->c.value_dim / KERN_PANEL;
        return m->c.value_dim / KERN_PANEL;
    case MODEL_MAT_O:
        out->k_lo = part->attn_lo;
        return 1;
    case MODEL_MAT_Q_A:
    case MODEL_MAT_ROUTER: /* read by all ranks */
        if (rank > 0)
            out->w.n_panels = 0;
        return 1;
    case MODEL_MAT_GATE_UP:
    case MODEL_MAT_DENSE_GATE_UP:
    case MODEL_MAT_EXPERT_GATE_UP:
        out->p0 = part->mlp[model_mlp_of(kind)].inputs *
                  part->mlp[model_mlp_of(kind)].lo / KERN_PANEL;
        return part->mlp[model_mlp_of(kind)].inputs;
    default:
        out->k_lo = part->mlp[model_mlp_of(kind)].lo;
        return 1;
    }
}

void model_piece_of(const struct model *m, int layer, int mat, int i,
                    struct model_piece *out)
{
    bool head = mat == MODEL_OF_HEAD;
    const struct model_placement *pl = m->placement;
    int rank = i / pl->n_threads, id = i % pl->n_threads, n = pl->n_threads;
    struct kern_gemm_job j = {.w = &out->w, .m = 1};
    int64_t together;

    *out = (struct model_piece){.domain = pl->domain[i]};
    if (pl->n_domains == 1) {
        out->w = head ? m->head : m->layers[layer].mats[mat];
        out->p_hi = out->w.n_panels;
        return;
    }
    if (head) {
        out->w = m->head;
        together = 1, id = i, n = pl->n_owners;
    } else {
        together = view_of(m, layer, mat, rank, out);
    }
    if (model_view_empty(&out->w))
        return;
    kern_schedule_default(&j.s, model_gemm(m, &out->w, 1), &out->w, 1, n);
    kern_gemm_part(&j, together, id);
    assert(j.k_lo == 0 && j.k_hi == out->w.k_pad);
    out->p_lo = j.p_lo;
    out->p_hi = j.p_hi;
    /* Ranks that share a KV group may read the same panels. */
    if (mat == MODEL_MAT_QKV && rank > 0)
        out->p_lo = max64(j.p_lo, pl->shards[rank - 1].mat_hi / KERN_PANEL - out->p0);
    out->p_hi = max64(out->p_lo, out->p_hi);
}

int model_embed_piece(const struct model *m, int i, int64_t *lo, int64_t *hi)
{
    par_share(m->c.vocab, i, model_n_pieces(m->placement), lo, hi);
    return m->placement->domain[i];
}

/* ---- runs of bytes ---- */

static void runs_of_mat(const struct model *m, int layer, int mat, model_run_fn fn,
                        void *ctx)
{
    for (int i = 0; i < model_n_pieces(m->placement); i++) {
        struct model_piece x;
        int64_t n;

        model_piece_of(m, layer, mat, i, &x);
        n = x.p_hi - x.p_lo;
        for (int64_t u = 0; u < x.w.n_units && n > 0; u++) {
            int64_t left = x.w.k_pad - u * x.w.k_unit;
            int64_t rows = left < x.w.k_unit ? left : x.w.k_unit;
            size_t filled = kern_panel_size(x.w.type, rows);

            if (filled == x.w.panel_bytes) {
                fn(ctx, kern_mat_at(&x.w, u, x.p_lo), (size_t)n * filled, x.domain);
                continue;
            }
            for (int64_t p = x.p_lo; p < x.p_hi; p++)
                fn(ctx, kern_mat_at(&x.w, u, p), filled, x.domain);
        }
    }
}

static void runs_of_embed(const struct model *m, model_run_fn fn, void *ctx)
{
    size_t row = kern_type_size(m->embed_type, m->c.dim);

    for (int i = 0; m->embed && i < model_n_pieces(m->placement); i++) {
        int64_t lo, hi;
        int domain = model_embed_piece(m, i, &lo, &hi);

        fn(ctx, (char *)m->embed + (size_t)lo * row, (size_t)(hi - lo) * row, domain);
    }
}

static void runs_of_norms(const struct model *m, int layer, model_run_fn fn, void *ctx)
{
    struct model_layer *l = &m->layers[layer];
    int domain = m->placement->n_domains == 1 ? 0 : -1;
    size_t dim = (size_t)m->c.dim * sizeof(float);

    for (int i = 0; model_layer_vectors[i].role != FORMAT_N_ROLES; i++)
        if (*model_layer_vector(l, i))
            fn(ctx, *model_layer_vector(l, i), dim, domain);
    if (l->qkv_bias)
        fn(ctx, l->qkv_bias,
           (size_t)l->mats[MODEL_MAT_QKV].n_panels * KERN_PANEL * sizeof(float), domain);
    if (l->v_bias)
        fn(ctx, l->v_bias,
           (size_t)l->mats[MODEL_MAT_V].n_panels * KERN_PANEL * sizeof(float), domain);
    if (l->q_norm) {
        int64_t rows, q, k;

        format_role_shape(&m->c, FORMAT_Q_NORM, &rows, &q);
        format_role_shape(&m->c, FORMAT_K_NORM, &rows, &k);
        fn(ctx, l->q_norm, (size_t)q * sizeof(float), domain);
        fn(ctx, l->k_norm, (size_t)k * sizeof(float), domain);
    }
    if (layer == 0)
        fn(ctx, m->out_norm, dim, domain);
    if (layer == 0 && m->out_norm_bias)
        fn(ctx, m->out_norm_bias, dim, domain);
}

void model_each_run(const struct model *m, enum model_weight_kind what, int layer,
                    model_run_fn fn, void *ctx)
{
    if (what == MODEL_WEIGHT_NORMS)
        runs_of_norms(m, layer, fn, ctx);
    else if (what == MODEL_WEIGHT_EMBED)
        runs_of_embed(m, fn, ctx);
    else if (what == (int)MODEL_MAT_HEAD)
        runs_of_mat(m, 0, MODEL_OF_HEAD, fn, ctx);
    for (int i = 0; i < model_n_layer_mats(&m->c); i++)
        if (what == (enum model_weight_kind)model_layer_mat_kind(i))
            runs_of_mat(m, layer, i, fn, ctx);
}

/* ---- binding ---- */

int model_page_map_of(const struct model *m, struct model_page_map *out)
{
    int rc =
        model_page_map_init(out, m->weights, m->weights_bytes, m->placement->n_domains);

    for (int w = 0; w < MODEL_N_WEIGHT_KINDS && rc == OK; w++)
        for (int i = 0; i < model_weight_kind_layers(m, (enum model_weight_kind)w); i++)
            model_each_run(m, (enum model_weight_kind)w, i, model_page_map_run, out);
    return rc;
}

static int bind_pages(const struct model *m)
{
    struct model_placement *p = m->placement;
    struct model_page_map map;
    int rc = model_page_map_of(m, &map);

    if (rc == OK)
        rc = model_page_map_bind(&map, p->node, &p->bound_bytes);
    model_page_map_fini(&map);
    return rc;
}

/* Assign threads on a node without owners to the domains in turn, where any thread may touch
 * a page first. */
static void deal_threads(struct model_placement *p, int n_team, bool any_may_touch)
{
    int turn = 0;

    for (int t = 0; t < n_team; t++) {
        struct model_helper *h = &p->helpers[t];

        if (h->domain < 0 && any_may_touch)
            h->domain = turn++ % p->n_domains;
        for (int k = 0; k < t && h->domain >= 0; k++)
            h->i += p->helpers[k].domain == h->domain;
    }
    for (int t = 0; t < n_team; t++)
        for (int k = 0; k < n_team && p->helpers[t].domain >= 0; k++)
            p->helpers[t].n += p->helpers[k].domain == p->helpers[t].domain;
}

int model_placement_bind(struct model *m)
{
    struct model_placement *p = m->placement;
    int rc = p->multi_node ? bind_pages(m) : OK;

    if (rc == ERR_NOMEM)
        return rc;
    if (rc != OK) {
        log_warning(
            "weights_not_bound", (double)p->bound_bytes, (double)m->weights_bytes,
            "weights were not bound to memory nodes, so the first touch decides: %s",
            err_msg());
        snprintf(p->note, sizeof(p->note), "first touch by the owners' nodes: %s",
                 err_msg());
        err_clear();
    } else if (!p->multi_node) {
        snprintf(p->note, sizeof(p->note), "first touch: all threads are on one node");
    } else if (p->bound_bytes == 0) {
        snprintf(p->note, sizeof(p->note),
                 "first touch: the owners' nodes are not known");
    } else {
        snprintf(p->note, sizeof(p->note),
                 "pages bound to the owners' %d nodes before they were touched",
                 p->n_domains);
    }
    deal_threads(p, m->n_threads, rc == OK);
    return OK;
}
