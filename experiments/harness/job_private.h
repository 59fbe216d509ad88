/* experiments/harness/job_private.h - the tables behind a job, shared by the job_*.c
 * files. */
#ifndef HARNESS_JOB_PRIVATE_H
#define HARNESS_JOB_PRIVATE_H

#include "experiments/harness/job.h"

extern const struct opt_row job_head_opt_table[];
extern const struct opt_row job_claim_opt_table[];
extern const struct opt_row job_cost_opt_table[];
extern const struct opt_row job_slo_opt_table[];
extern const struct opt_row job_headline_opt_table[];

/* A section of settings, in which a list makes an axis. */
struct job_section {
    const char *name;
    const struct opt_row *opts; /* NULL: by the adapter the section names */
    const char *help;
};
extern const struct job_section job_sections[]; /* ends with a NULL name */

/* The option table of a section; ERR_NOTFOUND when it names an unknown adapter. */
MUST int job_section_opts(const struct job_section *s, const json_t *given,
                          const struct opt_row **out, const char *where);

/* `given` checked against the section's table, all defaults in; a new reference. */
MUST int job_section_resolve(const struct job_section *s, const json_t *given,
                             json_t **out, const char *where);

/* Axes and cells of `root`, whose sections have been checked to be objects. */
MUST int job_expand(struct job *j, const json_t *root, const char *where);
/* Headlines of `root`; after job_expand(). */
MUST int job_read_headlines(struct job *j, const json_t *root, const char *where);

#endif
