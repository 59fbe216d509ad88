/* Opening and closing a phase: all that its steps need is made here. */
#include <string.h>

#include "base/mem.h"
#include "model/act.h"
#include "model/limits.h"
#include "ranks/phase.h"
#include "step/context.h"

/* Parts of deterministic sums: as many columns at a time as stay in a cache. */
#define SUMS_BYTES ((size_t)2 << 20)
/* The most memory of a rank for partial products, for schedules that split K. */
#define MODEL_PARTIAL_BYTES ((size_t)16 << 20)

static int check_opts(const struct model *m, const struct model_phase_opts *o)
{
    int rc = model_thread_slots_check(m, o->n_ranks, o->n_threads);

    if (m->procs)
        return err_set(ERR_STATE, "a phase that the ranks' processes do not know");
    if (rc != OK)
        return rc;
    if (m->one_rank && o->n_ranks != 1)
        return err_set(ERR_ARG, "a phase of %d ranks, the model was opened for one",
                       o->n_ranks);
    TRY(model_ranks_check(&m->c, o->n_ranks));
    if (m->deterministic && model_boundaries_check(m, o->n_ranks) != OK)
        return ERR_UNSUPPORTED;
    if (o->max_step_tok < 0 || o->max_step_tok > m->max_step_tok)
        return err_set(ERR_ARG, "a phase of steps of %lld tokens, the model's have %lld",
                       (long long)o->max_step_tok, (long long)m->max_step_tok);
    return OK;
}

static int64_t max3(int64_t a, int64_t b, int64_t c)
{
    a = a > b ? a : b;
    return a > c ? a : c;
}

/* A rank's columns of gate. */
static int64_t hidden_columns(const struct model_rank *k, const struct model_config *c,
                              enum model_mat kind)
{
    return k->layers[model_layer_with(c, kind)].mats[kind].n_panels /
           k->shard.mlp[model_mlp_of(kind)].inputs * KERN_PANEL;
}

static void view(struct model_phase *p)
{
    const struct model *m = p->m;
    int n_mats = model_n_layer_mats(&m->c);

    for (int r = 0; r < p->n_ranks; r++) {
        struct model_rank *k = &p->ranks[r];
        const struct model_tp_shard *part = &k->shard;

        par_group_init(&k->group, 0, p->n_threads);
        model_tp_shard_of(m, r, p->n_ranks, &k->shard);
        k->layers = p->views + (int64_t)r * m->c.n_layers;
        for (int i = 0; i < m->c.n_layers; i++) {
            k->layers[i].mats = p->mats + ((int64_t)r * m->c.n_layers + i) * n_mats;
            for (int n = 0; n < n_mats; n++)
                model_view_of(&m->layers[i], n, part, &k->layers[i].mats[n]);
        }
        k->ld_qkv = part->col_hi - part->col_lo + part->v_hi - part->v_lo;
        k->ld_attn = part->attn_hi - part->attn_lo;
        k->ld_proj = k->ld_qkv, k->ld_heads = k->ld_attn;
        if (m->c.latent_dim > 0) {
            k->ld_qkv = part->col_hi - part->col_lo;
            k->ld_proj = part->mat_hi - part->mat_lo + part->v_hi - part->v_lo;
            k->ld_heads = (int64_t)(part->q_hi - part->q_lo) * m->c.head_dim;
        }
        k->ld_h = max3(hidden_columns(k, &m->c, MODEL_MAT_GATE_UP),
                       hidden_columns(k, &m->c, MODEL_MAT_DENSE_GATE_UP), 0);
        k->ld_router =
            k->layers[m->c.n_dense].mats[MODEL_MAT_ROUTER].n_panels * KERN_PANEL;
        k->ld_expert_h = hidden_columns(k, &m->c, MODEL_MAT_EXPERT_GATE_UP);
        k->endpoints = p->endpoints + r * p->n_threads;
        p->shares_kv |= !part->kv;
        p->shares_seq |= part->seq_n > 1;
    }
}

/* ---- memory ---- */

static void place_rank(struct model_phase *p, struct model_rank *k, struct model_arena *a)
{
    const struct model *m = p->m;
    int64_t rows = p->max_step_tok, pairs = rows * m->c.n_active;
    bool moe = m->c.n_experts > 0;

    k->x = model_take(a, rows * m->ld_x, sizeof(float));
    k->x_last = model_take(a, rows * m->ld_x, sizeof(float));
    k->y = model_take(a, p->n_ranks > 1 ? rows * m->ld_x : 0, sizeof(float));
    k->branch =
        model_take(a, model_sums_apart(&m->c) ? rows * m->ld_x : 0, sizeof(float));
    k->head_sums = model_take(
        a, m->c.qk_norm_row ? rows * (m->c.n_heads + m->c.n_kv_heads) : 0, sizeof(float));
    k->qkv = model_take(a, rows * k->ld_qkv, sizeof(float));
    k->attn = model_take(a, rows * k->ld_attn, sizeof(float));
    k->proj = k->qkv, k->heads = k->attn;
    if (m->c.latent_dim > 0) {
        int64_t widest = max3(m->c.latent_dim, model_pad16(m->c.nope_dim), 0);

        k->proj = model_take(a, rows * k->ld_proj, sizeof(float));
        k->q_a = model_take(a, rows * model_pad16(m->c.q_rank), sizeof(float));
        k->heads = model_take(a, rows * k->ld_heads, sizeof(float));
        k->head_packed_bytes = (size_t)(rows * (widest + KERN_PANEL)) * sizeof(float);
        k->head_packed = model_take(a, (int64_t)k->head_packed_bytes * p->n_threads, 1);
    }
    k->h = model_take(a, rows * k->ld_h, sizeof(float));
    k->share =
        model_take(a, k->shard.seq_n > 1 ? rows * m->c.head_dim : 0, sizeof(float));
    k->lse = model_take(a, k->shard.seq_n > 1 ? rows : 0, sizeof(float));
    /* A row of A takes at most a float a number, and one factor. */
    k->ld_packed = max3(max3(m->ld_x, k->ld_attn, k->ld_h), k->ld_expert_h,
                        model_pad16(m->c.q_rank));
    k->a_packed = model_take(a, (rows + (moe ? pairs : 0)) * (k->ld_packed + KERN_PANEL),
                             sizeof(float));
    k->normed = model_take(a, moe ? rows * m->ld_x : 0, sizeof(float));
    k->router = model_take(a, rows * k->ld_router, sizeof(float));
    k->expert_h = model_take(a, pairs * k->ld_expert_h, sizeof(float));
    k->expert_y = model_take(a, moe ? (pairs + rows) * m->ld_x : 0, sizeof(float));
    k->partial = model_take(a, (int64_t)p->partial_bytes, 1);
}

static void place(struct model_phase *p, struct model_arena *a)
{
    p->sums = model_take(a, 2 * (int64_t)p->sums_floats, sizeof(float));
    for (int r = 0; r < p->n_ranks; r++)
        place_rank(p, &p->ranks[r], a);
    model_take(a, 0, 1);
}

static void touch(void *arg, struct par_self *self)
{
    struct model_phase *p = arg;
    struct model_thread_slot at = p->thread_slots[self->id];
    char *lo = (char *)p->ranks[at.rank].x, *hi = (char *)p->act + p->act_bytes;
    size_t own;

    if (at.rank == 0)
        lo = p->act; /* what all ranks write comes first */
    if (at.rank + 1 < p->n_ranks)
        hi = (char *)p->ranks[at.rank + 1].x;
    own = (size_t)(hi - lo) / (size_t)p->n_threads;
    model_touch(lo + own * (size_t)at.id, own);
}

/* The most bytes that partial products can need: all of C of the widest matrix, a thread. */
static size_t partial_bytes(const struct model_phase *p)
{
    const struct model *m = p->m;
    int64_t mlps = max3(model_mat(m, MODEL_MAT_GATE_UP)->n_panels,
                        model_mat(m, MODEL_MAT_DENSE_GATE_UP)->n_panels, 0);
    size_t cols = (size_t)max3(model_mat(m, MODEL_MAT_QKV)->n_panels, mlps,
                               model_mat(m, MODEL_MAT_O)->n_panels) *
                  KERN_PANEL;
    size_t all = MODEL_PARTIAL_BYTES / (size_t)p->n_ranks;
    size_t need = (size_t)p->n_threads * (size_t)p->max_step_tok * cols * sizeof(float);

    return p->n_threads == 1 ? 0 : need < all ? need : all;
}

/* One panel of all rows at least, all panels at most. */
static size_t sums_floats(const struct model_phase *p)
{
    const struct model *m = p->m;
    const struct model_reduction_boundaries *mlp = m->mlp_boundaries;
    int n = (int)max3(m->attn_boundaries.n, mlp[MODEL_MLP_DENSE].n,
                      mlp[MODEL_MLP_ALL].n + mlp[MODEL_MLP_EXPERT].n);
    size_t panel = (size_t)n * (size_t)p->max_step_tok * KERN_PANEL;
    size_t panels = panel ? SUMS_BYTES / sizeof(float) / panel : 0;
    size_t all = (size_t)m->ld_x / KERN_PANEL;

    return panel * (panels < 1 ? 1 : panels < all ? panels : all);
}

static int open_act(struct model_phase *p)
{
    struct model_arena a = {0};

    p->sums_floats = sums_floats(p);
    p->partial_bytes = partial_bytes(p);
    place(p, &a);
    p->act_bytes = a.used;
    p->act = model_map(p->m, p->act_bytes);
    if (!p->act)
        return ERR_NOMEM;
    a = (struct model_arena){.base = p->act};
    place(p, &a);
    par_team_run(p->m->team, p->n_ranks * p->n_threads, touch, p);
    return OK;
}

/* ---- collectives ---- */

/* A communicator for each thread of a rank: those with equal numbers reduce their slice of
 * every message, without waiting for the others. */
static int open_endpoints(struct model_phase *p)
{
    size_t one = par_comm_bytes(p->n_ranks, MODEL_MESSAGE_FLOATS);
    int rc = OK;

    if (p->n_ranks == 1)
        return OK;
    p->comms_bytes = one * (size_t)p->n_threads;
    p->comms = model_map(p->m, p->comms_bytes);
    if (!p->comms)
        return ERR_NOMEM;
    for (int t = 0; t < p->n_threads && rc == OK; t++) {
        char *comm = (char *)p->comms + one * (size_t)t;

        rc = par_comm_init(comm, p->n_ranks, MODEL_MESSAGE_FLOATS);
        for (int r = 0; r < p->n_ranks && rc == OK; r++)
            rc = par_comm_join(&p->ranks[r].endpoints[t], comm, r,
                               par_team_spin_ns(p->m->team));
    }
    return rc;
}

void model_phase_choice_set(struct model_phase *p, const struct par_choice *c)
{
    for (int i = 0; i < p->n_ranks * p->n_threads; i++)
        par_choice_set(&p->endpoints[i], c);
}

const struct par_choice *model_phase_choice(const struct model_phase *p)
{
    return &p->endpoints[0].choice;
}

struct choosing {
    struct model_phase *p;
    struct par_timings *timings;
    atomic_int rc; /* of any thread that failed */
};

static void measure_choice(void *arg, struct par_self *self)
{
    struct choosing *c = arg;
    struct model_thread_slot at = c->p->thread_slots[self->id];
    bool decides = at.rank == 0 && at.id == 0;
    int rc = par_comm_measure(&c->p->ranks[at.rank].endpoints[at.id],
                              decides ? c->timings : NULL);

    if (rc != OK)
        atomic_store(&c->rc, rc);
}

int model_phase_choice_measure(struct model_phase *p, struct par_timings *timings)
{
    struct choosing c = {.p = p, .timings = timings};
    int rc;

    *timings = (struct par_timings){0};
    if (p->n_ranks == 1)
        return OK;
    par_team_run(p->m->team, p->n_ranks * p->n_threads, measure_choice, &c);
    rc = atomic_load(&c.rc);
    if (rc != OK)
        return err_set(rc, "the sums of %d ranks could not be measured", p->n_ranks);
    model_phase_choice_set(p, model_phase_choice(p));
    return OK;
}

/* ---- the public API ---- */

static int take_arrays(struct model_phase *p)
{
    size_t ranks = (size_t)p->n_ranks, threads = ranks * (size_t)p->n_threads;
    size_t views = ranks * (size_t)p->m->c.n_layers;

    p->ranks = mem_new(MEM_OTHER, ranks, sizeof(*p->ranks));
    p->thread_slots =
        mem_new(MEM_OTHER, (size_t)p->m->n_threads, sizeof(*p->thread_slots));
    p->endpoints = mem_new(MEM_OTHER, threads, sizeof(*p->endpoints));
    p->views = mem_new(MEM_OTHER, views, sizeof(*p->views));
    p->mats = mem_new(MEM_OTHER, views * (size_t)model_n_layer_mats(&p->m->c),
                      sizeof(*p->mats));
    TRY(model_ops_of(&p->ops, &p->m->c));
    return p->ranks && p->thread_slots && p->endpoints && p->views && p->mats ? OK
                                                                              : ERR_NOMEM;
}

int model_phase_open(struct model_phase **out, struct model *m,
                     const struct model_phase_opts *o)
{
    struct model_phase *p;
    int rc;

    *out = NULL;
    rc = check_opts(m, o);
    if (rc != OK)
        return rc;
    p = mem_new(MEM_OTHER, 1, sizeof(*p));
    if (!p)
        return ERR_NOMEM;
    p->m = m;
    p->n_ranks = o->n_ranks;
    p->n_threads = o->n_threads;
    p->n_team = o->n_ranks * o->n_threads;
    p->coll = o->coll;
    p->max_step_tok = o->max_step_tok > 0 ? o->max_step_tok : m->max_step_tok;
    rc = take_arrays(p);
    if (rc == OK)
        rc = model_thread_slots(p->thread_slots, p->n_ranks, p->n_threads, o->threads);
    if (rc != OK)
        goto out;
    view(p);
    rc = open_act(p);
    if (rc == OK)
        rc = open_endpoints(p);
    if (rc == OK)
        rc = model_phase_schedules(p, NULL, NULL);
    if (rc == OK)
        *out = p, p = NULL; /* the caller's now */
out:
    model_phase_close(&p);
    return rc;
}

void model_phase_close(struct model_phase **pp)
{
    struct model_phase *p = *pp;

    if (!p)
        return;
    if (p->act)
        mem_unmap(MEM_ACTIVATIONS, p->act, p->act_bytes);
    if (p->comms)
        mem_unmap(MEM_ACTIVATIONS, p->comms, p->comms_bytes);
    model_ops_fini(&p->ops);
    mem_free(p->schedules);
    mem_free(p->mats);
    mem_free(p->views);
    mem_free(p->endpoints);
    mem_free(p->thread_slots);
    mem_free(p->ranks);
    mem_free(p);
    *pp = NULL;
}

const struct model_ops *model_phase_ops(const struct model_phase *p)
{
    return &p->ops;
}

static int check_ops(const struct model_phase *p, const struct model_ops *o)
{
    if (p->m->procs)
        return err_set(ERR_STATE, "the ranks' processes do not know other operators");
    TRY(model_ops_check(o, p->m->c.n_layers));
    for (int i = 0; i < o->n; i++)
        if (o->op[i].kind->fits)
            TRY(o->op[i].kind->fits(p));
    return OK;
}

static int copy_ops(struct model_ops *out, const struct model_ops *o)
{
    out->op = mem_new(MEM_OTHER, (size_t)o->n, sizeof(*out->op));
    if (!out->op)
        return ERR_NOMEM;
    memcpy(out->op, o->op, (size_t)o->n * sizeof(*o->op));
    out->n = o->n;
    return OK;
}

/* Takes *o, whatever comes of it. */
static int take_ops(struct model_phase *p, struct model_ops *o)
{
    int rc = check_ops(p, o);
    struct model_ops old = p->ops;

    if (rc == OK)
        p->ops = *o;
    model_ops_fini(rc == OK ? &old : o);
    return rc;
}

int model_phase_ops_set(struct model_phase *p, const struct model_ops *o)
{
    struct model_ops copy;

    TRY(copy_ops(&copy, o));
    return take_ops(p, &copy);
}

int model_phase_ops_replace(struct model_phase *p, const char *from, const char *to,
                            void *ctx)
{
    struct model_ops copy;
    int rc;

    TRY(copy_ops(&copy, &p->ops));
    rc = model_ops_replace(&copy, from, to, ctx, NULL);
    if (rc == OK)
        return take_ops(p, &copy);
    model_ops_fini(&copy);
    return rc;
}

int model_phase_offload_set(struct model_phase *p, const struct model_offload *o)
{
    if (o && (p->n_ranks > 1 || p->multiprocess))
        return err_set(ERR_UNSUPPORTED,
                       "an accelerator needs phases of one rank, found %d", p->n_ranks);
    if (o && p->m->deterministic)
        return err_set(ERR_UNSUPPORTED,
                       "an accelerator changes the order of sums: not with a "
                       "deterministic model");
    if (o && (p->m->c.residual_scale != 0 || model_sums_apart(&p->m->c) ||
              p->m->c.activation != MODEL_SILU || p->m->c.no_gate))
        return err_set(ERR_UNSUPPORTED,
                       "an accelerator computes SwiGLU and adds to the residual stream "
                       "itself: not with a family that does it in another way");
    if (o && p->m->c.n_dense > 0)
        return err_set(ERR_UNSUPPORTED,
                       "an accelerator needs experts in all layers or in none, found %d "
                       "layers without",
                       p->m->c.n_dense);
    p->offload = o;
    return OK;
}

void model_phase_stored_set(struct model_phase *p, model_stored_fn fn, void *ctx)
{
    p->stored = fn;
    p->stored_ctx = ctx;
}

void model_phase_region(const struct model_phase *p, const void **at, size_t *bytes)
{
    *at = p->act;
    *bytes = p->act_bytes;
}

struct piece {
    const char *lo, *hi;
};

/* The i-th of the pieces in which a matrix has its bytes; false: it has fewer. A whole unit is
 * a piece; of a part of a unit each panel is one. */
static bool piece_of(const struct kern_mat *w, int64_t i, struct piece *out)
{
    int64_t unit_rows, n_whole, rest, panel;
    const char *p;

    if (model_view_empty(w))
        return false;
    unit_rows = kern_mat_panel_rows(w);
    n_whole = w->k_pad / unit_rows;
    rest = w->k_pad % unit_rows;
    panel = i - n_whole;
    if (panel >= (rest ? w->n_panels : 0))
        return false;
    p = panel < 0 ? kern_mat_at(w, i, 0) : kern_mat_at(w, n_whole, panel);
    *out = (struct piece){p, p + (panel < 0 ? (size_t)w->n_panels * w->panel_bytes
                                            : kern_panel_size(w->type, rest))};
    return true;
}

/* How far the bytes from `at` on are read by p without a gap; `at`: not at all. *next: where
 * p begins to read again, if that is below it. */
static const char *read_up_to(const struct model_phase *p, int layer, const char *at,
                              const char **next)
{
    const char *end = at;
    struct piece x;

    for (int r = 0; r < p->n_ranks; r++)
        for (int i = 0; i < model_n_layer_mats(&p->m->c); i++)
            for (int64_t k = 0; piece_of(&p->ranks[r].layers[layer].mats[i], k, &x);
                 k++) {
                if (x.lo <= at && x.hi > end)
                    end = x.hi;
                if (x.lo > at && x.lo < *next)
                    *next = x.lo;
            }
    return end;
}

static int64_t moved_bytes(const struct model_phase *from, int layer, struct piece x)
{
    int64_t n = 0;

    while (x.lo < x.hi) {
        const char *next = x.hi, *end = read_up_to(from, layer, x.lo, &next);

        if (end == x.lo)
            n += next - x.lo;
        x.lo = end > x.lo ? end : next;
    }
    return n;
}

int64_t model_phase_moved_bytes(const struct model_phase *from,
                                const struct model_phase *to)
{
    struct piece x;
    int64_t n = 0;

    for (int layer = 0; layer < to->m->c.n_layers; layer++)
        for (int r = 0; r < to->n_ranks; r++)
            for (int i = 0; i < model_n_layer_mats(&to->m->c); i++)
                for (int64_t k = 0; piece_of(&to->ranks[r].layers[layer].mats[i], k, &x);
                     k++)
                    n += moved_bytes(from, layer, x);
    return n;
}
