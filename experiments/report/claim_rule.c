#include "experiments/report/claim_rule.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/name.h"
#include "base/text_number.h"
#include "experiments/record/head.h"

enum { LESS, AT_MOST, GREATER, AT_LEAST, EQUAL, NEAR, TOWARD, AT };
static const char *const relations[] = {"<",    "<=",     ">",  ">=", "=",
                                        "near", "toward", "at", NULL};

/* The next word of *p, which moves behind it; false: none is left, or it is too long. */
static bool next_word(const char **p, char word[CLAIM_WORD_MAX])
{
    size_t n;

    *p += strspn(*p, " ");
    n = strcspn(*p, " ");
    if (n == 0 || n >= CLAIM_WORD_MAX)
        return false;
    memcpy(word, *p, n);
    word[n] = 0;
    *p += n;
    return true;
}

bool claim_operand_read(const char *word, struct claim_operand *out)
{
    char *end;
    const double x = strtod(word, &end);
    const bool number = end != word && isfinite(x);
    const bool offset = number && *end == '+';
    const char *name = offset || (number && *end == '*') ? end + 1 : number ? end : word;

    *out = (struct claim_operand){.factor = number && !offset ? x : 1,
                                  .offset = offset ? x : 0};
    snprintf(out->name, sizeof(out->name), "%s", name);
    for (char *c = out->name; *c; c++)
        *c = *c == '~' ? ' ' : *c;
    if (number && name == end)
        return *end == 0;
    return *name && !strpbrk(name, "<>*+") && strcmp(name, "and") != 0;
}

int claim_rule_check(const char *rule, const char *where)
{
    char word[CLAIM_WORD_MAX] = "";
    struct claim_operand o;
    int n_operands = 0; /* of this chain */

    for (const char *p = rule;; n_operands++) {
        if (!next_word(&p, word) || !claim_operand_read(word, &o))
            return err_set(ERR_FORMAT,
                           "%s: expected a number or a headline, found \"%.60s\"", where,
                           p > rule ? word : rule);
        if (!next_word(&p, word)) {
            if (*p == 0 && n_operands > 0)
                return OK;
            return err_set(ERR_FORMAT, "%s: expected a comparison, found \"%.60s\"",
                           where, rule);
        }
        if (strcmp(word, "and") == 0 && n_operands > 0)
            n_operands = -1; /* a chain begins */
        else if (name_index(relations, word) < 0)
            return err_set(ERR_FORMAT,
                           "%s: expected < <= > >= = near toward at or \"and\", "
                           "found \"%.60s\"",
                           where, word);
    }
}

struct claim_range claim_operand_scaled(const struct claim_operand *o,
                                        struct claim_range x)
{
    const double lo = o->offset + o->factor * x.lo, hi = o->offset + o->factor * x.hi;

    return (struct claim_range){o->offset + o->factor * x.at, fmin(lo, hi), fmax(lo, hi),
                                x.error_frac, x.between_frac};
}

/* The value's own interval, or the range that its A/A could not have distinguished from it where
 * that is wider. */
static struct claim_range range_of(const json_t *headline)
{
    const double least = json_f64_at(headline, RECORD_AT_LEAST),
                 most = json_f64_at(headline, RECORD_AT_MOST);
    const json_t *lo = json_object_get(headline, "lo"),
                 *hi = json_object_get(headline, "hi");
    double value = json_number_value(json_object_get(headline, "value"));
    double unseen = 1 + json_number_value(json_object_get(headline, "detectable_frac"));
    double a = json_is_number(lo) ? json_number_value(lo) : value;
    double b = json_is_number(hi) ? json_number_value(hi) : value;

    if (json_is_number(json_object_get(headline, "value"))) {
        a = fmin(a, value / unseen);
        b = fmax(b, value * unseen);
    } else {
        value = NAN;
        a = isnan(least) ? -INFINITY : least;
        b = isnan(most) ? INFINITY : most;
    }
    return (struct claim_range){
        value, fmin(a, b), fmax(a, b),
        json_number_value(json_object_get(headline, "error_frac")),
        json_number_value(json_object_get(headline, "between_frac"))};
}

enum claim_truth claim_operand_value(const struct claim_operand *o,
                                     const json_t *headline, struct claim_range *out,
                                     struct text *found)
{
    const json_t *h = json_object_get(headline, o->name);
    const char *why = json_string_value(json_object_get(h, "why"));
    char bound[RECORD_BOUND_BYTES];

    *out = (struct claim_range){o->factor, o->factor, o->factor, 0, 0};
    if (!o->name[0])
        return CLAIM_HOLDS;
    if (json_is_number(json_object_get(h, "value")) || record_bound(h, bound)) {
        *out = claim_operand_scaled(o, range_of(h));
        return CLAIM_HOLDS;
    }
    found->n = 0;
    text_puts(found, o->name);
    text_puts(found, !h ? " is not in the record" : ": ");
    if (h)
        text_puts(found, why ? why : "no reason is recorded");
    return h ? CLAIM_UNKNOWN : CLAIM_ABSENT;
}

/* A tolerance loosens no strict comparison, or "x > x" would hold. */
static bool compare(double a, int relation, double b, double slack)
{
    switch (relation) {
    case LESS:
        return a < b;
    case AT_MOST:
        return a <= b + slack;
    case GREATER:
        return a > b;
    case AT_LEAST:
        return a >= b - slack;
    default:
        return fabs(a - b) <= slack;
    }
}

/* What a number may be that is simulated with an error of this share of it. */
static void widen(struct claim_range *x, double frac)
{
    const double less = 1 / (1 + frac), more = frac < 1 ? 1 / (1 - frac) : INFINITY;

    if (frac > 0) { /* 0 stays 0 */
        x->lo *= x->lo > 0 ? less : x->lo < 0 ? more : 1;
        x->hi *= x->hi > 0 ? more : x->hi < 0 ? less : 1;
    }
}

/* Is the measured effect, a ratio, within a factor of the printed one? */
static enum claim_truth judge_near(struct claim_range effect, double printed)
{
    const double lo = printed / CLAIM_NEAR, hi = printed * CLAIM_NEAR;

    return effect.at >= lo && effect.at <= hi   ? CLAIM_HOLDS
           : effect.hi >= lo && effect.lo <= hi ? CLAIM_UNSURE
                                                : CLAIM_FAILS;
}

/* Has it the printed sign in all of its interval, and half of the printed size in logarithm? */
static enum claim_truth judge_toward(struct claim_range effect, double printed)
{
    const double half = sqrt(printed);
    const bool more = printed > 1;
    const bool sign = more ? effect.lo > 1 : effect.hi < 1;
    const double at = !isnan(effect.at) ? effect.at : more ? effect.lo : effect.hi;

    return sign && (more ? at >= half : at <= half)         ? CLAIM_HOLDS
           : (more ? effect.hi >= half : effect.lo <= half) ? CLAIM_UNSURE
                                                            : CLAIM_FAILS;
}

/* `b` is the printed effect times what it was measured against. */
static enum claim_truth judge_printed(struct claim_range a, int relation,
                                      struct claim_range b, double printed)
{
    struct claim_range effect;
    enum claim_truth near = CLAIM_HOLDS, toward = CLAIM_HOLDS;

    a.lo = isnan(a.at) ? fmax(a.lo, 0)
                       : a.lo; /* what has a bound only is a rate or a ratio */
    b.lo = isnan(b.at) ? fmax(b.lo, 0) : b.lo;
    if (!(printed > 0 && (b.lo > 0 || (isnan(b.at) && b.hi > 0)) &&
          (a.lo > 0 || (isnan(a.at) && a.hi > 0))))
        return CLAIM_FAILS;
    effect = (struct claim_range){a.at * printed / b.at, a.lo * printed / b.hi,
                                  a.hi * printed / b.lo, 0, 0};
    if (relation != TOWARD)
        near = judge_near(effect, printed);
    if (relation != NEAR)
        toward = judge_toward(effect, printed);
    return near == CLAIM_FAILS || toward == CLAIM_HOLDS ? near : toward;
}

enum claim_truth claim_compare(struct claim_range a, int relation, struct claim_range b,
                               double printed, double tolerance)
{
    const double slack = isnan(b.at) ? 0 : tolerance * fabs(b.at);
    const bool less = relation == LESS || relation == AT_MOST, equal = relation == EQUAL;
    const bool between = a.error_frac > 0 && b.error_frac > 0;
    bool some, all;

    widen(&a, between ? fmax(a.between_frac, b.between_frac) : a.error_frac);
    widen(&b, between ? 0 : b.error_frac);
    if (relation >= NEAR)
        return judge_printed(a, relation, b, printed);
    if (equal) {
        all = compare(a.at, relation, b.at, slack);
        some = all || (a.lo <= b.hi + slack && b.lo <= a.hi + slack);
    } else {
        all = compare(less ? a.hi : a.lo, relation, less ? b.lo : b.hi, slack);
        some = compare(less ? a.lo : a.hi, relation, less ? b.hi : b.lo, slack);
    }
    return all ? CLAIM_HOLDS : some ? CLAIM_UNSURE : CLAIM_FAILS;
}

static void put_operand(struct text *t, const struct claim_operand *o,
                        struct claim_range x)
{
    char bound[RECORD_BOUND_BYTES];

    if (!o->name[0]) {
        text_puts(t, TEXT_NUMBER(x.at, 6));
        return;
    }
    if (o->factor != 1)
        text_printf(t, "%s*", TEXT_NUMBER(o->factor, 6));
    if (o->offset != 0)
        text_printf(t, "%s+", TEXT_NUMBER(o->offset, 6));
    text_printf(t, "%s (", o->name);
    if (isnan(x.at) && record_bound_text(x.lo, x.hi, bound))
        text_puts(t, bound);
    else
        text_puts(t, TEXT_NUMBER(x.at, 6));
    if (!isnan(x.at) && x.lo < x.hi)
        text_printf(t, ", %s to %s", TEXT_NUMBER(x.lo, 4), TEXT_NUMBER(x.hi, 4));
    text_puts(t, ")");
}

bool claim_term_next(const char **p, struct claim_term *t)
{
    char word[CLAIM_WORD_MAX];

    t->relation = CLAIM_FIRST;
    while (next_word(p, word)) {
        if (strcmp(word, "and") == 0)
            t->relation = CLAIM_AND;
        else if (name_index(relations, word) >= 0)
            t->relation = name_index(relations, word);
        else
            return claim_operand_read(word, &t->operand);
    }
    return false;
}

enum claim_truth claim_rule_holds(const char *rule, const json_t *headline,
                                  double tolerance, struct text *found)
{
    enum claim_truth truth = CLAIM_HOLDS, known;
    struct claim_term t = {0};
    struct claim_range left = {NAN, NAN, NAN, 0, 0}, x;

    while (claim_term_next(&rule, &t)) {
        if (t.relation == CLAIM_AND)
            text_puts(found, ", ");
        else if (t.relation >= 0)
            text_printf(found, " %s ", relations[t.relation]);
        known = claim_operand_value(&t.operand, headline, &x, found);
        if (known != CLAIM_HOLDS)
            return known;
        put_operand(found, &t.operand, x);
        if (t.relation >= 0)
            known = claim_compare(left, t.relation, x, t.operand.factor, tolerance);
        if (known != CLAIM_HOLDS) {
            text_puts(found, known == CLAIM_FAILS ? " [fails]" : " [undecided]");
            truth = truth == CLAIM_FAILS ? truth : known;
        }
        left = x;
    }
    return truth;
}

void claim_rule_names(const char *rule, void (*fn)(void *ctx, const char *name),
                      void *ctx)
{
    struct claim_term t = {0};

    while (claim_term_next(&rule, &t))
        if (t.operand.name[0])
            fn(ctx, t.operand.name);
}
