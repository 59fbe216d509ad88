/* A time or a rate by this machine's card: the share of the roof that other hosts reach. Prompts
 * are bound by peak arithmetic, all else by read bandwidth. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"
#include "experiments/predict/predictor.h"
#include "measure/card.h"

static bool is_arithmetic(const struct predict_view *v)
{
    static const char *const words[] = {"prefill", "ttft", "prompt", "peak", "gemm"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strstr(v->name, words[i]))
            return true;
    return strstr(v->unit, "FLOP") != NULL;
}

/* Of all threads. NaN: not known. */
static double roof(const json_t *card, bool arithmetic)
{
    if (!card)
        return NAN;
    return arithmetic ? measure_card_peak_gflops(card, "bf16", "relaxed", CPU_MAX)
                      : measure_card_read_gbps(card, CPU_MAX);
}

static double value(const struct predict_view *v)
{
    const enum predict_unit unit = predict_unit_of(v->unit);
    const bool arithmetic = is_arithmetic(v);
    const double here = roof(v->card, arithmetic);
    const struct predict_number *x;
    double sum = 0, n_seen = 0;
    size_t n;

    if (unit != PREDICT_RATE && unit != PREDICT_TIME)
        return NAN;
    predict_others(v, &x, &n);
    for (size_t i = 0; i < n; i++) {
        const double faster = here / roof(v->data->cards[x[i].machine], arithmetic),
                     y = log(x[i].value) +
                         (unit == PREDICT_RATE ? log(faster) : -log(faster));

        if (!predict_sees(v, &x[i]) || !x[i].is_timed || !isfinite(y))
            continue;
        n_seen++;
        sum += y;
    }
    return n_seen > 0 ? exp(sum / n_seen) : (double)NAN;
}

const struct predictor predictor_roof = {
    .name = "roof",
    .text = "by this machine's bandwidth or peak, the share of it that other hosts reach",
    .value = value,
};
