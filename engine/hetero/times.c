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
    struct hetero_times t = {0};

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

double hetero_finish_s(const struct hetero_times *t, int n_gemms)
{
    return fmax(hetero_accel_finish_s(t, n_gemms), hetero_cpu_finish_s(t, n_gemms));
}

int hetero_machine_printed(struct hetero_machine *out, char testbed,
                           enum hetero_type type, bool bus_limit)
{
    static const struct hetero_machine rows[3][2] = {
        {{4.4e-5, 3.0e-6, 2.6e-11, 1.0e-7, 3.2e-12, 7.4e-7, 1.6e-11, 0, 0},
         {4.4e-5, 3.0e-6, 2.6e-11, 4.7e-6, 8.1e-13, 1.1e-5, 5.4e-12, 0, 0}},
        {{5.7e-5, 5.8e-6, 2.5e-11, 1.9e-7, 2.6e-12, 3.4e-6, 1.5e-11, 0, 0},
         {5.7e-5, 5.8e-6, 2.5e-11, 4.6e-6, 6.5e-13, 1.3e-5, 6.5e-12, 0, 0}},
        {{5.2e-5, 3.7e-6, 4.1e-11, 1.4e-7, 3.6e-12, 1.8e-6, 2.5e-11, 0, 0},
         {5.2e-5, 3.7e-6, 4.1e-11, 6.4e-6, 9.2e-13, 5.6e-7, 8.4e-12, 0, 0}},
    };
    static const double bus_s_per_byte[] = {1 / 31.5e9, 1 / 31.5e9, 1 / 15.75e9};

    if (testbed < 'A' || testbed > 'C')
        return err_set(ERR_NOTFOUND, "testbed: expected A, B or C, found %c", testbed);
    *out = rows[testbed - 'A'][type];
    if (bus_limit)
        out->link_s_per_byte = fmax(out->link_s_per_byte, bus_s_per_byte[testbed - 'A']);
    return OK;
}
