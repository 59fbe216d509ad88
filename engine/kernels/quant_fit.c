#include "kernels/quant_fit.h"

#include <math.h>
#include <string.h>

#include "kernels/quant.h"

/* Steps of a search, and how far scales are from those that cover all weights: the largest value
 * takes 1/1.2 to 1/0.8 of the largest weight. */
#define N_STEPS 16
#define FIRST   0.8f
#define LAST    1.2f

#define SUB_MAX 32 /* weights that share a scale */

/* The numbers of the values nearest to w[n] / scale; those nearest to 0 for a scale without an
 * inverse. To count the middles below each needs no branches. */
static void nearest(const struct kern_fit_form *f, const float *w, float scale,
                    int32_t number[SUB_MAX])
{
    const float inverse = 1 / scale, per_step = isfinite(inverse) ? inverse : 0;
    float x[SUB_MAX] = {0};

    for (int i = 0; i < f->n; i++)
        x[i] = w[i] * per_step;
    memset(number, 0, SUB_MAX * sizeof(*number));
    for (int v = 0; v + 1 < f->n_values; v++) {
        const float middle = (float)(f->value[v] + f->value[v + 1]) / 2;

#pragma omp simd
        for (int i = 0; i < SUB_MAX; i++)
            number[i] += x[i] > middle;
    }
}

/* The squared error of w[n] with this scale. number: NULL, or the values. */
static double error_of(const struct kern_fit_form *f, const float *w, float scale,
                       uint8_t *number)
{
    int32_t v[SUB_MAX];
    double sum = 0;

    nearest(f, w, scale, v);
    for (int i = 0; i < f->n; i++) {
        const double error = (double)scale * f->value[v[i]] - (double)w[i];

        sum += error * error;
        if (number)
            number[i] = (uint8_t)v[i];
    }
    return sum;
}

/* The best scale for the values that are nearest with `scale`, and by how much it reduces the sum
 * of squares. */
static float least_squares(const struct kern_fit_form *f, const float *w, float scale,
                           double *gain)
{
    int32_t number[SUB_MAX];
    double wv = 0;
    int vv = 0;

    nearest(f, w, scale, number);
    for (int i = 0; i < f->n; i++) {
        const int v = f->value[number[i]];

        wv += (double)w[i] * v;
        vv += v * v;
    }
    *gain = vv > 0 ? wv * wv / vv : 0;
    return vv > 0 ? (float)(wv / vv) : 0;
}

/* The scale of w[n], of either sign: values are not symmetric. */
static float fit_scale(const struct kern_fit_form *f, const float *w)
{
    double most_gain = 0;
    float most = 0, best = 0;

    for (int i = 0; i < f->n; i++)
        most = fmaxf(most, fabsf(w[i]));
    for (int k = 0; k <= 2 * N_STEPS + 1 && most > 0; k++) {
        const float part = FIRST + (LAST - FIRST) * (float)(k / 2) / N_STEPS;
        const float scale = (k % 2 ? most : -most) * part / (float)f->value[0];
        double gain;
        const float s = least_squares(f, w, scale, &gain);

        if (gain > most_gain) {
            most_gain = gain;
            best = s;
        }
    }
    return best;
}

/* Rounded to f16; the scale that covers all weights is not infinite, so the best one is near. */
static float f16(float x)
{
    const float most = 65504;

    return kern_f16_to(kern_f16_of(fmaxf(-most, fminf(most, x))));
}

/* The integer scale of a sub-block: the best of those next to scale / d. */
static int8_t round_scale(const struct kern_fit_form *f, const float *w, float scale,
                          float d)
{
    const float q = d != 0 ? roundf(scale / d) : 0;
    const int at = q < -32 ? -32 : q > 31 ? 31 : (int)q;
    double least = INFINITY;
    int best = 0;

    for (int k = at - 1; k <= at + 1; k++) {
        const double error =
            k < -32 || k > 31 ? INFINITY : error_of(f, w, d * (float)k, NULL);

        if (error < least) {
            least = error;
            best = k;
        }
    }
    return (int8_t)best;
}

void kern_fit_blocks(struct kern_fit *out, const struct kern_fit_form *f, const float *w)
{
    float scale[16], most = 0;

    for (int s = 0; s < f->n_subs; s++) {
        scale[s] = fit_scale(f, w + f->n * s);
        if (fabsf(scale[s]) > fabsf(most))
            most = scale[s];
    }
    /* The largest is -32 times d: 31 would make all others coarser. */
    out->d = f16(f->n_subs == 1 ? most : most / -32);
    for (int s = 0; s < f->n_subs; s++) {
        const float *sub = w + f->n * s;

        out->scale[s] = f->n_subs == 1 ? 1 : round_scale(f, sub, scale[s], out->d);
        (void)error_of(f, sub, out->d * (float)out->scale[s], out->number + f->n * s);
    }
}
