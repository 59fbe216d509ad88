#include "experiments/study/support/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "characterize/probe.h"
#include "make/make.h"
#include "measure/card.h"
#include "model/model.h"

/* --- what a job says */

/* "llama-3-8b/qkv": the sizes are those of the architecture. */
static int matrix_of_arch(const char *text, struct tune_shape *out)
{
    const char *slash = strchr(text, '/');
    struct model_shape shapes[MODEL_N_MATS];
    struct model_config c;
    char arch[64];

    snprintf(arch, sizeof(arch), "%.*s", (int)(slash - text), text);
    TRY(make_config(arch, &c));
    model_shapes(&c, shapes);
    for (int i = 0; i < MODEL_N_MATS; i++)
        if (shapes[i].n > 0 && strcmp(shapes[i].name, slash + 1) == 0) {
            out->n = shapes[i].n;
            out->k = shapes[i].k;
            out->k_unit = shapes[i].k_unit;
            return OK;
        }
    return err_set(ERR_ARG,
                   "matrix: %s: expected qkv, o, gate_up, down or head after the slash",
                   text);
}

int study_matrix_parse(const char *text, int64_t m, struct tune_shape *out)
{
    long long n = 0, k = 0, unit = 0;
    char name[64];
    int end = 0;

    *out = (struct tune_shape){.m = m};
    if (!text)
        return err_set(ERR_ARG, "study.matrix: expected one, found none");
    if (strchr(text, '/') && !strchr(text, ' '))
        return matrix_of_arch(text, out);
    if (sscanf(text, "%63s %lldx%lld%n", name, &n, &k, &end) != 3)
        goto bad;
    if (text[end] == '/') {
        int more = 0;

        if (sscanf(text + end, "/%lld%n", &unit, &more) != 1 || unit < 2 || unit % 2)
            goto bad;
        end += more;
    }
    if (text[end] || n < 1 || k < 1 || n > INT32_MAX || k > INT32_MAX || unit > k)
        goto bad;
    out->n = n;
    out->k = k;
    out->k_unit = unit;
    return OK;
bad:
    return err_set(
        ERR_ARG,
        "matrix: expected \"NAME NxK\", \"NAME NxK/UNIT\" with an even unit or "
        "\"ARCHITECTURE/MATRIX\", found \"%.80s\"",
        text);
}

int study_numbers_parse(const char *text, const char *what, int64_t *out, int max, int *n)
{
    const char *at = text;

    for (*n = 0; *at;) {
        char *end;
        long long v = strtoll(at, &end, 10), last = v;

        if (end != at && strncmp(end, "..", 2) == 0)
            last = strtoll(end + 2, &end, 10);
        if (end == at || v < 1 || last < v || (*n && v <= out[*n - 1]))
            return err_set(ERR_ARG, "%s: expected ascending numbers, found \"%.60s\"",
                           what, at);
        if (last - v >= max - *n)
            return err_set(ERR_LIMIT, "%s: more than %d numbers", what, max);
        while (v <= last)
            out[(*n)++] = v++;
        at = end + strspn(end, " ");
    }
    return *n ? OK : err_set(ERR_ARG, "%s: expected numbers, found none", what);
}

const char *study_mode_type(int mode)
{
    return mode == STUDY_F32 ? "f32" : "bf16";
}

const char *study_mode_precision(int mode)
{
    return mode == STUDY_BF16_RELAXED ? "relaxed" : "exact";
}

/* --- the machine */

#define TILE_ROWS 8

/* The rows of the micro-kernel of np panels: mr, or the most if that is 0. 0: it has none. */
static int64_t tile_rows(const struct kern_variant *v, int64_t mr, int np)
{
    if (mr > 0)
        return mr <= kern_gemm_rows(v, np) ? mr : 0;
    for (mr = TILE_ROWS; mr > kern_gemm_rows(v, np);)
        mr /= 2;
    return mr;
}

int study_tile(const struct kern_variant *v, int64_t *mr, int64_t *np)
{
    int64_t best_mr = 0, best_np = 0;

    for (int n = 1; n <= KERN_NP_MAX; n++) {
        int64_t rows = *np == 0 || *np == n ? tile_rows(v, *mr, n) : 0;

        if (rows * n > best_mr * best_np) {
            best_mr = rows;
            best_np = n;
        }
    }
    if (best_mr == 0)
        return err_set(
            ERR_UNSUPPORTED,
            "%s has no micro-kernel of %lld rows by %lld panels, at most %d rows "
            "fit",
            v->name, (long long)*mr, (long long)*np,
            kern_gemm_rows(v, *np ? (int)*np : 1));
    *mr = best_mr;
    *np = best_np;
    return OK;
}

int study_threads_open(struct study_threads *out, int64_t n, int64_t cache_mb)
{
    out->team = NULL;
    out->cache_bytes = cache_mb ? (size_t)cache_mb << 20 : cpu_cache_bytes(3);
    TRY(cpu_budget_get(&out->budget));
    if (n > out->budget.n)
        return err_set(ERR_ARG, "threads: %lld of %s", (long long)n, out->budget.reason);
    out->n = n > 0 ? (int)n : out->budget.n;
    return par_team_open(&out->team, out->budget.cpus, out->n, 1);
}

void study_threads_close(struct study_threads *t)
{
    par_team_close(&t->team);
}

/* NULL: it cannot be measured. */
static json_t *machine_now(const struct study_threads *t, const char *probe,
                           size_t buffer_bytes, double budget_s)
{
    const struct probe_ctx how = {.team = t->team,
                                  .n_threads_max = t->n,
                                  .n_threads_min = t->n,
                                  .budget_s = budget_s,
                                  .buffer_bytes = buffer_bytes};
    json_t *card;

    if (probe_now(&card, &how, probe) != OK)
        err_clear();
    return card;
}

double study_read_gbps(const struct study_threads *t, size_t buffer_bytes,
                       double budget_s)
{
    json_t *card = machine_now(t, "read", buffer_bytes, budget_s);
    double gbps = measure_card_read_gbps(card, t->n);

    json_decref(card);
    return gbps;
}

double study_peak_now(const struct study_threads *t, const char *type,
                      const char *precision, double budget_s)
{
    json_t *card = machine_now(t, "peak", 0, budget_s);
    double gflops = measure_card_peak_gflops(card, type, precision, t->n);

    json_decref(card);
    return gflops;
}

double study_handoff_now(const struct study_threads *t, double budget_s)
{
    json_t *card = machine_now(t, "handoff", 0, budget_s);
    double ns = measure_card_range(card, "handoff_ns", 0, NULL).most;

    json_decref(card);
    return ns;
}

double study_peak_gflops(const json_t *card, int mode, int n_threads)
{
    const char *type = study_mode_type(mode), *precision = study_mode_precision(mode);
    char why[96];

    return card ? measure_card_peak_bound(card, type, precision, n_threads, why) : NAN;
}

double study_memory_roof_gflops(int mode, int64_t m, double read_gbps)
{
    enum kern_type type = mode == STUDY_F32 ? KERN_F32 : KERN_BF16;

    return read_gbps * 2 * (double)m / (double)kern_type_bytes(type);
}

double study_roof_gflops(double peak, double memory_roof)
{
    if (isnan(peak) || isnan(memory_roof))
        return NAN;
    return peak < memory_roof ? peak : memory_roof;
}

void study_note_machine(struct study_cell *c, const struct study_threads *t)
{
    struct cpu_info info;

    cpu_info_get(&info);
    study_note_text(c, "cpu", info.model_name);
    study_note_text(c, "microcode", info.microcode);
    study_note_text(c, "cpus", t->budget.reason);
    study_note(c, "n_threads", json_integer(t->n));
}

void study_note_setting(struct study_cell *c, const struct study_threads *t, int mode,
                        const struct kern_variant *v)
{
    study_note_text(c, "type", study_mode_type(mode));
    study_note_text(c, "precision", study_mode_precision(mode));
    study_note_text(c, "variant", v->name);
    study_note_machine(c, t);
}

/* --- error */

#define SAMPLE_ROWS    8
#define SAMPLE_COLUMNS 16

int study_gemm_error(const struct tune_bench *b, const struct tune_shape *s, int64_t seed,
                     double *out)
{
    const struct kern_mat *w = tune_bench_mat(b);
    float *column = mem_new(MEM_OTHER, (size_t)w->k_pad, sizeof(*column));
    double sum = 0, error = 0;
    struct rng r;
    int64_t ldc;
    const float *a = tune_bench_a(b), *c = tune_bench_c(b, &ldc);

    if (!column)
        return ERR_NOMEM;
    rng_init(&r, (uint64_t)seed, "sampled elements");
    for (int j = 0; j < SAMPLE_COLUMNS; j++) {
        int64_t n = (int64_t)rng_below(&r, (uint64_t)s->n);

        kern_mat_get_row(w, n, column);
        for (int i = 0; i < SAMPLE_ROWS; i++) {
            int64_t m = (int64_t)rng_below(&r, (uint64_t)s->m);
            double exact = 0, off;

            for (int64_t k = 0; k < s->k; k++)
                exact += (double)a[m * s->k + k] * (double)column[k];
            off = (double)c[m * ldc + n] - exact;
            sum += exact * exact;
            error += off * off;
        }
    }
    mem_free(column);
    *out = sqrt(error / sum);
    return OK;
}
