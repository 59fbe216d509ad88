#include "measure/card.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cpu/cpu.h"

#define CARD_BYTES_MAX (1 << 20)

/* ---- files ---- */

int measure_card_path(char *out, size_t n, const char *dir, const char *suffix)
{
    const char *level = cpu_isa_hidden() ? getenv(CPU_ISA_ENV) : NULL;
    char host[65] = "";

    if (gethostname(host, sizeof(host) - 1) != 0 || !host[0])
        snprintf(host, sizeof(host), "host");
    for (char *s = host; *s; s++) {
        if (!isalnum((unsigned char)*s) && *s != '-' && (*s != '.' || s == host))
            *s = '_';
    }
    if ((size_t)snprintf(out, n, "%s/%s%s%s%s.json", dir, host, level ? "-" : "",
                         level ? level : "", suffix) >= n)
        return err_set(ERR_ARG, "machine card: path too long: %.60s...", dir);
    return OK;
}

/* The peak of instruction sets that are not used here would be no bound of ours. */
static int check_isa(const json_t *card, const char *path)
{
    const char *isa =
        json_string_value(json_object_get(json_object_get(card, "identity"), "isa"));
    char ours[128];

    cpu_isa_words(cpu_isa_detected(), ours, sizeof(ours));
    if (!isa || strcmp(isa, ours) == 0)
        return OK;
    return err_set(
        ERR_STATE,
        "%s: measured with the instruction sets \"%.100s\", this run has \"%s\"", path,
        isa, ours);
}

int measure_card_read(json_t **out, const char *path)
{
    char standard[256];
    int rc = OK;

    *out = NULL;
    if (!path)
        rc = measure_card_path(standard, sizeof(standard), MEASURE_CARD_DIR, "");
    path = path ? path : standard;
    rc = rc == OK ? json_read_file(out, path, CARD_BYTES_MAX) : rc;
    if (rc == OK)
        rc = check_isa(*out, path);
    if (rc != OK) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* ---- values ---- */

static double row_number(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static const char *row_text(const json_t *row, const char *key)
{
    const char *s = json_string_value(json_object_get(row, key));

    return s ? s : "";
}

double measure_card_value(const json_t *card, const char *name, int n_threads,
                          const char **why)
{
    const json_t *values = json_object_get(card, "values");

    if (why)
        *why = "the machine card has no such value";
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *row = json_array_get(values, i);

        if (strcmp(row_text(row, "name"), name) != 0 ||
            row_number(row, "n_threads") != n_threads)
            continue;
        if (why && row_text(row, "why")[0])
            *why = row_text(row, "why");
        return row_number(row, "estimate");
    }
    return NAN;
}

struct measure_card_range measure_card_range(const json_t *card, const char *prefix,
                                             int n_threads, const char **why)
{
    const json_t *values = json_object_get(card, "values");
    struct measure_card_range r = {NAN, NAN};

    if (why)
        *why = "no probe of this program measures it here";
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *row = json_array_get(values, i);
        double v = row_number(row, "estimate");

        if (strncmp(row_text(row, "name"), prefix, strlen(prefix)) != 0 ||
            (n_threads && row_number(row, "n_threads") != n_threads))
            continue;
        r.least = fmin(r.least, v); /* of NaN and a number: the number */
        r.most = fmax(r.most, v);
        if (why && isnan(v) && row_text(row, "why")[0])
            *why = row_text(row, "why");
    }
    return r;
}

/* The nearest thread counts below and above `n` that have a value; NaN: none. */
static void neighbours(const json_t *card, const char *prefix, double n, double *below,
                       double *above)
{
    const json_t *values = json_object_get(card, "values");

    *below = *above = NAN;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *row = json_array_get(values, i);
        double k = row_number(row, "n_threads");

        if (isnan(row_number(row, "estimate")) ||
            strncmp(row_text(row, "name"), prefix, strlen(prefix)) != 0)
            continue;
        if (k <= n && !(*below >= k))
            *below = k;
        if (k >= n && !(*above <= k))
            *above = k;
    }
}

static double value_at(const json_t *card, const char *prefix, int n_threads)
{
    double below, above, lo, hi;

    neighbours(card, prefix, n_threads, &below, &above);
    if (isnan(below))
        return NAN;
    lo = measure_card_range(card, prefix, (int)below, NULL).most;
    if (isnan(above) || above == below)
        return lo;
    hi = measure_card_range(card, prefix, (int)above, NULL).most;
    return lo + (hi - lo) * (n_threads - below) / (above - below);
}

double measure_card_read_gbps(const json_t *card, int n_threads)
{
    return value_at(card, "read_gbps", n_threads);
}

double measure_card_peak_gflops(const json_t *card, const char *type,
                                const char *precision, int n_threads)
{
    /* Which arithmetic each promise allows. Relaxed: an error no larger than activations
     * in bf16 would make; f32 weights would have to be rounded too, so they gain nothing.
     */
    static const struct {
        const char *type, *precision, *prefix;
    } allowed[] = {
        {"f32", "exact", "peak_f32_fma_"},     {"f16", "exact", "peak_f32_fma_"},
        {"bf16", "exact", "peak_f32_fma_"},    {"f32", "relaxed", "peak_f32_fma_"},
        {"f16", "relaxed", "peak_f32_fma_"},   {"f16", "relaxed", "peak_fp16_fma_"},
        {"bf16", "relaxed", "peak_f32_fma_"},  {"bf16", "relaxed", "peak_fp16_fma_"},
        {"bf16", "relaxed", "peak_bf16_dot_"},
    };
    double best = NAN;

    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        double v;

        if (strcmp(type, allowed[i].type) != 0 ||
            strcmp(precision, allowed[i].precision) != 0)
            continue;
        v = value_at(card, allowed[i].prefix, n_threads);
        if (!isnan(v) && !(best >= v))
            best = v;
    }
    return best;
}

static void print_row(FILE *f, const json_t *row)
{
    double v = row_number(row, "estimate");
    double lo = row_number(row, "lo"), hi = row_number(row, "hi");

    fprintf(f, "%-28.40s %7.0f  ", row_text(row, "name"), row_number(row, "n_threads"));
    if (isnan(v))
        fprintf(f, "%10s %-8.15s  unavailable: %.95s\n", "-", row_text(row, "unit"),
                row_text(row, "why"));
    else
        fprintf(f, "%10.1f %-8.15s  %.1f .. %.1f (%.0f trials)\n", v,
                row_text(row, "unit"), lo, hi, row_number(row, "n_trials"));
}

int measure_card_text(const json_t *card, char **text)
{
    const json_t *id = json_object_get(card, "identity");
    const json_t *values = json_object_get(card, "values");
    char *buffer = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&buffer, &n);

    *text = NULL;
    if (!f)
        return err_set(ERR_NOMEM, "machine card: no memory for its text");
    fprintf(f, "%.64s: %.63s, CPUs %.200s, measured %.30s\n", row_text(card, "host"),
            row_text(id, "model_name"), row_text(id, "cpus"),
            row_text(card, "measured_utc"));
    fprintf(f, "%.255s\n", row_text(card, "budget"));
    fprintf(f, "instruction sets: %.127s\n\n", row_text(id, "isa"));
    fprintf(f, "%-36s %7s  %10s\n", "value", "threads", "estimate");
    for (size_t i = 0; i < json_array_size(values); i++)
        print_row(f, json_array_get(values, i));
    if (fclose(f) == 0)
        *text = mem_strndup(MEM_HARNESS, buffer, n);
    else
        err_set(ERR_NOMEM, "machine card: no memory for its text");
    free(buffer);
    return *text ? OK : ERR_NOMEM;
}
