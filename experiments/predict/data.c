#include "experiments/predict/predict.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/head.h"
#include "experiments/record/published.h"

#define HEAD_BYTES ((size_t)16 << 20)

/* The index of a name, which is added. */
static int index_of(json_t *names, const char *name)
{
    const json_t *at = json_object_get(names, name);

    if (at)
        return (int)json_integer_value(at);
    json_object_set_new(names, name, json_integer((json_int_t)json_object_size(names)));
    return (int)json_object_size(names) - 1;
}

/* Of several kinds, one that is timed makes it so. */
static bool is_timed(const char *evidence)
{
    char kinds[128], *rest = kinds;
    const char *kind;
    bool timed = false;

    snprintf(kinds, sizeof(kinds), "%s", evidence);
    while ((kind = strsep(&rest, ", ")) != NULL)
        timed |= *kind && export_is_timed(kind);
    return timed;
}

static void add_number(struct predict_data *d, const struct predict_number *x)
{
    if (d->n == d->capacity) {
        d->capacity = 2 * d->capacity + 256;
        d->of = mem_resize(MEM_HARNESS, d->of, d->capacity, sizeof(*d->of));
    }
    d->of[d->n++] = *x;
}

/* The newest card of a machine bounds all of its records. */
static void take_card(struct predict_data *d, int machine, const json_t *card)
{
    const char *utc = json_str_at(card, "measured_utc", "");

    if (card && strcmp(utc, json_str_at(d->cards[machine], "measured_utc", "")) >= 0)
        d->cards[machine] = card;
}

int predict_data_add(struct predict_data *d, const char *machine, const char *experiment,
                     json_t *head)
{
    struct predict_number x = {0};
    const char *evidence = json_str_at(head, "evidence", "");
    json_t *number;

    if (!d->heads) {
        d->heads = json_array();
        d->experiments = json_object();
        d->machines = json_object();
    }
    json_array_append_new(d->heads, head);
    x.machine = index_of(d->machines, machine);
    x.experiment = index_of(d->experiments, experiment);
    x.job_is_timed = is_timed(evidence);
    if (x.machine >= PREDICT_MACHINES_MAX)
        return err_set(ERR_LIMIT, "published records: expected at most %d machines",
                       PREDICT_MACHINES_MAX);
    take_card(d, x.machine, json_object_get(head, "machine_card"));
    json_object_foreach(json_object_get(head, "headline"), x.name, number)
    {
        x.value = json_f64_at(number, "value");
        x.unit = json_str_at(number, "unit", "");
        x.is_timed = is_timed(json_str_at(number, "evidence", evidence));
        if (isfinite(x.value))
            add_number(d, &x);
    }
    return OK;
}

static int in_order(const void *a, const void *b)
{
    const struct predict_number *x = a, *y = b;
    const int by_name = strcmp(x->name, y->name);

    return x->experiment != y->experiment ? x->experiment - y->experiment
           : by_name                      ? by_name
                                          : x->machine - y->machine;
}

void predict_data_sort(struct predict_data *d)
{
    if (d->n > 0)
        qsort(d->of, d->n, sizeof(*d->of), in_order);
}

/* PATH/MACHINE/EXPERIMENT/latest.json */
static int add_file(struct predict_data *d, const char *path)
{
    char copy[PATH_MAX], *part[3] = {NULL, NULL, copy}; /* the last three names */
    json_t *head;

    snprintf(copy, sizeof(copy), "%s", path);
    for (char *at = copy; (at = strchr(at, '/')) != NULL; *at++ = 0)
        part[0] = part[1], part[1] = part[2], part[2] = at + 1;
    TRY(json_read_file(&head, path, HEAD_BYTES));
    return predict_data_add(d, part[0], part[1], head);
}

int predict_data_read(struct predict_data *out)
{
    json_t *paths, *path;
    int rc = OK;
    size_t i;

    *out = (struct predict_data){0};
    TRY(export_published_heads(&paths, "*"));
    json_array_foreach(paths, i, path) if (rc == OK) rc =
        add_file(out, json_string_value(path));
    json_decref(paths);
    predict_data_sort(out);
    if (rc == OK && out->n == 0)
        rc = err_set(ERR_NOTFOUND,
                     "results/published: expected records with headlines, found none");
    return rc;
}

void predict_data_fini(struct predict_data *d)
{
    mem_free(d->of);
    json_decref(d->heads);
    json_decref(d->experiments);
    json_decref(d->machines);
    *d = (struct predict_data){0};
}
