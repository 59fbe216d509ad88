#include "experiments/report/compare_report.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/table.h"
#include "base/text_number.h"

/* --- what differs */

static int check_machines(const json_t *a, const json_t *b, bool across, FILE *f)
{
    static const char *const names[] = {"host", "cpu_model", "n_cpus", NULL};
    char x[COMPARE_TEXT_BYTES], y[COMPARE_TEXT_BYTES];
    const char *name;

    for (int i = 0; (name = compare_difference(names, &i, a, b, x, y)); i++) {
        if (!across)
            return err_set(ERR_ARG,
                           "A and B come from different machines (%s %.60s and %.60s): "
                           "expected records of one machine; --across-machines compares "
                           "them all the same",
                           name, x, y);
        fprintf(f, "DIFFERENT MACHINES: %s %s, %s\n", name, x, y);
    }
    return OK;
}

static void print_header_differences(const json_t *a, const json_t *b, FILE *f)
{
    static const char *const names[] = {"experiment", "commit", "dirty",    "compiler",
                                        "flags",      "isa",    "evidence", NULL};
    char x[COMPARE_TEXT_BYTES], y[COMPARE_TEXT_BYTES];
    const char *name;

    for (int i = 0; (name = compare_difference(names, &i, a, b, x, y)); i++)
        fprintf(f, "  %s: %s -> %s\n", name, x, y);
}

/* Each code of a warning, and in how many cells it is. */
static void print_warnings(char side, const struct compare_records *r, FILE *f)
{
    json_t *counts = json_object(), *n;
    const char *code;

    for (size_t i = 0; i < r->n_cells; i++) {
        const char *p = json_str_at(r->cells[i].attributes, "warned", "");
        char word[64];
        int bytes;

        for (; sscanf(p, "%63s%n", word, &bytes) == 1; p += bytes)
            json_object_set_new(counts, word,
                                json_integer(1 + json_int_at(counts, word)));
    }
    json_object_foreach(counts, code, n)
        fprintf(f, "  %c: warning %s in %lld of %zu cells\n", side, code,
                (long long)json_integer_value(n), r->n_cells);
    json_decref(counts);
}

/* A setting of the job, or what a server says of itself. */
static bool is_setting(const char *name)
{
    static const char *const prefixes[] = {"system.",
                                           "dataset.",
                                           "load.",
                                           "slo.",
                                           "seeds.",
                                           "study.",
                                           "described.server.version"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static void print_setting_differences(const struct compare_cell *a,
                                      const struct compare_cell *b, FILE *f)
{
    json_t *all = json_copy((json_t *)a->attributes), *v;
    const char *name;
    int n = 0;

    json_object_update_missing(all, (json_t *)b->attributes);
    json_object_foreach(all, name, v)
    {
        const json_t *x = json_object_get(a->attributes, name);
        const json_t *y = json_object_get(b->attributes, name);
        char s[COMPARE_TEXT_BYTES], t[COMPARE_TEXT_BYTES];

        if (is_setting(name) && !(x && y && json_equal(x, y)) && n++ < 20)
            fprintf(f, "  %s: %s -> %s\n", name, compare_text(x, s), compare_text(y, t));
    }
    if (n > 20)
        fprintf(f, "  and %d other settings\n", n - 20);
    json_decref(all);
}

static void print_side(const char *side, const struct compare_records *r, FILE *f)
{
    const json_t *run = compare_header(r, 0);

    fprintf(f, "%s: %s, %zu record%s from %s, commit %.12s%s", side, r->path, r->n,
            r->n == 1 ? "" : "s", json_str_at(run, "utc", "?"),
            json_str_at(run, "commit", "?"),
            json_is_true(json_object_get(run, "dirty")) ? " with changes" : "");
    if (r->n_left_out)
        fprintf(f, ", %zu cells failed or skipped", r->n_left_out);
    fputc('\n', f);
}

/* --- metrics */

static const json_t *metric_of(const struct compare_cell *c, const char *name)
{
    return json_object_get(c->summary, name);
}

static const char *better_of(const struct compare_cell *c, const char *name)
{
    return json_str_at(metric_of(c, name), "better", "");
}

static int check_metric(const struct compare_cell *c, const char *name)
{
    const char *words[512], *word;
    size_t n = 0;
    json_t *v;

    if (better_of(c, name)[0])
        return OK;
    if (metric_of(c, name))
        return err_set(ERR_ARG,
                       "--metric %s: neither more nor less of it is better, so there is "
                       "no verdict on it",
                       name);
    json_object_foreach((json_t *)c->summary, word, v) if (n < 511) words[n++] = word;
    words[n] = NULL;
    return name_unknown(ERR_NOTFOUND, name, words, "%s: no metric \"%s\"", c->setting,
                        name);
}

/* An array of names, also after an error. `list`: "a,b", or NULL. */
static int choose_metrics(json_t *out, const struct compare_cell *c, const char *list)
{
    static const char *const served[] = {"mean_ttft_ms", "p90_ttft_ms", "mean_tpot_ms",
                                         "output_throughput_tok_s",
                                         "request_goodput_rps"};
    char *names = list ? mem_strdup(MEM_HARNESS, list) : NULL, *rest = names, *name;
    const char *key;
    json_t *v;
    int rc = OK;

    while (rc == OK && (name = strsep(&rest, ",")) != NULL) {
        rc = check_metric(c, name);
        json_array_append_new(out, json_string_lossy(name));
    }
    mem_free(names);
    for (size_t i = 0; !list && c->rows && i < sizeof(served) / sizeof(served[0]); i++)
        if (json_is_number(json_object_get(metric_of(c, served[i]), "value")))
            json_array_append_new(out, json_string(served[i]));
    if (!list && !c->rows)
        json_object_foreach((json_t *)c->summary, key, v) if (better_of(c, key)[0])
            json_array_append_new(out, json_string(key));
    return rc;
}

/* --- one setting */

/* [r->n_cells], mem_free(); *n of them are of this setting. A record in which the cell failed
 * leaves no gap in the restarts. */
static struct compare_run *runs_of(const struct compare_records *r, const char *setting,
                                   size_t *n)
{
    struct compare_run *out = mem_new(MEM_HARNESS, r->n_cells, sizeof(*out));
    const struct compare_cell *last = NULL;
    int restart = -1;

    *n = 0;
    for (size_t i = 0; i < r->n_cells; i++) {
        const struct compare_cell *c = &r->cells[i];

        if (strcmp(c->setting, setting) != 0)
            continue;
        restart += !last || c->restart != last->restart;
        out[(*n)++] = (struct compare_run){
            .restart = restart, .rows = c->rows, .n_rows = c->n_rows, .slo = c->slo};
        last = c;
    }
    return out;
}

static void set_values(struct compare_run *runs, const struct compare_records *r,
                       const char *setting, const char *metric)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_cells; i++)
        if (strcmp(r->cells[i].setting, setting) == 0)
            runs[n++].value = json_f64_at(metric_of(&r->cells[i], metric), "value");
}

static const struct table_column columns[] = {{"", -28},
                                              {"A", 10},
                                              {"B", 10},
                                              {"B/A", 8},
                                              {"95 % interval", 18},
                                              {"runs", 10},
                                              {"requests", 10},
                                              {"detectable", 10},
                                              {" verdict", TABLE_OPEN},
                                              {0}};

/* `after`: what stands behind the number, if it is one. */
static void put_number(struct table *t, const char *before, double v, int digits,
                       const char *after)
{
    if (isnan(v))
        table_cell(t, "n/a");
    else
        table_cell(t, "%s%.*f%s", before, digits, v, after);
}

static void put_value(struct table *t, double v)
{
    if (isnan(v))
        table_cell(t, "n/a");
    else
        table_cell(t, "%s", TEXT_NUMBER(v, 4));
}

static void print_result(const char *metric, const struct compare_result *r, FILE *f)
{
    struct table t = {.f = f, .columns = columns};

    table_cell(&t, "  %s", metric);
    put_value(&t, r->a);
    put_value(&t, r->b);
    put_number(&t, "", r->ratio, 3, "");
    if (isnan(r->lo))
        table_cell(&t, "n/a");
    else
        table_cell(&t, "%.3f .. %.3f", r->lo, r->hi);
    put_number(&t, "+-", 100 * expm1(r->between_runs), 1, " %");
    put_number(&t, "+-", 100 * expm1(r->between_requests), 1, " %");
    put_number(&t, "", 100 * r->aa.detectable_frac, 1, " %");
    table_cell(&t, " %s%s%s", compare_verdict_name(r->verdict), r->why[0] ? ": " : "",
               r->why);
}

static void print_counts(const struct compare_result *r, size_t n_a, size_t n_b,
                         bool sequential, FILE *f)
{
    fprintf(f, "  %zu run%s of A, %zu of B: ", n_a, n_a == 1 ? "" : "s", n_b);
    if (r->in_turn)
        fprintf(f, "%zu restarts of each, in turn", r->n_units[0]);
    else if (r->units_repeats)
        fprintf(f, "one restart of each, so that what a restart changes is not in the "
                   "interval");
    else
        fprintf(f, "%zu and %zu restarts", r->n_units[0], r->n_units[1]);
    if (sequential)
        fprintf(f, ", as many as were needed, which the intervals allow for");
    if (r->block)
        fprintf(f, "; %zu requests in each, %s, in blocks of %zu", r->n_requests,
                r->same_requests ? "the same in both" : "not the same in both", r->block);
    fputc('\n', f);
}

/* The A/A of the first metric; the others have the same restarts. */
static void print_aa(const struct compare_aa *aa, enum compare_aa_source source, FILE *f)
{
    const struct table t = {.f = f, .columns = columns};

    if (isnan(aa->detectable_frac))
        fprintf(f, "  detectable: not known: %s\n", aa->why);
    else
        fprintf(f,
                "  detectable: the smallest difference that an A/A could have seen, from "
                "%s\n",
                source == COMPARE_AA_ARM ? "A again in the same rounds"
                                         : "one half of A's restarts and the other");
    table_head(&t);
}

struct sides {
    const struct compare_records *a, *b, *aa; /* aa: A again; NULL: there is none */
    bool in_turn, aa_in_turn;
    enum compare_aa_source aa_source;
};

static int compare_setting(struct compare_totals *out, const struct sides *s,
                           const struct compare_cell *first,
                           const struct compare_report_opts *o, FILE *f)
{
    struct compare_side a, b, aa = {0};
    struct compare_run *x = runs_of(s->a, first->setting, &a.n);
    struct compare_run *y = runs_of(s->b, first->setting, &b.n);
    struct compare_run *z = s->aa ? runs_of(s->aa, first->setting, &aa.n) : NULL;
    json_t *names = json_array(), *name;
    int rc = choose_metrics(names, first, o->metrics);
    struct compare_result r;
    size_t i;

    a.runs = x;
    b.runs = y;
    aa.runs = z;
    json_array_foreach(names, i, name)
    {
        const char *metric = json_string_value(name);
        const struct compare_opts one = {
            .metric = metric,
            .higher_is_better = strcmp(better_of(first, metric), "higher") == 0,
            .in_turn = s->in_turn,
            .margin_frac = o->margin_frac,
            .seed = o->seed,
            .sequential = o->sequential,
            .aa_source = s->aa_source,
            .aa = &aa,
            .aa_in_turn = s->aa_in_turn};

        set_values(x, s->a, first->setting, metric);
        set_values(y, s->b, first->setting, metric);
        if (s->aa)
            set_values(z, s->aa, first->setting, metric);
        if (rc == OK)
            rc = compare_metric(&r, &a, &b, &one);
        if (rc != OK)
            break;
        if (i == 0) {
            print_counts(&r, a.n, b.n, o->sequential, f);
            print_aa(&r.aa, s->aa_source, f);
        }
        print_result(metric, &r, f);
        out->n[r.verdict]++;
        out->n_maybe_worse += r.maybe_worse;
        if (!isnan(r.ratio))
            out->reach_frac =
                fmax(out->reach_frac, isnan(r.hi) ? INFINITY : sqrt(r.hi / r.lo) - 1);
    }
    json_decref(names);
    mem_free(x);
    mem_free(y);
    mem_free(z);
    return rc;
}

/* --- all of them */

static const struct compare_cell *find_cell(const struct compare_records *r,
                                            const char *setting)
{
    for (size_t i = 0; i < r->n_cells; i++)
        if (strcmp(r->cells[i].setting, setting) == 0)
            return &r->cells[i];
    return NULL;
}

static void print_totals(const struct compare_totals *t,
                         const struct compare_report_opts *o, FILE *f)
{
    fprintf(f,
            "\n%d same within %g %%, %d better, %d worse by more than that, %d cannot "
            "say. Each interval alone holds the ratio in 95 %% of comparisons.\n",
            t->n[COMPARE_SAME], 100 * o->margin_frac, t->n[COMPARE_BETTER],
            t->n[COMPARE_WORSE], t->n[COMPARE_UNKNOWN]);
}

int compare_report(struct compare_totals *out, const struct compare_records *a,
                   const struct compare_records *b, const struct compare_report_opts *o,
                   FILE *f)
{
    const struct sides sides = {.a = a,
                                .b = b,
                                .aa = o->aa,
                                .in_turn = compare_in_turn(a, b),
                                .aa_in_turn = o->aa && compare_in_turn(a, o->aa),
                                .aa_source = o->no_aa ? COMPARE_AA_NONE
                                             : o->aa  ? COMPARE_AA_ARM
                                                      : COMPARE_AA_HALVES};
    int n_common = 0, n_alone = 0;

    *out = (struct compare_totals){0};
    print_side("A", a, f);
    print_side("B", b, f);
    if (o->aa)
        print_side("A again", o->aa, f);
    TRY(check_machines(compare_header(a, 0), compare_header(b, 0), o->across_machines,
                       f));
    print_header_differences(compare_header(a, 0), compare_header(b, 0), f);
    print_warnings('A', a, f);
    print_warnings('B', b, f);
    for (size_t i = 0; i < a->n_cells; i++) {
        const struct compare_cell *first = &a->cells[i];
        const struct compare_cell *other = find_cell(b, first->setting);

        if (find_cell(a, first->setting) != first)
            continue; /* a repeat */
        if (!other) {
            n_alone++;
            continue;
        }
        if (n_common++ == 0)
            print_setting_differences(first, other, f);
        fprintf(f, "\n%s\n", first->setting[0] ? first->setting : "all");
        TRY(compare_setting(out, &sides, first, o, f));
    }
    if (n_common == 0)
        return err_set(ERR_ARG, "A and B have no setting of the axes in common");
    if (n_alone)
        fprintf(f, "\n%d settings of A are not in B and were left out\n", n_alone);
    print_totals(out, o, f);
    return OK;
}
