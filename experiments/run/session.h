/* experiments/run/session.h - the state of run_experiment(), shared by its files.
 */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H

#include "experiments/record/journal.h"
#include "experiments/load/search.h"
#include "experiments/run/progress.h"
#include "experiments/record/record.h"
#include "experiments/run/run.h"
#include "experiments/run/experiment.h"

#define RUN_KNOWN_BYTES 240

struct run_session {
    const struct job *job;
    const struct run_options *o;
    struct run_outcome *outcome;
    struct journal *journal;
    struct progress *progress;
    uint64_t begin_ns, attempt_ns; /* of the run, of the attempt that runs */
    json_t *card; /* NULL: no system of this job states a bound, or no cell is left */
    char card_why[96]; /* then why */
    bool warned_bound;
    char stopped
        [RUN_KNOWN_BYTES];     /* why a job with repeats "auto" ended; "": it did not */
    int n_invalid;             /* cells recorded since the last run_retry() */
    bool was_disturbed;        /* one of them was, by others (measure/noise.h) */
    int n_recorded, n_retried; /* cells and trials; attempts that run_retry() asked for */
    int n_retries_in_turn;     /* of those, at the cell or trial that runs */
    double weight; /* of the cell that runs: its share of the run's time, in any unit */
    /* Kept from cell to cell while their settings stay the same. */
    struct run_system *system;
    struct dataset *dataset;
    json_t *dataset_config;
    struct dataset_opts dataset_opts;
    json_t *prediction; /* by which the run is scored; NULL: none */
    void *study_kept;   /* NULL: the study keeps nothing, or has had no cell */
};

/* What every record says of its run, its job and the machine; a new reference. `job` has a
 * member "claim". */
MUST int run_header_new(json_t **out, const char *stem, const char *about,
                        const char *evidence, bool smoke, json_t *job);

/* Take up the prediction of the options, or that with which the run began: ERR_STATE, before any
 * cell, where it is not of this run or comes too late (record/prediction.h). */
MUST int run_prediction_begin(struct run_session *s);
/* Score it by the headlines, print the score, and append it to the journal. */
struct run_summary;
MUST int run_prediction_end(struct run_session *s, const struct run_summary *summary);

/* Measure one cell and append it to the journal. An error of the system or the dataset is
 * the cell's and recorded; what is returned is the run's. */
MUST int run_measure(struct run_session *s, const struct job_cell *c);
/* The same for n neighbouring cells, whose systems are all open and have each request in turn. */
MUST int run_measure_paired(struct run_session *s, const struct job_cell *c, int n);
void run_measure_fini(struct run_session *s);
/* The same for a cell of a study. */
MUST int run_study(struct run_session *s, const struct job_cell *c);

/* The same for one that searches; the trials of it that the journal holds are not measured
 * again. */
MUST int run_search(struct run_session *s, const struct job_cell *c);
/* The same for n neighbouring cells whose systems are all open and search on one ladder. */
MUST int run_ladder(struct run_session *s, const struct job_cell *c, int n);
/* Open the cell's system and data set, unless the session has them. The error is the cell's. */
MUST int run_measure_open(struct run_session *s, const struct job_cell *c);
/* A system waited idle_s for its turns and took idle_cpu_s of CPU time meanwhile (NaN: not known):
 * a warning where that is too much, and the attribute "pairing" of its cell. New reference. */
json_t *run_idle_json(const struct job_cell *c, const char *by, double idle_s,
                      double idle_cpu_s);
/* Measure one trial of a search and append it to the journal with `trial` among its
 * attributes.
 *   t        within_frac and n_requests of it
 *   cell_rc  an error of the system or the dataset, with its text in err_msg(); then nothing
 *            is appended */
MUST int run_measure_trial(struct run_session *s, const struct job_cell *c,
                           const json_t *trial, struct load_trial *t, int *cell_rc);

/* Append the cell to the journal: state, rows, values and series are r's;
 * r->attributes, what was measured, joins the cell's settings (unless it is not done: then
 * `error`). */
MUST int run_record(struct run_session *s, const struct job_cell *c,
                    struct record_cell *r, const char *error);

/* Shall the cell or trial recorded last be measured again, because something else used the machine
 * meanwhile? Asked after each attempt. What decides is the noise, never the value. Not more often
 * than the options say, and no more than 3 and a tenth of all attempts, since a machine that is
 * never quiet stays so. The system is then closed: what it kept of the last attempt would help. */
bool run_retry(struct run_session *s);

/* The requests of a cell, with the times of their tokens. All zero: none are kept. */
struct run_rows {
    struct metrics_row *rows; /* [n] */
    int64_t *token_ns;
    size_t n;
    struct metrics_slo slo;
};

/* The numbers of all cells in the journal, for the table and the headlines. */
struct run_summary {
    const struct job *job;
    /* Columns of the table, then of the headlines, then in a study with an A/A of theirs. */
    int n_shown, n_columns;       /* those of the table, all */
    struct metrics_value *values; /* [n_cells, n_columns] NaN where there is none */
    bool *done;                   /* [n_cells] */
    char **skipped;               /* [n_cells] why a cell was skipped; NULL: it was not */
    char **configuration;  /* [n_cells] of its system, in words; NULL: not stated */
    struct run_rows *rows; /* [n_cells] where a headline is a ratio */
    uint32_t *warned;      /* [n_cells] one bit for each of the codes */
    char codes[32][48];    /* of the warnings of all cells */
    int n_codes;
    struct record_headline *headlines; /* [job->n_headlines] */
    char (*headline_whys)[96];
    char (*headline_evidence)[96]; /* kinds joined by ", " */
};
MUST int run_summarise(struct run_summary *out, const struct job *j, const char *journal);
static inline const struct metrics_value *run_summary_value(const struct run_summary *s,
                                                            int cell, int column)
{
    return &s->values[cell * s->n_columns + column];
}
void run_summary_fini(struct run_summary *s);
void run_summary_print(const struct run_summary *s, FILE *f);
/* Set s->headlines[k] from the values of all cells. ERR_NOMEM. */
MUST int run_headline(struct run_summary *s, int k);
/* Is each headline known after `repeats` of a job with repeats "auto"? A headline without a value
 * is not waited for.
 *   known  its interval reaches at most repeats_precision_frac to each side
 *   why    in words, for the record */
MUST int run_known(bool *known, char why[RUN_KNOWN_BYTES], const struct run_session *s,
                   int64_t repeats);
/* The job as if it had these repeats only: its cells are j's. */
struct job run_job_of(const struct job *j, int64_t repeats);

#endif
