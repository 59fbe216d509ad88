/* experiments/report/claim_rule.h - when a claim counts as reproduced: comparisons of the
 * headline numbers of a record.
 *
 * A rule is words with blanks between them: two or more operands with < <= > >= = near toward
 * at between them, and such chains joined by `and`. An operand is a number, a headline, or a
 * number times a headline or plus one. A blank in a headline's name ("request_s k=2") is
 * written ~. Example:
 *     tok_s_plan < tok_s_kernels <= 4.3*tok_s_plan and share = 0.93
 * With a number N that a paper prints, `x near N` and `x near N*y` hold within CLAIM_NEAR of it;
 * `toward` where the effect, x or x / y, has its sign in the whole interval and at least half of
 * its size in logarithm; `at` where both do.
 * Threads: any. */
#ifndef REPORT_CLAIM_RULE_H
#define REPORT_CLAIM_RULE_H

#include <stdbool.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"

enum claim_truth {
    CLAIM_HOLDS,
    CLAIM_FAILS,
    CLAIM_UNSURE,  /* within the intervals of its numbers it may hold or fail */
    CLAIM_UNKNOWN, /* a number is missing in the record, which says why */
    CLAIM_ABSENT,  /* the record has no headline of that name: it is of another job */
};

#define CLAIM_WORD_MAX 128
#define CLAIM_NEAR                                                                       \
    1.25 /* a fifth of the ratios of a decade are within it of a printed one */

struct claim_operand {
    double factor;             /* the number itself where there is no name */
    double offset;             /* is added */
    char name[CLAIM_WORD_MAX]; /* "": a plain number */
};

/* A value and its interval, which without one is the value alone. The errors of the simulator that
 * it comes from, 0: of none, are in no interval: claim_compare() adds them. Of what is only bounded
 * `at` is NaN, and one end infinite: an order holds or fails where the bound suffices, and so does
 * `toward`; `=`, `near` and `at` can fail. */
struct claim_range {
    double at, lo, hi;
    double error_frac;   /* of the value */
    double between_frac; /* of its ratio to another one of the same simulator */
};

/* Is the word an operand? */
bool claim_operand_read(const char *word, struct claim_operand *out);
/* Its value in `headline`, as of claim_rule_holds(). CLAIM_HOLDS: it has one; CLAIM_UNKNOWN,
 * CLAIM_ABSENT: `found` is the reason, in place of what it had. */
enum claim_truth claim_operand_value(const struct claim_operand *o,
                                     const json_t *headline, struct claim_range *out,
                                     struct text *found);

/* factor * x + offset */
struct claim_range claim_operand_scaled(const struct claim_operand *o,
                                        struct claim_range x);

#define CLAIM_FIRST (-1) /* begins the rule */
#define CLAIM_AND   (-2) /* begins another chain */

struct claim_term {
    int relation; /* between the operand before and this one; or one of the two above */
    struct claim_operand operand;
};

/* The next term of a sound rule, at *p, which moves behind it; false: there is none. */
bool claim_term_next(const char **p, struct claim_term *t);
/* Does it hold? `printed` is the factor of b, `tolerance` as of claim_rule_holds(). Order holds
 * or fails where it does so for all values within the intervals. Equality is that of the values;
 * it fails only where the intervals do not overlap. A value x that a simulator with an error of e
 * gave may be x / (1 + e) to x / (1 - e); where both are simulated, their ratio errs. */
enum claim_truth claim_compare(struct claim_range a, int relation, struct claim_range b,
                               double printed, double tolerance);

/* Is it a rule? ERR_FORMAT says which word is not as expected; `where` begins the line. */
MUST int claim_rule_check(const char *rule, const char *where);

/* Call fn for each headline that a sound rule names. */
void claim_rule_names(const char *rule, void (*fn)(void *ctx, const char *name),
                      void *ctx);

/* Does a sound rule hold?
 *   headline   {name: {"value": number or null, "why", "lo", "hi", "detectable_frac",
 *              "error_frac", "between_frac"}} of a record; lo and hi, where present, are the
 *              value's interval, which reaches at least as far as the A/A could not have shown a
 *              difference; the last two are those of struct claim_range
 *   tolerance  <= >= = may be missed by this share of their right sides
 *   found      gets every comparison with its numbers; what fails or is undecided is marked. For
 *              CLAIM_UNKNOWN and CLAIM_ABSENT it gets the reason. */
enum claim_truth claim_rule_holds(const char *rule, const json_t *headline,
                                  double tolerance, struct text *found);

#endif
