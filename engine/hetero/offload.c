#include "hetero/offload.h"

#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/state.h"

struct hetero_offload {
    struct model_offload hook;
    struct model *m;
    struct model_phase *phases[2];
    int n_phases;
    const struct accel_kind *kind;
    struct hetero_device *device;
    struct hetero_layer *models; /* [n_layers][2] of one token, of many */
    struct hetero_units *units;  /* [n_layers] */
    struct kern_mat *mats;       /* of the views */
    bool no_takeover;
    int64_t *
        n_accel; /* [max_step_tok + 1] tokens taken over by those of a step; -1: unknown */
    uint64_t opened_ns;
    /* Of the running layer. */
    int rc;
    int64_t n_rows;
    uint64_t begin_ns;
    double begin_s, unreal_s;
};

static int64_t taken_over(struct hetero_offload *o, int layer, int64_t n_rows)
{
    struct hetero_layer l = o->models[2 * layer + 1];
    int64_t *n = &o->n_accel[n_rows];

    if (n_rows == 1 || o->no_takeover)
        return 0;
    if (*n < 0) { /* layers are alike but for the bytes of mixed types */
        l.gemm.n_tok = n_rows;
        (void)hetero_best_tokens(&l, o->units[layer].cg, o->units[layer].gg, n);
    }
    return *n;
}

static int64_t begin(void *ctx, int layer, int64_t n_rows)
{
    struct hetero_offload *o = ctx;
    int64_t n_accel = taken_over(o, layer, n_rows);

    o->rc = OK;
    o->n_rows = 0;
    if (!hetero_device_has(o->device, layer, n_accel))
        return n_rows;
    o->begin_ns = clock_ns();
    o->n_rows = n_rows;
    o->rc = hetero_device_wait(o->device, &o->begin_s);
    if (o->rc == OK)
        o->rc = hetero_device_send(o->device, o->hook.x, n_rows);
    if (o->rc == OK)
        o->rc = hetero_device_begin(o->device, layer, n_rows, n_accel);
    return n_rows - n_accel;
}

/* Virtual time: the layer takes as long as the model says, whatever this host took. */
static double virtual_s(const struct hetero_offload *o, int layer, double accel_s)
{
    const struct hetero_layer *l = &o->models[2 * layer + (o->n_rows > 1)];
    double cc = 1 - (double)(o->units[layer].cg + o->units[layer].gg) / l->n_units;
    double n_cpu = (double)(o->n_rows - (o->n_rows > 1 ? o->n_accel[o->n_rows] : 0));

    if (o->no_takeover)
        n_cpu = (double)o->n_rows;
    return fmax(accel_s, l->n_gemms * hetero_product_s(
                                          &l->machine, false,
                                          cc * (double)(l->gemm.m * l->gemm.h), n_cpu));
}

static int end(void *ctx, int layer, float *y)
{
    struct hetero_offload *o = ctx;
    double end_s, wall_s;

    if (o->n_rows == 0 || o->rc != OK)
        return o->rc;
    TRY(hetero_device_end(o->device, y, &end_s));
    if (o->kind->real_time) {
        /* Its clock stands still while it computes what a device would. */
        o->unreal_s = 1e-9 * (double)(clock_ns() - o->opened_ns) - end_s;
        return OK;
    }
    wall_s = 1e-9 * (double)(clock_ns() - o->begin_ns);
    o->unreal_s += wall_s - virtual_s(o, layer, end_s - o->begin_s);
    return OK;
}

/* ---- open ---- */

static int open_views(struct hetero_offload *o, struct model_view *views,
                      struct hetero_mlp *mlps)
{
    for (int i = 0; i < o->m->c.n_layers; i++) {
        const struct model_layer *l = &o->m->layers[i];
        const struct kern_mat *down = &l->mats[MODEL_MAT_DOWN];
        int cc = (int)down->n_units - o->units[i].cg - o->units[i].gg;
        struct hetero_mlp part;

        mlps[i] = (struct hetero_mlp){l->mats[MODEL_MAT_GATE_UP], *down};
        views[i].mats = &o->mats[(size_t)i * MODEL_MAT_EXPERT_GATE_UP];
        if (cc <= 0)
            continue;
        hetero_mlp_slice(&part, &mlps[i], 0, cc);
        views[i].mats[MODEL_MAT_GATE_UP] = part.gate_up;
        views[i].mats[MODEL_MAT_DOWN] = part.down;
    }
    return OK;
}

static void open_models(struct hetero_offload *o, const struct hetero_machine *machines)
{
    const struct model_config *c = &o->m->c;

    for (int i = 0; i < 2 * c->n_layers; i++) {
        const struct kern_mat *down = &o->m->layers[i / 2].mats[MODEL_MAT_DOWN];

        o->models[i] = (struct hetero_layer){
            .machine = machines[i % 2],
            .gemm = {1, c->dim, c->hidden, kern_type_weight_bytes(down->type)},
            .n_gemms = HETERO_N_GEMMS,
            .n_units = (int)down->n_units};
    }
}

static int open_device(struct hetero_offload *o, const struct hetero_offload_opts *opts)
{
    int n = o->m->c.n_layers;
    struct hetero_mlp *mlps = mem_new(MEM_OTHER, (size_t)n, sizeof(*mlps));
    struct model_view *views = mem_new(MEM_OTHER, (size_t)n, sizeof(*views));
    int rc = ERR_NOMEM;

    o->hook.views = views;
    if (mlps && views)
        rc = open_views(o, views, mlps);
    if (rc == OK)
        rc = hetero_device_open(
            &o->device, &(struct hetero_device_opts){.kind = o->kind,
                                                     .accel = opts->accel,
                                                     .layers = mlps,
                                                     .units = o->units,
                                                     .n_layers = n,
                                                     .max_tok = o->m->max_step_tok,
                                                     .ld = o->m->ld_x});
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
    size_t n = (size_t)o->m->c.n_layers, n_tok = (size_t)o->m->max_step_tok;

    if (opts->n_units != o->m->c.n_layers)
        return err_set(ERR_ARG, "slices of %d layers: expected %d", opts->n_units,
                       o->m->c.n_layers);
    if (o->m->c.n_experts > 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: slices of experts are not built: expected a dense model",
                       o->m->c.name);
    o->mats = mem_new(MEM_OTHER, n * MODEL_MAT_EXPERT_GATE_UP, sizeof(*o->mats));
    o->models = mem_new(MEM_OTHER, 2 * n, sizeof(*o->models));
    o->units = mem_new(MEM_OTHER, n, sizeof(*o->units));
    o->n_accel = mem_new(MEM_OTHER, n_tok + 1, sizeof(*o->n_accel));
    o->hook.x = mem_new(MEM_OTHER, n_tok * (size_t)o->m->ld_x, sizeof(float));
    if (!o->mats || !o->models || !o->units || !o->n_accel || !o->hook.x)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        o->units[i] = opts->units[i];
    for (size_t i = 0; i <= n_tok; i++)
        o->n_accel[i] = -1;
    open_models(o, opts->machines);
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
    *o = (struct hetero_offload){
        .hook = {.ctx = o, .begin = begin, .end = end}, .m = m, .kind = opts->kind};
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
    return n_tok > 1 && o->n_accel[n_tok] > 0 ? o->n_accel[n_tok] : 0;
}
