#include "experiments/record/head.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/name.h"
#include "base/text_number.h"
#include "experiments/record/fields.h"
#include "experiments/record/refuse.h"
#include "experiments/record/unpack.h"
#include "experiments/record/verify.h"
#include "measure/card.h"
#include "measure/noise.h"

#define HEAD_BYTES ((size_t)16 << 20)
/* While a head is made: {key of a cell: what counts of its last attempt}. */
#define LATEST "latest"

bool record_bound(const json_t *number, char out[RECORD_BOUND_BYTES])
{
    const double least = json_f64_at(number, RECORD_AT_LEAST),
                 most = json_f64_at(number, RECORD_AT_MOST);

    return record_bound_text(least, most, out);
}

bool record_bound_text(double least, double most, char out[RECORD_BOUND_BYTES])
{
    const bool is_least = isfinite(least), is_bound = is_least || isfinite(most);

    out[0] = 0;
    if (is_bound)
        snprintf(out, RECORD_BOUND_BYTES, "%s %s", is_least ? ">" : "<",
                 TEXT_NUMBER(is_least ? least : most, 4));
    return is_bound;
}

/* --- what a run leaves */

static void count(json_t *counts, const char *name)
{
    json_object_set_new(counts, name, json_integer(json_int_at(counts, name) + 1));
}

static double miss(const json_t *warning)
{
    return fabs(json_number_value(json_object_get(warning, "observed")) -
                json_number_value(json_object_get(warning, "threshold")));
}

/* Keep for each code the value farthest from its threshold, and the number of cells that have
 * it. */
static void take_warnings(json_t *all, const json_t *of_cell)
{
    json_t *seen = json_object(), *w, *worst;
    const char *code;
    size_t i;

    json_array_foreach((json_t *)of_cell, i, w)
    {
        code = json_str_at(w, "code", NULL);
        if (!code)
            continue;
        worst = json_object_get(all, code);
        if (!worst) {
            worst = json_object();
            json_object_set_new(all, code, worst);
        }
        if (!json_object_get(worst, "text") || miss(w) > miss(worst))
            json_object_update_new(worst,
                                   json_pack("{s:O? s:O? s:O?}", "observed",
                                             json_object_get(w, "observed"), "threshold",
                                             json_object_get(w, "threshold"), "text",
                                             json_object_get(w, "text")));
        if (!json_object_get(seen, code))
            count(worst, "n_cells");
        json_object_set_new(seen, code, json_true());
    }
    json_decref(seen);
}

json_t *record_head_new(void)
{
    return json_pack("{s:{} s:{} s:{} s:{} s:{}}", "cells", "left_out", "warnings",
                     "series", LATEST);
}

/* The arrays that name their kind of evidence, as in a head. New reference. */
static json_t *series_of(const struct record_cell *c)
{
    json_t *all = json_object();

    for (size_t i = 0; i < c->n_series; i++) {
        const char *kind = c->series[i].evidence ? c->series[i].evidence : c->evidence;
        json_t *of_kind = kind ? json_object_get(all, kind) : NULL;

        if (!kind)
            continue;
        if (!of_kind) {
            of_kind = json_object();
            json_object_set_new(all, kind, of_kind);
        }
        json_object_set_new(of_kind, c->series[i].name, json_true());
    }
    return all;
}

void record_head_cell(json_t *head, const struct record_cell *c)
{
    const char *state = record_states[c->state];
    json_t *one =
        json_pack("{s:s s:O? s:o}", "state", state, "warnings",
                  json_object_get(c->attributes, "warnings"), "series", series_of(c));

    if (c->state != RECORD_DONE)
        json_object_set_new(
            one, "left_out",
            json_string_lossy(json_str_at(c->attributes, "error", state)));
    json_object_set_new(json_object_get(head, LATEST), c->key, one);
}

/* Take the last attempt of each cell. */
static void take_cells(json_t *head)
{
    json_t *latest = json_object_get(head, LATEST), *one, *names;
    const char *key, *kind;

    json_object_foreach(latest, key, one)
    {
        json_t *series = json_object_get(head, "series");
        const char *reason = json_str_at(one, "left_out", NULL);

        count(json_object_get(head, "cells"), json_str_at(one, "state", ""));
        if (reason)
            count(json_object_get(head, "left_out"), reason);
        take_warnings(json_object_get(head, "warnings"),
                      json_object_get(one, "warnings"));
        json_object_foreach(json_object_get(one, "series"), kind, names)
        {
            if (!json_object_get(series, kind))
                json_object_set_new(series, kind, json_object());
            json_object_update(json_object_get(series, kind), names);
        }
    }
    json_object_del(head, LATEST);
}

/* The first `<info name="NAME" value="VALUE"/>` of the topology. */
static void take_info(json_t *cpu, const char *member, const char *xml, const char *name)
{
    char mark[80];
    const char *at;

    snprintf(mark, sizeof(mark), "<info name=\"%s\" value=\"", name);
    at = strstr(xml, mark);
    at = at ? at + strlen(mark) : NULL;
    if (at)
        json_object_set_new(cpu, member, json_stringn_lossy(at, strcspn(at, "\"<")));
}

static json_t *headline_json(const struct record_headline *v)
{
    const bool known = isfinite(v->value);
    json_t *one = json_pack("{s:o s:s s:s}", "value", json_number(v->value), "unit",
                            v->unit, "better", v->better);

    if (!known)
        json_object_set_new(one, "why", json_string(v->why ? v->why : "no reason given"));
    if (v->n_left_out)
        json_object_set_new(one, "n_left_out", json_integer((json_int_t)v->n_left_out));
    if (v->has_interval && isfinite(v->lo))
        json_object_set_new(one, known ? "lo" : RECORD_AT_LEAST, json_real(v->lo));
    if (v->has_interval && isfinite(v->hi))
        json_object_set_new(one, known ? "hi" : RECORD_AT_MOST, json_real(v->hi));
    if (v->has_detectable)
        json_object_set_new(one, "detectable_frac", json_real(v->detectable_frac));
    else if (v->detectable_why)
        json_object_set_new(one, "detectable_why", json_string(v->detectable_why));
    if (v->evidence)
        json_object_set_new(one, "evidence", json_string(v->evidence));
    return one;
}

static void take_scalars(json_t *run, const json_t *from)
{
    static const char *const others[] = {"journal_version", "hwloc_xml", NULL};
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)from, key, v)
    {
        if (!json_is_object(v) && !json_is_array(v) && !json_is_null(v) &&
            !json_object_get(run, key) && name_index(others, key) < 0)
            json_object_set(run, key, v);
    }
}

static json_int_t n_cells(const json_t *head)
{
    json_int_t n = 0;
    const char *state;
    json_t *count;

    json_object_foreach(json_object_get(head, "cells"), state, count) n +=
        json_integer_value(count);
    return n;
}

void record_head_end(json_t *head, const json_t *header, size_t n_attempts,
                     size_t n_interrupted, const struct record_headline *headline,
                     size_t n_headline)
{
    const char *xml = json_str_at(header, "hwloc_xml", "");
    json_t *headlines = json_object(), *cpu = json_object();
    json_t *card = json_object_get(header, "machine_card");
    json_t *run = json_pack("{s:i s:I s:I}", "schema_version", RECORD_SCHEMA_VERSION,
                            "n_cells", (json_int_t)n_attempts, "n_interrupted_cells",
                            (json_int_t)n_interrupted);

    take_cells(head);
    take_scalars(run, header);
    take_scalars(run, json_object_get(header, "provenance"));
    for (size_t i = 0; i < n_headline; i++)
        json_object_set_new(headlines, headline[i].name, headline_json(&headline[i]));
    take_info(cpu, "family", xml, "CPUFamilyNumber");
    take_info(cpu, "model", xml, "CPUModelNumber");
    json_object_update_new(head, json_pack("{s:O s:O? s:O s:o s:o s:o}", "utc",
                                           json_object_get(run, "utc"), "commit",
                                           json_object_get(run, "commit"), "evidence",
                                           json_object_get(run, "evidence"), "run", run,
                                           "headline", headlines, "cpu", cpu));
    if (card)
        json_object_set(head, "machine_card", card);
}

/* --- shares above their bound */

/* The record's warnings say so. */
static void refuse_headlines(json_t *head)
{
    json_t *warnings = json_object_get(head, "warnings"), *number, *refused;
    const char *name;

    json_object_foreach(json_object_get(head, "headline"), name, number)
    {
        export_refuse(name, number);
        refused = json_object_get(number, "refused");
        if (refused)
            json_object_set_new(warnings, "bound_exceeded",
                                json_pack("{s:O s:f s:O}", "observed", refused,
                                          "threshold", MEASURE_SHARE_MAX, "text",
                                          json_object_get(number, "why")));
    }
}

/* --- records with a fault */

/* The first thing in which a head differs from its record; NULL: nothing. New reference. */
static json_t *difference(json_t *head, const json_t *record)
{
    const char *const link = "sha256";
    const char *chain = json_str_at(json_object_get(head, "run"), link, ""),
               *of_file = json_str_at(json_object_get(record, "run"), link, "");
    json_t *number;
    const char *name;

    if (strcmp(chain, of_file) != 0)
        return json_sprintf("its head expects another file, of the hash %.16s", chain);
    json_object_foreach(json_object_get(head, "headline"), name, number)
    {
        const json_t *in_file =
            json_object_get(json_object_get(record, "headline"), name);
        const double said = json_f64_at(number, "value"),
                     is = json_f64_at(in_file, "value");

        if (!in_file || isnan(said) != isnan(is) || said < is || said > is)
            return json_sprintf("its head says %g of %s, the record %g", said, name, is);
    }
    return NULL;
}

/* The first fault that `testbed verify` finds; NULL: none, or the head is alone. New reference. */
static json_t *first_fault(json_t *head)
{
    json_t *found = NULL, *fault;
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s", json_str_at(head, "path", ""));
    if (access(path, F_OK) != 0) /* one that is published is packed */
        snprintf(path, sizeof(path), "%s" RECORD_PACKED, json_str_at(head, "path", ""));
    if (access(path, F_OK) != 0)
        return NULL;
    if (export_verify(&found, path) == OK) {
        fault = json_incref(json_array_get(json_object_get(found, "faults"), 0));
        fault = fault ? fault : difference(head, found);
    } else {
        fault = json_string_lossy(err_msg());
        err_clear();
    }
    json_decref(found);
    return fault;
}

/* None of its numbers is then used. */
static void refuse_faulty(json_t *head)
{
    json_t *fault = first_fault(head), *number, *value;
    const char *name;

    if (!fault)
        return;
    json_object_foreach(json_object_get(head, "headline"), name, number)
    {
        value = json_object_get(number, "value");
        json_object_del(number, RECORD_AT_LEAST);
        json_object_del(number, RECORD_AT_MOST);
        if (!json_is_number(value))
            continue; /* it has a reason of its own */
        json_object_set(number, "refused", value);
        json_object_del(number, "lo");
        json_object_del(number, "hi");
        json_object_set_new(number, "value", json_null());
        json_object_set_new(
            number, "why",
            json_sprintf("the record has a fault: %s", json_string_value(fault)));
    }
    json_object_set_new(json_object_get(head, "warnings"), "record_fault",
                        json_pack("{s:O}", "text", fault));
    json_object_set_new(head, "fault", fault);
}

/* --- heads that are there */

/* Length of ".h5" or ".h5.xz" at its end; 0: it has none. */
static size_t record_ending(const char *path, size_t n)
{
    static const char *const endings[] = {".h5", ".h5" RECORD_PACKED};

    for (int i = 0; i < 2; i++) {
        size_t m = strlen(endings[i]);

        if (n > m && strcmp(path + n - m, endings[i]) == 0)
            return m;
    }
    return 0;
}

/* With the path of its record, which is in the same folder. */
static int set_path(json_t *head, const char *path)
{
    const char *file, *end = strrchr(path, '/');
    char record[PATH_MAX];

    TRY(json_get_str(head, "file", &file, path));
    if (strchr(file, '/') || record_ending(file, strlen(file)) == 0)
        return err_set(
            ERR_FORMAT,
            "%s: file: expected the name of a record in this folder, found \"%s\"", path,
            file);
    snprintf(record, sizeof(record), "%.*s%s", end ? (int)(end + 1 - path) : 0, path,
             file);
    json_object_set_new(head, "path", json_string_lossy(record));
    return OK;
}

static int check(json_t *head, const char *path)
{
    static const char *const parts[] = {"headline", "cells",  "left_out",
                                        "warnings", "series", "cpu"};
    const json_int_t version =
        json_int_at(json_object_get(head, "run"), "schema_version");
    const json_t *part;

    TRY(set_path(head, path));
    if (version != RECORD_SCHEMA_VERSION)
        return err_set(ERR_FORMAT,
                       "%s: run.schema_version: expected %d, found %lld: not of this "
                       "version; run the experiment again",
                       path, RECORD_SCHEMA_VERSION, (long long)version);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        TRY(json_get_obj(head, parts[i], &part, path));
    return OK;
}

int export_head(json_t **out, const char *path)
{
    size_t n = strlen(path), n_stem = n - record_ending(path, n);
    char of[PATH_MAX];
    json_t *head = NULL;
    int rc;

    snprintf(of, sizeof(of), "%.*s%s", (int)n_stem, path, n_stem < n ? ".json" : "");
    rc = json_read_file(&head, of, HEAD_BYTES);
    if (rc == ERR_NOTFOUND && n_stem < n)
        rc = err_set(rc, "%s: expected its head next to it: there is no %s", path, of);
    if (rc == OK)
        rc = check(head, of);
    if (rc == OK && n_stem < n) /* it may have been renamed */
        json_object_set_new(head, "path", json_string_lossy(path));
    if (rc == OK) {
        refuse_headlines(head);
        refuse_faulty(head);
    } else {
        json_decref(head), head = NULL;
    }
    *out = head;
    return rc;
}

static int is_record(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');

    return d->d_name[0] != '.' && dot && strcmp(dot, ".h5") == 0;
}

int export_list(json_t **out, const char *dir)
{
    struct dirent **names = NULL;
    int n = scandir(dir, &names, is_record, alphasort), rc = OK;

    *out = NULL;
    if (n < 0 && errno != ENOENT)
        return err_set(ERR_IO, "%s: cannot read the folder: %m", dir);
    *out = json_array();
    for (int i = 0; i < n; i++) {
        if (json_array_append_new(*out, json_sprintf("%s/%s", dir, names[i]->d_name)) !=
            0)
            rc = err_set(ERR_FORMAT, "%s: expected names in UTF-8", dir);
        free(names[i]);
    }
    free(names);
    if (rc == OK)
        return OK;
    json_decref(*out);
    *out = NULL;
    return rc;
}

/* --- in words */

void export_put_warnings(struct text *out, const json_t *head)
{
    const json_int_t n = n_cells(head);
    const char *code, *before = "";
    json_t *w;

    json_object_foreach(json_object_get(head, "warnings"), code, w)
    {
        const json_t *observed = json_object_get(w, "observed"),
                     *threshold = json_object_get(w, "threshold");

        text_puts(out, before);
        text_puts(out, code);
        if (json_object_get(w, "n_cells")) /* else of a headline */
            text_printf(out, " in %lld of %lld cell%s",
                        (long long)json_integer_value(json_object_get(w, "n_cells")),
                        (long long)n, n == 1 ? "" : "s");
        if (json_is_number(observed) && json_is_number(threshold))
            text_printf(out, " (%.3g, threshold %.3g)", json_number_value(observed),
                        json_number_value(threshold));
        before = ", ";
    }
}

bool export_is_timed(const char *evidence)
{
    static const char *const untimed[] = {"model", "simulated", "emulated", "published",
                                          NULL};

    return name_index(untimed, evidence) < 0;
}

bool export_was_disturbed(const json_t *head)
{
    const char *code;
    json_t *w;

    json_object_foreach(json_object_get(head, "warnings"), code,
                        w) if (measure_noise_is(code)) return true;
    return false;
}

bool export_is_noisy(const json_t *head)
{
    const char *evidence =
        json_string_value(json_object_get(json_object_get(head, "run"), "evidence"));

    return (!evidence || export_is_timed(evidence)) && export_was_disturbed(head);
}

void export_put_machine(struct text *out, const json_t *head)
{
    const json_t *run = json_object_get(head, "run"), *cpu = json_object_get(head, "cpu");
    const char *name = json_string_value(json_object_get(run, "cpu_model"));
    const char *family = json_string_value(json_object_get(cpu, "family"));
    const char *model = json_string_value(json_object_get(cpu, "model"));
    const json_int_t n = json_integer_value(json_object_get(run, "n_cpus"));

    text_puts(out, name && *name ? name : "unknown processor");
    if (family && model) {
        text_puts(out, " (family ");
        text_puts(out, family);
        text_puts(out, ", model ");
        text_puts(out, model);
        text_puts(out, ")");
    }
    if (n > 0)
        text_printf(out, ", %lld CPU%s", (long long)n, n == 1 ? "" : "s");
}
