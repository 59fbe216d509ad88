#include "experiments/record/export_notes.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/name.h"
#include "experiments/metrics/metrics.h"
#include "measure/card.h"

#define LATEST_BYTES ((size_t)1 << 20)

int export_latest(char *path, size_t n, const char *experiment)
{
    json_t *latest = NULL;
    const char *file = NULL;
    int rc;

    snprintf(path, n, "results/%s/latest.json", experiment);
    rc = json_read_file(&latest, path, LATEST_BYTES);
    if (rc == OK)
        rc = json_get_str(latest, "file", &file, path);
    if (rc == OK && strchr(file, '/'))
        rc = err_set(ERR_FORMAT, "%s: file: expected a name in this folder, found \"%s\"",
                     path, file);
    if (rc == OK && snprintf(path, n, "results/%s/%s", experiment, file) >= (int)n)
        rc = err_set(ERR_LIMIT, "results/%s: the name of the record is too long",
                     experiment);
    json_decref(latest);
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
    int n = scandir(dir, &names, is_record, alphasort), failed = 0;

    *out = NULL;
    if (n < 0 && errno != ENOENT)
        return err_set(ERR_IO, "%s: cannot read the folder: %m", dir);
    *out = json_array();
    for (int i = 0; i < n; i++) {
        failed |=
            json_array_append_new(*out, json_sprintf("%s/%s", dir, names[i]->d_name));
        free(names[i]);
    }
    free(names);
    if (*out && !failed)
        return OK;
    json_decref(*out);
    *out = NULL;
    return err_set(ERR_NOMEM, "%s: out of memory", dir);
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

bool export_is_noisy(const json_t *head)
{
    static const char *const codes[] = {"noisy_machine", "steal", "throttled", NULL},
                             *const untimed[] = {"model", "simulated", "emulated",
                                                 "published", NULL};
    const char *evidence = json_string_value(
                   json_object_get(json_object_get(head, "run"), "evidence")),
               *code;
    json_t *w;

    if (evidence && name_index(untimed, evidence) >= 0)
        return false;
    json_object_foreach(json_object_get(head, "warnings"), code,
                        w) if (name_index(codes, code) >= 0) return true;
    return false;
}

int export_refuse(const char *name, json_t *number)
{
    const char *unit = json_string_value(json_object_get(number, "unit"));
    json_t *v = json_object_get(number, "value");
    char why[96];

    if (!metrics_exceeds_bound(name, unit ? unit : "", json_number_value(v), why))
        return OK;
    json_object_del(number, "lo");
    json_object_del(number, "hi");
    return json_object_set(number, "refused", v) == 0 &&
                   json_object_set_new(number, "value", json_null()) == 0 &&
                   json_object_set_new(number, "why", json_string(why)) == 0
               ? OK
               : err_set(ERR_NOMEM, "%s: out of memory", name);
}

int export_refuse_headlines(json_t *head)
{
    json_t *warnings = json_object_get(head, "warnings"), *number, *refused;
    const char *name;

    json_object_foreach(json_object_get(head, "headline"), name, number)
    {
        TRY(export_refuse(name, number));
        refused = json_object_get(number, "refused");
        if (refused &&
            json_object_set_new(warnings, "bound_exceeded",
                                json_pack("{s:O s:f s:O}", "observed", refused,
                                          "threshold", MEASURE_SHARE_MAX, "text",
                                          json_object_get(number, "why"))) != 0)
            return err_set(ERR_NOMEM, "%s: out of memory", name);
    }
    return OK;
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
