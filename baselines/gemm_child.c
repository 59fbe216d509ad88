#include "baselines/gemm_child.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "baselines/gemm/support/data.h"

#define FILL_BYTES_S 50e6 /* a slow machine still makes weights at this rate */

/* Sums in f32 of rounded products stay far below the first; activations in bf16 keep
 * eight bits, 1.7e-3 of the result. A wrong or unwritten element is near 1. */
#define ERROR_MAX_F32  1e-4
#define ERROR_MAX_BF16 1e-2

/* --- what is right */

static double element(const struct gemm_case *c, int64_t row, int64_t column)
{
    double sum = 0.0;

    for (int64_t i = 0; i < c->k; i++)
        sum += (double)gemm_value(c->seed, GEMM_A, row * c->k + i) *
               (double)gemm_weight(c->seed, i * c->n + column, c->bf16);
    return sum;
}

/* One element in each stripe of columns, in any row; and the four corners, where blocks
 * end. */
void gemm_case_sample(struct gemm_case *c)
{
    const int last = GEMM_N_SAMPLES - 1;
    struct rng rng;
    double sum = 0.0;

    rng_init(&rng, c->seed, "gemm samples");
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

/* --- asking */

/* Say `command`, expect "WORD NUMBER". */
static int ask_number(struct gemm_process *p, const char *command, const char *word,
                      double limit_s, double *out)
{
    char answer[GEMM_LINE_MAX], *end;
    size_t n = strlen(word);
    int rc = gemm_process_ask(p, command, answer, sizeof answer, limit_s);

    if (rc != OK)
        return rc;
    if (strncmp(answer, "no ", 3) == 0)
        return err_set(ERR_UNSUPPORTED, "%s: %s", command, answer + 3);
    if (strncmp(answer, word, n) == 0 && answer[n] == ' ' && answer[n + 1]) {
        *out = strtod(answer + n + 1, &end);
        if (*end == '\0')
            return OK;
    }
    return err_set(ERR_FORMAT, "answered \"%.100s\" to \"%s\", expected %s NUMBER",
                   answer, command, word);
}

int gemm_child_shape(struct gemm_child *t, const struct gemm_case *c, double limit_s)
{
    double bytes = (double)c->n * (double)c->k * 4.0 * (double)(c->n_copies + 1);
    char command[160], answer[GEMM_LINE_MAX];
    int rc;

    snprintf(command, sizeof command,
             "shape %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu64, c->type,
             c->m, c->n, c->k, c->n_copies, c->seed);
    rc = gemm_process_ask(t->process, command, answer, sizeof answer,
                          limit_s + bytes / FILL_BYTES_S);
    if (rc != OK)
        return rc;
    if (strncmp(answer, "no ", 3) == 0)
        return err_set(ERR_UNSUPPORTED, "%s", answer + 3);
    if (strcmp(answer, "ready") != 0)
        return err_set(ERR_FORMAT, "answered \"%.100s\" to \"%s\", expected ready",
                       answer, command);
    return OK;
}

int gemm_child_run(struct gemm_child *t, double limit_s, double *seconds)
{
    uint64_t start_ns = clock_ns();
    int rc = ask_number(t->process, "run", "time", limit_s, seconds);
    double wall_s = (double)(clock_ns() - start_ns) * 1e-9;

    if (rc == OK && !(*seconds > 0.0 && *seconds <= wall_s))
        rc = err_set(ERR_FORMAT, "reported %g s for a run within %g s", *seconds, wall_s);
    return rc;
}

int gemm_child_check(struct gemm_child *t, const struct gemm_case *c, double limit_s)
{
    double sum = 0.0, got, error_max = c->bf16 ? ERROR_MAX_BF16 : ERROR_MAX_F32;
    char command[64];

    for (int i = 0; i < GEMM_N_SAMPLES; i++) {
        snprintf(command, sizeof command, "at %" PRId64 " %" PRId64, c->samples[i].row,
                 c->samples[i].column);
        int rc = ask_number(t->process, command, "value", limit_s, &got);
        if (rc != OK)
            return rc;
        got -= c->samples[i].expected;
        sum += got * got;
    }
    t->error = sqrt(sum / GEMM_N_SAMPLES) / c->result_rms;
    if (!(t->error <= error_max)) /* also NaN */
        return err_set(ERR_STATE, "computes wrong: relative error %.3g, at most %.0e",
                       t->error, error_max);
    return OK;
}
