/* experiments/report/claim_null.h - how often chance alone would pass a claim's rule.
 *
 * A rule that noise, or an effect of any size, passes as often as not shows nothing. For each claim
 * results/claims.json names what its rules compare ("compared"), in groups:
 *   names           headlines, with blanks between them (~ is a blank in a name)
 *   about           the number that the paper prints; absent: 1, the ratio or level without effect
 *   from, to, none  in place of `about`, a natural range, and the value without an effect, if any
 *   values          in place of `about`, the grid of the sweep that the number comes from
 *   cells, extreme  each is the "min" or "max" of that many numbers
 *   together        all of them have one effect
 *   fixed           they have none: what the others are measured against
 *   planted         the claim is that there is no effect: the ratio that is planted
 * A string is a group of names without the rest.
 *
 * Draws are counted with a fixed seed. In half of them what is compared is equal, but for noise; in
 * the other half the effect is drawn evenly: in logarithm over a decade about 1 or the paper's
 * number, or over the range or grid. Noise is that of the record's intervals; what has none gets
 * NULL_NOISE of its value, or of its range.   Threads: any. */
#ifndef REPORT_CLAIM_NULL_H
#define REPORT_CLAIM_NULL_H

#include <stdbool.h>
#include <jansson.h>

#include "base/err.h"

#define CLAIM_NULL_MAX                                                                   \
    0.2 /* what passes by chance more often is no more than consistent */

struct claim_null {      /* shares of draws */
    double equal, sized; /* that pass without an effect, and with one drawn evenly */
    double exchanged; /* that pass with the record's numbers exchanged, or all inverted */
    bool is_opposite; /* the rule fails, and holds with all numbers inverted */
    bool never_fails; /* no draw fails it */
};

/* The larger of `equal` and `sized`. */
double claim_null_rate(const struct claim_null *n);

/* Are these groups, and is each headline of the rule in one of them? ERR_FORMAT says what is not
 * as expected; `where` begins the line. */
MUST int claim_null_check(const json_t *compared, const char *rule, const char *where);

/* Draw. Sound groups, and a sound rule of which all headlines are in them.
 *   headline  as of claim_rule_holds(); of a headline that it does not have, the noise is
 *             NULL_NOISE, and then `exchanged` is NAN and nothing is opposite */
void claim_null_draw(struct claim_null *out, const json_t *compared, const char *rule,
                     double tolerance, const json_t *headline);

#endif
