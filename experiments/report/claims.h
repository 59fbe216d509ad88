/* experiments/report/claims.h - what the papers claim, and whether the newest records
 * confirm it.
 *
 * results/claims.json lists the claims; results/README.md describes its keys. A verdict is
 * computed from the headline numbers of a record alone, so that it can be repeated from the
 * record. Threads: any; one list, one owner. */
#ifndef REPORT_CLAIMS_H
#define REPORT_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"
#include "base/text.h"

enum claim_verdict {
    CLAIM_REPRODUCED,
    CLAIM_IN_SHAPE, /* the order or direction, not the size; or on a simulated machine */
    CLAIM_CONSISTENT,  /* its rule holds, but chance passes it too often (claim_null.h) */
    CLAIM_UNDECIDED,   /* the intervals of its numbers allow both */
    CLAIM_NO_INTERVAL, /* a measured number has none, so that nothing is decided */
    CLAIM_NOT_REPRODUCED,
    CLAIM_NOT_TESTABLE, /* here */
    CLAIM_NO_RECORD,    /* yet, or one of an older job */
};
const char *claim_verdict_name(enum claim_verdict v);

struct claim { /* all texts are lent by the list; NULL: absent */
    const char *name, *paper, *section, *figure;
    const char *text;               /* what the paper says */
    const char *here;               /* what is different here */
    const char *why;                /* it is not testable here */
    const char *experiment;         /* NULL: there is none */
    const char *reproduced, *shape; /* rules (claim_rule.h), the second one is weaker */
    const json_t *compared; /* groups of the headlines that they name (claim_null.h) */
    const char
        *accuracy; /* rule: ours errs no more than what it is compared with. Without it, a
                             speed-up is at most CLAIM_IN_SHAPE. NULL: accuracy is no question */
    double tolerance;
    enum claim_verdict should; /* the least that must come out; CLAIM_NO_RECORD: any */
    const json_t
        *simulator; /* that its simulated numbers come from; NULL: they have no error */
    double error_frac, between_frac; /* of it, as of struct claim_range; NaN: not known */
};

struct claims {
    json_t *root;
    struct claim *v;
    size_t n;
};

/* Read a list. ERR_FORMAT: one line says which claim and key are not as expected. *out:
 * claims_fini(), also after an error. */
MUST int claims_read(struct claims *out, const char *path);
void claims_fini(struct claims *c);

/* The newest record of an experiment, below results/ of the working directory, as
 * export_head() reads it. A new reference. ERR_NOTFOUND: there is none. Others: it is
 * damaged. */
MUST int claim_record(json_t **out, const char *experiment);

/* Find out, from records, how far each paper's simulator errs. Without this call that is not known.
 *   record  lends one, as of claim_record(), for the call; NULL: there is none */
typedef const json_t *claim_record_fn(void *ctx, const char *experiment);
void claims_find_errors(struct claims *c, claim_record_fn *record, void *ctx);

/* The headlines of a record for rules, in which each simulated one has the simulator's errors. A
 * new reference. */
json_t *claim_headline(const struct claim *c, const json_t *record);

/* The verdict on a claim.
 *   record  as of claim_record(); NULL: none
 *   found   gets the comparisons with their numbers, or why there is no verdict */
enum claim_verdict claim_judge(const struct claim *c, const json_t *record,
                               struct text *found);
/* The evidence in this record of the numbers that its rules name: kinds, each once, joined
 * by ", "; of numbers that name none, and of a claim without rules, the record's. */
void claim_evidence(const struct claim *c, const json_t *record, char out[96]);
/* Is one of them measured, and did something else use the machine meanwhile? */
bool claim_is_noisy(const struct claim *c, const json_t *record);
/* Should it have held, and did it not? What is consistent or undecided is no failure. */
bool claim_is_failure(const struct claim *c, enum claim_verdict v);

#endif
