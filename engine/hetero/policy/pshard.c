/* As pipelined sharding (arXiv 2604.26334; llama.cpp #22495, #22691, #22692): measured times of
 * kernels and copies choose a schedule for each tier of tokens, and a step takes that of the
 * smallest tier that covers it. The accelerator's memory holds attention first, then whole MLPs
 * or experts in their order. What is left is computed on the CPU, or sent while earlier layers
 * are computed; the planner compares how much of it to send. Layers follow one another, so that a
 * step takes as long as all copies, or as all computing, whichever is longer.
 *
 * The planner's code is not copied: this is what its description says, with the times of our
 * models, tiers of powers of two, and two buffers of a layer's MLP for what is sent. */
#include <math.h>

#include "hetero/policy.h"

/* A layer's MLP or experts in one place, all that the step uses. */
struct layer_times {
    double here_s, cpu_s, link_s;
};

static struct layer_times times_of(const struct hetero_case *c)
{
    const struct hetero_slices sent = {.cg = 1};
    struct hetero_part parts[HETERO_PARTS_MAX];
    int n_parts = hetero_parts(c, c->n_tok, parts);
    struct layer_times t = {0};

    for (int i = 0; i < n_parts; i++) {
        const struct hetero_layer *l = &parts[i].layer;
        struct hetero_times of = hetero_times_of(c->machine, &l->gemm, &sent, false);

        t.here_s += parts[i].n_used * hetero_layer_s(l, 0, c->n_units, 0);
        t.cpu_s += parts[i].n_used * hetero_layer_s(l, 0, 0, 0);
        t.link_s += parts[i].n_used * l->n_gemms * (of.launch_s + of.link_s);
    }
    return t;
}

/* n_sent of n_away layers are sent. What is launched is launched ahead. */
static double step_s(const struct hetero_case *c, const struct layer_times *t, int n_away,
                     int n_sent)
{
    int n_accel = c->model->n_layers - n_away + n_sent;
    double compute_s = n_accel * t->here_s + (n_away - n_sent) * t->cpu_s;

    return hetero_attention_s(c) + fmax(compute_s, n_sent * t->link_s);
}

static int best_sent(const struct hetero_case *c, int n_away)
{
    struct hetero_case tier = *c;
    struct layer_times t;
    int best = 0;

    for (tier.n_tok = 1; tier.n_tok < c->n_tok;)
        tier.n_tok *= 2;
    t = times_of(&tier);
    for (int n = 1; n <= n_away; n++)
        if (step_s(&tier, &t, n_away, n) < step_s(&tier, &t, n_away, best))
            best = n;
    return best;
}

static int step(struct hetero_result *out, const struct hetero_case *c)
{
    const struct hetero_model *m = c->model;
    struct hetero_part parts[HETERO_PARTS_MAX];
    int n_parts = hetero_parts(c, c->n_tok, parts), n_here, n_sent;
    struct layer_times t = times_of(c);
    int64_t left = c->budget_bytes - hetero_attention_bytes(c), layer_bytes = 0;

    for (int i = 0; i < n_parts; i++)
        layer_bytes += parts[i].n * parts[i].bytes;
    left -= 2 * layer_bytes;
    if (left < 0)
        return err_set(ERR_NOMEM,
                       "pshard: %lld bytes do not hold attention and two layers' buffers",
                       (long long)c->budget_bytes);
    n_here = (int)fmin(m->n_layers, floor((double)left / (double)layer_bytes));
    n_sent = best_sent(c, m->n_layers - n_here);
    *out = (struct hetero_result){.cg = (double)n_sent / m->n_layers,
                                  .gg = (double)n_here / m->n_layers,
                                  .accel_tok_frac =
                                      (double)n_sent / fmax(1, m->n_layers - n_here)};
    out->step_s = step_s(c, &t, m->n_layers - n_here, n_sent);
    return OK;
}

const struct hetero_policy hetero_policy_pshard = {
    .name = "pshard", .help = "schedules by tiers of tokens, copies ahead", .step = step};
