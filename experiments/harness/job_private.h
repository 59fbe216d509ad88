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
    const struct opt_row *opts; /* NULL: of the plug-in that the section names */
    const char *help;
    const char *choice;          /* the key that names it: "adapter" */
    const char *(*names)(int i); /* of the plug-ins, as in an option's row */
    int (*find)(const char *plugin, const struct opt_row **out);
};
/* Both end with a NULL name. */
extern const struct job_section job_serve_sections[], job_study_sections[];
/* Of either kind; NULL: no such section. */
const struct job_section *job_section_find(const char *name);

/* The option table of a section; ERR_NOTFOUND when it names an unknown plug-in. */
MUST int job_section_opts(const struct job_section *s, const json_t *given,
                          const struct opt_row **out, const char *where);

/* `given` checked against the section's table, all defaults in; a new reference. */
MUST int job_section_resolve(const struct job_section *s, const json_t *given,
                             json_t **out, const char *where);

/* Axes and cells of `root`, whose sections have been checked to be objects. */
MUST int job_expand(struct job *j, const json_t *root, const char *where);
/* Write an axis value as text; of a path (which has no blanks), when `brief`, only the last
 * part. */
void job_put_value(const json_t *v, bool brief, FILE *f);
/* Headlines of `root`; after job_expand(). One that matches several settings becomes one
 * for each, whose name ends in the values that tell them apart. */
MUST int job_read_headlines(struct job *j, const json_t *root, const char *where);

#endif
