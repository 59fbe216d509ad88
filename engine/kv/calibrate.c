#include "kv/calibrate.h"

#include <math.h>

#include "base/mem.h"

#define BIN    0.05 /* of the logarithm */
#define N_BINS 601  /* from exp(-15) to exp(15) */

struct kv_calibration {
    int64_t window, n;
    int16_t *bins; /* [window] of the latest requests, a ring */
    int32_t count[N_BINS];
};

int kv_calibration_open(struct kv_calibration **out, int64_t window)
{
    struct kv_calibration *c;

    *out = NULL;
    if (window < 1)
        return err_set(ERR_ARG, "kv calibration: window %lld: expected >= 1",
                       (long long)window);
    c = mem_new(MEM_KV, 1, sizeof(*c));
    if (!c)
        return ERR_NOMEM;
    c->window = window;
    c->bins = mem_new(MEM_KV, (size_t)window, sizeof(*c->bins));
    if (!c->bins) {
        kv_calibration_close(&c);
        return ERR_NOMEM;
    }
    *out = c;
    return OK;
}

void kv_calibration_close(struct kv_calibration **c)
{
    if (!*c)
        return;
    mem_free((*c)->bins);
    mem_free(*c);
    *c = NULL;
}

void kv_calibration_add(struct kv_calibration *c, double predicted_tok,
                        int64_t output_tok)
{
    double ratio = fmax((double)output_tok, 1) / fmax(predicted_tok, 1);
    double bin = round(log(ratio) / BIN) + N_BINS / 2;
    int16_t *slot = &c->bins[c->n % c->window];

    if (c->n >= c->window)
        c->count[*slot]--;
    *slot = (int16_t)fmin(fmax(bin, 0), N_BINS - 1);
    c->count[*slot]++;
    c->n++;
}

double kv_calibration_factor(const struct kv_calibration *c)
{
    int64_t n = c->n < c->window ? c->n : c->window, below = 0;
    int bin = -1;

    if (2 * n < c->window)
        return 1;
    while (2 * below < n)
        below += c->count[++bin];
    return exp(BIN * (bin - N_BINS / 2));
}
