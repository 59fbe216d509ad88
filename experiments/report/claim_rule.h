/* experiments/report/claim_rule.h - when a claim counts as reproduced: comparisons of the
 * headline numbers of a record.
 *
 * A rule is words with blanks between them: two or more operands with < <= > >= = between
 * them, and such chains joined by `and`. An operand is a number, a headline, or a number
 * times a headline. A blank in a headline's name ("request_s k=2") is written ~. Example:
 *     tok_s_plan < tok_s_kernels <= 4.3*tok_s_plan and share = 0.93
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

struct claim_operand {
    double factor;             /* the number itself where there is no name */
    char name[CLAIM_WORD_MAX]; /* "": a plain number */
};

/* A value and its interval, which without one is the value alone. */
struct claim_range {
    double at, lo, hi;
};

/* Is the word an operand? */
bool claim_operand_read(const char *word, struct claim_operand *out);
/* Its value in `headline`, as of claim_rule_holds(). CLAIM_HOLDS: it has one; CLAIM_UNKNOWN,
 * CLAIM_ABSENT: `found` is the reason, in place of what it had. */
enum claim_truth claim_operand_value(const struct claim_operand *o,
                                     const json_t *headline, struct claim_range *out,
                                     struct text *found);

/* Is it a rule? ERR_FORMAT says which word is not as expected; `where` begins the line. */
MUST int claim_rule_check(const char *rule, const char *where);

/* Call fn for each headline that a sound rule names. */
void claim_rule_names(const char *rule, void (*fn)(void *ctx, const char *name),
                      void *ctx);

/* Does a sound rule hold?
 *   headline   {name: {"value": number or null, "why", "lo", "hi", "detectable_frac"}} of a
 *              record; lo and hi, where present, are the value's interval, which reaches at least
 *              as far as the A/A could not have shown a difference
 *   tolerance  a comparison may be missed by this share of its right side
 *   found      gets every comparison with its numbers; what fails or is undecided is marked. For
 *              CLAIM_UNKNOWN and CLAIM_ABSENT it gets the reason. */
enum claim_truth claim_rule_holds(const char *rule, const json_t *headline,
                                  double tolerance, struct text *found);

#endif
