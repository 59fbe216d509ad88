/* A mixture of experts in place of the MLP: which experts each row has, their products, and the
 * weighted sum.
 *
 * The router's products determine each row's k experts. Rows are gathered by expert, so that an
 * expert multiplies all its rows at once, and every thread computes its own columns of all experts:
 * of (gate, up) in a first pass, of down in a second one. Since a thread has whole columns of down
 * it adds up what it computed itself, and the sum of a row is in the order of its experts' weights,
 * whatever rows are in the step. A shared expert is one more, which all rows have. Where an
 * accelerator computes a part (step/offload.h), its own sum is added to that of the CPU.
 *   Threads: see step.h. */
#include <math.h>
#include <string.h>

#include "step/step.h"

/* Rows that multiply one expert's matrices. */
struct group {
    int mat;             /* (gate, up) of the layer's matrices; down follows */
    int64_t n;           /* rows */
    int64_t at;          /* of the first one among all gathered rows */
    const int64_t *rows; /* [n] of x; NULL: 0 .. n - 1 */
    float *h;            /* [n, ld_h] */
    int64_t ld_h;
    float *y; /* [n, ld_x] */
};

/* ---- the choice ---- */

/* The k largest of n products, of equal ones the first: out[i] has a larger one than out[i + 1].
 * What is not a number is smaller than all. */
static void largest(const float *x, int n, int k, int32_t *out)
{
    int have = 0;

    for (int i = 0; i < n; i++) {
        float v = isnan(x[i]) ? -INFINITY : x[i];
        int at = have < k ? have : k;

        while (at > 0 && v > (isnan(x[out[at - 1]]) ? -INFINITY : x[out[at - 1]]))
            at--;
        if (at == k)
            continue;
        have += have < k;
        memmove(out + at + 1, out + at, (size_t)(have - 1 - at) * sizeof(*out));
        out[at] = i;
    }
}

/* An expert's score, but for the sum of all that softmax divides by. */
static double score(const struct model_config *c, float x, float max)
{
    return c->router_sigmoid ? 1 / (1 + exp(-(double)x)) : exp((double)(x - max));
}

/* What experts of a row are chosen by where that is not their products alone: of groups that are
 * not chosen nothing is. */
static void judge(const struct model_config *c, const float *x, float max, double sum,
                  const float *choice, float *by)
{
    int size = c->n_groups > 0 ? c->n_experts / c->n_groups : c->n_experts;
    float best[MODEL_MAX_EXPERTS];
    int32_t top[MODEL_MAX_EXPERTS];

    for (int i = 0; i < c->n_experts; i++)
        by[i] = (float)(score(c, x[i], max) / sum) + (choice ? choice[i] : 0);
    for (int g = 0; g < c->n_groups; g++) {
        largest(by + g * size, size, size < 2 ? 1 : 2, top);
        best[g] = by[g * size + top[0]];
        best[g] += choice && size > 1 ? by[g * size + top[1]] : 0;
    }
    if (c->n_groups == 0)
        return;
    largest(best, c->n_groups, c->n_groups, top);
    for (int g = c->n_active_groups; g < c->n_groups; g++)
        for (int i = 0; i < size; i++)
            by[top[g] * size + i] = -INFINITY;
}

/* A row's experts, and their weights: their scores, in proportion where they are to add up to 1. A
 * product that is not a number gives weights that are none. */
static void choose_row(const struct model_config *c, const float *x, const float *choice,
                       int32_t *expert, float *weight)
{
    double sum = c->router_sigmoid ? 1 : 0, chosen = 0;
    float max = -INFINITY, by[MODEL_MAX_EXPERTS];

    for (int i = 0; i < c->n_experts; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < c->n_experts && !c->router_sigmoid; i++)
        sum += score(c, x[i], max);
    if (choice || c->n_groups > 0)
        judge(c, x, max, sum, choice, by);
    largest(choice || c->n_groups > 0 ? by : x, c->n_experts, c->n_active, expert);
    for (int i = 0; i < c->n_active; i++)
        chosen += score(c, x[expert[i]], max);
    for (int i = 0; i < c->n_active; i++)
        weight[i] = (float)(score(c, x[expert[i]], max) / (c->norm_topk ? chosen : sum));
    for (int i = 0; c->expert_scale != 0 && i < c->n_active; i++)
        weight[i] *= c->expert_scale;
    for (int i = 0; c->residual_scale != 0 && i < c->n_active; i++)
        weight[i] *= c->residual_scale;
}

/* Every thread does it for itself: it takes less than to wait for others. */
static void choose(const struct model_thread_ctx *w, int layer)
{
    const struct model_config *c = &w->m->c;
    int64_t k = c->n_active, n = w->n_rows * k;
    struct model_scratch *s = w->own;
    int32_t begin = 0;

    memset(s->first, 0, (size_t)(c->n_experts + 1) * sizeof(*s->first));
    for (int64_t r = 0; r < w->n_rows; r++) {
        const float *x = w->rank->router + r * w->rank->ld_router;

        choose_row(c, x, w->m->layers[layer].router_choice, s->expert + r * k,
                   s->weight + r * k);
    }
    for (int64_t i = 0; i < n; i++)
        s->first[s->expert[i]]++;
    for (int e = 0; e <= c->n_experts; e++) {
        int32_t count = s->first[e];

        s->first[e] = begin;
        begin += count;
    }
    for (int64_t i = 0; i < n; i++) {
        s->at[i] = s->first[s->expert[i]]++;
        s->row[s->at[i]] = i / k;
    }
    memmove(s->first + 1, s->first, (size_t)c->n_experts * sizeof(*s->first));
    s->first[0] = 0;
}

/* ---- the groups ---- */

/* The part of a layer's matrices that the CPU computes. */
static const struct kern_mat *mats_of(const struct model_thread_ctx *w, int layer)
{
    const struct model_offload *o = w->phase->offload;

    return o ? o->views[layer].mats : w->rank->layers[layer].mats;
}

/* How many rows of a group of n the CPU computes. */
static int64_t n_cpu_of(const struct model_thread_ctx *w, int g, int64_t n)
{
    return w->phase->offload ? w->phase->offload->groups[g].n_cpu : n;
}

/* The group of expert g; the number after the last is the shared expert's. */
static struct group group_of(const struct model_thread_ctx *w, int g)
{
    const struct model_config *c = &w->m->c;
    const struct model_scratch *s = w->own;
    struct model_rank *k = w->rank;
    int64_t all = w->n_rows * c->n_active;

    if (g == c->n_experts)
        return (struct group){.mat = MODEL_MAT_GATE_UP,
                              .n = c->hidden > 0 ? n_cpu_of(w, g, w->n_rows) : 0,
                              .at = all,
                              .h = k->h,
                              .ld_h = k->ld_h,
                              .y = k->expert_y + all * w->m->ld_x};
    return (struct group){.mat = model_expert_mat(g),
                          .n = n_cpu_of(w, g, s->first[g + 1] - s->first[g]),
                          .at = s->first[g],
                          .rows = s->row + s->first[g],
                          .h = k->expert_h + s->first[g] * k->ld_expert_h,
                          .ld_h = k->ld_expert_h,
                          .y = k->expert_y + s->first[g] * w->m->ld_x};
}

/* The job of a group's product with its matrix, columns of all rows by each thread. */
static struct kern_gemm_job job_of(const struct model_thread_ctx *w,
                                   const struct group *g, const struct kern_mat *mat,
                                   int i)
{
    struct kern_gemm_job j = model_job_of(w, model_layer_mat_kind(i), mat, g->n);

    j.s.pm = j.s.pk = 1;
    j.s.pn = w->n;
    j.gate = w->m->kern.v[model_gate_op(&w->m->c)];
    j.scratch = w->own->gemm;
    return j;
}

/* Where a group's activations are packed; a row takes at most a float a number, and one factor. */
static char *packed_at(const struct model_thread_ctx *w, const struct group *g)
{
    return (char *)w->rank->a_packed +
           (size_t)(g->at * (w->rank->ld_packed + KERN_PANEL)) * sizeof(float);
}

/* A product multiplies normalised rows of x by (gate, up), or rows of h by down. */
static struct model_rows input_of(const struct group *g, const struct model_rows *x,
                                  const struct kern_mat *mat, bool down)
{
    struct model_rows in = {.x = g->h, .ld = g->ld_h, .k = mat->k};

    if (!down) {
        in = *x;
        in.rows = g->rows;
    }
    in.n = g->n;
    return in;
}

/* Pack the blocks of all groups, each thread its share of them, and wait for the others. */
static void pack_all(struct model_thread_ctx *w, int layer, const struct model_rows *x,
                     bool down)
{
    const struct kern_mat *mats = mats_of(w, layer);
    int n_groups = w->m->c.n_experts + 1;
    int64_t all = 0, lo = 0, hi = 0, at = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n_groups; i++) {
            const struct group g = group_of(w, i);
            const struct kern_mat *mat = &mats[g.mat + down];
            struct kern_gemm_job j;
            struct model_rows in;
            int64_t n_blocks;

            if (g.n == 0 || model_view_empty(mat))
                continue;
            j = job_of(w, &g, mat, g.mat + down);
            n_blocks = kern_a_blocks(g.n, j.s.mr);
            all += pass == 0 ? n_blocks : 0;
            in = input_of(&g, x, mat, down);
            for (int64_t b = 0; b < n_blocks && pass == 1; b++, at++)
                if (at >= lo && at < hi)
                    model_pack_block(w, &j, packed_at(w, &g), &in, b, n_blocks);
        }
        par_share(all, w->id, w->n, &lo, &hi);
    }
    model_sync(w, MODEL_T_NORM_ROPE);
}

/* The packed rows of a group: of a step of one row each thread packs them for itself. */
static const void *packed_of(struct model_thread_ctx *w, const struct group *g,
                             const struct kern_gemm_job *j, const struct model_rows *x,
                             bool down)
{
    struct model_rows in;

    if (w->n_rows > 1)
        return packed_at(w, g);
    in = input_of(g, x, j->w, down);
    return model_pack(w, j, &in);
}

/* ---- the products ---- */

/* Of the rank's columns of an expert's gate and up; NULL: there is none. */
static const float *bias_of(const struct model_thread_ctx *w, int layer, int e)
{
    const struct model_layer *l = &w->m->layers[layer];
    const int64_t n = l->mats[model_expert_mat(e)].n_panels * KERN_PANEL;

    return l->expert_bias
               ? l->expert_bias + e * n + 2 * w->rank->shard.mlp[MODEL_MLP_EXPERT].lo
               : NULL;
}

static void gate_up(struct model_thread_ctx *w, int layer, const struct model_rows *x)
{
    const struct kern_mat *mats = mats_of(w, layer);

    if (w->n_rows > 1)
        pack_all(w, layer, x, false);
    for (int i = 0; i <= w->m->c.n_experts; i++) {
        const struct group g = group_of(w, i);
        struct kern_gemm_job j;

        if (g.n == 0 || model_view_empty(&mats[g.mat]))
            continue;
        j = job_of(w, &g, &mats[g.mat], g.mat);
        j.a_packed = packed_of(w, &g, &j, x, false);
        j.c = g.h;
        j.ldc = g.ld_h;
        j.bias = i < w->m->c.n_experts ? bias_of(w, layer, i) : NULL;
        j.epilogue = KERN_GATED;
        kern_gemm_part(&j, 2, w->id);
        kern_gemm_run(&j);
    }
    model_sync(w, MODEL_T_LINEAR);
}

/* Rows [k_lo, k_hi) of down, of experts or (shared) of the shared expert, by this thread's columns
 * [p_lo, p_hi) in panels: y of every group. */
struct down_part {
    bool experts, shared;
    int64_t k_lo, k_hi, p_lo, p_hi; /* k_hi < 0: all rows */
};

static bool has_group(const struct down_part *d, const struct model_thread_ctx *w, int i)
{
    return i < w->m->c.n_experts ? d->experts : d->shared;
}

static void down(struct model_thread_ctx *w, int layer, const struct down_part *d)
{
    const struct kern_mat *mats = mats_of(w, layer);

    for (int i = 0; i <= w->m->c.n_experts; i++) {
        const struct group g = group_of(w, i);
        const struct kern_mat *mat = &mats[g.mat + 1];
        struct kern_gemm_job j;

        if (g.n == 0 || !has_group(d, w, i) || model_view_empty(mat))
            continue;
        j = job_of(w, &g, mat, g.mat + 1);
        j.a_packed = packed_of(w, &g, &j, NULL, true);
        j.c = g.y;
        j.ldc = w->m->ld_x;
        kern_gemm_part(&j, 1, w->id);
        j.p_lo = d->p_lo, j.p_hi = d->p_hi;
        if (d->k_hi >= 0) {
            j.k_lo = d->k_lo;
            j.k_hi = d->k_hi < mat->k ? d->k_hi : mat->k_pad;
        }
        kern_gemm_run(&j);
    }
}

/* sum = (add ? sum : 0) + weight * y */
static void add_weighted(float *sum, const float *y, float weight, int64_t n, bool add)
{
    if (add)
        for (int64_t i = 0; i < n; i++)
            sum[i] += weight * y[i];
    else
        for (int64_t i = 0; i < n; i++)
            sum[i] = weight * y[i];
}

/* The sigmoid of the router's last product, or 1. */
static float shared_weight(const struct model_thread_ctx *w, int64_t r)
{
    const struct model_config *c = &w->m->c;
    float scale = c->residual_scale != 0 ? c->residual_scale : 1, x;

    if (c->shared_plain)
        return scale;
    x = w->rank->router[r * w->rank->ld_router + c->n_experts];
    return scale * (float)(1 / (1 + exp(-(double)x)));
}

/* Did down() compute the pair of a row and expert e that is the at-th of the step's? */
static bool has_pair(const struct model_thread_ctx *w, const struct kern_mat *mats, int e,
                     int32_t at)
{
    int32_t first = w->own->first[e];

    return !model_view_empty(&mats[model_expert_mat(e) + 1]) &&
           at - first < n_cpu_of(w, e, w->own->first[e + 1] - first);
}

/* The weighted sum over what down() computed for row r, columns [lo, hi). */
static void sum_row(const struct model_thread_ctx *w, int layer,
                    const struct down_part *d, int64_t r, int64_t lo, int64_t hi,
                    float *sum)
{
    const struct kern_mat *mats = mats_of(w, layer);
    const struct model_config *c = &w->m->c;
    int64_t k = c->n_active, ld = w->m->ld_x;
    const float *y = w->rank->expert_y + lo;
    bool add = false;

    for (int64_t i = r * k; i < (r + 1) * k && d->experts; i++) {
        if (!has_pair(w, mats, w->own->expert[i], w->own->at[i]))
            continue;
        add_weighted(sum, y + w->own->at[i] * ld, w->own->weight[i], hi - lo, add);
        add = true;
    }
    if (d->shared && !model_view_empty(&mats[MODEL_MAT_DOWN]) &&
        r < n_cpu_of(w, c->n_experts, w->n_rows)) {
        add_weighted(sum, y + (w->n_rows * k + r) * ld, shared_weight(w, r), hi - lo,
                     add);
        add = true;
    }
    if (!add)
        memset(sum, 0, (size_t)(hi - lo) * sizeof(*sum));
}

/* ---- the sums ---- */

/* Add them to x, over all ranks. */
static void residual(struct model_thread_ctx *w, int layer)
{
    struct down_part d = {.experts = true, .shared = w->m->c.hidden > 0, .k_hi = -1};
    bool alone = w->phase->n_ranks == 1;
    int64_t ld = w->m->ld_x, lo, hi;

    par_share(ld / KERN_PANEL, w->id, w->n, &d.p_lo, &d.p_hi);
    lo = d.p_lo * KERN_PANEL, hi = d.p_hi * KERN_PANEL;
    if (lo < hi)
        down(w, layer, &d);
    for (int64_t r = 0; r < w->n_rows && lo < hi; r++) {
        float *sum = alone ? w->own->stage : w->rank->y + r * ld + lo;

        sum_row(w, layer, &d, r, lo, hi, sum);
        if (alone)
            w->m->kern.v[KERN_ADD]->fn.add(model_sum_at(w) + r * ld + lo, sum, hi - lo);
    }
    model_sync(w, MODEL_T_LINEAR);
    if (!alone)
        model_add_ranks(w);
}

/* One part of a deterministic sum: of the experts, or behind those of the shared expert. */
static void part(struct model_thread_ctx *w, void *ctx, int i, int64_t p_lo, int64_t p_hi,
                 float *out)
{
    const struct model_reduction_boundaries *b = &w->m->mlp_boundaries[MODEL_MLP_EXPERT];
    enum model_mlp mlp = i < b->n ? MODEL_MLP_EXPERT : MODEL_MLP_ALL;
    struct down_part d = {.experts = i < b->n, .shared = i >= b->n};
    int64_t first = w->rank->shard.mlp[mlp].lo, last = w->rank->shard.mlp[mlp].hi, lo, hi;
    int layer = *(const int *)ctx;

    i -= d.shared ? b->n : 0;
    b = &w->m->mlp_boundaries[mlp];
    if (b->at[i] < first || b->at[i + 1] > last)
        return;
    d.k_lo = b->at[i] - first, d.k_hi = b->at[i + 1] - first;
    par_share(p_hi - p_lo, w->id, w->n, &lo, &hi);
    d.p_lo = p_lo + lo, d.p_hi = p_lo + hi;
    if (lo == hi)
        return;
    down(w, layer, &d);
    for (int64_t r = 0; r < w->n_rows; r++)
        sum_row(w, layer, &d, r, d.p_lo * KERN_PANEL, d.p_hi * KERN_PANEL,
                out + (r * (p_hi - p_lo) + lo) * KERN_PANEL);
}

/* ---- what an accelerator computes ---- */

static void begin_offload(struct model_thread_ctx *w, int layer,
                          const struct model_rows *in)
{
    const struct model_offload *o = w->phase->offload;
    const struct model_expert_rows rows = {
        .x = in->x, .n_rows = w->n_rows, .first = w->own->first, .row = w->own->row};

    if (w->id == 0)
        o->begin_experts(o->ctx, layer, &rows);
    model_sync(w, MODEL_T_LINEAR);
}

/* Add its weighted rows to x, each thread to rows of its own. */
static void end_offload(struct model_thread_ctx *w, int layer)
{
    const struct model_config *c = &w->m->c;
    const struct model_offload *o = w->phase->offload;
    const struct model_scratch *s = w->own;
    int64_t k = c->n_active, ld = w->m->ld_x, lo, hi;
    const float *y = NULL;

    if (w->id == 0)
        model_fail(w, o->end_experts(o->ctx, layer, &w->phase->offload_y));
    model_sync(w, MODEL_T_WAIT);
    y = w->phase->offload_y;
    par_share(w->n_rows, w->id, w->n, &lo, &hi);
    for (int64_t r = lo; r < hi && y; r++) {
        for (int64_t i = r * k; i < (r + 1) * k; i++)
            if (s->at[i] - s->first[s->expert[i]] >= o->groups[s->expert[i]].from)
                add_weighted(w->x + r * ld, y + s->at[i] * ld, s->weight[i], ld, true);
        if (c->hidden > 0 && r >= o->groups[c->n_experts].from)
            add_weighted(w->x + r * ld, y + (w->n_rows * k + r) * ld, shared_weight(w, r),
                         ld, true);
    }
    model_sync(w, MODEL_T_LINEAR);
}

/* ---- the operator ---- */

/* Normalise the rows once, since several products read each of them; a single row each thread for
 * itself. */
static void normalise(struct model_thread_ctx *w, struct model_rows *in)
{
    bool one = w->n_rows == 1;
    float *out = one ? w->own->normed : w->rank->normed;
    int64_t lo = 0, hi = 1;

    if (!one)
        par_share(w->n_rows, w->id, w->n, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        model_norm(w->m, out + r * in->ld, in->x + r * in->ld, in->norm_w, in->norm_b,
                   in->k);
    in->x = out;
    in->norm_w = in->norm_b = NULL;
    if (!one)
        model_sync(w, MODEL_T_NORM_ROPE);
}

static void route(struct model_thread_ctx *w, int layer, const struct model_rows *in)
{
    struct kern_gemm_job j =
        model_job(w, MODEL_MAT_ROUTER, &w->rank->layers[layer].mats[MODEL_MAT_ROUTER]);

    j.a_packed = model_pack(w, &j, in);
    j.bias = w->m->layers[layer].router_bias;
    j.c = w->rank->router;
    j.ldc = w->rank->ld_router;
    model_linear(w, &j, 1);
    model_sync(w, MODEL_T_LINEAR);
    choose(w, layer);
}

/* What down() leaves out, once for all ranks' sums. */
static void add_down_biases(struct model_thread_ctx *w, const float *bias)
{
    const struct model_config *c = &w->m->c;
    int64_t lo, hi;

    par_share(w->n_rows, w->id, w->n, &lo, &hi);
    for (int64_t i = lo * c->n_active; i < hi * c->n_active; i++)
        add_weighted(model_sum_at(w) + i / c->n_active * w->m->ld_x,
                     bias + (int64_t)w->own->expert[i] * c->dim, w->own->weight[i],
                     c->dim, true);
    model_sync(w, MODEL_T_LINEAR);
}

void model_experts(struct model_thread_ctx *w, int layer)
{
    const struct model *m = w->m;
    struct model_rows in = model_ffn_rows(w, layer);

    if (in.norm_w)
        normalise(w, &in);
    route(w, layer, &in);
    if (w->phase->offload)
        begin_offload(w, layer, &in);
    gate_up(w, layer, &in);
    if (w->n_rows > 1)
        pack_all(w, layer, NULL, true);
    if (m->deterministic)
        model_sum_parts(
            w, m->mlp_boundaries[MODEL_MLP_EXPERT].n + m->mlp_boundaries[MODEL_MLP_ALL].n,
            part, &layer);
    else
        residual(w, layer);
    if (m->layers[layer].expert_down_bias)
        add_down_biases(w, m->layers[layer].expert_down_bias);
    if (w->phase->offload)
        end_offload(w, layer);
}
