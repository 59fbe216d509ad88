#include "experiments/report/claim_rule.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"

static const char *const relations[] = {"<", "<=", ">", ">=", "=", NULL};

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
    const char *name = number && *end == '*' ? end + 1 : number ? end : word;

    *out = (struct claim_operand){.factor = number ? x : 1};
    snprintf(out->name, sizeof(out->name), "%s", name);
    for (char *c = out->name; *c; c++)
        *c = *c == '~' ? ' ' : *c;
    if (number && name == end)
        return *end == 0;
    return *name && !strpbrk(name, "<>*") && strcmp(name, "and") != 0;
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
                           "%s: expected < <= > >= = or \"and\", found "
                           "\"%.60s\"",
                           where, word);
    }
}

void claim_rule_names(const char *rule, void (*fn)(void *ctx, const char *name),
                      void *ctx)
{
    char word[CLAIM_WORD_MAX];
    struct claim_operand o;

    for (const char *p = rule; next_word(&p, word);)
        if (name_index(relations, word) < 0 && claim_operand_read(word, &o) && o.name[0])
            fn(ctx, o.name);
}

/* The value's own interval, or the range that its A/A could not have distinguished from it where
 * that is wider. */
static struct claim_range scaled(double factor, const json_t *headline)
{
    const json_t *lo = json_object_get(headline, "lo"),
                 *hi = json_object_get(headline, "hi");
    double value = json_number_value(json_object_get(headline, "value"));
    double unseen = 1 + json_number_value(json_object_get(headline, "detectable_frac"));
    double a = json_is_number(lo) ? json_number_value(lo) : value;
    double b = json_is_number(hi) ? json_number_value(hi) : value;

    a = factor * fmin(a, value / unseen);
    b = factor * fmax(b, value * unseen);
    return (struct claim_range){factor * value, fmin(a, b), fmax(a, b)};
}

enum claim_truth claim_operand_value(const struct claim_operand *o,
                                     const json_t *headline, struct claim_range *out,
                                     struct text *found)
{
    const json_t *h = json_object_get(headline, o->name);
    const char *why = json_string_value(json_object_get(h, "why"));

    *out = (struct claim_range){o->factor, o->factor, o->factor};
    if (!o->name[0])
        return CLAIM_HOLDS;
    if (json_is_number(json_object_get(h, "value"))) {
        *out = scaled(o->factor, h);
        return CLAIM_HOLDS;
    }
    found->n = 0;
    text_puts(found, o->name);
    text_puts(found, !h ? " is not in the record" : ": ");
    if (h)
        text_puts(found, why ? why : "no reason is recorded");
    return h ? CLAIM_UNKNOWN : CLAIM_ABSENT;
}

static bool compare(double a, int relation, double b, double slack)
{
    switch (relation) {
    case 0:
        return a < b + slack;
    case 1:
        return a <= b + slack;
    case 2:
        return a > b - slack;
    case 3:
        return a >= b - slack;
    default:
        return fabs(a - b) <= slack;
    }
}

/* Order holds or fails where it does so for all values within the intervals. Equality is
 * that of the values; it fails only where the intervals do not overlap. */
static enum claim_truth judge(struct claim_range a, int relation, struct claim_range b,
                              double tolerance)
{
    const double slack = tolerance * fabs(b.at);
    const bool less = relation < 2, equal = relation == 4;
    bool some, all;

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
    if (!o->name[0]) {
        text_printf(t, "%g", x.at);
        return;
    }
    if (o->factor != 1)
        text_printf(t, "%g*", o->factor);
    text_printf(t, "%s (%.6g", o->name, x.at);
    if (x.lo < x.hi)
        text_printf(t, ", %.4g to %.4g", x.lo, x.hi);
    text_puts(t, ")");
}

enum claim_truth claim_rule_holds(const char *rule, const json_t *headline,
                                  double tolerance, struct text *found)
{
    enum claim_truth truth = CLAIM_HOLDS, known;
    char word[CLAIM_WORD_MAX];
    struct claim_operand o;
    int relation = -1; /* between `left` and the operand that comes */
    struct claim_range left = {NAN, NAN, NAN}, x;

    for (const char *p = rule; next_word(&p, word);) {
        if (strcmp(word, "and") == 0) {
            text_puts(found, ", ");
            relation = -1;
        } else if (name_index(relations, word) >= 0) {
            relation = name_index(relations, word);
            text_printf(found, " %s ", word);
        } else if (claim_operand_read(word, &o)) {
            known = claim_operand_value(&o, headline, &x, found);
            if (known != CLAIM_HOLDS)
                return known;
            put_operand(found, &o, x);
            known = relation < 0 ? CLAIM_HOLDS : judge(left, relation, x, tolerance);
            if (known != CLAIM_HOLDS) {
                text_puts(found, known == CLAIM_FAILS ? " [fails]" : " [undecided]");
                truth = truth == CLAIM_FAILS ? truth : known;
            }
            left = x;
        }
    }
    return truth;
}
