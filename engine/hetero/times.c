#include "hetero/times.h"

#include <math.h>

double hetero_product_s(const struct hetero_machine *m, bool on_accel, double weights,
                        double n_tok)
{
    double start_s = on_accel ? m->accel_start_s : m->cpu_start_s;
    double s_per_mac = on_accel ? m->accel_s_per_mac : m->cpu_s_per_mac;
    double macs_per_s = on_accel ? m->accel_macs_per_s : m->cpu_macs_per_s;

    if (weights <= 0 || n_tok <= 0)
        return 0;
    if (macs_per_s > 0)
        return start_s + fmax(weights * s_per_mac, weights * n_tok / macs_per_s);
    return start_s + weights * n_tok * s_per_mac;
}

struct hetero_times hetero_times_of(const struct hetero_machine *machine,
                                    const struct hetero_gemm *g,
                                    const struct hetero_slices *s, bool as_printed)
{
    const struct hetero_machine *x = machine;
    double cc = 1 - s->cg - s->gg, n_tok = (double)g->n_tok;
    double n_accel = (double)s->n_accel_tok, weights = (double)g->m * (double)g->h;
    bool has_cc = cc > 1e-12, has_cg = s->cg > 1e-12, has_gg = s->gg > 1e-12;
    bool takes_over = has_cc && s->n_accel_tok > 0;
    double sent = (has_cg ? s->cg : 0) + (takes_over ? cc : 0);
    int n_sent = has_cg + takes_over;
    struct hetero_times t = {.cpu_contention = machine->cpu_contention,
                             .link_contention = machine->link_contention};

    if (as_printed && takes_over)
        sent = 1;
    t.launch_s = (2 * n_sent + has_gg) * x->launch_s;
    t.link_s = sent * weights * g->bytes_per_weight * x->link_s_per_byte +
               (as_printed && n_sent == 0 ? 1 : n_sent) * x->link_start_s;
    if (has_cg)
        t.accel_s += hetero_product_s(x, true, s->cg * weights, n_tok);
    if (has_gg)
        t.accel_s += hetero_product_s(x, true, s->gg * weights, n_tok);
    if (takes_over)
        t.accel_s += hetero_product_s(x, true, cc * weights, n_accel);
    if (has_cc)
        t.cpu_s = hetero_product_s(x, false, cc * weights, n_tok - n_accel);
    return t;
}

double hetero_accel_finish_s(const struct hetero_times *t, int n_gemms)
{
    double slowest = fmax(t->launch_s, fmax(t->link_s, t->accel_s));

    return t->launch_s + t->link_s + t->accel_s + (n_gemms - 1) * slowest;
}

double hetero_cpu_finish_s(const struct hetero_times *t, int n_gemms)
{
    return n_gemms * t->cpu_s;
}

/* How long both work at once depends on how much they slow each other, which depends on it in turn:
 * from the times of each alone in steps half as far as the equations say, since whole ones may
 * swing. Work that takes 1 + c times as long for a time x adds x c / (1 + c). */
#define STEPS 60

static double added(double contention)
{
    return contention / (1 + contention);
}

struct hetero_finish hetero_finish_of(const struct hetero_times *t, int n_gemms)
{
    struct hetero_finish f = {hetero_accel_finish_s(t, n_gemms),
                              hetero_cpu_finish_s(t, n_gemms)};
    const double cpu_alone_s = f.cpu_s;
    struct hetero_times slowed = *t;

    if (t->link_s <= 0 || cpu_alone_s <= 0 ||
        (t->cpu_contention <= 0 && t->link_contention <= 0))
        return f;
    for (int i = 0; i < STEPS; i++) {
        double both_s = n_gemms * slowed.link_s * fmin(1, f.cpu_s / f.accel_s);

        slowed.link_s = t->link_s + both_s / n_gemms * added(t->link_contention);
        f.accel_s = (f.accel_s + hetero_accel_finish_s(&slowed, n_gemms)) / 2;
        f.cpu_s = (f.cpu_s + cpu_alone_s + both_s * added(t->cpu_contention)) / 2;
    }
    return f;
}

double hetero_finish_s(const struct hetero_times *t, int n_gemms)
{
    struct hetero_finish f = hetero_finish_of(t, n_gemms);

    return fmax(f.accel_s, f.cpu_s);
}

/* ---- the best slices ---- */

/* A layer with one number left open: units of CG, or tokens. */
struct open_layer {
    const struct hetero_layer *l;
    int gg_units, cg_units;
    bool tokens;
};

static struct hetero_times times_at(const struct open_layer *o, int64_t x)
{
    const struct hetero_layer *l = o->l;
    double cg = o->tokens ? o->cg_units : (double)x;
    const struct hetero_slices s = {.cg = cg / l->n_units,
                                    .gg = (double)o->gg_units / l->n_units,
                                    .n_accel_tok = o->tokens ? x : 0};

    return hetero_times_of(&l->machine, &l->gemm, &s, l->as_printed);
}

static double finish_at(const struct open_layer *o, int64_t x)
{
    struct hetero_times t = times_at(o, x);

    return hetero_finish_s(&t, o->l->n_gemms);
}

/* The least x in (0, most) at which the accelerator finishes no earlier than the CPU; else
 * most. */
static int64_t meeting(const struct open_layer *o, int64_t most)
{
    int64_t lo = 0, hi = most;

    while (hi - lo > 1) {
        int64_t x = lo + (hi - lo) / 2;
        struct hetero_times t = times_at(o, x);

        if (hetero_accel_finish_s(&t, o->l->n_gemms) >=
            hetero_cpu_finish_s(&t, o->l->n_gemms))
            hi = x;
        else
            lo = x;
    }
    return hi;
}

static double best(const struct open_layer *o, int64_t most, int64_t *x)
{
    int64_t at = meeting(o, most);
    const int64_t candidates[] = {1, at - 1, at, most};
    bool all = o->l->machine.cpu_contention > 0 || o->l->machine.link_contention > 0;
    double best_s = finish_at(o, 0);

    *x = 0;
    for (int64_t i = 0; i < (all ? most : 4); i++) {
        int64_t candidate = all ? i + 1 : candidates[i];
        double s;

        if (candidate < 1 || candidate > most)
            continue;
        s = finish_at(o, candidate);
        if (s < best_s) {
            best_s = s;
            *x = candidate;
        }
    }
    return best_s;
}

double hetero_layer_s(const struct hetero_layer *l, int cg_units, int gg_units,
                      int64_t n_accel_tok)
{
    const struct open_layer o = {l, gg_units, cg_units, true};

    return finish_at(&o, n_accel_tok);
}

double hetero_best_cg(const struct hetero_layer *l, int gg_units, int *cg_units)
{
    const struct open_layer o = {.l = l, .gg_units = gg_units};
    int64_t x;
    double s = best(&o, l->n_units - gg_units, &x);

    *cg_units = (int)x;
    return s;
}

double hetero_best_tokens(const struct hetero_layer *l, int cg_units, int gg_units,
                          int64_t *n_accel_tok)
{
    const struct open_layer o = {l, gg_units, cg_units, true};

    return best(&o, l->gemm.n_tok, n_accel_tok);
}

/* ---- contention ---- */

/* How much longer work took while the other side worked, too, as a fraction. The other side
 * ended after other_s; what was left of the work then ran as fast as alone. */
static double slowdown(double alone_s, double s, double other_s)
{
    double together_s = fmin(s, other_s);
    double done_s = alone_s - (s - together_s); /* of the work, as if alone */

    return done_s > 0 ? together_s / done_s - 1 : 0;
}

void hetero_contention_fit(const struct hetero_pair *pairs, int n, double *cpu_contention,
                           double *link_contention)
{
    double cpu = 0, link = 0;

    for (int i = 0; i < n; i++) {
        const struct hetero_pair *p = &pairs[i];

        cpu += slowdown(p->cpu_alone_s, p->cpu_s, p->link_s) / n;
        link += slowdown(p->link_alone_s, p->link_s, p->cpu_s) / n;
    }
    *cpu_contention = fmax(0, cpu);
    *link_contention = fmax(0, link);
}

int hetero_machine_printed(struct hetero_machine *out, char testbed,
                           enum hetero_type type, bool bus_limit)
{
    /* launch; start and rate of link, accelerator and CPU */
    static const double rows[3][2][7] = {
        {{4.4e-5, 3.0e-6, 2.6e-11, 1.0e-7, 3.2e-12, 7.4e-7, 1.6e-11},
         {4.4e-5, 3.0e-6, 2.6e-11, 4.7e-6, 8.1e-13, 1.1e-5, 5.4e-12}},
        {{5.7e-5, 5.8e-6, 2.5e-11, 1.9e-7, 2.6e-12, 3.4e-6, 1.5e-11},
         {5.7e-5, 5.8e-6, 2.5e-11, 4.6e-6, 6.5e-13, 1.3e-5, 6.5e-12}},
        {{5.2e-5, 3.7e-6, 4.1e-11, 1.4e-7, 3.6e-12, 1.8e-6, 2.5e-11},
         {5.2e-5, 3.7e-6, 4.1e-11, 6.4e-6, 9.2e-13, 5.6e-7, 8.4e-12}},
    };
    static const double bus_s_per_byte[] = {1 / 31.5e9, 1 / 31.5e9, 1 / 15.75e9};

    const double *r;

    if (testbed < 'A' || testbed > 'C')
        return err_set(ERR_NOTFOUND, "testbed: expected A, B or C, found %c", testbed);
    r = rows[testbed - 'A'][type];
    *out = (struct hetero_machine){.launch_s = r[0],
                                   .link_start_s = r[1],
                                   .link_s_per_byte = r[2],
                                   .accel_start_s = r[3],
                                   .accel_s_per_mac = r[4],
                                   .cpu_start_s = r[5],
                                   .cpu_s_per_mac = r[6]};
    if (bus_limit)
        out->link_s_per_byte = fmax(out->link_s_per_byte, bus_s_per_byte[testbed - 'A']);
    return OK;
}
