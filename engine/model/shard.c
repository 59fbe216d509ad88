/* The units of a rank, and its part of each matrix: a description of the same bytes. */
#include <assert.h>

#include "model/limits.h"
#include "model/shard.h"
#include "par/coll.h"

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int share_lo(int64_t n, int i, int parts)
{
    return (int)(n * i / parts);
}

/* Rank i of `parts` that have one KV group; its query heads are [0, g). */
static void split_group(const struct model *m, int i, int parts,
                        struct model_tp_shard *out)
{
    int g = m->group, hd = m->c.head_dim, head, first, last;

    out->kv = i == parts - 1;
    if (parts <= g) {
        out->q_lo = share_lo(g, i, parts);
        out->q_hi = share_lo(g, i + 1, parts);
        return;
    }
    for (head = 0; share_lo(parts, head + 1, g) <= i;)
        head++;
    first = share_lo(parts, head, g);
    last = share_lo(parts, head + 1, g);
    out->q_lo = head;
    out->q_hi = head + 1;
    out->seq_i = i - first;
    out->seq_n = last - first;
    /* Columns of the head are cut so that pairs along K stay together. */
    out->attn_lo = 2 * share_lo(hd / 2, out->seq_i, out->seq_n);
    out->attn_hi = 2 * share_lo(hd / 2, out->seq_i + 1, out->seq_n);
}

/* Query heads, and the columns of QKV and rows of the output's matrix that follow. */
static void part_of_heads(const struct model *m, int rank, int n_ranks,
                          struct model_tp_shard *p)
{
    int n_kv = m->c.n_kv_heads, g = m->group, hd = m->c.head_dim, group = 0, first, last;

    if (n_ranks <= n_kv) {
        p->q_lo = g * share_lo(n_kv, rank, n_ranks);
        p->q_hi = g * share_lo(n_kv, rank + 1, n_ranks);
        p->kv = true;
    } else {
        while (share_lo(n_ranks, group + 1, n_kv) <= rank)
            group++;
        first = share_lo(n_ranks, group, n_kv);
        last = share_lo(n_ranks, group + 1, n_kv);
        split_group(m, rank - first, last - first, p);
        p->q_lo += group * g;
        p->q_hi += group * g;
    }
    if (p->seq_n == 1) {
        p->attn_lo = (int64_t)p->q_lo * model_o_dim(&m->c);
        p->attn_hi = (int64_t)p->q_hi * model_o_dim(&m->c);
    } else {
        p->attn_lo += (int64_t)p->q_lo * hd;
        p->attn_hi += (int64_t)p->q_lo * hd;
    }
    p->v_lo = p->q_lo / g * m->v_unit;
    p->v_hi = p->kv ? (p->q_hi + g - 1) / g * m->v_unit : p->v_lo;
    p->col_lo = model_q_column(m, p->q_lo) / KERN_PANEL * KERN_PANEL;
    if (p->kv)
        p->col_hi = (p->q_hi + g - 1) / g * m->qkv_unit;
    else
        p->col_hi = model_pad16(model_q_column(m, p->q_hi - 1) + hd);
    p->mat_lo = p->col_lo, p->mat_hi = p->col_hi;
    if (m->c.latent_dim > 0) {
        p->mat_lo = (int64_t)p->q_lo * model_q_dim(&m->c) / KERN_PANEL * KERN_PANEL;
        p->mat_hi = model_pad16((int64_t)p->q_hi * model_q_dim(&m->c));
    }
}

/* The rank's whole units of the hidden columns of an MLP. */
static void part_of_hidden(int64_t hidden, int64_t unit, int rank, int n_ranks,
                           int64_t *lo, int64_t *hi)
{
    int64_t units = (hidden + unit - 1) / unit;

    *lo = min64(share_lo(units, rank, n_ranks) * unit, hidden);
    *hi = min64(share_lo(units, rank + 1, n_ranks) * unit, hidden);
}

void model_tp_shard_of(const struct model *m, int rank, int n_ranks,
                       struct model_tp_shard *out)
{
    const int64_t hidden[MODEL_N_MLPS] = {
        [MODEL_MLP_ALL] = m->c.hidden,
        [MODEL_MLP_DENSE] = m->c.dense_hidden,
        [MODEL_MLP_EXPERT] = m->c.n_experts > 0 ? m->c.expert_hidden : 0};
    int64_t unit = model_ffn_unit(&m->c);

    assert(rank >= 0 && rank < n_ranks);
    *out = (struct model_tp_shard){.seq_n = 1, .n_heads = m->c.n_heads};
    part_of_heads(m, rank, n_ranks, out);
    for (int i = 0; i < MODEL_N_MLPS; i++) {
        out->mlp[i].inputs = i == MODEL_MLP_EXPERT ? 2 : model_mlp_inputs(&m->c);
        part_of_hidden(hidden[i], unit, rank, n_ranks, &out->mlp[i].lo, &out->mlp[i].hi);
    }
}

static bool blocks_whole(const struct model *m, int n_ranks)
{
    int64_t block = model_k_block(&m->c);

    for (int r = 0; r < n_ranks; r++) {
        struct model_tp_shard p;

        model_tp_shard_of(m, r, n_ranks, &p); /* rows of down are whole units */
        if (p.attn_lo % block != 0 || p.attn_hi % block != 0)
            return false;
    }
    return true;
}

int model_ranks_check(const struct model_config *c, int n_ranks)
{
    const struct model m = model_of_config(c);

    if (c->latent_dim > 0 && n_ranks > c->n_heads)
        return err_set(
            ERR_UNSUPPORTED,
            "%d ranks: expected a head for each with latent attention, found %d", n_ranks,
            c->n_heads);
    if (blocks_whole(&m, n_ranks))
        return OK;
    return err_set(
        ERR_UNSUPPORTED,
        "%d ranks: expected ranks whose rows of the attention output are whole "
        "blocks of %d quantised weights, found %d heads of size %d",
        n_ranks, model_k_block(c), c->n_heads, c->head_dim);
}

/* ---- slots ---- */

int model_thread_slots_check(const struct model *m, int n_ranks, int n_threads)
{
    int size = m->n_threads;

    if (n_ranks < 1 || n_threads < 1)
        return err_set(ERR_ARG, "a phase of %d ranks of %d threads", n_ranks, n_threads);
    if (n_ranks > PAR_RANKS_MAX)
        return err_set(ERR_LIMIT, "a phase of %d ranks, at most %d", n_ranks,
                       PAR_RANKS_MAX);
    if (n_threads > size / n_ranks)
        return err_set(ERR_ARG,
                       "a phase of %d ranks of %d threads on a team of %d threads",
                       n_ranks, n_threads, size);
    return OK;
}

int model_thread_slots(struct model_thread_slot *out, int n_ranks, int n_threads,
                       const int *threads)
{
    int n = n_ranks * n_threads;

    for (int i = 0; i < n; i++)
        out[i].rank = -1;
    for (int i = 0; i < n; i++) {
        int t = threads ? threads[i] : i;

        if (t < 0 || t >= n || out[t].rank >= 0)
            return err_set(ERR_ARG,
                           "threads of a phase: expected each number below %d once, "
                           "found %d at %d",
                           n, t, i);
        out[t] = (struct model_thread_slot){i / n_threads, i % n_threads};
    }
    return OK;
}

/* ---- deterministic sums ---- */

static const int degrees[] = {1, 2, 3, 4, 6, 8};
#define N_DEGREES ((int)(sizeof(degrees) / sizeof(degrees[0])))

/* Keep the cuts in order, each once. */
static void add_cut(struct model_reduction_boundaries *c, int64_t at)
{
    int i = 0;

    while (i < c->n && c->at[i] < at)
        i++;
    if (i < c->n && c->at[i] == at)
        return;
    assert(c->n <= MODEL_BOUNDARIES_MAX);
    for (int k = c->n++; k > i; k--)
        c->at[k] = c->at[k - 1];
    c->at[i] = at;
}

void model_boundaries_set(struct model *m)
{
    struct model_reduction_boundaries *attn = &m->attn_boundaries;

    for (int i = 0; i < N_DEGREES && degrees[i] <= m->c.n_heads; i++) {
        for (int r = 0; r < degrees[i] && blocks_whole(m, degrees[i]); r++) {
            struct model_tp_shard p;

            model_tp_shard_of(m, r, degrees[i], &p);
            add_cut(attn, p.attn_lo);
            add_cut(attn, p.attn_hi);
            for (int i_mlp = 0; i_mlp < MODEL_N_MLPS; i_mlp++) {
                add_cut(&m->mlp_boundaries[i_mlp], p.mlp[i_mlp].lo);
                add_cut(&m->mlp_boundaries[i_mlp], p.mlp[i_mlp].hi);
            }
        }
    }
    attn->n--; /* n cuts have n - 1 parts between them */
    for (int i = 0; i < MODEL_N_MLPS; i++)
        m->mlp_boundaries[i].n--;
}

int model_boundaries_check(const struct model *m, int n_ranks)
{
    for (int i = 0; i < N_DEGREES; i++) {
        struct model_tp_shard p = {.seq_n = 1};

        for (int r = 0; degrees[i] == n_ranks && r < n_ranks && p.seq_n == 1; r++)
            model_tp_shard_of(m, r, n_ranks, &p);
        if (degrees[i] == n_ranks && p.seq_n == 1 && blocks_whole(m, n_ranks))
            return OK;
    }
    return err_set(
        ERR_UNSUPPORTED,
        "deterministic: expected 1, 2, 3, 4, 6 or 8 ranks that each have query "
        "heads of their own, found %d ranks for %d KV groups of %d",
        n_ranks, m->c.n_kv_heads, m->group);
}

/* ---- views ---- */

void model_panels_of(struct kern_mat *out, const struct kern_mat *w, int64_t lo,
                     int64_t hi)
{
    *out = *w;
    if (lo == hi && w->n_panels == 0)
        return;
    assert(w->n_units == 1 && lo <= hi && hi <= w->n_panels);
    out->n_panels = hi - lo;
    out->n = min64(w->n, hi * KERN_PANEL) - lo * KERN_PANEL;
    out->bytes = (size_t)out->n_panels * w->panel_bytes;
    out->data = kern_mat_at(w, 0, lo);
}

/* Rows [lo, hi) of K: whole units, or a part of one unit, whose panels then lie as far
 * apart as before but are no longer filled. */
static void rows_of(struct kern_mat *out, const struct kern_mat *w, int64_t lo,
                    int64_t hi)
{
    int64_t unit, row;

    *out = *w;
    if (w->n_panels == 0)
        return;
    assert(lo <= hi && hi <= w->k);
    unit = lo / w->k_unit, row = lo % w->k_unit;
    assert(row == 0 || !kern_type_one_block(w->type));
    out->k = hi - lo;
    out->k_pad = min64(w->k_pad, w->type == KERN_BF16 ? (hi + 1) / 2 * 2 : hi) - lo;
    out->bytes = (size_t)w->n_panels * kern_panel_size(w->type, out->k_pad);
    out->data =
        (char *)w->data + (size_t)unit * w->unit_bytes + kern_panel_size(w->type, row);
    out->n_units = (row + out->k_pad + w->k_unit - 1) / w->k_unit;
    if (out->n_units > 1) {
        assert(row == 0);
        return;
    }
    out->n_units = 1;
    out->unit_bytes = 0;
    out->k_unit = out->k_pad;
}

void model_view_of(const struct model_layer *l, int i, const struct model_tp_shard *p,
                   struct kern_mat *out)
{
    enum model_mat kind = model_layer_mat_kind(i);
    const struct kern_mat *w = &l->mats[i];
    int64_t lo = 0, hi = 0, inputs = 0;

    if (kind >= MODEL_MAT_GATE_UP) {
        lo = p->mlp[model_mlp_of(kind)].lo, hi = p->mlp[model_mlp_of(kind)].hi;
        inputs = p->mlp[model_mlp_of(kind)].inputs;
    }
    switch (kind) {
    case MODEL_MAT_QKV:
        model_panels_of(out, w, p->mat_lo / KERN_PANEL, p->mat_hi / KERN_PANEL);
        return;
    case MODEL_MAT_V:
        model_panels_of(out, w, p->v_lo / KERN_PANEL, p->v_hi / KERN_PANEL);
        return;
    case MODEL_MAT_Q_A: /* every rank's queries are made of all of it */
        *out = *w;
        return;
    case MODEL_MAT_LATENT_K:
    case MODEL_MAT_LATENT_V:
        model_panels_of(out, w, w->n_panels * p->q_lo / p->n_heads,
                        w->n_panels * p->q_hi / p->n_heads);
        return;
    case MODEL_MAT_O:
        rows_of(out, w, p->attn_lo, p->attn_hi);
        return;
    case MODEL_MAT_ROUTER:
        *out = *w;
        return;
    case MODEL_MAT_GATE_UP:
    case MODEL_MAT_DENSE_GATE_UP:
    case MODEL_MAT_EXPERT_GATE_UP:
        model_panels_of(out, w, min64(inputs * lo / KERN_PANEL, w->n_panels),
                        min64(inputs * (model_pad16(hi) / KERN_PANEL), w->n_panels));
        return;
    default:
        rows_of(out, w, lo, hi);
        return;
    }
}
