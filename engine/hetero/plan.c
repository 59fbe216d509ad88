#include "hetero/plan.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "hetero/memory.h"
#include "hetero/slices.h"
#include "model/cost.h"

#define FINE_UNITS 4096

struct planner {
    const struct hetero_plan_opts *o;
    struct hetero_plan *p;
    double bytes_per_weight;
    double p95_log;
};

static struct hetero_layer layer_of(const struct planner *w, int64_t n_tok, int n_units)
{
    const struct model_config *c = w->o->config;

    return (struct hetero_layer){.machine = w->p->machines[n_tok > 1],
                                 .gemm = {n_tok, c->dim, c->hidden, w->bytes_per_weight},
                                 .n_gemms = HETERO_N_GEMMS,
                                 .n_units = n_units};
}

/* x there and y back, where anything is computed there. */
static double activations_s(const struct planner *w, int64_t n_tok)
{
    const struct hetero_machine *m = &w->p->machines[n_tok > 1];

    return 2 * (m->launch_s + m->link_start_s +
                (double)(n_tok * w->o->config->dim) * sizeof(float) * m->link_s_per_byte);
}

static double mlp_s(const struct planner *w, const struct hetero_layer *l, int cg, int gg,
                    int64_t n_accel)
{
    bool moved = cg + gg > 0 || n_accel > 0;

    return hetero_layer_s(l, cg, gg, n_accel) +
           (moved ? activations_s(w, l->gemm.n_tok) : 0);
}

/* Of one layer for decode; the best CG for gg units of GG, or none of anything. */
static double best_mlp_s(const struct planner *w, const struct hetero_layer *l, int gg,
                         int *cg)
{
    double s, none_s;

    if (w->o->fixed_cg >= 0) {
        *cg = (int)lround(w->o->fixed_cg * (l->n_units - gg));
        return mlp_s(w, l, *cg, gg, 0);
    }
    hetero_best_cg(l, gg, cg);
    s = mlp_s(w, l, *cg, gg, 0);
    none_s = mlp_s(w, l, 0, gg, 0);
    if (none_s <= s) { /* activations cost more than is gained */
        *cg = 0;
        return none_s;
    }
    return s;
}

/* ---- memory ---- */

static int reserve(struct planner *w)
{
    const struct model_config *c = w->o->config;
    double matrix = (double)c->dim * c->hidden * w->bytes_per_weight;
    double rows = (double)w->o->max_step_tok * sizeof(float);

    /* Two matrices on their way, x and y, gate, up and their product of each slice. */
    w->p->reserved_bytes = 2 * matrix + rows * (2.0 * c->dim + 3 * 3.0 * c->hidden);
    w->p->unit_bytes = 3 * matrix / w->p->n_units;
    if (w->p->reserved_bytes > (double)w->o->budget_bytes)
        return err_set(
            ERR_NOMEM,
            "the accelerator's %lld bytes do not hold buffers of %.0f bytes for "
            "steps of %lld tokens",
            (long long)w->o->budget_bytes, w->p->reserved_bytes,
            (long long)w->o->max_step_tok);
    return OK;
}

static int assign(struct planner *w)
{
    struct hetero_plan *p = w->p;
    size_t n = (size_t)p->n_units + 1;
    struct hetero_layer l = layer_of(w, 1, p->n_units);
    double *layer_s = mem_new(MEM_OTHER, n, sizeof(*layer_s)), greedy_s, exact_s;
    int *cg = mem_new(MEM_OTHER, n, sizeof(*cg)), units[MODEL_MAX_LAYERS];
    struct hetero_share *shares =
        mem_new(MEM_OTHER, (size_t)p->n_layers, sizeof(*shares));
    int64_t left = w->o->budget_bytes - (int64_t)p->reserved_bytes;
    int rc = layer_s && cg && shares ? OK : ERR_NOMEM;

    for (int u = 0; u <= p->n_units && rc == OK; u++)
        layer_s[u] = best_mlp_s(w, &l, u, &cg[u]);
    for (int j = 0; j < p->n_layers && rc == OK; j++)
        shares[j] = (struct hetero_share){(int64_t)p->unit_bytes, layer_s};
    if (rc == OK && w->o->fixed_gg >= 0)
        for (int j = 0; j < p->n_layers; j++)
            units[j] = (int)lround(w->o->fixed_gg * p->n_units);
    else if (rc == OK)
        rc =
            hetero_assign_greedy(units, &greedy_s, shares, p->n_layers, p->n_units, left);
    if (rc == OK && w->o->fixed_gg < 0) {
        rc = hetero_assign_exact(units, &exact_s, shares, p->n_layers, p->n_units, left);
        p->greedy_loss_frac = rc == OK ? greedy_s / exact_s - 1 : 0;
    }
    for (int j = 0; j < p->n_layers && rc == OK; j++) {
        p->units[j] = (struct hetero_units){cg[units[j]], units[j]};
        p->used_bytes += units[j] * p->unit_bytes;
    }
    if (rc == OK && p->used_bytes > (double)left)
        rc = err_set(ERR_NOMEM, "slices of %.0f bytes: the accelerator has %lld left",
                     p->used_bytes, (long long)left);
    mem_free(layer_s);
    mem_free(cg);
    mem_free(shares);
    return rc;
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

/* A step of n_tok tokens of one sequence after ctx_tok others, with logits of the last. */
static struct hetero_step step_of(const struct planner *w,
                                  const struct hetero_units *units, int n_units,
                                  int64_t n_tok, double ctx_tok)
{
    const struct model_config *c = w->o->config;
    const struct model_cost_types types = {c->weight_type, w->o->kv};
    struct model_cost cost = n_tok == 1
                                 ? model_cost_decode(c, types, ctx_tok + 1, 1)
                                 : model_cost_prefill(c, types, n_tok, (int64_t)ctx_tok);
    struct hetero_layer l = layer_of(w, n_tok, n_units), last = layer_of(w, 1, n_units);
    double qkv = (double)c->dim * c->head_dim * (c->n_heads + 2 * c->n_kv_heads);
    double o = (double)c->dim * c->head_dim * c->n_heads;
    struct hetero_step s = {0};

    for (int j = 0; j < c->n_layers; j++) {
        bool ends =
            j == c->n_layers - 1; /* only the row whose logits are wanted goes on */
        const struct hetero_layer *of = ends ? &last : &l;
        const struct hetero_slices slices = {(double)units[j].cg / n_units,
                                             (double)units[j].gg / n_units, 0};
        struct hetero_times t;
        int64_t n_accel = 0;

        if (of->gemm.n_tok > 1)
            hetero_best_tokens(of, units[j].cg, units[j].gg, &n_accel);
        s.n_accel_tok = n_accel > s.n_accel_tok ? n_accel : s.n_accel_tok;
        s.mlp_s += mlp_s(w, of, units[j].cg, units[j].gg, n_accel);
        t = hetero_times_of(&of->machine, &of->gemm, &slices, false);
        s.accel_s += hetero_finish_of(&t, of->n_gemms).accel_s;
        s.cpu_s += hetero_finish_of(&t, of->n_gemms).cpu_s;
        s.attention_s += product_s(w, qkv, n_tok) + product_s(w, o, of->gemm.n_tok);
    }
    s.attention_s += kv_s(w, &cost, n_tok);
    s.head_s = product_s(w, (double)c->dim * c->vocab, 1);
    s.step_s = s.mlp_s + s.attention_s + s.head_s;
    return s;
}

/* The loss of decode's MLPs to slices of nearly any size, with the same share of GG. */
static double rounding_loss(const struct planner *w)
{
    struct hetero_layer fine = layer_of(w, 1, FINE_UNITS),
                        own = layer_of(w, 1, w->p->n_units);
    double fine_s = 0, own_s = 0;
    int before = -1, cg;
    double s = 0;

    for (int j = 0; j < w->p->n_layers; j++) {
        int gg = (int)lround((double)w->p->units[j].gg / w->p->n_units * FINE_UNITS);

        if (gg != before)
            s = best_mlp_s(w, &fine, gg, &cg);
        before = gg;
        fine_s += s;
        own_s += mlp_s(w, &own, w->p->units[j].cg, w->p->units[j].gg, 0);
    }
    return own_s / fine_s - 1;
}

static void predict(struct planner *w)
{
    static const struct hetero_units none[MODEL_MAX_LAYERS];
    struct hetero_plan *p = w->p;
    double ctx = (double)w->o->n_prompt + (double)w->o->n_new / 2;
    int64_t left = w->o->n_prompt, done = 0;

    p->decode = step_of(w, p->units, p->n_units, 1, ctx);
    p->cpu_only_tokens_per_s = 1 / step_of(w, none, p->n_units, 1, ctx).step_s;
    p->tokens_per_s = 1 / p->decode.step_s;
    p->lo = p->tokens_per_s * exp(-w->p95_log);
    p->hi = p->tokens_per_s * exp(w->p95_log);
    while (left > 0) {
        int64_t n = left < w->o->max_step_tok ? left : w->o->max_step_tok;
        struct hetero_step s = step_of(w, p->units, p->n_units, n, (double)done);

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
    if (c->n_experts > 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: slices of experts are not built: expected a dense model",
                       c->name);
    out->n_layers = c->n_layers;
    out->n_units = (c->hidden + unit - 1) / unit;
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

/* ---- what it says ---- */

static json_t *step_json(const struct hetero_step *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "step_s", s->step_s, "mlp_s",
                     s->mlp_s, "mlp_accel_s", s->accel_s, "mlp_cpu_s", s->cpu_s,
                     "attention_s", s->attention_s, "head_s", s->head_s, "n_accel_tok",
                     (json_int_t)s->n_accel_tok);
}

int hetero_plan_json(const struct hetero_plan *p, const struct hetero_plan_opts *o,
                     json_t **out)
{
    json_t *layers = json_array();

    for (int j = 0; j < p->n_layers; j++)
        json_array_append_new(layers,
                              json_pack("{s:i, s:i, s:i}", "cc",
                                        p->n_units - p->units[j].cg - p->units[j].gg,
                                        "cg", p->units[j].cg, "gg", p->units[j].gg));
    *out = json_pack(
        "{s:s, s:s, s:s, s:i, s:I, s:f, s:f, s:i, s:o, s:o, s:o, s:f, s:f, s:[f, f], "
        "s:f, s:o, s:f}",
        "model", o->config->name, "type", kern_type_name(o->config->weight_type), "accel",
        o->profile->accel_name, "n_threads", o->n_threads, "budget_bytes",
        (json_int_t)o->budget_bytes, "used_bytes", p->used_bytes, "reserved_bytes",
        p->reserved_bytes, "n_units", p->n_units, "layers", layers, "decode",
        step_json(&p->decode), "prompt", step_json(&p->prompt), "prompt_s", p->prompt_s,
        "tokens_per_s", p->tokens_per_s, "tokens_per_s_95", p->lo, p->hi,
        "cpu_only_tokens_per_s", p->cpu_only_tokens_per_s, "rounding_loss_frac",
        json_number(p->rounding_loss_frac), "greedy_loss_frac", p->greedy_loss_frac);
    return *out ? OK : err_set(ERR_NOMEM, "no memory for the plan");
}

static void put_slices(struct text *t, const struct hetero_plan *p)
{
    int first = 0;

    for (int j = 1; j <= p->n_layers; j++) {
        const struct hetero_units *u = &p->units[first];

        if (j < p->n_layers && p->units[j].cg == u->cg && p->units[j].gg == u->gg)
            continue;
        text_printf(
            t,
            "  layers %d to %d: CC %.1f %% on the CPU, CG %.1f %% sent, GG %.1f %% "
            "on the accelerator (%d | %d | %d of %d units)\n",
            first, j - 1, 100.0 * (p->n_units - u->cg - u->gg) / p->n_units,
            100.0 * u->cg / p->n_units, 100.0 * u->gg / p->n_units,
            p->n_units - u->cg - u->gg, u->cg, u->gg, p->n_units);
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
    put_slices(&t, p);
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
