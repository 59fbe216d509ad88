#include "experiments/report/report.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/export.h"
#include "experiments/record/export_notes.h"

static int no_memory(void)
{
    return err_set(ERR_NOMEM, "out of memory reading the records");
}

int report_add_problem(struct report_experiment *e, const char *line)
{
    return json_array_append_new(e->problems, json_string_lossy(line)) == 0 ? OK
                                                                            : no_memory();
}

/* --- machines */

/* The machine of a record: processor, CPUs and instruction sets, since its name may change from
 * run to run, as that of a container does. Lent by `hosts`; NULL: memory. */
static json_t *host_of(json_t *hosts, const json_t *head)
{
    const char *isa = json_str_at(json_object_get(head, "run"), "isa", "");
    struct text key = {0};
    json_t *host = NULL;
    size_t n_label;

    export_put_machine(&key, head);
    n_label = key.n;
    text_puts(&key, "\n");
    text_puts(&key, isa);
    text_put(&key, "", 1);
    if (key.rc == OK && !(host = json_object_get(hosts, key.p))) {
        host = json_pack("{s:o s:s s:{} s:{} s:s}", "label",
                         json_stringn_lossy(key.p, n_label), "isa", isa, "names",
                         "records", "newest", "");
        if (json_object_set_new(hosts, key.p, host) != 0)
            host = NULL;
    }
    text_fini(&key);
    return host;
}

/* Is `head` to be shown in place of `best`, of the same experiment and host? As of
 * `testbed check`, the one that latest.json names comes first. */
static bool replaces(const json_t *head, const json_t *best)
{
    const bool is_latest = json_is_true(json_object_get(head, "latest"));

    if (!best || is_latest || json_is_true(json_object_get(best, "latest")))
        return !best || is_latest;
    return strcmp(json_str_at(json_object_get(head, "run"), "utc", ""),
                  json_str_at(json_object_get(best, "run"), "utc", "")) > 0;
}

static int add_record(json_t *hosts, const char *stem, json_t *head)
{
    json_t *host = host_of(hosts, head), *records = json_object_get(host, "records"),
           *card = json_object_get(head, "machine_card");
    const json_t *run = json_object_get(head, "run");
    const char *utc = json_str_at(run, "utc", "");
    const bool newer = strcmp(utc, json_str_at(host, "newest", "")) > 0;
    int failed = json_object_set_new(json_object_get(host, "names"),
                                     json_str_at(run, "host", ""), json_true());

    if (card && (newer || !json_object_get(host, "card")))
        failed |= json_object_set(host, "card", card);
    if (newer)
        failed |= json_object_set_new(host, "newest", json_string(utc));
    if (replaces(head, json_object_get(records, stem)))
        failed |= json_object_set(records, stem, head);
    return failed ? no_memory() : OK;
}

static int most_experiments_first(const void *a, const void *b, void *hosts)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const size_t n_x = json_object_size(
                     json_object_get(json_object_get(hosts, x), "records")),
                 n_y = json_object_size(
                     json_object_get(json_object_get(hosts, y), "records"));

    return n_x != n_y ? (n_x < n_y ? 1 : -1) : strcmp(x, y);
}

/* Where host i has the label of one before it, its instruction sets are added. */
static int make_label_differ(json_t *hosts, size_t i)
{
    json_t *host = json_array_get(hosts, i);
    const char *label = json_str_at(host, "label", ""),
               *isa = json_str_at(host, "isa", "unknown sets");

    for (size_t k = 0; k < i; k++)
        if (strcmp(label, json_str_at(json_array_get(hosts, k), "label", "")) == 0)
            return json_object_set_new(host, "label",
                                       json_sprintf("%s, %s", label, isa)) == 0
                       ? OK
                       : no_memory();
    return OK;
}

static int sort_hosts(json_t *sorted, json_t *hosts)
{
    const size_t n = json_object_size(hosts);
    const char **keys = mem_new(MEM_HARNESS, n + 1, sizeof(*keys)), *key;
    json_t *host;
    size_t i = 0;
    int rc = keys ? OK : ERR_NOMEM;

    json_object_foreach(hosts, key, host) if (keys) keys[i++] = key;
    if (rc == OK)
        qsort_r(keys, n, sizeof(*keys), most_experiments_first, hosts);
    for (i = 0; i < n && rc == OK; i++)
        rc = json_array_append(sorted, json_object_get(hosts, keys[i])) == 0
                 ? make_label_differ(sorted, i)
                 : no_memory();
    mem_free(keys);
    return rc;
}

/* --- the records of one experiment */

static int read_record(json_t *hosts, struct report_experiment *e, const char *path,
                       const char *latest)
{
    json_t *head = NULL;
    int rc = export_head(&head, path);

    if (rc == OK &&
        json_object_set_new(head, "latest", json_boolean(strcmp(path, latest) == 0)) != 0)
        rc = no_memory();
    else if (rc == OK)
        rc = add_record(hosts, e->stem, head);
    else if (rc != ERR_NOMEM)
        rc = report_add_problem(e, err_msg());
    json_decref(head);
    return rc;
}

static int read_records(json_t *hosts, struct report_experiment *e)
{
    char dir[PATH_MAX], latest[PATH_MAX];
    json_t *paths, *path;
    size_t i;
    int rc = export_latest(latest, sizeof(latest), e->stem);

    if (rc != OK)
        latest[0] = '\0';
    if (rc != OK && rc != ERR_NOTFOUND && rc != ERR_NOMEM)
        rc = report_add_problem(e, err_msg());
    if (rc == ERR_NOMEM)
        return rc;
    snprintf(dir, sizeof(dir), "results/%s", e->stem);
    rc = export_list(&paths, dir);
    json_array_foreach(paths, i, path) if (rc == OK) rc =
        read_record(hosts, e, json_string_value(path), latest);
    json_decref(paths);
    return rc;
}

/* --- all of it */

static int read_experiment(json_t *hosts, struct report_experiment *e, const char *stem)
{
    int rc;

    e->stem = stem;
    e->problems = json_array();
    if (!e->problems)
        return no_memory();
    rc = job_read(&e->job, stem, NULL);
    if (rc != OK && rc != ERR_NOMEM)
        rc = report_add_problem(e, err_msg());
    return rc == OK ? read_records(hosts, e) : rc;
}

int report_read(struct report *out, const char *claims)
{
    json_t *hosts = json_object(), *name;
    char path[PATH_MAX];
    size_t i;
    int rc;

    *out = (struct report){.hosts = json_array()};
    home_find(path, sizeof(path), "results/claims.json");
    rc = hosts && out->hosts ? claims_read(&out->claims, claims ? claims : path)
                             : no_memory();
    if (rc == OK)
        rc = job_names(&out->names);
    out->v = mem_new(MEM_HARNESS, json_array_size(out->names) + 1, sizeof(*out->v));
    if (rc == OK && !out->v)
        rc = ERR_NOMEM;
    json_array_foreach(out->names, i, name) if (rc == OK) rc =
        read_experiment(hosts, &out->v[out->n++], json_string_value(name));
    if (rc == OK)
        rc = sort_hosts(out->hosts, hosts);
    json_decref(hosts);
    return rc;
}

void report_fini(struct report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        job_free(&r->v[i].job);
        json_decref(r->v[i].problems);
    }
    mem_free(r->v);
    json_decref(r->hosts);
    json_decref(r->names);
    claims_fini(&r->claims);
    *r = (struct report){0};
}

const json_t *report_record_on(const json_t *host, const struct report_experiment *e)
{
    return json_object_get(json_object_get(host, "records"), e->stem);
}

const json_t *report_record(const struct report *r, const struct report_experiment *e)
{
    const json_t *host, *head = NULL;
    size_t h;

    json_array_foreach(r->hosts, h, host)
    {
        head = head ? head : report_record_on(host, e);
    }
    return head;
}

const struct report_experiment *report_find(const struct report *r, const char *stem)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->v[i].stem, stem) == 0)
            return &r->v[i];
    return NULL;
}
