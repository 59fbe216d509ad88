#include "experiments/report/claim_null.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "experiments/report/claim_rule.h"

#define NULL_NOISE 0.05
#define N_DRAWS    10000
#define SEED       63
#define Z95        1.96 /* standard deviations to each side of a 95 % interval */

static const char *const keys[] = {"names",    "about",   "from",  "to",
                                   "none",     "values",  "cells", "extreme",
                                   "together", "planted", "fixed", NULL};

struct group {
    const char *names;
    const json_t *values;
    double about, from, to, none, planted; /* NAN: absent */
    bool is_log, is_most, is_together, is_fixed;
    int n_cells;
};

/* One headline of the rule. */
struct operand {
    char name[CLAIM_WORD_MAX];
    int group;
    struct claim_range record; /* NAN: it is not in the record */
    double sd;                 /* of the logarithm, or of the value */
    struct claim_range now;    /* as drawn */
};

struct model {
    struct group *group;
    struct operand *operand;
    struct {
        int relation, operand; /* -1: a number */
        struct claim_operand word;
    } * term;
    int n_groups, n_operands, n_terms;
    double tolerance;
    struct rng rng;
};

/* --- groups */

static double number_at(const json_t *obj, const char *key, double absent)
{
    const json_t *x = json_object_get(obj, key);

    return json_is_number(x) ? json_number_value(x) : absent;
}

static struct group group_of(const json_t *g)
{
    struct group out = {.names = json_is_string(g) ? json_string_value(g)
                                                   : json_str_at(g, "names", ""),
                        .values = json_object_get(g, "values"),
                        .from = number_at(g, "from", NAN),
                        .to = number_at(g, "to", NAN),
                        .planted = number_at(g, "planted", NAN),
                        .n_cells = (int)number_at(g, "cells", 1),
                        .is_most = strcmp(json_str_at(g, "extreme", "max"), "max") == 0,
                        .is_together = json_is_true(json_object_get(g, "together")),
                        .is_fixed = json_is_true(json_object_get(g, "fixed"))};

    out.is_log = !out.values && isnan(out.from);
    out.about = number_at(g, "about", 1);
    /* The printed number of a bound is not what it would be without an effect. */
    out.none = number_at(g, "none",
                         out.is_log && !json_object_get(g, "about") ? 1 : (double)NAN);
    return out;
}

/* Is it one of these words, in which ~ is a blank? */
static bool has_name(const char *names, const char *name)
{
    const size_t n = strlen(name);

    for (const char *p = names; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        size_t k = 0;

        while (k < n && (p[k] == name[k] || (p[k] == '~' && name[k] == ' ')))
            k++;
        if (k == n && (p[k] == ' ' || p[k] == '\0'))
            return true;
    }
    return false;
}

static int find_group(const json_t *compared, const char *name)
{
    for (size_t i = 0; i < json_array_size(compared); i++)
        if (has_name(group_of(json_array_get(compared, i)).names, name))
            return (int)i;
    return -1;
}

static int check_group(const json_t *g, const char *where)
{
    const struct group x = group_of(g);

    if (json_is_string(g))
        return OK;
    TRY(json_check_keys(g, keys, where));
    if (!*x.names || !(x.about > 0) || x.n_cells < 1 || x.n_cells > 1000 ||
        isnan(x.from) != isnan(x.to) || x.from >= x.to || x.planted <= 0 ||
        (x.values && json_array_size(x.values) < 2))
        return err_set(ERR_FORMAT,
                       "%s: \"%.60s\": expected names, about > 0, from < to, 1 to 1000 "
                       "cells, planted > 0 and at least two values",
                       where, x.names);
    return OK;
}

int claim_null_check(const json_t *compared, const char *rule, const char *where)
{
    struct claim_term t = {0};

    for (size_t i = 0; i < json_array_size(compared); i++)
        TRY(check_group(json_array_get(compared, i), where));
    while (claim_term_next(&rule, &t))
        if (t.operand.name[0] && find_group(compared, t.operand.name) < 0)
            return err_set(ERR_FORMAT, "%s: expected a group with %s, which a rule names",
                           where, t.operand.name);
    return OK;
}

/* --- the rule, read once for all draws */

static double noise_of(const struct group *g, struct claim_range r)
{
    if (g->values)
        return 0;
    if (g->is_log)
        return r.lo > 0 && r.lo < r.hi && !isnan(r.at) ? log(r.hi / r.lo) / (2 * Z95)
                                                       : NULL_NOISE;
    return r.lo < r.hi && !isnan(r.at) ? (r.hi - r.lo) / (2 * Z95)
                                       : NULL_NOISE * (g->to - g->from);
}

static int operand_of(struct model *m, const json_t *compared, const json_t *headline,
                      const char *name)
{
    const struct claim_operand plain = {.factor = 1};
    struct claim_operand o = plain;
    struct operand *x = &m->operand[m->n_operands];
    struct text why = {0};

    for (int i = 0; i < m->n_operands; i++)
        if (strcmp(m->operand[i].name, name) == 0)
            return i;
    memcpy(o.name, name, sizeof(o.name));
    memcpy(x->name, name, sizeof(x->name));
    x->group = find_group(compared, name);
    if (claim_operand_value(&o, headline, &x->record, &why) != CLAIM_HOLDS)
        x->record = (struct claim_range){NAN, NAN, NAN, 0, 0};
    x->sd = noise_of(&m->group[x->group], x->record);
    text_fini(&why);
    return m->n_operands++;
}

static void model_init(struct model *m, const json_t *compared, const char *rule,
                       const json_t *headline)
{
    const size_t n = strlen(rule) / 2 + 1; /* terms at most */
    struct claim_term t = {0};

    *m = (struct model){.n_groups = (int)json_array_size(compared)};
    m->group = mem_new(MEM_HARNESS, (size_t)m->n_groups + 1, sizeof(*m->group));
    m->operand = mem_new(MEM_HARNESS, n, sizeof(*m->operand));
    m->term = mem_new(MEM_HARNESS, n, sizeof(*m->term));
    for (int i = 0; i < m->n_groups; i++)
        m->group[i] = group_of(json_array_get(compared, (size_t)i));
    for (; claim_term_next(&rule, &t); m->n_terms++) {
        m->term[m->n_terms].relation = t.relation;
        m->term[m->n_terms].word = t.operand;
        m->term[m->n_terms].operand =
            t.operand.name[0] ? operand_of(m, compared, headline, t.operand.name) : -1;
    }
    rng_init(&m->rng, SEED, rule);
}

static void model_fini(struct model *m)
{
    mem_free(m->group);
    mem_free(m->operand);
    mem_free(m->term);
}

static bool passes(const struct model *m)
{
    struct claim_range left = {NAN, NAN, NAN, 0, 0}, x;

    for (int i = 0; i < m->n_terms; i++) {
        const struct claim_operand *w = &m->term[i].word;

        x = m->term[i].operand < 0
                ? (struct claim_range){w->factor, w->factor, w->factor, 0, 0}
                : claim_operand_scaled(w, m->operand[m->term[i].operand].now);
        if (m->term[i].relation >= 0 &&
            claim_compare(left, m->term[i].relation, x, w->factor, m->tolerance) !=
                CLAIM_HOLDS)
            return false;
        left = x;
    }
    return true;
}

/* --- draws */

/* The effect at u in [0, 1), or none. */
static double effect_at(const struct group *g, double u, bool is_equal)
{
    if (g->is_fixed)
        return g->about;
    if (is_equal && !isnan(g->none))
        return isnan(g->planted) ? g->none
               : u < 0.5         ? g->none * g->planted
                                 : g->none / g->planted;
    if (g->values)
        return json_number_value(
            json_array_get(g->values, (size_t)(u * (double)json_array_size(g->values))));
    return g->is_log ? g->about * pow(10, u - 0.5) : g->from + u * (g->to - g->from);
}

static void draw_operand(struct model *m, struct operand *x, double u, bool is_equal)
{
    const struct group *g = &m->group[x->group];
    const bool has_interval = x->record.lo < x->record.hi;
    const double wide = has_interval ? Z95 * x->sd : 0;
    double at = NAN;

    for (int i = 0; i < g->n_cells; i++) {
        const double noise = x->sd * rng_normal(&m->rng);
        const double effect = effect_at(g, i ? rng_f64(&m->rng) : u, is_equal);
        const double cell = g->is_log ? effect * exp(noise) : effect + noise;

        at = i == 0 ? cell : g->is_most ? fmax(at, cell) : fmin(at, cell);
    }
    x->now = x->record; /* with the errors of its simulator */
    x->now.at = at;
    x->now.lo = g->is_log ? at * exp(-wide) : at - wide;
    x->now.hi = g->is_log ? at * exp(wide) : at + wide;
}

/* Draw i. That of the first group is one of N_DRAWS equal parts, so that what depends on it alone
 * is counted exactly. */
static void draw(struct model *m, int i, bool is_equal)
{
    for (int g = 0; g < m->n_groups; g++) {
        double u = rng_f64(&m->rng);

        u = g == 0 ? (i + u) / N_DRAWS : u;
        for (int k = 0; k < m->n_operands; k++)
            if (m->operand[k].group == g) {
                draw_operand(m, &m->operand[k], u, is_equal);
                u = m->group[g].is_together ? u : rng_f64(&m->rng);
            }
    }
}

static double share_that_pass(struct model *m, bool is_equal)
{
    int n = 0;

    for (int i = 0; i < N_DRAWS; i++) {
        draw(m, i, is_equal);
        n += passes(m);
    }
    return (double)n / N_DRAWS;
}

/* --- the record's own numbers, exchanged and inverted */

/* About the value without an effect; what has none stays as it is. */
static struct claim_range inverted(const struct group *g, struct claim_range r)
{
    const double square = g->none * g->none, twice = 2 * g->none;
    struct claim_range out = r;

    if (isnan(g->none))
        return r;
    out.at = g->is_log ? square / r.at : twice - r.at;
    out.lo = g->is_log ? square / r.hi : twice - r.hi;
    out.hi = g->is_log ? square / r.lo : twice - r.lo;
    return out;
}

static void invert_all(struct model *m)
{
    for (int k = 0; k < m->n_operands; k++)
        m->operand[k].now = inverted(&m->group[m->operand[k].group], m->operand[k].now);
}

static void take_record(struct model *m)
{
    for (int k = 0; k < m->n_operands; k++)
        m->operand[k].now = m->operand[k].record;
}

/* Numbers of a group whose effects are not one change places (Fisher and Yates); and all are
 * inverted, or not. */
static void exchange(struct model *m)
{
    take_record(m);
    for (int k = 0; k < m->n_operands; k++) {
        const int g = m->operand[k].group;
        int n = 0, other = k;

        for (int i = 0; i <= k && !m->group[g].is_together && !m->group[g].is_fixed; i++)
            if (m->operand[i].group == g && rng_below(&m->rng, (uint64_t)++n) == 0)
                other = i;
        const struct claim_range swap = m->operand[other].now;

        m->operand[other].now = m->operand[k].now;
        m->operand[k].now = swap;
    }
    if (rng_f64(&m->rng) < 0.5)
        invert_all(m);
}

static void exchange_and_invert(struct claim_null *out, struct model *m)
{
    bool holds;
    int n = 0;

    out->exchanged = NAN;
    for (int k = 0; k < m->n_operands; k++)
        if (isnan(m->operand[k].record.at))
            return;
    take_record(m);
    holds = passes(m);
    invert_all(m);
    out->is_opposite = !holds && passes(m);
    for (int i = 0; i < N_DRAWS; i++) {
        exchange(m);
        n += passes(m);
    }
    out->exchanged = (double)n / N_DRAWS;
}

void claim_null_draw(struct claim_null *out, const json_t *compared, const char *rule,
                     double tolerance, const json_t *headline)
{
    struct model m;

    *out = (struct claim_null){0};
    model_init(&m, compared, rule, headline);
    m.tolerance = tolerance;
    out->equal = share_that_pass(&m, true);
    out->sized = share_that_pass(&m, false);
    out->never_fails = out->equal >= 1 && out->sized >= 1;
    exchange_and_invert(out, &m);
    model_fini(&m);
}

double claim_null_rate(const struct claim_null *n)
{
    return fmax(n->equal, n->sized);
}
