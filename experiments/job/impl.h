/* experiments/job/impl.h - the tables behind a job, shared by the files of this
 * module. */
#ifndef JOB_IMPL_H
#define JOB_IMPL_H

#include "experiments/job/job.h"

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
/* A section of either kind; NULL: no such section. */
const struct job_section *job_section_find(const char *name);

/* The option table of a section; ERR_NOTFOUND when it names an unknown plug-in. */
MUST int job_section_opts(const struct job_section *s, const json_t *given,
                          const struct opt_row **out, const char *where);

/* `given` checked against the section's table, all defaults in; a new reference. */
MUST int job_section_resolve(const struct job_section *s, const json_t *given,
                             json_t **out, const char *where);

/* A list of named overlays in a job: {"name", sections with the settings that differ}. */
struct job_overlay_kind {
    const char *list; /* the job's key: "variants" */
    const char *axis; /* the name of its axis, and of the job's key that selects some */
    const char *help;
};
extern const struct job_overlay_kind job_cases, job_variants;

/* The list of `root`, checked, as an axis, whose values and overlays are the caller's, also after
 * an error. out->kind is NULL where there is no list. */
MUST int job_read_overlays(struct job_axis *out, struct job *j, const json_t *root,
                           const struct job_overlay_kind *k, const char *where);
/* After all axes are known: does an overlay set what another axis does? */
MUST int job_check_overlays(const struct job *j, const char *where);
/* Make the sections of a cell those of the overlay. */
MUST int job_lay_overlay(const struct job *j, json_t *sections, const json_t *overlay,
                         const char *where);
/* All overlays lose this option: --set has given it a value for every one of them. */
void job_drop_from_overlays(json_t *root, const char *section, size_t n_section,
                            const char *key);

/* RFC 7396: objects merge, null removes, everything else replaces. */
MUST int job_merge(json_t *into, const json_t *patch);

/* Axes and cells of `root`, whose sections have been checked to be objects. */
MUST int job_expand(struct job *j, const json_t *root, const char *where);
/* Put plain headlines in place of those over lists of metrics and over axes ("each"), and remove
 * "words", which their names are made with. After job_expand(). */
MUST int job_expand_each(const struct job *j, json_t *root, const char *where);
/* Headlines of `root`, which job_expand_each() has changed. One that matches several settings
 * becomes one for each, whose name ends in the values that tell them apart. */
MUST int job_read_headlines(struct job *j, json_t *root, const char *where);
/* "rate_rps" -> "load.rate_rps"; a full name stays. The first section that has the key wins unless
 * an axis has it. */
MUST int job_full_name(const struct job *j, const char *name, char *out, size_t n,
                       const char *where);
/* The values that the cells have of an axis or option, by its full name, each once and in their
 * order. The variant that runs a second time is not among them. A new reference, NULL on
 * ERR_NOMEM. */
json_t *job_values_in_cells(const struct job *j, const char *name);
/* As job_put_value(): a new text, NULL on ERR_NOMEM. */
char *job_value_text(const json_t *v, bool brief);

#endif
