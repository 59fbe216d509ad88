#include "experiments/report/compare_published.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text_number.h"
#include "experiments/record/head.h"
#include "experiments/record/published.h"

/* Another compiler may add in another order. */
#define ROUNDING_FRAC 1e-6

const char *compare_repeat_name(enum compare_repeat v)
{
    static const char *const names[] = {"same", "differs", "other machine"};

    return names[v];
}

/* --- numbers */

struct range {
    double lo, at, hi; /* NaN: missing */
};

static struct range range_of(const json_t *number)
{
    const double at = json_f64_at(number, "value"), lo = json_f64_at(number, "lo"),
                 hi = json_f64_at(number, "hi");

    return (struct range){isnan(lo) ? at : lo, at, isnan(hi) ? at : hi};
}

/* A share of the larger one, at most 1, which is also that of a missing one. */
static double difference_frac(const struct range *a, const struct range *b)
{
    const double larger = fmax(fabs(a->at), fabs(b->at));

    if (isnan(a->at) || isnan(b->at))
        return isnan(a->at) == isnan(b->at) ? 0 : 1;
    return larger > 0 ? fmin(1, fabs(a->at - b->at) / larger) : 0;
}

static bool agree(const struct range *a, const struct range *b, double share)
{
    return (a->lo <= b->hi && b->lo <= a->hi) || difference_frac(a, b) <= share;
}

static const char *evidence_of(const json_t *number, const json_t *head)
{
    return json_str_at(number, "evidence", json_str_at(head, "evidence", ""));
}

/* Is a headline number measured? */
static bool measures(const json_t *head)
{
    const char *name;
    json_t *number;

    json_object_foreach(json_object_get(head, "headline"), name, number)
    {
        if (export_is_timed(evidence_of(number, head)))
            return true;
    }
    return false;
}

/* Arithmetic next to what is measured may be arithmetic on it. */
static bool depends_on_machine(const json_t *number, const json_t *head)
{
    const char *evidence = evidence_of(number, head);

    return json_object_get(head, "machine_card") || export_is_timed(evidence) ||
           (strcmp(evidence, "model") == 0 && measures(head));
}

static void put_value(char out[64], const struct range *v)
{
    if (isnan(v->at))
        snprintf(out, 64, "n/a");
    else if (v->lo < v->hi)
        snprintf(out, 64, "%.18s [%.18s to %.18s]", TEXT_NUMBER(v->at, 4),
                 TEXT_NUMBER(v->lo, 4), TEXT_NUMBER(v->hi, 4));
    else
        snprintf(out, 64, "%s", TEXT_NUMBER(v->at, 4));
}

void compare_heads(struct compare_heads *out, const json_t *own, const json_t *published,
                   double margin_frac)
{
    const json_t *others = json_object_get(published, "headline"), *other;
    const bool same_machine = export_is_same_machine(published, own);
    double farthest = 0;
    const char *name;
    json_t *number;

    *out = (struct compare_heads){.verdict = COMPARE_REPEAT_SAME};
    json_object_foreach(json_object_get(own, "headline"), name, number)
    {
        const bool depends = depends_on_machine(number, own);
        const struct range a = range_of(number);
        struct range b;
        char x[64], y[64];

        other = json_object_get(others, name);
        if (!other)
            continue;
        b = range_of(other);
        if (agree(&a, &b, depends ? margin_frac : ROUNDING_FRAC)) {
            out->n_agree++;
            continue;
        }
        out->n_differ++;
        if (!depends || same_machine)
            out->verdict = COMPARE_REPEAT_DIFFERS;
        else if (out->verdict == COMPARE_REPEAT_SAME)
            out->verdict = COMPARE_REPEAT_OTHER_MACHINE;
        if (difference_frac(&a, &b) <= farthest)
            continue;
        farthest = difference_frac(&a, &b);
        put_value(x, &a);
        put_value(y, &b);
        snprintf(out->farthest, sizeof(out->farthest), "%.60s: %s here, %s published",
                 name, x, y);
    }
    if (out->n_agree + out->n_differ == 0) {
        out->verdict = COMPARE_REPEAT_DIFFERS;
        snprintf(out->farthest, sizeof(out->farthest), "no number in common");
    }
}

/* --- experiments */

static void print_line(const char *name, const json_t *own, const json_t *published,
                       const struct compare_heads *c, FILE *f)
{
    fprintf(f, "  %-28s %-14s %5d %6d  %s%s%s%s\n", name, compare_repeat_name(c->verdict),
            c->n_agree, c->n_differ, c->farthest,
            c->verdict == COMPARE_REPEAT_OTHER_MACHINE ? " on " : "",
            c->verdict == COMPARE_REPEAT_OTHER_MACHINE
                ? json_str_at(published, "published", "")
                : "",
            c->n_differ && export_was_disturbed(own)
                ? "; something else used this machine meanwhile"
                : "");
}

static void compare_experiment(struct compare_published_totals *t, const char *name,
                               double margin_frac, FILE *f)
{
    json_t *own = NULL, *published = NULL;
    struct compare_heads c;
    char path[PATH_MAX];
    bool has_own;
    int rc;

    snprintf(path, sizeof(path), "results/%.200s/latest.json", name);
    rc = export_head(&own, path);
    has_own = rc == OK;
    if (has_own)
        rc = export_published_head(&published, name, own);
    if (rc == OK) {
        compare_heads(&c, own, published, margin_frac);
        print_line(name, own, published, &c, f);
        t->n[c.verdict]++;
    } else if (rc == ERR_NOTFOUND && has_own) {
        fprintf(f, "  %-28s not published\n", name);
        t->n_unpublished++;
    } else if (rc == ERR_NOTFOUND) {
        t->n_without_own++;
    } else {
        fprintf(f, "  %-28s cannot be read: %s\n", name, err_msg());
        t->n_unreadable++;
    }
    json_decref(own);
    json_decref(published);
}

int compare_published(struct compare_published_totals *out, const json_t *names,
                      double margin_frac, FILE *f)
{
    const json_t *name;
    size_t i;

    *out = (struct compare_published_totals){0};
    fprintf(f,
            "Your records, compared with those that come with the program:\n"
            "  %-28s %-14s %5s %6s  %s\n",
            "experiment", "verdict", "agree", "differ", "the number that differs most");
    json_array_foreach(names, i, name)
        compare_experiment(out, json_string_value(name), margin_frac, f);
    err_clear();
    fprintf(
        f,
        "%d same, %d differ%s, %d of another machine, %d not published, %d without a "
        "record of your own\n"
        "Numbers agree where their 95 %% intervals overlap or they differ by less than "
        "%g %%; those that do not depend on the machine, by less than a rounding.\n",
        out->n[COMPARE_REPEAT_SAME], out->n[COMPARE_REPEAT_DIFFERS],
        out->n[COMPARE_REPEAT_DIFFERS] == 1 ? "s" : "",
        out->n[COMPARE_REPEAT_OTHER_MACHINE], out->n_unpublished, out->n_without_own,
        100 * margin_frac);
    return fflush(f) == 0 && !ferror(f) ? OK
                                        : err_set(ERR_IO, "output cannot be written: %m");
}
