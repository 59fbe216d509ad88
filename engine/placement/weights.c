/* The packed weights: in which type each is kept, and where it is in the one mapping. */
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/file_map.h"
#include "base/log.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "format/fill.h"
#include "kernels/gemm.h"
#include "model/act.h"
#include "model/shard.h"
#include "placement/open.h"
#include "placement/placement.h"
#include "placement/weights.h"

/* Hands out pieces of one mapping; with base == NULL it only counts. */
struct arena {
    char *base;
    size_t used;
};

static void *take(struct arena *a, size_t bytes)
{
    void *p = a->base ? a->base + a->used : NULL;

    a->used += (bytes + 63) & ~(size_t)63;
    return p;
}

/* ---- types ---- */

/* The type to keep a matrix in that is built from n tensors. */
static int kept_type(enum kern_type *out, enum kern_type want,
                     const struct format_tensor *const *t, int n, const char *what)
{
    const struct format_tensor *other = t[0];
    bool plain = true;

    for (int i = 0; i < n; i++) {
        plain &= !kern_type_quantised(t[i]->type);
        other = t[i]->type != t[0]->type ? t[i] : other;
    }
    *out = want != KERN_N_TYPES ? want : other == t[0] ? t[0]->type : KERN_F32;
    if (want == KERN_N_TYPES && other != t[0] && !plain)
        return err_set(ERR_UNSUPPORTED,
                       "%s: expected tensors of one quantised type, found %s and %s "
                       "(with --weight-type f32 they are kept as f32)",
                       what, kern_type_name(t[0]->type), kern_type_name(other->type));
    for (int i = 0; i < n && *out != KERN_F32; i++) {
        if (t[i]->type != *out)
            return err_set(ERR_UNSUPPORTED,
                           "weight_type: %s is stored as %s and cannot be kept as %s "
                           "without losing precision",
                           what, kern_type_name(t[i]->type), kern_type_name(*out));
    }
    return OK;
}

/* ---- layout ---- */

static void layout(struct kern_mat *mat, enum kern_type type, const struct model_shape *x)
{
    kern_mat_layout(mat, type, x->n, x->k, x->k_unit);
}

static int layout_layer(struct model *m, const struct format_file *f, enum kern_type want,
                        int layer)
{
    static const char *const what[MODEL_MAT_HEAD] = {
        [MODEL_MAT_QKV] = "the QKV projection",
        [MODEL_MAT_V] = "the projections of K and V",
        [MODEL_MAT_Q_A] = "the first matrix of queries",
        [MODEL_MAT_LATENT_K] = "queries of latent attention",
        [MODEL_MAT_LATENT_V] = "values of latent attention",
        [MODEL_MAT_O] = "the attention output",
        [MODEL_MAT_GATE_UP] = "gate and up",
        [MODEL_MAT_DOWN] = "the down projection",
        [MODEL_MAT_DENSE_GATE_UP] = "gate and up of a layer without experts",
        [MODEL_MAT_DENSE_DOWN] = "the down projection of a layer without experts",
        [MODEL_MAT_EXPERT_GATE_UP] = "an expert's gate and up",
        [MODEL_MAT_EXPERT_DOWN] = "an expert's down projection",
    };
    struct model_shape x[MODEL_N_MATS];

    model_shapes(&m->c, x);
    if (m->one_rank)
        model_shapes_join(x);
    for (int i = 0; i < model_n_layer_mats(&m->c); i++) {
        enum model_mat which = model_layer_mat_kind(i);
        const struct format_tensor *from[3];
        int n = model_mat_tensors(m, f, layer, i, from);
        enum kern_type type = KERN_F32; /* of a router */

        if (n == 0)
            continue;
        if (which != MODEL_MAT_ROUTER)
            TRY(kept_type(&type, want, from, n, what[which]));
        layout(&m->layers[layer].mats[i], type, &x[which]);
    }
    return OK;
}

static int layout_all(struct model *m, const struct format_file *f, enum kern_type want)
{
    const struct format_tensor *head[] = {
        &f->global[m->c.tied ? FORMAT_EMBED : FORMAT_HEAD]};
    struct model_shape x[MODEL_N_MATS];
    enum kern_type type;
    int rc = OK;

    for (int i = 0; i < m->c.n_layers && rc == OK; i++)
        rc = layout_layer(m, f, want, i);
    if (rc == OK)
        rc = kept_type(&type, want, head, 1, "the output head");
    if (rc != OK)
        return rc;
    model_shapes(&m->c, x);
    layout(&m->head, type, &x[MODEL_MAT_HEAD]);
    m->embed_type = f->global[FORMAT_EMBED].type;
    m->embed_row_bytes = kern_type_size(m->embed_type, m->c.dim);
    return OK;
}

static float *take_floats(struct arena *a, int64_t n)
{
    return take(a, (size_t)n * sizeof(float));
}

#define AT(member) offsetof(struct model_layer, member)
const struct model_layer_vector model_layer_vectors[] = {
    {FORMAT_ATTN_NORM, AT(attn_norm)},
    {FORMAT_O_BIAS, AT(o_bias)},
    {FORMAT_ATTN_AFTER, AT(attn_after)},
    {FORMAT_FFN_NORM, AT(ffn_norm)},
    {FORMAT_FFN_AFTER, AT(ffn_after)},
    {FORMAT_ATTN_NORM_BIAS, AT(attn_norm_bias)},
    {FORMAT_FFN_NORM_BIAS, AT(ffn_norm_bias)},
    {FORMAT_DOWN_BIAS, AT(down_bias)},
    {FORMAT_N_ROLES, 0},
};
#undef AT

/* The vectors of a layer besides its first norm. */
static void place_vectors(const struct model *m, int layer, struct arena *a)
{
    struct model_layer *l = &m->layers[layer];

    if (m->c.qkv_bias)
        l->qkv_bias = take_floats(a, l->mats[MODEL_MAT_QKV].n_panels * KERN_PANEL);
    if (m->c.qkv_bias && m->c.v_split)
        l->v_bias = take_floats(a, l->mats[MODEL_MAT_V].n_panels * KERN_PANEL);
    if (m->c.sinks)
        l->sinks = take_floats(a, m->c.n_heads);
    if (m->c.latent_dim > 0)
        l->latent_norm = take_floats(a, m->c.latent_dim);
    if (m->c.q_rank > 0)
        l->q_a_norm = take_floats(a, m->c.q_rank);
    if (format_role_needed(&m->c, FORMAT_ROUTER_CHOICE, layer))
        l->router_choice = take_floats(a, m->c.n_experts);
    if (format_role_needed(&m->c, FORMAT_ROUTER_BIAS, layer)) {
        int64_t columns = l->mats[model_expert_mat(0)].n_panels * KERN_PANEL;

        l->router_bias = take_floats(a, l->mats[MODEL_MAT_ROUTER].n_panels * KERN_PANEL);
        l->expert_bias = take_floats(a, m->c.n_experts * columns);
        l->expert_down_bias = take_floats(a, (int64_t)m->c.n_experts * m->c.dim);
    }
    if (m->c.mlp_bias)
        l->up_bias = take_floats(a, l->mats[MODEL_MAT_GATE_UP].n_panels * KERN_PANEL);
    if (m->c.qk_norm) {
        int64_t rows, q, k;

        format_role_shape(&m->c, FORMAT_Q_NORM, &rows, &q);
        format_role_shape(&m->c, FORMAT_K_NORM, &rows, &k);
        l->q_norm = take_floats(a, q);
        l->k_norm = take_floats(a, k);
    }
    for (int i = 1; model_layer_vectors[i].role != FORMAT_N_ROLES; i++)
        if (format_role_needed(&m->c, model_layer_vectors[i].role, layer))
            *model_layer_vector(l, i) = take_floats(a, m->c.dim);
}

/* Give every piece its place; the order is the order of use in a step. */
static void place_all(struct model *m, struct arena *a)
{
    size_t dim_bytes = (size_t)m->c.dim * sizeof(float);

    if (!m->c.tied)
        m->embed = take(a, (size_t)m->c.vocab * m->embed_row_bytes);
    for (int i = 0; i < m->c.n_layers; i++) {
        struct model_layer *l = &m->layers[i];

        if (format_role_needed(&m->c, FORMAT_ATTN_NORM, i))
            l->attn_norm = take(a, dim_bytes);
        for (int k = 0; k < model_n_layer_mats(&m->c); k++) {
            if (k == MODEL_MAT_O)
                place_vectors(m, i, a);
            if (l->mats[k].n_panels > 0)
                l->mats[k].data = take(a, l->mats[k].bytes);
        }
    }
    m->out_norm = take(a, dim_bytes);
    if (m->c.norm_bias)
        m->out_norm_bias = take(a, dim_bytes);
    m->head.data = take(a, m->head.bytes);
}

/* The last vocabulary panel as a matrix of its own, so that its padding columns never
 * land in the caller's next row of logits. */
static void split_head_tail(struct model *m)
{
    int64_t last = m->head.n_panels - 1;

    m->head_tail = m->head;
    m->head_tail.n = m->head.n - last * KERN_PANEL;
    m->head_tail.n_panels = 1;
    m->head_tail.data = kern_mat_at(&m->head, 0, last);
}

/* Bytes of rows of k weights. */
static int64_t rows_bytes(enum kern_type type, int64_t rows, int64_t k)
{
    return rows * (int64_t)kern_type_size(type, k);
}

/* Bytes of the file's tensors in the types that they are kept in. */
static int64_t mat_tensor_bytes(const struct model *m, const struct format_file *f)
{
    const struct model_config *c = &m->c;
    int64_t n = 0;

    for (int i = 0; i < c->n_layers; i++) {
        for (int k = 0; k < model_n_layer_mats(c); k++) {
            const struct format_tensor *t[3];
            int n_tensors = model_mat_tensors(m, f, i, k, t);

            for (int j = 0; j < n_tensors; j++)
                n += rows_bytes(m->layers[i].mats[k].type, t[j]->rows, t[j]->cols);
        }
        n += model_config_n_vector_params(c, i) * (int64_t)sizeof(float);
    }
    n += rows_bytes(m->head.type, c->vocab, c->dim);
    if (!c->tied)
        n += rows_bytes(m->embed_type, c->vocab, c->dim);
    return n + (1 + c->norm_bias) * (int64_t)c->dim * (int64_t)sizeof(float);
}

/* ---- memory ---- */

/* About what phases and threads take for a step of the largest size: each rank's residual
 * streams, the columns of all ranks, their packed copies, and the threads' scratch. */
static int64_t step_bytes(const struct model *m, const struct model_opts *o)
{
    const struct model_layer *l = &m->layers[m->c.n_dense];
    int64_t n_ranks = o->owners.n_ranks > 0 ? o->owners.n_ranks : 1;
    int64_t pairs = m->c.n_active * (m->ld_x + 2 * m->k_max);
    int64_t row = 4 * n_ranks * m->ld_x + pairs +
                  (l->mats[MODEL_MAT_QKV].n_panels + l->mats[MODEL_MAT_V].n_panels +
                   l->mats[MODEL_MAT_GATE_UP].n_panels + l->mats[MODEL_MAT_Q_A].n_panels +
                   m->layers[0].mats[MODEL_MAT_DENSE_GATE_UP].n_panels) *
                      KERN_PANEL +
                  l->mats[MODEL_MAT_O].k;
    int64_t thread = KERN_GEMM_SCRATCH_BYTES + KERN_ATTN_SCRATCH_BYTES(m->c.head_dim);

    return m->max_step_tok * row * (int64_t)sizeof(float) + m->n_threads * thread;
}

/* The system would end the process later, while it packs, with no word but "Killed". */
static int check_memory(const struct model *m, const struct format_file *f,
                        const struct model_opts *o)
{
    double weights = (double)m->weights_bytes, steps = (double)step_bytes(m, o);
    double need = weights + steps + (double)o->caller_bytes;
    struct cpu_memory have;
    int rc = cpu_memory_get(&have);

    if (rc != OK || need <= (double)have.bytes)
        return rc;
    return err_set(
        ERR_NOMEM,
        "%s: %.3f GB of memory are needed (weights %.3f, keys, values and "
        "logits %.3f, activations %.3f), but %.3f GB are available (%s): raise "
        "the limit, lower max_seqs or max_tok, or choose a smaller model",
        f->path, need * 1e-9, weights * 1e-9, (double)o->caller_bytes * 1e-9,
        steps * 1e-9, (double)have.bytes * 1e-9, have.reason);
}

/* ---- checking ---- */

struct not_finite {
    int64_t n;
    char first[MODEL_NAME_BYTES + 64];
};

static void check_norm(struct not_finite *bad, const struct model *m,
                       const struct format_file *f, enum format_role role, int layer)
{
    struct model_layer *l = &m->layers[layer];
    const float *w = role == FORMAT_OUT_NORM    ? m->out_norm
                     : role == FORMAT_Q_NORM    ? l->q_norm
                     : role == FORMAT_KV_A_NORM ? l->latent_norm
                     : role == FORMAT_Q_A_NORM  ? l->q_a_norm
                                                : l->k_norm;
    char name[MODEL_NAME_BYTES];
    int64_t rows, n;

    for (int i = 0; model_layer_vectors[i].role != FORMAT_N_ROLES; i++)
        w = model_layer_vectors[i].role == role ? *model_layer_vector(l, i) : w;
    if (!w)
        return;
    format_role_shape(&m->c, role, &rows, &n);
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(w[i]) || bad->n++ > 0)
            continue;
        format_tensor_name(f, role, layer, 0, name);
        snprintf(bad->first, sizeof(bad->first), "%s: number %lld of %lld is %g", name,
                 (long long)i, (long long)n, w[i]);
    }
}

/* Every norm weight takes part in every token, so one that is not finite spoils all
 * output. They are few, so that checking them costs nothing. The other weights are judged
 * by the logits that they give, when a token is chosen. */
static void check_norms(const struct model *m, const struct format_file *f)
{
    struct not_finite bad = {0};

    for (int i = 0; i < m->c.n_layers; i++) {
        check_norm(&bad, m, f, FORMAT_ATTN_NORM, i);
        check_norm(&bad, m, f, FORMAT_ATTN_AFTER, i);
        check_norm(&bad, m, f, FORMAT_FFN_NORM, i);
        check_norm(&bad, m, f, FORMAT_FFN_AFTER, i);
        check_norm(&bad, m, f, FORMAT_Q_NORM, i);
        check_norm(&bad, m, f, FORMAT_K_NORM, i);
        check_norm(&bad, m, f, FORMAT_KV_A_NORM, i);
        check_norm(&bad, m, f, FORMAT_Q_A_NORM, i);
    }
    check_norm(&bad, m, f, FORMAT_OUT_NORM, 0);
    if (bad.n > 0)
        log_warning(
            "weights_not_finite", (double)bad.n, 0,
            "%lld norm weights of the model are NaN or infinite, so that it cannot "
            "compute any token; the first one: %s",
            (long long)bad.n, bad.first);
}

/* A router's weights decide which others are read at all, so they are not left to be judged by
 * their results. */
static int check_router(const struct model *m, const struct format_file *f, int layer)
{
    const struct kern_mat *w = &m->layers[layer].mats[MODEL_MAT_ROUTER];
    char name[MODEL_NAME_BYTES];
    float *row = mem_new(MEM_WEIGHTS, (size_t)w->k, sizeof(*row));
    int rc = row ? OK : ERR_NOMEM;

    for (int64_t n = 0; n < w->n && rc == OK; n++) {
        kern_mat_get_row(w, n, row);
        for (int64_t i = 0; i < w->k && rc == OK; i++) {
            if (isfinite(row[i]))
                continue;
            format_tensor_name(f,
                               n < m->c.n_experts ? FORMAT_ROUTER : FORMAT_SHARED_SCALE,
                               layer, 0, name);
            rc = err_set(ERR_FORMAT,
                         "%s: tensor %s: row %lld: expected finite weights, found %g",
                         f->path, name, (long long)(n < m->c.n_experts ? n : 0), row[i]);
        }
    }
    mem_free(row);
    return rc;
}

/* Bytes that this process has read from disks so far. */
static int64_t disk_bytes(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_inblock * 512 : 0;
}

/* Seconds of a thread, of the nanoseconds of all. */
static double each_s(const struct model *m, long long ns)
{
    int n = 0;

    for (int t = 0; t < m->n_threads; t++)
        n += m->placement->helpers[t].n > 0;
    return (double)ns * 1e-9 / n;
}

/* Pack f's tensors into m (m->c, kern and team are set). */
static int pack_weights(struct model *m, const struct format_file *f,
                        const struct model_opts *o)
{
    struct format_filling k = {.m = m, .f = f, .o = o};
    struct arena a = {0};
    int64_t from_disk = disk_bytes();
    uint64_t t0 = clock_ns();
    int rc;

    if (mem_rss_peak_reset() != OK)
        err_clear(); /* the peak recorded is then that of the whole process */
    rc = model_placement_open(m, &o->owners);
    if (rc == OK)
        rc = layout_all(m, f, o->weight_type);
    if (rc != OK)
        return rc;
    place_all(m, &a);
    m->weights_bytes = a.used;
    rc = check_memory(m, f, o);
    if (rc != OK)
        return rc;
    m->weights = mem_map(MEM_WEIGHTS, m->weights_bytes, MEM_NODE_ANY);
    if (!m->weights)
        return ERR_NOMEM;
    a = (struct arena){.base = m->weights};
    place_all(m, &a);
    split_head_tail(m);
    rc = model_placement_bind(m);
    if (rc != OK)
        return rc;
    k.all_bytes = (int64_t)m->weights_bytes;
    par_team_run(m->team, par_team_size(m->team), model_weights_fill, &k);
    rc = file_map_check();
    if (rc != OK)
        return rc;
    check_norms(m, f);
    for (int i = 0; i < m->c.n_layers; i++)
        if (model_has_experts(&m->c, i))
            TRY(check_router(m, f, i));
    if (o->progress) /* norms and rounding make up the rest */
        o->progress(o->progress_ctx, k.all_bytes, k.all_bytes);
    m->load.tensor_bytes = mat_tensor_bytes(m, f);
    m->load.packed_bytes = (int64_t)m->weights_bytes;
    m->load.file_bytes = f->file_bytes;
    m->load.load_s = (double)(clock_ns() - t0) * 1e-9;
    m->load.load_gbps = (double)m->load.tensor_bytes / m->load.load_s * 1e-9;
    m->load.read_s = each_s(m, k.read_ns);
    m->load.pack_s = each_s(m, k.pack_ns);
    m->load.disk_bytes = disk_bytes() - from_disk;
    m->load.rss_peak_bytes = (int64_t)mem_rss_peak_bytes();
    return OK;
}

static void derive_shapes(struct model *m)
{
    const struct model_config *c = &m->c;

    m->group = c->n_heads / c->n_kv_heads;
    m->attn_scale = c->attn_scale > 0 ? c->attn_scale : 1.0f / sqrtf((float)c->head_dim);
    m->qkv_unit = model_qkv_unit(c);
    m->v_unit = model_v_unit(c);
    m->ld_x = model_pad16(c->dim);
    m->k_max = model_pad16(c->hidden > c->dense_hidden ? c->hidden : c->dense_hidden);
    if (c->n_experts > 0 && model_pad16(c->expert_hidden) > m->k_max)
        m->k_max = model_pad16(c->expert_hidden);
    m->k_max = m->ld_x > m->k_max ? m->ld_x : m->k_max;
    m->k_max = model_pad16(c->q_rank) > m->k_max ? model_pad16(c->q_rank) : m->k_max;
    if ((int64_t)c->n_heads * c->head_dim > m->k_max)
        m->k_max = (int64_t)c->n_heads * c->head_dim;
}

static int check_opts(const struct model *m, const struct model_opts *o)
{
    if (o->max_step_tok < 1 || o->max_step_tok > 65536)
        return err_set(ERR_ARG, "max_step_tok: expected 1 to 65536, found %lld",
                       (long long)o->max_step_tok);
    if (o->max_tok < 0 || o->max_tok > m->c.max_tok)
        return err_set(
            ERR_LIMIT,
            "--max-tok (max_tok): expected at most the %d tokens that the model "
            "is made for, found %lld",
            m->c.max_tok, (long long)o->max_tok);
    if (o->deterministic && o->precision != KERN_EXACT)
        return err_set(ERR_ARG, "deterministic: expected precision exact");
    if (m->group > KERN_ATTN_ROWS_MAX)
        return err_set(ERR_LIMIT, "%d query heads per KV head, at most %d", m->group,
                       KERN_ATTN_ROWS_MAX);
    return OK;
}

static int take_layers(struct model *m)
{
    size_t n = (size_t)m->c.n_layers, n_mats = (size_t)model_n_layer_mats(&m->c);

    m->layers = mem_new(MEM_WEIGHTS, n, sizeof(m->layers[0]));
    m->mats = mem_new(MEM_WEIGHTS, n * n_mats, sizeof(m->mats[0]));
    for (size_t i = 0; m->layers && m->mats && i < n; i++)
        m->layers[i].mats = m->mats + i * n_mats;
    return m->layers && m->mats ? OK : ERR_NOMEM;
}

int model_open(struct model **out, const struct format_file *f, struct par_team *team,
               const struct model_opts *o)
{
    struct model *m;
    int rc;

    *out = NULL;
    m = mem_new(MEM_WEIGHTS, 1, sizeof(*m));
    if (!m)
        return ERR_NOMEM;
    m->c = f->config;
    m->team = team;
    m->n_threads = par_team_size(team);
    m->kv_type = o->kv_type;
    m->shared = o->shared;
    m->max_step_tok = o->max_step_tok;
    m->max_tok = o->max_tok > 0 ? o->max_tok : f->config.max_tok;
    derive_shapes(m);
    rc = check_opts(m, o);
    if (rc != OK)
        goto out;
    rc = take_layers(m);
    if (rc != OK)
        goto out;
    kern_table_choose(&m->kern, cpu_isa_usable(), o->precision);
    model_choose_attn(m, cpu_bf16_dot_fast());
    m->deterministic = o->deterministic;
    m->one_rank = o->one_rank && !o->deterministic;
    if (o->deterministic) {
        kern_table_batch_invariant(&m->kern, cpu_isa_usable());
        model_boundaries_set(m);
    }
    model_cap_attn(m);
    rc = pack_weights(m, f, o);
    if (rc == OK)
        rc = model_choose_gemm(m, o->precision);
    if (rc == OK)
        rc = model_act_open(m);
    if (rc == OK)
        *out = m, m = NULL; /* the caller's now */
out:
    model_close(&m);
    return rc;
}

void model_close(struct model **mp)
{
    struct model *m = *mp;

    if (!m)
        return;
    if (m->weights)
        mem_unmap(MEM_WEIGHTS, m->weights, m->weights_bytes);
    if (m->act)
        mem_unmap(MEM_ACTIVATIONS, m->act, m->act_bytes);
    model_placement_close(&m->placement);
    mem_free(m->scratch);
    mem_free(m->mats);
    mem_free(m->layers);
    mem_free(m);
    *mp = NULL;
}
