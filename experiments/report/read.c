#include "experiments/report/report.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "experiments/record/head.h"
#include "experiments/record/published.h"

void report_add_problem(struct report_experiment *e, const char *line)
{
    json_array_append_new(e->problems, json_string_lossy(line));
}

/* --- machines */

/* The machine of a record: processor, CPUs and instruction sets, since its name may change from
 * run to run, as that of a container does. Lent by `hosts`. */
static json_t *host_of(json_t *hosts, const json_t *head)
{
    const char *isa = json_str_at(json_object_get(head, "run"), "isa", "");
    struct text key = {0};
    json_t *host;
    size_t n_label;

    export_put_machine(&key, head);
    n_label = key.n;
    text_puts(&key, "\n");
    text_puts(&key, isa);
    text_put(&key, "", 1);
    host = json_object_get(hosts, key.p);
    if (!host) {
        host = json_pack("{s:o s:s s:{} s:{} s:s}", "label",
                         json_stringn_lossy(key.p, n_label), "isa", isa, "names",
                         "records", "newest", "");
        json_object_set_new(hosts, key.p, host);
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

static void add_record(json_t *hosts, const char *stem, json_t *head)
{
    json_t *host = host_of(hosts, head), *records = json_object_get(host, "records"),
           *card = json_object_get(head, "machine_card");
    const json_t *run = json_object_get(head, "run");
    const char *utc = json_str_at(run, "utc", "");
    const bool newer = strcmp(utc, json_str_at(host, "newest", "")) > 0;

    json_object_set_new(json_object_get(host, "names"), json_str_at(run, "host", ""),
                        json_true());
    if (card && (newer || !json_object_get(host, "card")))
        json_object_set(host, "card", card);
    if (newer)
        json_object_set_new(host, "newest", json_string(utc));
    if (replaces(head, json_object_get(records, stem)))
        json_object_set(records, stem, head);
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
static void make_label_differ(json_t *hosts, size_t i)
{
    json_t *host = json_array_get(hosts, i);
    const char *label = json_str_at(host, "label", ""),
               *isa = json_str_at(host, "isa", "unknown sets");

    for (size_t k = 0; k < i; k++)
        if (strcmp(label, json_str_at(json_array_get(hosts, k), "label", "")) == 0) {
            json_object_set_new(host, "label", json_sprintf("%s, %s", label, isa));
            return;
        }
}

static void sort_hosts(json_t *sorted, json_t *hosts)
{
    const size_t n = json_object_size(hosts);
    const char **keys = mem_new(MEM_HARNESS, n + 1, sizeof(*keys)), *key;
    json_t *host;
    size_t i = 0;

    json_object_foreach(hosts, key, host) keys[i++] = key;
    qsort_r(keys, n, sizeof(*keys), most_experiments_first, hosts);
    for (i = 0; i < n; i++) {
        json_array_append(sorted, json_object_get(hosts, keys[i]));
        make_label_differ(sorted, i);
    }
    mem_free(keys);
}

/* --- all of it */

/* Add the records of the list `paths`, which is released; rc: that of the function that made it.
 * *newest becomes a new reference to the newest one, NULL where there is none. */
static void add_records(json_t *hosts, struct report_experiment *e, int rc, json_t *paths,
                        const json_t *latest, json_t **newest)
{
    json_t *path, *head;
    size_t i;

    *newest = NULL;
    if (rc != OK)
        report_add_problem(e, err_msg());
    json_array_foreach(paths, i, path)
    {
        if (export_head(&head, json_string_value(path)) != OK) {
            report_add_problem(e, err_msg());
            continue;
        }
        json_object_set_new(
            head, "latest",
            json_boolean(json_equal(path, json_object_get(latest, "path"))));
        add_record(hosts, e->stem, head);
        if (replaces(head, *newest)) {
            json_decref(*newest);
            *newest = json_incref(head);
        }
        json_decref(head);
    }
    json_decref(paths);
}

/* As of claim_record(), the newest published one is judged where there is no other. */
static void read_records(json_t *hosts, struct report_experiment *e)
{
    char path[PATH_MAX];
    json_t *paths, *latest, *newest;
    int rc;

    snprintf(path, sizeof(path), "results/%s/latest.json", e->stem);
    rc = export_head(&latest, path);
    if (rc != OK && rc != ERR_NOTFOUND)
        report_add_problem(e, err_msg());
    snprintf(path, sizeof(path), "results/%s", e->stem);
    rc = export_list(&paths, path);
    add_records(hosts, e, rc, paths, latest, &newest);
    json_decref(newest);
    rc = export_published_list(&paths, e->stem);
    add_records(hosts, e, rc, paths, latest, &newest);
    if (!latest && newest)
        json_object_set_new(newest, "latest", json_true());
    json_decref(newest);
    json_decref(latest);
}

static const json_t *checked_record(void *ctx, const char *experiment)
{
    const struct report_experiment *e = report_find(ctx, experiment);

    return e ? report_checked(ctx, e) : NULL;
}

int report_read(struct report *out, const char *claims)
{
    json_t *hosts, *name;
    char path[PATH_MAX];
    size_t i;

    *out = (struct report){.hosts = json_array()};
    home_find(path, sizeof(path), "results/claims.json");
    TRY(claims_read(&out->claims, claims ? claims : path));
    home_find(path, sizeof(path), "results/coverage.json");
    TRY(coverage_read(&out->coverage, path));
    home_find(path, sizeof(path), "results/findings.json");
    TRY(findings_read(&out->findings, path));
    TRY(job_names(&out->names));
    out->v = mem_new(MEM_HARNESS, json_array_size(out->names) + 1, sizeof(*out->v));
    hosts = json_object();
    json_array_foreach(out->names, i, name)
    {
        struct report_experiment *e = &out->v[out->n++];

        *e = (struct report_experiment){.stem = json_string_value(name),
                                        .problems = json_array()};
        if (job_read(&e->job, e->stem, NULL) != OK)
            report_add_problem(e, err_msg());
        read_records(hosts, e);
    }
    sort_hosts(out->hosts, hosts);
    json_decref(hosts);
    claims_find_errors(&out->claims, checked_record, out);
    return OK;
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
    coverage_fini(&r->coverage);
    findings_fini(&r->findings);
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

const json_t *report_checked(const struct report *r, const struct report_experiment *e)
{
    const json_t *host;
    size_t h;

    json_array_foreach(r->hosts, h, host)
    {
        const json_t *head = report_record_on(host, e);

        if (json_is_true(json_object_get(head, "latest")))
            return head;
    }
    return report_record(r, e);
}

const struct report_experiment *report_find(const struct report *r, const char *stem)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->v[i].stem, stem) == 0)
            return &r->v[i];
    return NULL;
}
