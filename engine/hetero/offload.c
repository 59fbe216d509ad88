#include "hetero/offload.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/state.h"

struct hetero_offload {
    struct model_offload hook;
    struct model *m;
    struct model_phase *phases[2];
    int n_phases, n_mlps; /* n_mlps: of a layer */
    const struct accel_kind *kind;
    struct hetero_device *device;
    struct hetero_layer *models; /* [n_layers n_mlps][2] of one token, of many */
    struct hetero_units *units;  /* [n_layers n_mlps] */
    struct kern_mat *mats;       /* of the views */
    bool no_takeover;
    /* [n_layers][2][max_step_tok + 1] tokens taken over by those that an MLP has, of an expert or
     * of the MLP that every token has; -1: unknown */
    int64_t *n_accel;
    uint64_t opened_ns;
    /* The running layer: */
    int rc;
    bool runs; /* the accelerator computes a part of it */
    uint64_t begin_ns;
    double begin_s, cpu_s, unreal_s; /* cpu_s: by the model */
};

static int64_t *n_accel_of(const struct hetero_offload *o, int layer, bool expert,
                           int64_t n_rows)
{
    return &o->n_accel[(2 * layer + expert) * (o->m->max_step_tok + 1) + n_rows];
}

/* The rows of an MLP from `first` on, with those that the accelerator takes over. */
static struct hetero_rows rows_of(struct hetero_offload *o, int layer, int mlp,
                                  int64_t first, int64_t n)
{
    int at = layer * o->n_mlps + mlp;
    int64_t *n_accel = n_accel_of(o, layer, mlp < o->m->c.n_experts, n);

    if (n <= 1 || o->no_takeover)
        return (struct hetero_rows){first, n, 0};
    if (*n_accel < 0) { /* experts of a layer are taken to be sliced alike */
        struct hetero_layer l = o->models[2 * at + 1];

        l.gemm.n_tok = n;
        (void)hetero_best_tokens(&l, o->units[at].cg, o->units[at].gg, n_accel);
    }
    return (struct hetero_rows){first, n, *n_accel};
}

/* The time of the CPU's part by the model. */
static double cpu_s(const struct hetero_offload *o, int at, struct hetero_rows r)
{
    const struct hetero_layer *l = &o->models[2 * at + (r.n > 1)];
    double cc = 1 - (double)(o->units[at].cg + o->units[at].gg) / l->n_units;

    return l->n_gemms * hetero_product_s(&l->machine, false,
                                         cc * (double)(l->gemm.m * l->gemm.h),
                                         (double)(r.n - r.n_accel));
}

/* Send the rows of a layer that the accelerator has a part of. */
static int start(struct hetero_offload *o, const float *x, int64_t n_rows)
{
    o->begin_ns = clock_ns();
    TRY(hetero_device_wait(o->device, &o->begin_s));
    return hetero_device_send(o->device, x, n_rows);
}

static int64_t begin(void *ctx, int layer, int64_t n_rows)
{
    struct hetero_offload *o = ctx;
    struct hetero_rows r = rows_of(o, layer, 0, 0, n_rows);

    o->rc = OK;
    o->runs = hetero_device_from(o->device, layer, r) < n_rows;
    if (!o->runs)
        return n_rows;
    o->cpu_s = cpu_s(o, layer, r);
    o->rc = start(o, o->hook.x, n_rows);
    if (o->rc == OK)
        o->rc = hetero_device_begin(o->device, layer, r);
    return n_rows - r.n_accel;
}

/* Time that is not of a run with a real accelerator; end_s: when it was ready. */
static void account(struct hetero_offload *o, double end_s)
{
    double wall_s;

    if (o->kind->real_time) {
        /* Its clock stands still while it computes what a device would. */
        o->unreal_s = 1e-9 * (double)(clock_ns() - o->opened_ns) - end_s;
        return;
    }
    /* Virtual time: the layer takes as long as the model says, whatever this host took. */
    wall_s = 1e-9 * (double)(clock_ns() - o->begin_ns);
    o->unreal_s += wall_s - fmax(end_s - o->begin_s, o->cpu_s);
}

static int end(void *ctx, int layer, float *y)
{
    struct hetero_offload *o = ctx;
    double end_s;

    (void)layer;
    if (!o->runs || o->rc != OK)
        return o->rc;
    TRY(hetero_device_end(o->device, y, &end_s));
    account(o, end_s);
    return OK;
}

/* ---- experts ---- */

/* The rows of group g, as the device has them. */
static struct hetero_rows group_rows(struct hetero_offload *o, int layer,
                                     const struct model_expert_rows *e, int g)
{
    int n_experts = o->m->c.n_experts;

    return g == n_experts
               ? rows_of(o, layer, g, e->first[g], e->n_rows)
               : rows_of(o, layer, g, e->first[g], e->first[g + 1] - e->first[g]);
}

/* x of each pair, and behind them that of each row for a shared expert. */
static int64_t gather(struct hetero_offload *o, const struct model_expert_rows *e)
{
    const struct model_config *c = &o->m->c;
    int64_t n = e->first[c->n_experts], ld = o->m->ld_x;

    for (int64_t i = 0; i < n; i++)
        memcpy(o->hook.x + i * ld, e->x + e->row[i] * ld, (size_t)ld * sizeof(float));
    if (c->hidden == 0)
        return n;
    memcpy(o->hook.x + n * ld, e->x, (size_t)(e->n_rows * ld) * sizeof(float));
    return n + e->n_rows;
}

static void begin_experts(void *ctx, int layer, const struct model_expert_rows *e)
{
    struct hetero_offload *o = ctx;
    int first = layer * o->n_mlps;

    o->rc = OK;
    o->runs = false;
    o->cpu_s = 0;
    for (int g = 0; g < o->n_mlps; g++) {
        struct hetero_rows r = group_rows(o, layer, e, g);
        struct model_offload_group *group = &o->hook.groups[g];

        group->n_cpu = r.n - r.n_accel;
        group->from = hetero_device_from(o->device, first + g, r);
        o->runs |= group->from < r.n;
        o->cpu_s += r.n > 0 ? cpu_s(o, first + g, r) : 0;
    }
    if (o->runs)
        o->rc = start(o, o->hook.x, gather(o, e));
    for (int g = 0; g < o->n_mlps && o->runs && o->rc == OK; g++) {
        struct hetero_rows r = group_rows(o, layer, e, g);

        if (o->hook.groups[g].from < r.n)
            o->rc = hetero_device_begin(o->device, first + g, r);
    }
}

static int end_experts(void *ctx, int layer, const float **y)
{
    struct hetero_offload *o = ctx;
    double end_s;

    (void)layer;
    *y = NULL;
    if (!o->runs || o->rc != OK)
        return o->rc;
    TRY(hetero_device_take(o->device, y, &end_s));
    account(o, end_s);
    return OK;
}

/* ---- open ---- */

/* The number of (gate, up) of an MLP among the layer's matrices; down follows. */
static int mat_of(const struct model_config *c, int mlp)
{
    return mlp < c->n_experts ? model_expert_mat(mlp) : MODEL_MAT_GATE_UP;
}

static void open_views(struct hetero_offload *o, struct model_view *views,
                       struct hetero_mlp *mlps)
{
    const struct model_config *c = &o->m->c;
    int n_mats = model_n_layer_mats(c);

    for (int i = 0; i < c->n_layers * o->n_mlps; i++) {
        int layer = i / o->n_mlps, at = mat_of(c, i % o->n_mlps), cc;
        struct kern_mat *view = &o->mats[(size_t)layer * (size_t)n_mats];
        const struct model_layer *l = &o->m->layers[layer];
        struct hetero_mlp part;

        if (i % o->n_mlps == 0)
            view[MODEL_MAT_ROUTER] = l->mats[MODEL_MAT_ROUTER];
        views[layer].mats = view;
        mlps[i] = (struct hetero_mlp){l->mats[at], l->mats[at + 1]};
        cc = hetero_mlp_units(&mlps[i]) - o->units[i].cg - o->units[i].gg;
        if (cc <= 0)
            continue;
        hetero_mlp_slice(&part, &mlps[i], 0, cc);
        view[at] = part.gate_up;
        view[at + 1] = part.down;
    }
}

static void open_models(struct hetero_offload *o, const struct hetero_machine *machines,
                        const struct hetero_mlp *mlps)
{
    const struct model_config *c = &o->m->c;

    for (int i = 0; i < 2 * c->n_layers * o->n_mlps; i++) {
        const struct kern_mat *down = &mlps[i / 2].down;

        o->models[i] = (struct hetero_layer){
            .machine = machines[i % 2],
            .gemm = {1, c->dim, down->k, kern_type_weight_bytes(down->type)},
            .n_gemms = HETERO_N_GEMMS,
            .n_units = (int)down->n_units};
    }
}

/* Rows of x and y in a step. */
static int64_t max_rows(const struct model *m)
{
    return m->max_step_tok * (m->c.n_experts > 0 ? m->c.n_active + (m->c.hidden > 0) : 1);
}

static int open_device(struct hetero_offload *o, const struct hetero_offload_opts *opts)
{
    int n = o->m->c.n_layers * o->n_mlps;
    struct hetero_mlp *mlps = mem_new(MEM_OTHER, (size_t)n, sizeof(*mlps));
    struct model_view *views =
        mem_new(MEM_OTHER, (size_t)o->m->c.n_layers, sizeof(*views));
    int rc = mlps && views ? OK : ERR_NOMEM;

    o->hook.views = views;
    if (rc == OK) {
        open_views(o, views, mlps);
        open_models(o, opts->machines, mlps);
        rc = hetero_device_open(
            &o->device, &(struct hetero_device_opts){.kind = o->kind,
                                                     .accel = opts->accel,
                                                     .layers = mlps,
                                                     .units = o->units,
                                                     .n_layers = n,
                                                     .max_tok = o->m->max_step_tok,
                                                     .ld = o->m->ld_x,
                                                     .max_rows = max_rows(o->m)});
    }
    o->opened_ns = clock_ns();
    if (rc == OK && o->kind->real_time) { /* its clock began with it */
        double s;

        rc = hetero_device_wait(o->device, &s);
        o->opened_ns = clock_ns() - (uint64_t)(1e9 * s);
    }
    mem_free(mlps);
    return rc;
}

static int allocate(struct hetero_offload *o, const struct hetero_offload_opts *opts)
{
    const struct model_config *c = &o->m->c;
    size_t n_layers = (size_t)c->n_layers, n = n_layers * (size_t)o->n_mlps;
    size_t n_accel = 2 * n_layers * (size_t)(o->m->max_step_tok + 1);

    if (opts->n_units != (int)n)
        return err_set(ERR_ARG, "slices of %d MLPs: expected %d", opts->n_units, (int)n);
    o->mats =
        mem_new(MEM_OTHER, n_layers * (size_t)model_n_layer_mats(c), sizeof(*o->mats));
    o->models = mem_new(MEM_OTHER, 2 * n, sizeof(*o->models));
    o->units = mem_new(MEM_OTHER, n, sizeof(*o->units));
    o->n_accel = mem_new(MEM_OTHER, n_accel, sizeof(*o->n_accel));
    o->hook.groups =
        mem_new(MEM_OTHER, (size_t)c->n_experts + 1, sizeof(*o->hook.groups));
    o->hook.x = mem_new(MEM_OTHER, (size_t)(max_rows(o->m) * o->m->ld_x), sizeof(float));
    if (!o->mats || !o->models || !o->units || !o->n_accel || !o->hook.groups ||
        !o->hook.x)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        o->units[i] = opts->units[i];
    for (size_t i = 0; i < n_accel; i++)
        o->n_accel[i] = -1;
    return OK;
}

int hetero_offload_open(struct hetero_offload **out, struct model *m,
                        struct model_phase **phases, int n_phases,
                        const struct hetero_offload_opts *opts)
{
    struct hetero_offload *o = mem_new(MEM_OTHER, 1, sizeof(*o));
    int rc;

    *out = o;
    if (!o)
        return ERR_NOMEM;
    *o = (struct hetero_offload){.hook = {.ctx = o,
                                          .begin = begin,
                                          .end = end,
                                          .begin_experts = begin_experts,
                                          .end_experts = end_experts},
                                 .m = m,
                                 .kind = opts->kind,
                                 .n_mlps = hetero_n_mlps(&m->c)};
    o->no_takeover = opts->no_takeover;
    rc = allocate(o, opts);
    if (rc == OK)
        rc = open_device(o, opts);
    for (int i = 0; i < n_phases && rc == OK; i++) {
        rc = model_phase_offload_set(phases[i], &o->hook);
        if (rc == OK)
            o->phases[o->n_phases++] = phases[i];
    }
    if (rc != OK)
        hetero_offload_close(out);
    return rc;
}

void hetero_offload_close(struct hetero_offload **out)
{
    struct hetero_offload *o = *out;

    if (!o)
        return;
    for (int i = 0; i < o->n_phases; i++)
        if (model_phase_offload_set(o->phases[i], NULL) != OK) /* NULL is always taken */
            err_clear();
    hetero_device_close(&o->device);
    mem_free((void *)o->hook.views);
    mem_free(o->hook.x);
    mem_free(o->hook.groups);
    mem_free(o->mats);
    mem_free(o->models);
    mem_free(o->units);
    mem_free(o->n_accel);
    mem_free(o);
    *out = NULL;
}

double hetero_offload_unreal_s(const struct hetero_offload *o)
{
    return o->unreal_s;
}

int64_t hetero_offload_tokens(const struct hetero_offload *o, int64_t n_tok)
{
    int64_t n = n_tok > 1 ? *n_accel_of(o, 0, o->m->c.n_experts > 0, n_tok) : 0;

    return n > 0 ? n : 0;
}
