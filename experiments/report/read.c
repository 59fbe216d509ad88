#include "experiments/report/report.h"

#include <dirent.h>
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

/* --- the records of one experiment */

static int is_record(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');

    return d->d_name[0] != '.' && dot && strcmp(dot, ".h5") == 0;
}

/* An array of heads in e->records; the one that latest.json names has "latest". */
static int read_records(struct report_experiment *e)
{
    char dir[PATH_MAX], path[PATH_MAX], latest[PATH_MAX];
    struct dirent **found = NULL;
    int n, rc = export_latest(latest, sizeof(latest), e->stem);

    if (rc != OK) {
        latest[0] = '\0';
        if (rc == ERR_NOMEM || (rc != ERR_NOTFOUND && report_add_problem(e, err_msg())))
            return ERR_NOMEM;
    }
    snprintf(dir, sizeof(dir), "results/%s", e->stem);
    n = scandir(dir, &found, is_record, alphasort);
    rc = OK;
    for (int i = 0; i < n; i++) {
        json_t *head = NULL;

        snprintf(path, sizeof(path), "results/%s/%s", e->stem, found[i]->d_name);
        free(found[i]);
        if (rc != OK)
            continue;
        rc = export_head(&head, path);
        if (rc == ERR_NOMEM)
            continue;
        if (rc != OK)
            rc = report_add_problem(e, err_msg());
        else if (json_array_append_new(e->records, head) != 0 ||
                 json_object_set_new(head, "latest",
                                     json_boolean(strcmp(path, latest) == 0)) != 0)
            rc = no_memory();
    }
    free(found);
    return rc;
}

/* --- machines */

/* A kind of machine: processor, CPUs and instruction sets. Its name may change from run to run,
 * as that of a container does. */
static int put_key(struct text *key, const json_t *head)
{
    key->n = 0;
    export_put_machine(key, head);
    text_puts(key, "\n");
    text_puts(key, json_str_at(json_object_get(head, "run"), "isa", ""));
    text_put(key, "", 1);
    return key->rc;
}

static json_t *host_new(const char *key, const json_t *head)
{
    return json_pack("{s:o s:s s:{} s:i s:s}", "label",
                     json_stringn_lossy(key, strcspn(key, "\n")), "isa",
                     json_str_at(json_object_get(head, "run"), "isa", ""), "names",
                     "n_experiments", 0, "newest", "");
}

static int add_to_host(json_t *host, const json_t *head, bool first_of_experiment)
{
    const json_t *run = json_object_get(head, "run");
    json_t *card = json_object_get(head, "machine_card"),
           *n = json_object_get(host, "n_experiments");
    const char *utc = json_str_at(run, "utc", "");
    const bool newer = strcmp(utc, json_str_at(host, "newest", "")) > 0;
    int rc = json_object_set_new(json_object_get(host, "names"),
                                 json_str_at(run, "host", ""), json_true());

    json_integer_set(n, json_integer_value(n) + first_of_experiment);
    if (rc == 0 && card && (newer || !json_object_get(host, "card")))
        rc = json_object_set(host, "card", card);
    if (rc == 0 && newer)
        rc = json_object_set_new(host, "newest", json_string(utc));
    return rc == 0 ? OK : no_memory();
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

/* {key: host} of every record; `of_v[i]` gets {key: the newest head} of experiment i. */
static int find_hosts(const struct report *r, json_t *hosts, json_t **of_v)
{
    struct text key = {0};
    json_t *head, *host, *best;
    size_t k;
    int rc = OK;

    for (size_t i = 0; i < r->n && rc == OK; i++)
        json_array_foreach(r->v[i].records, k, head)
        {
            rc = put_key(&key, head);
            host = rc == OK ? json_object_get(hosts, key.p) : NULL;
            if (rc == OK && !host) {
                host = host_new(key.p, head);
                rc = json_object_set_new(hosts, key.p, host) == 0 ? OK : no_memory();
            }
            best = rc == OK ? json_object_get(of_v[i], key.p) : NULL;
            if (rc == OK)
                rc = add_to_host(host, head, best == NULL);
            if (rc == OK && replaces(head, best) &&
                json_object_set(of_v[i], key.p, head) != 0)
                rc = no_memory();
            if (rc != OK)
                break;
        }
    text_fini(&key);
    return rc;
}

static int most_experiments_first(const void *a, const void *b, void *hosts)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const json_int_t n =
        json_integer_value(json_object_get(json_object_get(hosts, y), "n_experiments")) -
        json_integer_value(json_object_get(json_object_get(hosts, x), "n_experiments"));

    return n ? (n > 0 ? 1 : -1) : strcmp(x, y);
}

/* Of hosts with one label, those behind the first get their instruction sets into it. */
static int make_labels_differ(json_t *hosts)
{
    json_t *host, *other;
    size_t i, k;

    json_array_foreach(hosts, i, host) json_array_foreach(hosts, k, other)
    {
        struct text t = {0};
        int rc;

        if (i == k ||
            strcmp(json_str_at(host, "label", ""), json_str_at(other, "label", "")) != 0)
            continue;
        text_puts(&t, json_str_at(other, "label", ""));
        text_puts(&t, ", ");
        text_puts(&t, json_str_at(other, "isa", "unknown sets"));
        rc = t.rc;
        if (rc == OK && json_object_set_new(other, "label", json_stringn(t.p, t.n)) != 0)
            rc = no_memory();
        text_fini(&t);
        if (rc != OK)
            return rc;
    }
    return OK;
}

/* Hosts in their order, and each experiment's records in that order. */
static int arrange(struct report *r, json_t *hosts, json_t **of_v)
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
        if (json_array_append(r->hosts, json_object_get(hosts, keys[i])) != 0)
            rc = no_memory();
    for (size_t e = 0; e < r->n && rc == OK; e++) {
        json_array_clear(r->v[e].records);
        for (i = 0; i < n && rc == OK; i++) {
            json_t *head = json_object_get(of_v[e], keys[i]);

            if (json_array_append_new(r->v[e].records,
                                      head ? json_incref(head) : json_null()) != 0)
                rc = no_memory();
        }
    }
    mem_free(keys);
    return rc == OK ? make_labels_differ(r->hosts) : rc;
}

static int read_hosts(struct report *r)
{
    json_t *hosts = json_object(), **of_v = mem_new(MEM_HARNESS, r->n + 1, sizeof(*of_v));
    int rc = hosts && of_v ? OK : no_memory();

    for (size_t i = 0; i < r->n && rc == OK; i++) {
        of_v[i] = json_object();
        rc = of_v[i] ? OK : no_memory();
    }
    if (rc == OK)
        rc = find_hosts(r, hosts, of_v);
    if (rc == OK)
        rc = arrange(r, hosts, of_v);
    for (size_t i = 0; of_v && i < r->n; i++)
        json_decref(of_v[i]);
    mem_free(of_v);
    json_decref(hosts);
    return rc;
}

/* --- all of it */

static int read_experiment(struct report_experiment *e, const char *stem)
{
    int rc;

    e->stem = stem;
    e->records = json_array();
    e->problems = json_array();
    if (!e->records || !e->problems)
        return no_memory();
    rc = job_read(&e->job, stem, NULL);
    if (rc != OK && rc != ERR_NOMEM)
        rc = report_add_problem(e, err_msg());
    return rc == OK ? read_records(e) : rc;
}

int report_read(struct report *out, const char *claims)
{
    char path[PATH_MAX];
    int rc;

    *out = (struct report){.hosts = json_array()};
    home_find(path, sizeof(path), "results/claims.json");
    TRY(claims_read(&out->claims, claims ? claims : path));
    TRY(job_names(&out->names));
    out->v = mem_new(MEM_HARNESS, json_array_size(out->names) + 1, sizeof(*out->v));
    if (!out->v || !out->hosts)
        return no_memory();
    for (rc = OK; out->n < json_array_size(out->names) && rc == OK; out->n++)
        rc = read_experiment(&out->v[out->n],
                             json_string_value(json_array_get(out->names, out->n)));
    return rc == OK ? read_hosts(out) : rc;
}

void report_fini(struct report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        job_free(&r->v[i].job);
        json_decref(r->v[i].records);
        json_decref(r->v[i].problems);
    }
    mem_free(r->v);
    json_decref(r->hosts);
    json_decref(r->names);
    claims_fini(&r->claims);
    *r = (struct report){0};
}

const json_t *report_record(const struct report_experiment *e)
{
    const json_t *head;
    size_t i;

    json_array_foreach(e->records, i, head) if (json_is_object(head)) return head;
    return NULL;
}

const struct report_experiment *report_find(const struct report *r, const char *stem)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->v[i].stem, stem) == 0)
            return &r->v[i];
    return NULL;
}
