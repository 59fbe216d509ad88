#include "experiments/report/claims.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "experiments/metrics/metrics.h"
#include "experiments/report/claim_null.h"
#include "experiments/report/claim_rule.h"
#include "experiments/record/head.h"
#include "experiments/record/published.h"

#define CLAIMS_BYTES ((size_t)1 << 20)

static const char *const keys[] = {
    "name",      "paper",    "section", "figure",   "text",       "experiment",
    "here",      "why",      "shape",   "should",   "reproduced", "about",
    "tolerance", "accuracy", "printed", "compared", NULL};

const char *claim_verdict_name(enum claim_verdict v)
{
    static const char *const names[] = {[CLAIM_REPRODUCED] = "reproduced",
                                        [CLAIM_IN_SHAPE] = "reproduced in shape",
                                        [CLAIM_CONSISTENT] = "consistent",
                                        [CLAIM_UNDECIDED] = "undecided",
                                        [CLAIM_NO_INTERVAL] = "undecided: no interval",
                                        [CLAIM_NOT_REPRODUCED] = "not reproduced",
                                        [CLAIM_NOT_TESTABLE] = "not testable here",
                                        [CLAIM_NO_RECORD] = "no record yet"};

    return names[v];
}

/* --- the list */

static int read_should(struct claim *c, const json_t *obj, const char *where)
{
    static const char *const words[] = {"reproduced", "shape", NULL};
    const char *word = NULL;
    int rc = json_opt_str(obj, "should", &word, where), i;

    c->should = CLAIM_NO_RECORD;
    if (rc != OK || !word)
        return rc;
    i = name_index(words, word);
    if (i < 0)
        return name_unknown(ERR_FORMAT, word, words,
                            "%s: should: expected \"reproduced\" or \"shape\", found "
                            "\"%s\"",
                            where, word);
    c->should = i == 0 ? CLAIM_REPRODUCED : CLAIM_IN_SHAPE;
    if (i == 0 ? c->reproduced == NULL : c->shape == NULL)
        return err_set(ERR_FORMAT, "%s: should: \"%s\" has no rule \"%s\"", where, word,
                       word);
    return OK;
}

static int check_rule(const char *rule, const char *key, const char *where)
{
    char at[300];

    snprintf(at, sizeof(at), "%s: %s", where, key);
    return rule ? claim_rule_check(rule, at) : OK;
}

/* All headlines of the rule are in a group. */
static int check_compared(const struct claim *c, const char *rule, const char *where)
{
    char at[300];

    snprintf(at, sizeof(at), "%s: compared", where);
    return rule ? claim_null_check(c->compared, rule, at) : OK;
}

/* It has rules and an experiment, or a reason why not. */
static int check_sense(const struct claim *c, const char *where)
{
    TRY(check_rule(c->reproduced, "reproduced", where));
    TRY(check_rule(c->shape, "shape", where));
    TRY(check_rule(c->accuracy, "accuracy", where));
    if (c->why ? c->reproduced || c->shape || c->should != CLAIM_NO_RECORD
               : !c->experiment || (!c->reproduced && !c->shape))
        return err_set(ERR_FORMAT,
                       "%s: expected \"why\", or \"experiment\" with \"reproduced\" or "
                       "\"shape\"",
                       where);
    if (c->accuracy && !c->reproduced)
        return err_set(ERR_FORMAT, "%s: accuracy: expected a rule \"reproduced\" with it",
                       where);
    if (c->experiment && strchr(c->experiment, '/'))
        return err_set(ERR_FORMAT, "%s: experiment: expected a name, found \"%s\"", where,
                       c->experiment);
    if (!(c->tolerance >= 0 && c->tolerance < 1))
        return err_set(ERR_FORMAT, "%s: tolerance: expected 0 to 1, found %g", where,
                       c->tolerance);
    TRY(check_compared(c, c->reproduced, where));
    return check_compared(c, c->shape, where);
}

/* "printed" is both rules: each = of a printed effect is `at` in the one, `toward` in the other. */
static int read_printed(struct claim *c, json_t *obj, const char *where)
{
    const struct {
        const char *key, **to, *relation;
    } of[] = {{"reproduced", &c->reproduced, " at "}, {"shape", &c->shape, " toward "}};
    const char *printed = NULL;

    TRY(json_opt_str(obj, "printed", &printed, where));
    for (int i = 0; i < 2 && printed; i++) {
        struct text rule = {0};

        if (*of[i].to)
            return err_set(ERR_FORMAT, "%s: printed: expected no rule \"%s\" with it",
                           where, of[i].key);
        for (const char *p = printed, *end; *p; p = *end ? end + 3 : end) {
            end = strstr(p, " = ");
            end = end ? end : p + strlen(p);
            text_put(&rule, p, (size_t)(end - p));
            text_puts(&rule, *end ? of[i].relation : "");
        }
        json_object_set_new(obj, of[i].key, json_stringn(rule.p, rule.n));
        text_fini(&rule);
        TRY(json_opt_str(obj, of[i].key, of[i].to, where));
    }
    return OK;
}

static int read_claim(struct claim *c, json_t *obj, const char *path, size_t i)
{
    const struct {
        const char *key, **to;
        bool must;
    } texts[] = {
        {"name", &c->name, true},
        {"paper", &c->paper, true},
        {"section", &c->section, true},
        {"figure", &c->figure, false},
        {"text", &c->text, true},
        {"experiment", &c->experiment, false},
        {"here", &c->here, false},
        {"why", &c->why, false},
        {"reproduced", &c->reproduced, false},
        {"shape", &c->shape, false},
        {"accuracy", &c->accuracy, false},
    };
    char where[256];
    int rc = OK;

    snprintf(where, sizeof(where), "%s: claim %zu", path, i);
    for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]) && rc == OK; k++) {
        rc = texts[k].must ? json_get_str(obj, texts[k].key, texts[k].to, where)
                           : json_opt_str(obj, texts[k].key, texts[k].to, where);
        if (k == 0 && rc == OK)
            snprintf(where, sizeof(where), "%s: %.60s", path, c->name);
    }
    if (rc == OK)
        rc = json_check_keys(obj, keys, where);
    if (rc == OK)
        rc = json_opt_f64(obj, "tolerance", &c->tolerance, where);
    if (rc == OK)
        rc = read_printed(c, obj, where);
    c->compared = json_object_get(obj, "compared");
    c->error_frac = c->between_frac = NAN;
    if (rc == OK)
        rc = read_should(c, obj, where);
    return rc == OK ? check_sense(c, where) : rc;
}

static int check_twice(const struct claims *c, const char *path)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(c->v[i].name, c->v[k].name) == 0)
                return err_set(ERR_FORMAT,
                               "%s: %s: expected a name of one claim, found "
                               "two",
                               path, c->v[i].name);
    return OK;
}

static int check_simulators(struct claims *c, const char *path)
{
    static const char *const of[] = {"experiment", "error", "between",
                                     "ratios",     "exact", NULL};
    json_t *all = json_object_get(c->root, "simulators"), *simulator;
    const char *paper, *text;
    char where[200];

    json_object_foreach(all, paper, simulator)
    {
        snprintf(where, sizeof(where), "%.80s: simulators: %.60s", path, paper);
        TRY(json_check_keys(simulator, of, where));
        TRY(json_get_str(simulator, "experiment", &text, where));
        TRY(json_get_str(simulator, "error", &text, where));
    }
    for (size_t i = 0; i < c->n; i++)
        c->v[i].simulator = json_object_get(all, c->v[i].paper);
    return OK;
}

int claims_read(struct claims *out, const char *path)
{
    static const char *const top[] = {"about", "simulators", "claims", NULL};
    const json_t *list = NULL;
    int rc;

    *out = (struct claims){0};
    rc = json_read_file(&out->root, path, CLAIMS_BYTES);
    if (rc == OK)
        rc = json_check_keys(out->root, top, path);
    if (rc == OK)
        rc = json_get_arr(out->root, "claims", &list, path);
    if (rc != OK)
        return rc;
    out->n = json_array_size(list);
    out->v = mem_new(MEM_HARNESS, out->n + 1, sizeof(*out->v));
    for (size_t i = 0; i < out->n && rc == OK; i++)
        rc = read_claim(&out->v[i], json_array_get(list, i), path, i);
    if (rc == OK)
        rc = check_twice(out, path);
    return rc == OK ? check_simulators(out, path) : rc;
}

void claims_fini(struct claims *c)
{
    mem_free(c->v);
    json_decref(c->root);
    *c = (struct claims){0};
}

/* --- the record */

int claim_record(json_t **out, const char *experiment)
{
    char path[PATH_MAX];
    int rc;

    snprintf(path, sizeof(path), "results/%s/latest.json", experiment);
    rc = export_head(out, path);
    return rc == ERR_NOTFOUND ? export_published_head(out, experiment, NULL) : rc;
}

/* --- the errors of simulators */

/* Of a headline in %; NaN: the record does not have it. */
static double frac_of(const json_t *record, const char *name)
{
    const json_t *h = json_object_get(json_object_get(record, "headline"), name);
    const json_t *value = json_object_get(h, "value");

    return json_is_number(value) ? json_number_value(value) / 100 : NAN;
}

void claims_find_errors(struct claims *c, claim_record_fn *record, void *ctx)
{
    json_t *simulator;
    const char *paper;

    json_object_foreach(json_object_get(c->root, "simulators"), paper, simulator)
    {
        const json_t *of = record(ctx, json_str_at(simulator, "experiment", ""));
        double error = frac_of(of, json_str_at(simulator, "error", ""));
        double between = frac_of(of, json_str_at(simulator, "between", ""));

        for (size_t i = 0; i < c->n; i++)
            if (c->v[i].simulator == simulator) {
                c->v[i].error_frac = error;
                /* Nobody has measured that errors cancel. */
                c->v[i].between_frac = isnan(between) ? error : between;
            }
    }
}

/* Does the name begin with one of these words? */
static bool begins(const char *name, const char *words)
{
    for (const char *p = words; *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (strncmp(name, p, strcspn(p, " ")) == 0)
            return true;
    return false;
}

static const char *evidence_of(const json_t *record, const json_t *headline)
{
    return json_str_at(
        headline, "evidence",
        json_str_at(json_object_get(record, "run"), "evidence", "unknown"));
}

json_t *claim_headline(const struct claim *c, const json_t *record)
{
    json_t *headline = json_object_get(record, "headline"), *out = json_object(), *h;
    const bool known = c->simulator && c->error_frac > 0;
    const char *name;

    json_object_foreach(headline, name, h)
    {
        double error = begins(name, json_str_at(c->simulator, "ratios", ""))
                           ? c->between_frac
                           : c->error_frac;

        if (known && strstr(evidence_of(record, h), "simulated") &&
            !begins(name, json_str_at(c->simulator, "exact", ""))) {
            h = json_copy(h);
            json_object_set_new(h, "error_frac", json_real(error));
            json_object_set_new(h, "between_frac", json_real(c->between_frac));
            json_object_set_new(out, name, h);
        } else {
            json_object_set(out, name, h);
        }
    }
    return out;
}

/* --- the verdict */

/* A claim that holds only at a larger error, or at one that the record does not have, is not
 * reproduced. */
static enum claim_verdict reproduced_at(const struct claim *c, const json_t *headline,
                                        struct text *found)
{
    struct text errors = {0};
    enum claim_truth truth;

    if (!c->accuracy)
        return CLAIM_REPRODUCED;
    truth = claim_rule_holds(c->accuracy, headline, c->tolerance, &errors);
    text_puts(found, "; ");
    text_put(found, errors.p, errors.n);
    text_fini(&errors);
    if (truth == CLAIM_HOLDS)
        return CLAIM_REPRODUCED;
    text_puts(found, truth == CLAIM_FAILS || truth == CLAIM_UNSURE
                         ? ": not at equal accuracy"
                         : ": whether at equal accuracy is not known");
    return CLAIM_IN_SHAPE;
}

struct missing {
    const json_t *record;
    char name
        [CLAIM_WORD_MAX]; /* the first measured headline without an interval; "": none */
};

static void find_missing(void *ctx, const char *name)
{
    struct missing *m = ctx;
    const json_t *h = json_object_get(json_object_get(m->record, "headline"), name);
    char bound[RECORD_BOUND_BYTES];

    if (!*m->name && strstr(evidence_of(m->record, h), "measured") &&
        !json_object_get(h, "lo") && !record_bound(h, bound) &&
        !(json_number_value(json_object_get(h, "detectable_frac")) > 0))
        snprintf(m->name, sizeof(m->name), "%s", name);
}

/* What chance passes too often is consistent only; of what fails, the opposite may hold. */
static enum claim_verdict against_chance(const struct claim *c, enum claim_verdict v,
                                         const char *rule, const json_t *headline,
                                         struct text *found)
{
    struct claim_null null;

    if (!c->compared)
        return v;
    claim_null_draw(&null, c->compared, rule, c->tolerance, headline);
    if (v == CLAIM_NOT_REPRODUCED) {
        text_puts(found, null.is_opposite ? "; the opposite holds" : "");
        return v;
    }
    if (claim_null_rate(&null) <= CLAIM_NULL_MAX)
        return v;
    text_printf(found, "; chance alone passes %.0f %%", 100 * claim_null_rate(&null));
    return CLAIM_CONSISTENT;
}

/* The verdict by the numbers alone, and the rule that decided. */
static enum claim_verdict judge_rules(const struct claim *c, const json_t *headline,
                                      const char **rule, struct text *found)
{
    static const enum claim_verdict of[] = {[CLAIM_FAILS] = CLAIM_NOT_REPRODUCED,
                                            [CLAIM_UNSURE] = CLAIM_UNDECIDED,
                                            [CLAIM_UNKNOWN] = CLAIM_NOT_TESTABLE,
                                            [CLAIM_ABSENT] = CLAIM_NO_RECORD};
    enum claim_truth truth = CLAIM_FAILS;

    *rule = c->reproduced;
    if (c->reproduced)
        truth = claim_rule_holds(c->reproduced, headline, c->tolerance, found);
    if (c->reproduced && truth == CLAIM_HOLDS)
        return reproduced_at(c, headline, found);
    if (c->shape) {
        *rule = c->shape;
        found->n = 0;
        truth = claim_rule_holds(c->shape, headline, c->tolerance, found);
    }
    return truth == CLAIM_HOLDS ? CLAIM_IN_SHAPE : of[truth];
}

static enum claim_verdict judge(const struct claim *c, const json_t *record,
                                const json_t *headline, struct text *found)
{
    struct missing missing = {.record = record};
    enum claim_verdict v;
    const char *rule;

    v = judge_rules(c, headline, &rule, found);
    if (v > CLAIM_NOT_REPRODUCED || v == CLAIM_UNDECIDED)
        return v;
    claim_rule_names(rule, find_missing, &missing);
    if (*missing.name) {
        text_printf(found, "; %s has no interval", missing.name);
        return CLAIM_NO_INTERVAL;
    }
    return against_chance(c, v, rule, headline, found);
}

/* Of a verdict on simulated numbers, how far their simulator errs. */
static void put_error(struct text *found, const struct claim *c, const json_t *record)
{
    char evidence[96];

    claim_evidence(c, record, evidence);
    if (!c->simulator || !strstr(evidence, "simulated"))
        return;
    if (isnan(c->error_frac))
        text_puts(found, "; how far the simulator errs is not known");
    else
        text_printf(found, "; the simulator errs by %.3g %%, in ratios by %.3g %% (%s)",
                    100 * c->error_frac, 100 * c->between_frac,
                    json_str_at(c->simulator, "experiment", ""));
}

enum claim_verdict claim_judge(const struct claim *c, const json_t *record,
                               struct text *found)
{
    enum claim_verdict v;
    json_t *headline;

    if (c->why) {
        text_puts(found, c->why);
        return CLAIM_NOT_TESTABLE;
    }
    if (!record)
        return CLAIM_NO_RECORD;
    headline = claim_headline(c, record);
    v = judge(c, record, headline, found);
    json_decref(headline);
    if (v <= CLAIM_NOT_REPRODUCED)
        put_error(found, c, record);
    return v;
}

bool claim_is_failure(const struct claim *c, enum claim_verdict v)
{
    return v <= CLAIM_NOT_REPRODUCED && v > c->should &&
           (v == CLAIM_IN_SHAPE || v == CLAIM_NOT_REPRODUCED);
}

/* --- what a verdict rests on */

struct kinds {
    const json_t *headline;
    const char *of_record;
    bool there[16]; /* by metrics_evidence[] */
    bool is_unknown;
};

/* The evidence of one number: kinds joined by ", ". */
static void add_kinds(struct kinds *k, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, ",");
        bool known = false;

        for (int i = 0; metrics_evidence[i]; i++)
            if (strlen(metrics_evidence[i]) == n &&
                !strncmp(text, metrics_evidence[i], n))
                known = k->there[i] = true;
        k->is_unknown |= !known;
        text += n;
        text += strspn(text, ", ");
    }
}

static void add_name(void *ctx, const char *name)
{
    struct kinds *k = ctx;

    add_kinds(k,
              json_str_at(json_object_get(k->headline, name), "evidence", k->of_record));
}

static struct kinds kinds_of(const struct claim *c, const json_t *record)
{
    struct kinds k = {
        .headline = json_object_get(record, "headline"),
        .of_record = json_str_at(json_object_get(record, "run"), "evidence", "unknown")};

    if (c->reproduced)
        claim_rule_names(c->reproduced, add_name, &k);
    if (c->shape)
        claim_rule_names(c->shape, add_name, &k);
    if (!c->reproduced && !c->shape)
        add_kinds(&k, k.of_record);
    return k;
}

void claim_evidence(const struct claim *c, const json_t *record, char out[96])
{
    const struct kinds k = kinds_of(c, record);
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; metrics_evidence[i]; i++)
        if (k.there[i] && n < 96)
            n += (size_t)snprintf(out + n, 96 - n, "%s%s", n ? ", " : "",
                                  metrics_evidence[i]);
    if (k.is_unknown && n < 96)
        snprintf(out + n, 96 - n, "%s%s", n ? ", " : "", "unknown");
}

bool claim_is_noisy(const struct claim *c, const json_t *record)
{
    const struct kinds k = kinds_of(c, record);
    bool timed = k.is_unknown;

    for (int i = 0; metrics_evidence[i]; i++)
        timed |= k.there[i] && export_is_timed(metrics_evidence[i]);
    return timed && export_was_disturbed(record);
}
