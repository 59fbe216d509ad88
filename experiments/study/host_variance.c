/* How many hosts, runs and rounds a number needs: the variance of published numbers divided into
 * kinds of host, machines of a kind, times of a machine, the order within a run, and the rest.
 *
 * A record does not name its machine, so a machine is a kind of host on one day, a session of a
 * virtual machine. Numbers of machine cards are there for several days, and their rest is known
 * from their intervals. Rounds are those of experiments that time alternatives in turn; their order
 * is which third of the rounds they are in. Logarithms are divided, so that components are
 * relative. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/stats_nested.h"
#include "experiments/frame/frame.h"
#include "experiments/record/export.h"
#include "experiments/record/published.h"

enum { NUMBERS_CARD, NUMBERS_TIMES, NUMBERS_RATIOS };
enum { VALUES_PUBLISHED, VALUES_PLANTED, VALUES_SHUFFLED };
enum { KIND, MACHINE, TIME, ORDER, REST, N_LEVELS = REST };

#define CLAIMS     "results/claims.json"
#define HEAD_BYTES (16 << 20)
#define Z_95       1.959963984540054
#define Z_POWER    0.8416212335729143 /* an effect is seen four times out of five */
#define N_BLOCKS   3
#define KINDS_MAX  64
#define N_EFFECTS  4
#define RESULT_MAX 32

/* What is timed in turn, one value for each round: the beginnings of the names of its lists. */
static const struct {
    const char *experiment, *name;
} rounds[] = {{"allreduce_bench", "us_"},
              {"cold_start", "first_token_s_of_"},
              {"engines_roofline", "tok_s_of_"},
              {"fig07_gemm_vs_vendors", "s_"},
              {"mnn_ablation", "step_s_"},
              {"mnn_fig_time_share", "step_s_each"},
              {"mnn_linear_attention", "step_s_each"},
              {"phase_switch", "request_s"},
              {"sandwich_dual_ir", "s_"},
              {"sandwich_kernel_raise", "s_"},
              {"tab03_window", "decode_s"},
              {"tab03_window", "prefill_s"},
              {"team_runtimes", "decode_tok_s_"},
              {"team_runtimes", "prefill_tok_s_"}};
#define N_ROUNDS (sizeof(rounds) / sizeof(rounds[0]))

#define OPTIONS(X)                                                                       \
    X(ENUM, numbers, "card",                                                             \
      "Numbers whose variance is divided: those of machine cards (bandwidth, peaks); "   \
      "times: of each round of experiments that time alternatives in turn; ratios: of "  \
      "each round, of an alternative to the first one.",                                 \
      .values = "card|times|ratios")                                                     \
    X(ENUM, values, "published",                                                         \
      "published: the numbers as they are; planted: drawn with known components, in "    \
      "the "                                                                             \
      "groups of the published ones; shuffled: exchanged within their series, so that "  \
      "no group means anything, the control.",                                           \
      .values = "published|planted|shuffled")                                            \
    X(INT, draws, "100", "How often numbers are planted or shuffled.", .min = 2,         \
      .max = 10000)                                                                      \
    X(INT, seed, "1", "Seed of these.", .min = 1, .max = 1 << 30)

#define RESULTS(X)                                                                       \
    X(sd_kind_frac, "", SOME, "standard deviation between kinds of host, of the number") \
    X(sd_machine_frac, "", SOME, "between machines of a kind")                           \
    X(sd_time_frac, "", SOME, "between times of a machine")                              \
    X(sd_order_frac, "", SOME, "between thirds of the rounds of a run")                  \
    X(sd_rest_frac, "", SOME, "of one round")                                            \
    X(share_kind, "", SOME, "share of the variance between kinds of host")               \
    X(share_machine, "", SOME, "share of the variance between machines of a kind")       \
    X(share_time, "", SOME, "share of the variance between times of a machine")          \
    X(share_order, "", SOME, "share of the variance between thirds of a run's rounds")   \
    X(share_rest, "", SOME, "share of the variance of one round")                        \
    X(rounds_2, "", LOWER | SOME, "rounds that show 2 % on a host at that time")         \
    X(rounds_5, "", LOWER | SOME, "rounds that show 5 %")                                \
    X(rounds_10, "", LOWER | SOME, "rounds that show 10 %")                              \
    X(rounds_27, "", LOWER | SOME, "rounds that show 27 %")                              \
    X(runs_2, "", LOWER | SOME, "times, of machines of a kind, that show 2 % for it")    \
    X(runs_5, "", LOWER | SOME, "times that show 5 %")                                   \
    X(runs_10, "", LOWER | SOME, "times that show 10 %")                                 \
    X(runs_27, "", LOWER | SOME, "times that show 27 %")                                 \
    X(hosts_2, "", LOWER | SOME, "hosts, of kinds drawn at random, that show 2 %")       \
    X(hosts_5, "", LOWER | SOME, "hosts that show 5 %")                                  \
    X(hosts_10, "", LOWER | SOME, "hosts that show 10 %")                                \
    X(hosts_27, "", LOWER | SOME, "hosts that show 27 %")                                \
    X(planted_error_frac, "", LOWER | SOME,                                              \
      "largest error of the mean of the draws, of a planted variance")                   \
    X(n_series, "", 0, "quantities, each with a mean of its own")                        \
    X(n_values, "", 0, "numbers in all")                                                 \
    X(n_kinds, "", 0, "kinds of host")                                                   \
    X(n_machines, "", 0, "machines: kinds on days")                                      \
    X(n_claims, "", 0, "claims that a published record judges")                          \
    X(n_claims_one_kind, "", LOWER, "of them, those with records of one kind of host")

FRAME_TYPES;

struct number {
    char series[192];
    int experiment; /* index in rounds[]; 0: of a card */
    int group[N_LEVELS];
    double y;           /* its logarithm */
    double var, rounds; /* of a card's estimate; 0 and 1: it is one round */
};

struct host_variance {
    FRAME_CELL;
    struct number *of; /* by series and groups */
    size_t n, max;
    double *y; /* [n], with `group` [n][N_LEVELS]: of a series */
    int *group;
    struct stats_nested by[N_ROUNDS]; /* of each experiment */
    char kinds[KINDS_MAX][128], machines[KINDS_MAX][192];
    int n_kinds, n_machines, n_times;
    json_t *cards; /* by checksum, those that were read */
    json_t *one_kind;
};

static void host_variance_close(struct host_variance *c)
{
    mem_free(c->of);
    json_decref(c->cards);
    json_decref(c->one_kind);
}

static void add_number(struct host_variance *c, const struct number *x)
{
    if (c->n == c->max) {
        c->max = 2 * c->max + 1024;
        c->of = mem_resize(MEM_HARNESS, c->of, c->max, sizeof(*c->of));
    }
    c->of[c->n++] = *x;
}

/* ---- records ---- */

/* The index of a name in a list, to which it is added. */
static int index_of(char *list, size_t width, int *n, const char *name)
{
    int i = 0;

    while (i < *n && strcmp(list + (size_t)i * width, name) != 0)
        i++;
    if (i == *n && i < KINDS_MAX - 1)
        snprintf(list + (size_t)(*n)++ * width, width, "%s", name);
    return i;
}

static void set_host(struct host_variance *c, struct number *x, const char *kind,
                     const char *utc)
{
    char machine[sizeof(c->machines[0])];

    snprintf(machine, sizeof(machine), "%.120s %.10s", kind, utc);
    x->group[KIND] = index_of(c->kinds[0], sizeof(c->kinds[0]), &c->n_kinds, kind);
    x->group[MACHINE] =
        index_of(c->machines[0], sizeof(c->machines[0]), &c->n_machines, machine);
    x->group[TIME] = c->n_times++;
}

/* Many records come with the same card: it counts once. */
static void add_card(struct host_variance *c, const char *kind, const json_t *head)
{
    const json_t *card = json_object_get(head, "machine_card"), *v;
    const char *checksum = json_str_at(card, "checksum", NULL);
    struct number x = {.experiment = 0};
    size_t i;

    if (!checksum || json_object_get(c->cards, checksum))
        return;
    json_object_set_new(c->cards, checksum, json_true());
    set_host(c, &x, kind, json_str_at(card, "measured_utc", ""));
    json_array_foreach(json_object_get(card, "values"), i, v)
    {
        double value = json_f64_at(v, "estimate");
        double half = log(json_f64_at(v, "hi") / json_f64_at(v, "lo")) / (2 * Z_95);

        if (!(value > 0) || !isfinite(half))
            continue;
        snprintf(x.series, sizeof(x.series), "%s %lld", json_str_at(v, "name", ""),
                 (long long)json_int_at(v, "n_threads"));
        x.y = log(value);
        x.rounds = json_f64_at(v, "n_trials");
        x.var = half * half;
        add_number(c, &x);
    }
}

/* The rounds of one alternative, as they are or over those of the first one. */
static void add_rounds(struct host_variance *c, struct number *x, const char *key,
                       const char *name, const json_t *v, const json_t *first)
{
    const size_t n = json_array_size(v);

    snprintf(x->series, sizeof(x->series), "%.40s %.100s %.40s",
             rounds[x->experiment].experiment, key, name);
    for (size_t i = 0; i < n; i++) {
        double value = json_number_value(json_array_get(v, i));

        if (first)
            value /= json_number_value(json_array_get(first, i));
        if (!(value > 0) || !isfinite(value)) /* one that left, or was not timed */
            continue;
        x->group[ORDER] = (int)(i * N_BLOCKS / n);
        x->y = log(value);
        add_number(c, x);
    }
}

static void add_cell(struct host_variance *c, struct number x, const json_t *cell)
{
    const char *name, *wanted = rounds[x.experiment].name;
    const json_t *first = NULL, *v;
    char key[256], *repeat;
    json_t *of;

    snprintf(key, sizeof(key), "%s",
             json_str_at(json_object_get(cell, "attributes"), "key", ""));
    repeat = strstr(key, "repeat=");
    if (repeat) /* the same at another time */
        *repeat = '\0';
    json_object_foreach(json_object_get(cell, "series"), name, of)
    {
        if (strncmp(name, wanted, strlen(wanted)) != 0)
            continue;
        v = json_object_get(of, "v");
        if (c->o->numbers == NUMBERS_TIMES)
            add_rounds(c, &x, key, name, v, NULL);
        else if (first)
            add_rounds(c, &x, key, name, v, first);
        else
            first = v;
    }
}

static int add_record(struct host_variance *c, const char *kind, const char *utc,
                      const char *path, int experiment)
{
    const json_t *cell;
    json_t *root;
    char *text;
    size_t n, i;
    int rc;

    TRY(export_text(path, EXPORT_JSON_FULL, &text, &n));
    rc = json_read_own(&root, text, n, path);
    mem_free(text);
    TRY(rc);
    json_array_foreach(json_object_get(root, "cells"), i, cell)
    {
        struct number x = {.experiment = experiment, .rounds = 1};

        set_host(c, &x, kind, utc);
        add_cell(c, x, cell);
    }
    json_decref(root);
    return OK;
}

/* The head of a published record, in the folder of its experiment in that of its kind of host. */
static int add_head(struct host_variance *c, const char *path)
{
    char kind[128], experiment[128], packed[1024];
    const char *end = strrchr(path, '/'),
               *at = memrchr(path, '/', (size_t)(end - path)) + 1;
    const char *before = memrchr(path, '/', (size_t)(at - 1 - path)) + 1;
    json_t *head;
    int rc = OK;

    snprintf(experiment, sizeof(experiment), "%.*s", (int)(end - at), at);
    snprintf(kind, sizeof(kind), "%.*s", (int)(at - 1 - before), before);
    TRY(json_read_file(&head, path, HEAD_BYTES));
    snprintf(packed, sizeof(packed), "%.*s/%s.xz", (int)(end - path), path,
             json_str_at(head, "file", ""));
    if (c->o->numbers == NUMBERS_CARD)
        add_card(c, kind, head);
    for (size_t i = 0; rc == OK && c->o->numbers != NUMBERS_CARD && i < N_ROUNDS; i++)
        if (strcmp(rounds[i].experiment, experiment) == 0)
            rc = add_record(c, kind, json_str_at(head, "utc", ""), packed, (int)i);
    json_decref(head);
    return rc;
}

static int read_records(struct host_variance *c)
{
    json_t *paths, *path;
    int rc = OK;
    size_t i;

    c->cards = json_object();
    TRY(export_published_heads(&paths, "*"));
    json_array_foreach(paths, i, path) if (rc == OK) rc =
        add_head(c, json_string_value(path));
    json_decref(paths);
    if (rc == OK && c->n == 0)
        rc = err_set(ERR_NOTFOUND,
                     "results/published: expected records with such numbers, found "
                     "none");
    return rc;
}

/* Claims whose experiment has records of one kind of host. */
static int read_claims(struct host_variance *c)
{
    char path[512];
    json_t *root;
    const json_t *v;
    int rc = OK;
    size_t i;

    TRY(json_read_file(&root, home_find(path, sizeof(path), CLAIMS), HEAD_BYTES));
    c->r->n_claims = c->r->n_claims_one_kind = 0;
    c->one_kind = json_array();
    json_array_foreach(json_object_get(root, "claims"), i, v)
    {
        const char *experiment = json_str_at(v, "experiment", "");
        size_t n_kinds;
        json_t *paths;

        if (!experiment[0] || strcmp(experiment, "host_variance") == 0)
            continue;
        rc = export_published_heads(&paths, experiment);
        if (rc != OK)
            break;
        n_kinds = json_array_size(paths);
        json_decref(paths);
        c->r->n_claims += n_kinds > 0;
        c->r->n_claims_one_kind += n_kinds == 1;
        if (n_kinds == 1)
            json_array_append_new(c->one_kind, json_string(json_str_at(v, "name", "")));
    }
    json_decref(root);
    study_note(c->out, "claims_on_one_kind", json_incref(c->one_kind));
    return rc;
}

/* ---- components ---- */

static int by_series(const void *a, const void *b)
{
    const struct number *x = a, *y = b;
    int order = strcmp(x->series, y->series);

    for (int l = 0; l < N_LEVELS && order == 0; l++)
        order = (x->group[l] > y->group[l]) - (x->group[l] < y->group[l]);
    return order;
}

/* Where the series of number i ends. */
static size_t series_end(const struct host_variance *c, size_t i)
{
    size_t end = i + 1;

    while (end < c->n && strcmp(c->of[end].series, c->of[i].series) == 0)
        end++;
    return end;
}

static void shuffle(struct host_variance *c, struct rng *r)
{
    for (size_t i = 0, end; i < c->n; i = end) {
        end = series_end(c, i);
        for (size_t k = end - 1; k > i; k--) {
            struct number *a = &c->of[k], *b = &c->of[i + rng_below(r, k - i + 1)];
            double y = a->y;

            a->y = b->y;
            b->y = y;
        }
    }
}

static const double planted_sd[] = {0.3, 0.1, 0.06, 0.03, 0.04};

/* Numbers with these components, in the groups that there are. */
static void plant(struct host_variance *c, struct rng *r)
{
    double effect[N_LEVELS] = {0};

    for (size_t i = 0; i < c->n; i++) {
        struct number *x = &c->of[i];
        bool is_new = i == 0 || strcmp(x->series, x[-1].series) != 0;

        x->y = planted_sd[REST] / sqrt(x->rounds) * rng_normal(r);
        for (int l = 0; l < N_LEVELS; l++) {
            is_new |= x->group[l] != x[i ? -1 : 0].group[l];
            if (is_new)
                effect[l] = planted_sd[l] * rng_normal(r);
            x->y += effect[l];
        }
        if (c->o->numbers == NUMBERS_CARD)
            x->var = planted_sd[REST] * planted_sd[REST] / x->rounds;
    }
}

/* What of an estimate is left out to see how it depends on it: a card's kind, or an experiment. */
static int unit_of(const struct host_variance *c, const struct number *x)
{
    return c->o->numbers == NUMBERS_CARD ? x->group[KIND] : x->experiment;
}

/* The components without one unit; -1: of all. Each experiment counts as much as any other. */
static void components(struct host_variance *c, int without, double of[REST + 1])
{
    struct stats_nested s = {.n_levels = N_LEVELS};
    double var = 0, var_round = 0, n_all = 0;

    c->r->n_series = 0;
    for (size_t i = 0; i < N_ROUNDS; i++)
        c->by[i] = (struct stats_nested){.n_levels = N_LEVELS};
    for (size_t i = 0, end; i < c->n; i = end) {
        struct stats_nested *to = &c->by[c->of[i].experiment];
        size_t n = 0;

        end = series_end(c, i);
        for (size_t k = i; k < end; k++) {
            const struct number *x = &c->of[k];

            if (unit_of(c, x) == without)
                continue;
            c->y[n] = x->y;
            memcpy(&c->group[N_LEVELS * n++], x->group, sizeof(x->group));
            var += x->var;
            var_round += x->var * x->rounds;
        }
        stats_nested_add(to, c->y, c->group, n);
        n_all += (double)n;
        c->r->n_series += n > 0;
    }
    for (size_t i = 0; i < N_ROUNDS; i++)
        stats_nested_add_evenly(&s, &c->by[i]);
    stats_nested_solve(&s, of);
    c->r->n_values = n_all;
    if (c->o->numbers == NUMBERS_CARD) { /* each has an error that its interval tells */
        of[TIME] -= var / n_all;
        of[REST] = var_round / n_all;
    }
}

/* Those of all draws, and their mean. */
static void draw_components(struct host_variance *c, double of[REST + 1])
{
    struct rng r;

    if (c->o->values == VALUES_PUBLISHED) {
        components(c, -1, of);
        return;
    }
    rng_init(&r, (uint64_t)c->o->seed, "host variance");
    memset(of, 0, (REST + 1) * sizeof(*of));
    for (int64_t i = 0; i < c->o->draws; i++) {
        double one[REST + 1];

        if (c->o->values == VALUES_PLANTED)
            plant(c, &r);
        else
            shuffle(c, &r);
        components(c, -1, one);
        for (int l = 0; l <= REST; l++)
            of[l] += one[l] / (double)c->o->draws;
    }
}

static double known(double component)
{
    return component > 0 ? component : 0;
}

/* How many numbers with this variance show an effect, four times out of five at 95 %. Guenther's
 * correction: a variance that the same few numbers tell takes two more. */
static double needed(double var, double effect)
{
    double z = (Z_95 + Z_POWER) / log(1 + effect);

    return ceil(z * z * var + Z_95 * Z_95 / 2);
}

#define N_RESULTS (2 * (REST + 1) + 3 * N_EFFECTS)

/* The results that follow from the components, and where they are. */
static void put_results(struct host_variance *c, const double of[REST + 1],
                        double *at[N_RESULTS])
{
    static const char *const levels[] = {"kind", "machine", "time", "order", "rest"};
    static const double effects[N_EFFECTS] = {0.02, 0.05, 0.1, 0.27};
    const double run = known(of[ORDER]) + known(of[REST]),
                 machine = known(of[MACHINE]) + known(of[TIME]);
    int n = 0;

    for (int l = 0; l <= REST; l++) {
        at[n] = frame_named(c->f, "sd_%s_frac", levels[l]);
        *at[n++] = isnan(of[l]) ? NAN : sqrt(known(of[l]));
        at[n] = frame_named(c->f, "share_%s", levels[l]);
        *at[n++] = isnan(of[l]) ? NAN : known(of[l]) / (known(of[KIND]) + machine + run);
    }
    for (int i = 0; i < N_EFFECTS; i++) {
        const int percent = (int)lround(100 * effects[i]);

        at[n] = frame_named(c->f, "rounds_%d", percent);
        *at[n++] = needed(run, effects[i]);
        at[n] = frame_named(c->f, "runs_%d", percent);
        *at[n++] = needed(machine + run / 10, effects[i]);
        at[n] = frame_named(c->f, "hosts_%d", percent);
        *at[n++] = needed(known(of[KIND]) + machine + run / 10, effects[i]);
    }
}

/* Intervals by the jackknife: results without one unit after the other, in logarithm. */
static void put_intervals(struct host_variance *c, const double of[REST + 1])
{
    double *at[N_RESULTS],
        *without = frame_new(c->f, KINDS_MAX * N_RESULTS, sizeof(double));
    double one[REST + 1];
    size_t n = 0;

    for (int unit = 0; unit < KINDS_MAX; unit++) {
        size_t k = 0;

        while (k < c->n && unit_of(c, &c->of[k]) != unit)
            k++;
        if (k == c->n)
            continue;
        components(c, unit, one);
        put_results(c, one, at);
        for (size_t i = 0; i < N_RESULTS; i++)
            without[i * KINDS_MAX + n] = log(*at[i]);
        n++;
    }
    components(c, -1, one);
    put_results(c, of, at);
    for (size_t i = 0; i < N_RESULTS; i++) {
        double half = Z_95 * stats_std(&without[i * KINDS_MAX], n) * (double)(n - 1) /
                      sqrt((double)n);

        const bool is_count = i >= 2 * (REST + 1), is_share = !is_count && i % 2 == 1;

        frame_interval(c->f, at[i], fmax(*at[i] * exp(-half), is_count ? 2 : 0),
                       fmin(*at[i] * exp(half), is_share ? 1 : INFINITY));
    }
}

/* Which experiments differ most between kinds. */
static void note_kinds(struct host_variance *c)
{
    json_t *sd = json_object();
    double of[REST + 1];

    for (size_t i = 0; i < N_ROUNDS; i++) {
        stats_nested_solve(&c->by[i], of);
        if (!isnan(of[KIND]) && c->o->numbers != NUMBERS_CARD)
            json_object_set_new(sd, rounds[i].experiment,
                                json_real(sqrt(known(of[KIND]))));
    }
    study_note(c->out, "sd_between_kinds", sd);
}

/* What a level cannot tell from the one above it is found in that one. */
static double planted_error(const double of[REST + 1])
{
    double worst = 0, planted = 0;

    for (int l = REST; l >= 0; l--) {
        planted += planted_sd[l] * planted_sd[l];
        if (isnan(of[l]))
            continue;
        worst = fmax(worst, fabs(of[l] / planted - 1));
        planted = 0;
    }
    return worst;
}

static int host_variance_run(struct host_variance *c)
{
    double of[REST + 1], *at[N_RESULTS];

    FRAME_CLOSE(c->f, host_variance_close, c);
    frame_why(c->f, NULL, "the records do not have such groups");
    TRY(read_records(c));
    qsort(c->of, c->n, sizeof(*c->of), by_series);
    c->y = frame_new(c->f, c->n, sizeof(*c->y));
    c->group = frame_new(c->f, N_LEVELS * c->n, sizeof(*c->group));
    draw_components(c, of);
    put_results(c, of, at);
    if (c->o->values == VALUES_PUBLISHED)
        put_intervals(c, of);
    note_kinds(c);
    frame_set(c->f, &c->r->planted_error_frac,
              c->o->values == VALUES_PLANTED ? planted_error(of) : NAN,
              "none are planted");
    c->r->n_kinds = c->n_kinds;
    c->r->n_machines = c->n_machines;
    return read_claims(c);
}

STUDY(host_variance,
      "variance of published numbers by kind of host, machine, time and order");
