/* experiments/conformance/run.h - the inside of a run, and its parts. Private.   Threads: one. */
#ifndef CONFORM_RUN_H
#define CONFORM_RUN_H

#include "base/rng.h"
#include "experiments/conformance/relation.h"

/* Requests of greedy answers, and of sampled ones: random numbers show noise more often. */
enum conform_mode { CONFORM_GREEDY, CONFORM_SAMPLED, CONFORM_N_MODES };
enum conform_kind { CONFORM_WRONG, CONFORM_SILENT, CONFORM_HANG };

#define CONFORM_CONTEXT 48 /* bytes of text shown before and after the first difference */

struct conform_finding {
    enum conform_kind kind;
    const char *relation; /* whose request it was */
    int64_t round;
    char what[256]; /* the rule that was broken, or when the answer differed */
    bool streamed;
    enum conform_mode mode;
    int64_t n; /* how often, where equal ones are counted together */
    /* CONFORM_WRONG: the first token that differs, from 0; -1: the server sends no ids. */
    int64_t at_tok, want_id, got_id;
    int64_t at_byte;
    char before[2 * CONFORM_CONTEXT], want_after[2 * CONFORM_CONTEXT],
        got_after[2 * CONFORM_CONTEXT];
};

/* Repeats of a request, or cases of a relation. */
struct conform_tally {
    int64_t n, n_differ;
};

struct conform_outcome { /* of a relation */
    struct conform_tally cases[CONFORM_N_MODES];
    const char *unavailable; /* NULL: it applies */
    int64_t n_failed;        /* requests that ended with an error */
    char error[160];         /* of the first of them */
    char note[160];
    /* p: the probability that noise alone gives as many differences; wrong: they are more than
     * noise. */
    double p[CONFORM_N_MODES];
    bool wrong[CONFORM_N_MODES];
};

#define CONFORM_FINDINGS_MAX 512

struct conform_run {
    const struct conform_opts *o;
    struct conform_client *server, *reference; /* reference: NULL: none */
    struct rng rng;
    uint64_t begun_ns, end_ns;
    double s_per_tok; /* of the slowest answer so far */
    int64_t round;
    bool has_ids, time_over;
    const struct conform_relation *now; /* NULL: the noise floor is measured */
    struct conform_outcome floor_outcome, *outcomes; /* [relations] */
    struct conform_outcome *out;                     /* of `now` */
    struct conform_tally floor[CONFORM_N_MODES];
    struct conform_finding *findings; /* [n_findings] */
    int n_findings;
    int64_t n_more; /* that had no place */
    int64_t n_asked;
    int n_hangs;
    struct memory *memory; /* of the round */
};

/* The mode of a request. */
enum conform_mode conform_mode_of(const struct conform_request *q);
/* The tally of both modes together. */
struct conform_tally conform_sum(const struct conform_tally t[CONFORM_N_MODES]);
/* compare.c */
/* Where the two part; false: they agree. */
bool conform_differ(struct conform_finding *f, const struct conform_comparison *c);
/* The probability of at least cases.n_differ differences if cases differ as often as repeats of
 * one request (Fisher's exact test, one-sided). */
double conform_p_value(const struct conform_tally *floor,
                       const struct conform_tally *cases);

/* report.c */
void conform_judge(struct conform_run *r, struct conform_result *result);
void conform_print(const struct conform_run *r, const struct conform_result *result,
                   FILE *out);
MUST int conform_write_json(const struct conform_run *r,
                            const struct conform_result *result, const char *path);

/* serve.c: `sandwich serve`, which ends with the caller's thread. *url: [64]. */
struct conform_serve;
MUST int conform_serve_start(struct conform_serve **out, char *url, const char *model,
                             const char *roles, const char *words, const char *more);
void conform_serve_stop(struct conform_serve **s);

#endif
