#include "measure/card.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "cpu/cpu.h"

#define CARD_BYTES_MAX (1 << 20)
#define FORMAT         "machine-card"

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

/* ---- what is accepted ---- */

/* The identity of the machine that a card is true for. *out: a new reference. */
MUST static int identity(json_t **out, const struct cpu_budget *b)
{
    char isa[128], cpus[1024];
    struct cpu_info i;

    cpu_info_get(&i);
    cpu_isa_words(cpu_isa_detected(), isa, sizeof(isa));
    cpu_list_print(b->cpus, b->n, cpus, sizeof(cpus));
    *out = json_pack("{s:s s:s s:i s:i s:i s:s s:s s:s s:I s:I s:I}", "vendor", i.vendor,
                     "model_name", i.model_name, "family", i.family, "model", i.model,
                     "stepping", i.stepping, "microcode", i.microcode, "isa", isa, "cpus",
                     cpus, "l1d_bytes", (json_int_t)i.l1d_bytes, "l2_bytes",
                     (json_int_t)i.l2_bytes, "l3_bytes", (json_int_t)i.l3_bytes);
    return *out ? OK : err_set(ERR_NOMEM, "machine card: no memory");
}

/* The checksum of all but itself. */
MUST static int checksum(const json_t *card, char out[17])
{
    json_t *rest = json_copy((json_t *)card);
    int rc;

    if (!rest)
        return err_set(ERR_NOMEM, "machine card: no memory");
    json_object_del(rest, "checksum");
    rc = json_checksum(rest, out);
    json_decref(rest);
    return rc;
}

int measure_card_seal(json_t *card, const struct cpu_budget *b)
{
    json_t *id;
    char sum[17];

    TRY(identity(&id, b));
    if (json_object_set_new(card, "identity", id) != 0 ||
        json_object_set_new(card, "format", json_string(FORMAT)) != 0 ||
        json_object_set_new(card, "version", json_integer(MEASURE_CARD_VERSION)) != 0)
        return err_set(ERR_NOMEM, "machine card: no memory");
    TRY(checksum(card, sum));
    if (json_object_set_new(card, "checksum", json_string(sum)) != 0)
        return err_set(ERR_NOMEM, "machine card: no memory");
    return OK;
}

static json_t *values_json(const struct measure_card_row *rows, int n)
{
    json_t *list = json_array();

    for (int i = 0; list && i < n; i++) {
        const struct measure_card_row *v = &rows[i];
        json_t *row =
            json_pack("{s:s s:s s:i s:o s:o s:o s:i s:s}", "name", v->name, "unit",
                      v->unit, "n_threads", v->n_threads, "estimate",
                      json_number(v->estimate), "lo", json_number(v->lo), "hi",
                      json_number(v->hi), "n_trials", v->n_trials, "why", v->why);

        if (json_array_append_new(list, row) != 0) { /* also when row is NULL */
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

int measure_card_of(json_t **out, const struct measure_card_row *rows, int n)
{
    *out = json_pack("{s:o}", "values", values_json(rows, n)); /* NULL if that is NULL */
    return *out ? OK : err_set(ERR_NOMEM, "machine card: no memory");
}

int measure_card_new(json_t **out, const struct measure_card_row *rows, int n,
                     const struct cpu_budget *b, const struct measure_noise *noise,
                     double duration_s)
{
    json_t *values = values_json(rows, n), *counters = measure_noise_json(noise);
    char host[65] = "", utc[32];
    int rc;

    gethostname(host, sizeof(host) - 1);
    clock_utc(utc, sizeof(utc));
    /* the counters tell how much to trust the numbers; NULL: json_pack() fails */
    *out = json_pack("{s:s s:s s:s s:f s:o s:o}", "host", host, "measured_utc", utc,
                     "budget", b->reason, "duration_s", duration_s, "counters", counters,
                     "values", values);
    rc =
        *out ? measure_card_seal(*out, b) : err_set(ERR_NOMEM, "machine card: no memory");
    if (rc == OK)
        return OK;
    json_decref(*out);
    *out = NULL;
    return rc;
}

/* The range that is accepted of each unit: ten times and more beyond today's machines. */
static const struct unit {
    const char *name;
    double min, max;
    bool of_a_thread; /* `max` is: several threads may have as much each */
} units[] = {
    {"GB/s", 1e-3, 1e4, true},    /* a core's first cache gives less than 1000 */
    {"GFLOP/s", 1e-3, 1e5, true}, /* a core's matrix unit computes less than 10000 */
    {"GOP/s", 1e-3, 1e5, true},   {"ns", 1e-3, 1e12, false},
    {"ns/s", 0, 1e9, true},       {"1", 0, 1e3, false},
};

static const struct unit *unit_of(const char *name)
{
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

static bool is_null(const json_t *row, const char *key)
{
    return json_is_null(json_object_get(row, key));
}

MUST static int check_estimate(const json_t *row, const struct unit *u, int64_t n_threads,
                               const char *where)
{
    double v, lo, hi, max = u->max * (double)(u->of_a_thread ? n_threads : 1);

    TRY(json_get_f64(row, "estimate", &v, where));
    TRY(json_get_f64(row, "lo", &lo, where));
    TRY(json_get_f64(row, "hi", &hi, where));
    if (u->min <= lo && lo <= v && v <= hi && hi <= max)
        return OK;
    return err_set(ERR_FORMAT,
                   "%s: expected %g <= lo <= estimate <= hi <= %g %s, found %g, %g, %g",
                   where, u->min, max, u->name, lo, v, hi);
}

MUST static int check_row(const json_t *row, const char *where)
{
    const char *name, *unit, *why;
    int64_t n_threads, n_trials;
    const struct unit *u;

    TRY(json_get_str(row, "name", &name, where));
    TRY(json_get_str(row, "unit", &unit, where));
    TRY(json_get_str(row, "why", &why, where));
    TRY(json_get_int(row, "n_threads", 1, CPU_MAX, &n_threads, where));
    TRY(json_get_int(row, "n_trials", 0, INT32_MAX, &n_trials, where));
    u = unit_of(unit);
    if (!u)
        return err_set(ERR_FORMAT, "%s: unit: no machine card has \"%.20s\"", where,
                       unit);
    if (!is_null(row, "estimate"))
        return check_estimate(row, u, n_threads, where);
    if (!why[0] || !is_null(row, "lo") || !is_null(row, "hi"))
        return err_set(ERR_FORMAT, "%s: no estimate, but an interval or no reason",
                       where);
    return OK;
}

MUST static int check_identity(const json_t *card, json_t *ours, const char *where)
{
    const json_t *theirs = NULL;
    const char *key;
    json_t *value;
    int rc = json_get_obj(card, "identity", &theirs, where);

    if (rc != OK)
        return rc;
    json_object_foreach(ours, key, value)
    {
        const json_t *other = json_object_get(theirs, key);
        char *found, *wanted;

        if (json_equal(other, value))
            continue;
        found = json_text(other ? other : json_null(), JSON_ENCODE_ANY | JSON_COMPACT);
        wanted = json_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
        if (!found || !wanted)
            rc = ERR_NOMEM;
        else
            rc = err_set(
                ERR_STATE,
                "%s: does not hold here: measured with %s %.100s, here it is %.100s",
                where, key, found, wanted);
        mem_free(found);
        mem_free(wanted);
        return rc;
    }
    return OK;
}

MUST static int check_whole(const json_t *card, const char *where)
{
    const json_t *values = NULL;
    const char *format = "", *stated = "";
    char sum[17], at[512];
    int64_t version;

    TRY(json_get_str(card, "format", &format, where));
    if (strcmp(format, FORMAT) != 0)
        return err_set(ERR_FORMAT, "%s: format: expected \"" FORMAT "\", found \"%.40s\"",
                       where, format);
    TRY(json_get_int(card, "version", 1, INT64_MAX, &version, where));
    if (version != MEASURE_CARD_VERSION)
        return err_set(ERR_FORMAT, "%s: version: expected %d, found %lld", where,
                       MEASURE_CARD_VERSION, (long long)version);
    TRY(json_get_arr(card, "values", &values, where));
    for (size_t i = 0; i < json_array_size(values); i++) {
        snprintf(at, sizeof(at), "%.400s: values[%zu]", where, i);
        TRY(check_row(json_array_get(values, i), at));
    }
    TRY(json_get_str(card, "checksum", &stated, where));
    TRY(checksum(card, sum));
    if (strcmp(sum, stated) == 0)
        return OK;
    return err_set(ERR_FORMAT,
                   "%s: changed after it was measured: its checksum is \"%.16s\", its "
                   "content has \"%s\"",
                   where, stated, sum);
}

int measure_card_check(const json_t *card, const char *where)
{
    json_t *ours = NULL;
    struct cpu_budget b;
    int rc = check_whole(card, where);

    if (rc == OK)
        rc = cpu_budget_get(&b);
    if (rc == OK)
        rc = identity(&ours, &b);
    if (rc == OK)
        rc = check_identity(card, ours, where);
    json_decref(ours);
    return rc;
}

int measure_card_read(json_t **out, const char *path)
{
    int rc;

    if (!path)
        return measure_card_read_in(out, MEASURE_CARD_DIR, "");
    rc = json_read_file(out, path, CARD_BYTES_MAX);
    if (rc == OK)
        rc = measure_card_check(*out, path);
    if (rc != OK) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int measure_card_read_in(json_t **out, const char *dir, const char *suffix)
{
    char path[1200];
    int rc = measure_card_path(path, sizeof(path), dir, suffix);

    *out = NULL;
    return rc == OK ? measure_card_read(out, path) : rc;
}

void measure_card_drop(const char *dir)
{
    char path[1200];

    if (measure_card_path(path, sizeof(path), dir, "") == OK)
        unlink(path); /* it may be gone already, or be read-only: then it is checked */
}

/* ---- values ---- */

/* A value that was measured, but is not trusted, has its reason. */
static bool is_doubtful(const json_t *row)
{
    return json_str_at(row, "why", "")[0] && !isnan(json_f64_at(row, "estimate"));
}

static double row_value(const json_t *row)
{
    return is_doubtful(row) ? NAN : json_f64_at(row, "estimate");
}

/* Has the name this prefix, and is it of n threads (0: any)? */
static bool matches(const json_t *row, const char *prefix, int n_threads)
{
    return strncmp(json_str_at(row, "name", ""), prefix, strlen(prefix)) == 0 &&
           (!n_threads || json_f64_at(row, "n_threads") == n_threads);
}

double measure_share(double reached, double bound)
{
    return reached > MEASURE_SHARE_MAX * bound ? NAN : reached / bound;
}

double measure_card_value(const json_t *card, const char *name, int n_threads,
                          const char **why)
{
    const json_t *values = json_object_get(card, "values");

    if (why)
        *why = "the machine card has no such value";
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *row = json_array_get(values, i);

        if (strcmp(json_str_at(row, "name", ""), name) != 0 ||
            json_f64_at(row, "n_threads") != n_threads)
            continue;
        if (why && json_str_at(row, "why", "")[0])
            *why = json_str_at(row, "why", "");
        return row_value(row);
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
        double v = row_value(row);

        if (!matches(row, prefix, n_threads))
            continue;
        r.least = fmin(r.least, v); /* of NaN and a number: the number */
        r.most = fmax(r.most, v);
        if (why && isnan(v) && json_str_at(row, "why", "")[0])
            *why = json_str_at(row, "why", "");
    }
    return r;
}

const char *measure_card_doubt(const json_t *card, const char *prefix, int n_threads)
{
    const json_t *values = json_object_get(card, "values");

    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *row = json_array_get(values, i);

        if (matches(row, prefix, n_threads) && is_doubtful(row))
            return json_str_at(row, "why", "");
    }
    return NULL;
}

/* The nearest thread counts below and above `n` that were measured; NaN: none. */
static void neighbours(const json_t *card, const char *prefix, double n, double *below,
                       double *above)
{
    const json_t *values = json_object_get(card, "values");

    *below = *above = NAN;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *row = json_array_get(values, i);
        double k = json_f64_at(row, "n_threads");

        if (isnan(json_f64_at(row, "estimate")) || !matches(row, prefix, 0))
            continue;
        if (k <= n && !(*below >= k))
            *below = k;
        if (k >= n && !(*above <= k))
            *above = k;
    }
}

/* The most that trusted values reach, and that others may reach. NaN: there is none. */
struct bound {
    double value, doubtful;
};

static struct bound most_at(const json_t *card, const char *prefix, double n_threads)
{
    const json_t *values = json_object_get(card, "values");
    struct bound b = {NAN, NAN};

    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *row = json_array_get(values, i);

        if (!matches(row, prefix, (int)n_threads))
            continue;
        if (is_doubtful(row))
            b.doubtful = fmax(b.doubtful, json_f64_at(row, "hi"));
        else
            b.value = fmax(b.value, json_f64_at(row, "estimate"));
    }
    return b;
}

static struct bound bound_at(const json_t *card, const char *prefix, int n_threads)
{
    double below, above;
    struct bound lo, hi;

    neighbours(card, prefix, n_threads, &below, &above);
    if (isnan(below))
        return (struct bound){NAN, NAN};
    lo = most_at(card, prefix, below);
    if (isnan(above) || above == below)
        return lo;
    hi = most_at(card, prefix, above);
    lo.value += (hi.value - lo.value) * (n_threads - below) / (above - below);
    lo.doubtful = fmax(lo.doubtful, hi.doubtful);
    return lo;
}

/* A bound that a doubtful value may exceed is none. */
static double trusted(struct bound b)
{
    return b.doubtful > b.value ? NAN : b.value;
}

double measure_card_read_gbps(const json_t *card, int n_threads)
{
    return trusted(bound_at(card, "read_gbps", n_threads));
}

double measure_card_peak_gflops(const json_t *card, const char *type,
                                const char *precision, int n_threads)
{
    /* The arithmetic that each promise allows. Relaxed: an error no larger than activations in bf16
     * would make; f32 weights would have to be rounded too, so they gain nothing. Quantised weights
     * ("q4_0", "w4c") may be rounded to bf16, and a8 computes in integers; for the others it is
     * relaxed. */
    const bool quantised = strchr("qw", type[0]), a8 = strcmp(precision, "a8") == 0;
    static const struct {
        const char *type, *precision, *prefix;
    } allowed[] = {
        {"f32", "exact", "peak_f32_fma_"},     {"f16", "exact", "peak_f32_fma_"},
        {"bf16", "exact", "peak_f32_fma_"},    {"f32", "relaxed", "peak_f32_fma_"},
        {"f16", "relaxed", "peak_f32_fma_"},   {"f16", "relaxed", "peak_fp16_fma_"},
        {"bf16", "relaxed", "peak_f32_fma_"},  {"bf16", "relaxed", "peak_fp16_fma_"},
        {"bf16", "relaxed", "peak_bf16_dot_"}, {"bf16", "relaxed", "peak_bf16_tile_"},
        {"q", "exact", "peak_f32_fma_"},       {"q", "relaxed", "peak_f32_fma_"},
        {"q", "relaxed", "peak_bf16_tile_"},   {"q", "a8", "peak_f32_fma_"},
        {"q", "a8", "peak_i8_dot_"},           {"q", "a8", "peak_i8_tile_"},
    };
    struct bound best = {NAN, NAN};

    if (quantised)
        type = "q";
    else if (a8)
        precision = "relaxed";
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
        struct bound b;

        if (strcmp(type, allowed[i].type) != 0 ||
            strcmp(precision, allowed[i].precision) != 0)
            continue;
        b = bound_at(card, allowed[i].prefix, n_threads);
        best.value = fmax(best.value, b.value);
        best.doubtful = fmax(best.doubtful, b.doubtful);
    }
    return trusted(best);
}

const char *measure_card_doubtful(const json_t *card, int n_threads)
{
    for (int n = 1;; n = n_threads) {
        const char *doubt = NULL;

        if (isnan(measure_card_read_gbps(card, n)))
            doubt = measure_card_doubt(card, "read_gbps", n);
        if (!doubt && (isnan(measure_card_peak_gflops(card, "f32", "exact", n)) ||
                       isnan(measure_card_peak_gflops(card, "bf16", "relaxed", n))))
            doubt = measure_card_doubt(card, "peak_", n);
        if (doubt || n == n_threads)
            return doubt;
    }
}

/* `at_n`, or NaN and why. More threads never do less: a card that says so was measured while other
 * work ran. NaN at one thread: nothing to compare. */
static double checked(double at_n, double at_one, const char *doubt, char why[96])
{
    if (isnan(at_n)) {
        snprintf(why, 96, "%s%s", doubt ? "not trusted: " : "",
                 doubt ? doubt : "the machine card has no such number");
    } else if (at_n < at_one) {
        snprintf(why, 96, "the machine card was disturbed: all threads %.4g, one %.4g",
                 at_n, at_one);
        return NAN;
    }
    return at_n;
}

double measure_card_read_bound(const json_t *card, int n_threads, char why[96])
{
    return checked(measure_card_read_gbps(card, n_threads),
                   measure_card_read_gbps(card, 1),
                   measure_card_doubt(card, "read_gbps", n_threads), why);
}

double measure_card_peak_bound(const json_t *card, const char *type,
                               const char *precision, int n_threads, char why[96])
{
    return checked(measure_card_peak_gflops(card, type, precision, n_threads),
                   measure_card_peak_gflops(card, type, precision, 1),
                   measure_card_doubt(card, "peak_", n_threads), why);
}

/* ---- the text ---- */

static void print_row(struct text *t, const json_t *row)
{
    double v = json_f64_at(row, "estimate");
    double lo = json_f64_at(row, "lo"), hi = json_f64_at(row, "hi");

    text_printf(t, "%-28.40s %7.0f  ", json_str_at(row, "name", ""),
                json_f64_at(row, "n_threads"));
    if (isnan(v))
        text_printf(t, "%10s %-8.15s  unavailable: %.95s\n", "-",
                    json_str_at(row, "unit", ""), json_str_at(row, "why", ""));
    else
        text_printf(t, "%10.1f %-8.15s  %.1f .. %.1f (%.0f trials)%s%.95s\n", v,
                    json_str_at(row, "unit", ""), lo, hi, json_f64_at(row, "n_trials"),
                    is_doubtful(row) ? "; not a bound: " : "",
                    json_str_at(row, "why", ""));
}

int measure_card_text(const json_t *card, char **text)
{
    const json_t *id = json_object_get(card, "identity");
    const json_t *values = json_object_get(card, "values");
    struct text t = {0};

    text_printf(&t, "%.64s: %.63s, CPUs %.200s, measured %.30s\n",
                json_str_at(card, "host", ""), json_str_at(id, "model_name", ""),
                json_str_at(id, "cpus", ""), json_str_at(card, "measured_utc", ""));
    text_printf(&t, "%.255s\n", json_str_at(card, "budget", ""));
    text_printf(&t, "instruction sets: %.127s\n\n", json_str_at(id, "isa", ""));
    text_printf(&t, "%-36s %7s  %10s\n", "value", "threads", "estimate");
    for (size_t i = 0; i < json_array_size(values); i++)
        print_row(&t, json_array_get(values, i));
    return text_take(&t, text);
}
