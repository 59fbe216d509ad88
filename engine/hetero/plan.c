#include "hetero/plan.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "hetero/memory.h"
#include "model/cost.h"

#define FINE_UNITS 4096

struct planner {
    const struct hetero_plan_opts *o;
    struct hetero_plan *p;
    double bytes_per_weight;
    double p95_log;
};

/* The MLPs of a layer: the one that all tokens have, of a dense model, or the experts; and a
 * shared expert. */
enum { MLPS, SHARED, N_KINDS };

static bool has_kind(const struct planner *w, int kind)
{
    return kind == MLPS || w->p->n_shared_units > 0;
}

static int n_units_of(const struct hetero_plan *p, int kind)
{
    return kind == MLPS ? p->n_units : p->n_shared_units;
}

static struct hetero_units *units_of(struct hetero_plan *p, int kind)
{
    return kind == MLPS ? p->units : p->shared;
}

static int64_t hidden_of(const struct planner *w, int kind)
{
    const struct model_config *c = w->o->config;

    return kind == MLPS && c->n_experts > 0 ? c->expert_hidden : c->hidden;
}

/* The MLPs of this kind that a step of n_tok tokens has in a layer, one after the other. */
static struct hetero_layer layer_of(const struct planner *w, int kind, int64_t n_tok,
                                    int n_units)
{
    const struct model_config *c = w->o->config;
    struct hetero_layer l = {
        .gemm = {n_tok, c->dim, hidden_of(w, kind), w->bytes_per_weight},
        .n_gemms = HETERO_N_GEMMS,
        .n_units = n_units};

    if (kind == MLPS && c->n_experts > 0) {
        double n = model_cost_experts(c, (double)n_tok);

        l.gemm.n_tok = lround(fmax(1, (double)(n_tok * c->n_active) / n));
        l.n_gemms *= (int)lround(n);
    }
    l.machine = w->p->machines[l.gemm.n_tok > 1];
    return l;
}

/* Rows of x and y for one token. */
static int64_t rows_of(const struct planner *w, int kind)
{
    const struct model_config *c = w->o->config;

    return kind == MLPS && c->n_experts > 0 ? c->n_active : 1;
}

/* x there and y back. */
static double activations_s(const struct planner *w, int64_t n_rows)
{
    const struct hetero_machine *m = &w->p->machines[n_rows > 1];

    return 2 *
           (m->launch_s + m->link_start_s +
            (double)(n_rows * w->o->config->dim) * sizeof(float) * m->link_s_per_byte);
}

/* The MLPs of one kind of a layer in decode, with x and y where anything is computed there. */
static double mlp_s(const struct planner *w, int kind, const struct hetero_layer *l,
                    int cg, int gg)
{
    return hetero_layer_s(l, cg, gg, 0) +
           (cg + gg > 0 ? activations_s(w, rows_of(w, kind)) : 0);
}

/* The best CG for gg units of GG, or none of anything. */
static double best_mlp_s(const struct planner *w, int kind, const struct hetero_layer *l,
                         int gg, int *cg)
{
    double s, none_s;

    if (w->o->fixed_cg >= 0) {
        *cg = (int)lround(w->o->fixed_cg * (l->n_units - gg));
        return mlp_s(w, kind, l, *cg, gg);
    }
    hetero_best_cg(l, gg, cg);
    s = mlp_s(w, kind, l, *cg, gg);
    none_s = mlp_s(w, kind, l, 0, gg);
    if (none_s <= s) { /* activations cost more than is gained */
        *cg = 0;
        return none_s;
    }
    return s;
}

/* ---- memory ---- */

static double matrix_bytes(const struct planner *w, int kind)
{
    return (double)w->o->config->dim * (double)hidden_of(w, kind) * w->bytes_per_weight;
}

static int reserve(struct planner *w)
{
    const struct model_config *c = w->o->config;
    double rows = (double)w->o->max_step_tok * sizeof(float), matrix = 0, hidden = 0,
           n_rows = 0;

    for (int k = 0; k < N_KINDS; k++) {
        if (!has_kind(w, k))
            continue;
        matrix = fmax(matrix, matrix_bytes(w, k));
        hidden = fmax(hidden, (double)hidden_of(w, k));
        n_rows += (double)rows_of(w, k);
    }
    /* Two matrices on their way, x and y, gate, up and their product of each slice. */
    w->p->reserved_bytes = 2 * matrix + rows * (2.0 * n_rows * c->dim + 3 * 3.0 * hidden);
    if (w->p->reserved_bytes > (double)w->o->budget_bytes)
        return err_set(
            ERR_NOMEM,
            "the accelerator's %lld bytes do not hold buffers of %.0f bytes for "
            "steps of %lld tokens",
            (long long)w->o->budget_bytes, w->p->reserved_bytes,
            (long long)w->o->max_step_tok);
    return OK;
}

/* Units of GG for each layer, within what is left. *greedy_s, *exact_s: grow by the layers' time
 * by either assignment. */
static int assign_units(const struct planner *w, int *units,
                        const struct hetero_share *shares, int n_units, int64_t left,
                        double *greedy_s, double *exact_s)
{
    int n = w->p->n_layers;
    double greedy, exact;

    if (w->o->fixed_gg >= 0) {
        for (int j = 0; j < n; j++)
            units[j] = (int)lround(w->o->fixed_gg * n_units);
        return OK;
    }
    TRY(hetero_assign_greedy(units, &greedy, shares, n, n_units, left));
    TRY(hetero_assign_exact(units, &exact, shares, n, n_units, left));
    *greedy_s += greedy;
    *exact_s += exact;
    return OK;
}

static int assign_kind(struct planner *w, int kind, double *greedy_s, double *exact_s)
{
    struct hetero_plan *p = w->p;
    int n_units = n_units_of(p, kind), units[MODEL_MAX_LAYERS];
    struct hetero_layer l = layer_of(w, kind, 1, n_units);
    int n_mlps =
        kind == MLPS && w->o->config->n_experts > 0 ? w->o->config->n_experts : 1;
    double unit_bytes = n_mlps * HETERO_N_GEMMS * matrix_bytes(w, kind) / n_units;
    double *layer_s = mem_new(MEM_OTHER, (size_t)n_units + 1, sizeof(*layer_s));
    int *cg = mem_new(MEM_OTHER, (size_t)n_units + 1, sizeof(*cg));
    struct hetero_share *shares =
        mem_new(MEM_OTHER, (size_t)p->n_layers, sizeof(*shares));
    double left = (double)w->o->budget_bytes - p->reserved_bytes - p->used_bytes;
    int rc = layer_s && cg && shares ? OK : ERR_NOMEM;

    for (int u = 0; u <= n_units && rc == OK; u++)
        layer_s[u] = best_mlp_s(w, kind, &l, u, &cg[u]);
    for (int j = 0; j < p->n_layers && rc == OK; j++)
        shares[j] = (struct hetero_share){(int64_t)unit_bytes, layer_s};
    if (rc == OK)
        rc = assign_units(w, units, shares, n_units, (int64_t)left, greedy_s, exact_s);
    for (int j = 0; j < p->n_layers && rc == OK; j++) {
        units_of(p, kind)[j] = (struct hetero_units){cg[units[j]], units[j]};
        p->used_bytes += units[j] * unit_bytes;
        left -= units[j] * unit_bytes;
    }
    if (rc == OK && left < 0)
        rc = err_set(ERR_NOMEM, "slices of %.0f bytes: the accelerator has %.0f",
                     p->used_bytes, (double)w->o->budget_bytes - p->reserved_bytes);
    mem_free(layer_s);
    mem_free(cg);
    mem_free(shares);
    return rc;
}

static int assign(struct planner *w)
{
    double greedy_s = 0, exact_s = 0;

    for (int k = N_KINDS - 1; k >= 0; k--) /* a shared expert first */
        if (has_kind(w, k))
            TRY(assign_kind(w, k, &greedy_s, &exact_s));
    w->p->greedy_loss_frac = exact_s > 0 ? greedy_s / exact_s - 1 : 0;
    return OK;
}

/* ---- steps ---- */

static double product_s(const struct planner *w, double weights, int64_t n_tok)
{
    return hetero_product_s(&w->p->machines[n_tok > 1], false, weights, (double)n_tok);
}

/* Keys and values are read at the bandwidth of weights; scores and sums are computed at the rate of
 * products. */
static double kv_s(const struct planner *w, const struct model_cost *cost, int64_t n_tok)
{
    const struct hetero_machine *m = &w->p->machines[n_tok > 1];
    double s = cost->kv_read_bytes * m->cpu_s_per_mac / w->bytes_per_weight;

    if (m->cpu_macs_per_s > 0)
        s = fmax(s, cost->attn.flop / 2 / m->cpu_macs_per_s);
    return s;
}

/* Add the MLPs of layer j for n_tok tokens, in the plan's slices or with all on the CPU. */
static void add_mlps(struct hetero_step *s, const struct planner *w, int j, bool sliced,
                     int64_t n_tok)
{
    static const struct hetero_units none = {0, 0};
    int64_t moved = 0;

    for (int k = 0; k < N_KINDS; k++) {
        const struct hetero_units *u = sliced ? &units_of(w->p, k)[j] : &none;
        struct hetero_slices slices;
        struct hetero_layer l;
        struct hetero_times t;
        int64_t n_accel = 0;

        if (!has_kind(w, k))
            continue;
        l = layer_of(w, k, n_tok, n_units_of(w->p, k));
        slices = (struct hetero_slices){(double)u->cg / l.n_units,
                                        (double)u->gg / l.n_units, 0};
        if (l.gemm.n_tok > 1)
            hetero_best_tokens(&l, u->cg, u->gg, &n_accel);
        s->n_accel_tok = n_accel > s->n_accel_tok ? n_accel : s->n_accel_tok;
        s->mlp_s += hetero_layer_s(&l, u->cg, u->gg, n_accel);
        moved += u->cg + u->gg > 0 || n_accel > 0 ? n_tok * rows_of(w, k) : 0;
        t = hetero_times_of(&l.machine, &l.gemm, &slices, false);
        s->accel_s += hetero_finish_of(&t, l.n_gemms).accel_s;
        s->cpu_s += hetero_finish_of(&t, l.n_gemms).cpu_s;
    }
    if (moved > 0)
        s->mlp_s += activations_s(w, moved);
}

/* A step of n_tok tokens of one sequence after ctx_tok others, with logits of the last. */
static struct hetero_step step_of(const struct planner *w, bool sliced, int64_t n_tok,
                                  double ctx_tok)
{
    const struct model_config *c = w->o->config;
    const struct model_cost_types types = {c->weight_type, w->o->kv};
    struct model_cost cost = n_tok == 1
                                 ? model_cost_decode(c, types, ctx_tok + 1, 1)
                                 : model_cost_prefill(c, types, n_tok, (int64_t)ctx_tok);
    double qkv = (double)c->dim * c->head_dim * (c->n_heads + 2 * c->n_kv_heads);
    double o = (double)c->dim * c->head_dim * c->n_heads;
    double router = (double)c->dim * model_router_rows(c) * 4 / w->bytes_per_weight;
    struct hetero_step s = {0};

    for (int j = 0; j < c->n_layers; j++) {
        /* From the last layer only the row goes on whose logits are wanted. */
        int64_t n_mlp = j == c->n_layers - 1 ? 1 : n_tok;

        add_mlps(&s, w, j, sliced, n_mlp);
        s.attention_s += product_s(w, qkv, n_tok) + product_s(w, o, n_mlp);
        s.mlp_s += router > 0 ? product_s(w, router, n_mlp) : 0;
    }
    s.attention_s += kv_s(w, &cost, n_tok);
    s.head_s = product_s(w, (double)c->dim * c->vocab, 1);
    s.step_s = s.mlp_s + s.attention_s + s.head_s;
    return s;
}

/* The loss of decode's MLPs to slices of nearly any size, with the same share of GG. */
static double rounding_loss(const struct planner *w)
{
    double fine_s = 0, own_s = 0;

    for (int k = 0; k < N_KINDS; k++) {
        const struct hetero_units *u = units_of(w->p, k);
        int n = n_units_of(w->p, k), before = -1, cg;
        struct hetero_layer fine, own;
        double s = 0;

        if (!has_kind(w, k))
            continue;
        fine = layer_of(w, k, 1, FINE_UNITS);
        own = layer_of(w, k, 1, n);
        for (int j = 0; j < w->p->n_layers; j++) {
            int gg = (int)lround((double)u[j].gg / n * FINE_UNITS);

            if (gg != before)
                s = best_mlp_s(w, k, &fine, gg, &cg);
            before = gg;
            fine_s += s;
            own_s += mlp_s(w, k, &own, u[j].cg, u[j].gg);
        }
    }
    return own_s / fine_s - 1;
}

static void predict(struct planner *w)
{
    struct hetero_plan *p = w->p;
    double ctx = (double)w->o->n_prompt + (double)w->o->n_new / 2;
    int64_t left = w->o->n_prompt, done = 0;

    p->decode = step_of(w, true, 1, ctx);
    p->cpu_only_tokens_per_s = 1 / step_of(w, false, 1, ctx).step_s;
    p->tokens_per_s = 1 / p->decode.step_s;
    p->lo = p->tokens_per_s * exp(-w->p95_log);
    p->hi = p->tokens_per_s * exp(w->p95_log);
    while (left > 0) {
        int64_t n = left < w->o->max_step_tok ? left : w->o->max_step_tok;
        struct hetero_step s = step_of(w, true, n, (double)done);

        if (done == 0)
            p->prompt = s;
        p->prompt_s += s.step_s;
        left -= n;
        done += n;
    }
    p->rounding_loss_frac = w->o->fixed_cg < 0 ? rounding_loss(w) : NAN;
}

int hetero_plan_make(struct hetero_plan *out, const struct hetero_plan_opts *o)
{
    struct planner w = {.o = o, .p = out};
    const struct model_config *c = o->config;
    int unit = model_ffn_unit(c);
    double p95_many;

    memset(out, 0, sizeof(*out));
    if (c->n_dense > 0)
        return err_set(ERR_UNSUPPORTED,
                       "an accelerator needs experts in all layers or in none, found %d "
                       "layers without",
                       c->n_dense);
    out->n_layers = c->n_layers;
    out->n_units = (int)((hidden_of(&w, MLPS) + unit - 1) / unit);
    if (c->n_experts > 0)
        out->n_shared_units = (c->hidden + unit - 1) / unit;
    w.bytes_per_weight = kern_type_weight_bytes(c->weight_type);
    TRY(hetero_profile_machine(&out->machines[0], &w.p95_log, o->profile, c->weight_type,
                               o->n_threads, 1));
    TRY(hetero_profile_machine(&out->machines[1], &p95_many, o->profile, c->weight_type,
                               o->n_threads, 2));
    TRY(reserve(&w));
    TRY(assign(&w));
    predict(&w);
    return OK;
}

void hetero_plan_units(struct hetero_units *out, const struct hetero_plan *p,
                       const struct model_config *c)
{
    for (int j = 0; j < p->n_layers; j++) {
        for (int e = 0; e < (c->n_experts > 0 ? c->n_experts : 1); e++)
            *out++ = p->units[j];
        if (p->n_shared_units > 0)
            *out++ = p->shared[j];
    }
}

/* ---- as JSON and as text ---- */

static json_t *step_json(const struct hetero_step *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "step_s", s->step_s, "mlp_s",
                     s->mlp_s, "mlp_accel_s", s->accel_s, "mlp_cpu_s", s->cpu_s,
                     "attention_s", s->attention_s, "head_s", s->head_s, "n_accel_tok",
                     (json_int_t)s->n_accel_tok);
}

static json_t *slices_json(struct hetero_units u, int n_units)
{
    return json_pack("{s:i, s:i, s:i}", "cc", n_units - u.cg - u.gg, "cg", u.cg, "gg",
                     u.gg);
}

int hetero_plan_json(const struct hetero_plan *p, const struct hetero_plan_opts *o,
                     json_t **out)
{
    json_t *layers = json_array();

    for (int j = 0; j < p->n_layers; j++) {
        json_t *layer = slices_json(p->units[j], p->n_units);

        if (p->n_shared_units > 0)
            json_object_set_new(layer, "shared",
                                slices_json(p->shared[j], p->n_shared_units));
        json_array_append_new(layers, layer);
    }
    *out = json_pack(
        "{s:s, s:s, s:s, s:i, s:I, s:f, s:f, s:i, s:i, s:i, s:o, s:o, s:o, s:f, s:f, "
        "s:[f, f], "
        "s:f, s:o, s:f}",
        "model", o->config->name, "type", kern_type_name(o->config->weight_type), "accel",
        o->profile->accel_name, "n_threads", o->n_threads, "budget_bytes",
        (json_int_t)o->budget_bytes, "used_bytes", p->used_bytes, "reserved_bytes",
        p->reserved_bytes, "n_units", p->n_units, "n_experts", o->config->n_experts,
        "n_shared_units", p->n_shared_units, "layers", layers, "decode",
        step_json(&p->decode), "prompt", step_json(&p->prompt), "prompt_s", p->prompt_s,
        "tokens_per_s", p->tokens_per_s, "tokens_per_s_95", p->lo, p->hi,
        "cpu_only_tokens_per_s", p->cpu_only_tokens_per_s, "rounding_loss_frac",
        json_number(p->rounding_loss_frac), "greedy_loss_frac", p->greedy_loss_frac);
    return *out ? OK : err_set(ERR_NOMEM, "no memory for the plan");
}

static void put_slices(struct text *t, const char *what, const struct hetero_units *units,
                       int n_units, int n_layers)
{
    int first = 0;

    for (int j = 1; j <= n_layers; j++) {
        const struct hetero_units *u = &units[first];
        int cc = n_units - u->cg - u->gg;

        if (j < n_layers && units[j].cg == u->cg && units[j].gg == u->gg)
            continue;
        text_printf(
            t,
            "  %slayers %d to %d: CC %.1f %% on the CPU, CG %.1f %% sent, GG %.1f %% "
            "on the accelerator (%d | %d | %d of %d units)\n",
            what, first, j - 1, 100.0 * cc / n_units, 100.0 * u->cg / n_units,
            100.0 * u->gg / n_units, cc, u->cg, u->gg, n_units);
        first = j;
    }
}

int hetero_plan_text(const struct hetero_plan *p, const struct hetero_plan_opts *o,
                     char **out)
{
    struct text t = {0};

    text_printf(&t, "%s in %s, %d threads and accelerator %s:\n", o->config->name,
                kern_type_name(o->config->weight_type), o->n_threads,
                o->profile->accel_name[0] ? o->profile->accel_name : "none");
    put_slices(&t, o->config->n_experts > 0 ? "experts of " : "", p->units, p->n_units,
               p->n_layers);
    if (p->n_shared_units > 0)
        put_slices(&t, "shared experts of ", p->shared, p->n_shared_units, p->n_layers);
    text_printf(&t,
                "memory: %.3f of %.3f GB for slices, %.3f GB for buffers; a greedy "
                "assignment would take %.2f %% longer\n",
                1e-9 * p->used_bytes, 1e-9 * (double)o->budget_bytes,
                1e-9 * p->reserved_bytes, 100 * p->greedy_loss_frac);
    text_printf(
        &t,
        "decode: %.2f ms a token = MLPs %.2f (accelerator %.2f, CPU %.2f at once), "
        "attention %.2f, head %.2f\n",
        1e3 * p->decode.step_s, 1e3 * p->decode.mlp_s, 1e3 * p->decode.accel_s,
        1e3 * p->decode.cpu_s, 1e3 * p->decode.attention_s, 1e3 * p->decode.head_s);
    text_printf(&t,
                "predicted: %.2f tokens/s, 95 %% interval %.2f to %.2f; the CPU alone "
                "%.2f\n",
                p->tokens_per_s, p->lo, p->hi, p->cpu_only_tokens_per_s);
    if (!isnan(p->rounding_loss_frac))
        text_printf(&t, "slices of whole units cost %.2f %% of the MLPs' time\n",
                    100 * p->rounding_loss_frac);
    text_printf(&t,
                "prompt of %lld tokens: %.3f s; the accelerator takes %lld tokens of a "
                "step over from the CPU\n",
                (long long)o->n_prompt, p->prompt_s, (long long)p->prompt.n_accel_tok);
    text_put(&t, "", 1);
    *out = t.p;
    if (t.rc != OK)
        text_fini(&t);
    return t.rc;
}
