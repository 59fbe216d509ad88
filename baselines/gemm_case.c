#include "baselines/gemm_case.h"

#include <math.h>

#include "base/rng.h"
#include "baselines/gemm/support/data.h"

/* Sums in f32 of rounded products stay far below the first; activations in bf16 keep
 * eight bits, 1.7e-3 of the result. A wrong or unwritten element is near 1. */
#define ERROR_MAX_F32  1e-4
#define ERROR_MAX_BF16 1e-2

static double element(const struct gemm_case *c, int64_t row, int64_t column)
{
    const uint64_t seed = (uint64_t)c->seed;
    double sum = 0.0;

    for (int64_t i = 0; i < c->k; i++)
        sum += (double)gemm_value(seed, GEMM_A, row * c->k + i) *
               (double)gemm_weight(seed, i * c->n + column, c->bf16);
    return sum;
}

/* One element in each stripe of columns, in any row; and the four corners, where blocks
 * end. */
void gemm_case_sample(struct gemm_case *c)
{
    const int last = GEMM_N_SAMPLES - 1;
    struct rng rng;
    double sum = 0.0;

    rng_init(&rng, (uint64_t)c->seed, "gemm samples");
    for (int i = 0; i <= last; i++) {
        int64_t from = c->n * i / GEMM_N_SAMPLES, to = c->n * (i + 1) / GEMM_N_SAMPLES;
        int64_t column =
            from + (to > from ? (int64_t)rng_below(&rng, (uint64_t)(to - from)) : 0);
        int64_t row = (int64_t)rng_below(&rng, (uint64_t)c->m);
        if (i < 2 || i > last - 2) {
            column = i < 2 ? 0 : c->n - 1;
            row = i % 2 ? c->m - 1 : 0;
        }
        c->samples[i].row = row;
        c->samples[i].column = column;
        c->samples[i].expected = element(c, row, column);
        sum += c->samples[i].expected * c->samples[i].expected;
    }
    c->result_rms = sqrt(sum / GEMM_N_SAMPLES);
}

json_t *gemm_case_json(const struct gemm_case *c)
{
    json_t *at = json_array();

    for (int i = 0; i < GEMM_N_SAMPLES; i++)
        json_array_append_new(at, json_pack("[I, I]", (json_int_t)c->samples[i].row,
                                            (json_int_t)c->samples[i].column));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "type", c->type, "m",
                     (json_int_t)c->m, "n", (json_int_t)c->n, "k", (json_int_t)c->k,
                     "n_copies", (json_int_t)c->n_copies, "seed", (json_int_t)c->seed,
                     "at", at);
}

int gemm_case_check(const struct gemm_case *c, const json_t *values, double *error)
{
    const double error_max = c->bf16 ? ERROR_MAX_BF16 : ERROR_MAX_F32;
    double sum = 0.0;

    if (json_array_size(values) != GEMM_N_SAMPLES)
        return err_set(ERR_FORMAT, "answered %zu values, expected %d",
                       json_array_size(values), GEMM_N_SAMPLES);
    for (int i = 0; i < GEMM_N_SAMPLES; i++) {
        const json_t *v = json_array_get(values, (size_t)i);
        double difference =
            (json_is_number(v) ? json_number_value(v) : NAN) - c->samples[i].expected;

        sum += difference * difference;
    }
    *error = sqrt(sum / GEMM_N_SAMPLES) / c->result_rms;
    if (!(*error <= error_max)) /* also NaN */
        return err_set(ERR_STATE, "computes wrong: relative error %.3g, at most %.0e",
                       *error, error_max);
    return OK;
}
