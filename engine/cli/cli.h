/* cli/cli.h - the verbs of the program `sandwich`, and what they share.
 * Each verb gets the words behind its name and returns the exit status. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#include "base/opt.h"

#define EXIT_USAGE       2
#define EXIT_LOST        3
#define EXIT_INTERRUPTED 130 /* what a shell reports for SIGINT */

/* From cli_catch_interrupts() on: the number of the SIGINT, SIGTERM or SIGHUP that came, for
 * work to end in order; the same one again ends the program at once. */
extern volatile sig_atomic_t cli_interrupted;
void cli_catch_interrupts(void);

int cli_run(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_model(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_tune(int argc, char **argv);
int cli_profile(int argc, char **argv);
int cli_transfer(int argc, char **argv);
int cli_graph(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_kernel(int argc, char **argv);
int cli_predictor(int argc, char **argv);

/* Print the error as one line; returns the exit status for `rc` (0 for OK). */
int cli_fail(const char *verb, int rc);
/* `first` and then `own`, which ends without a row of NULL, as one table in rows[max]. */
const struct opt_row *cli_join(struct opt_row *rows, int max, const struct opt_row *first,
                               const struct opt_row *own, int n_own);
/* Print JSON on standard output. ERR_NOMEM only: that it arrives is checked at the end. */
MUST int cli_print_json(const json_t *j);
/* The schemes of quantisation in the order of kern_quant_schemes, as an option lists them. */
#define CLI_QUANT_SCHEMES "q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|w4b64|w4b128|w4c|w8c"
/* The exit statuses that the help of every verb lists. */
#define CLI_EXIT_STATUS                                                                  \
    "  0    success\n"                                                                   \
    "  1    the work could not be done; the error line says why\n"                       \
    "  2    wrong usage\n"                                                               \
    "  3    standard output could not be written\n"                                      \
    "  130  interrupted\n"
/* Read flags into s. Exactly n_words words must be left; they are moved to argv[0..).
 * Returns -1 to go on, otherwise the exit status: --help was given and `u` printed, or an
 * error was reported. The table has the switch "help", whose value is `*help`. */
int cli_flags(const struct opt_usage *u, const struct opt_row *table, void *s,
              const bool *help, int argc, char **argv, int n_words);

/* A bar on the terminal, nothing elsewhere. ctx: what is being done ("loading"). */
void cli_progress(void *ctx, int64_t done_bytes, int64_t all_bytes);

/* ---- report.c: what one `sandwich run` measured ---- */

struct cli_timing {
    int64_t n_prompt, n_new;
    double ttft_s, decode_s; /* decode_s: first to last token */
    double start_s;          /* from the start of the program to the first token */
    double decode_bytes;     /* that the decoded tokens had to read */
    double prefill_flop;
};
/* The machine card at `path`, or (NULL) the standard one, which may be absent: *card is then
 * NULL, and where it does not fit a warning says why. A new reference. */
MUST int cli_read_card(const char *path, json_t **card);
/* The numbers as JSON, with shares of the machine's bounds. card NULL: they are unknown. */
json_t *cli_report_json(const struct cli_timing *t, const json_t *describe,
                        const json_t *card);
/* The same for people, on standard error. */
void cli_report_print(const json_t *report, const json_t *describe);

/* ---- tune_run.c: the progress of `sandwich tune`, and its closing table ---- */

struct cli_tuning {
    char matrix[80]; /* the one in hand */
    int64_t m;       /* the rows just done */
    double done_work,
        all_work; /* in FLOP, with the fixed cost of a product of few rows */
    int64_t n_measurements;
    double measured_s, budget_s;     /* budget_s: 0: none */
    uint64_t t_start_ns, t_shown_ns; /* t_shown_ns: of the progress that was shown last */
};

struct cli_tuned {
    char matrix[80];
    int64_t n_shapes, n_found, n_known; /* asked for; found now; found before */
    int64_t n_measurements;
    double seconds;
    int64_t n_compared, n_taken_back;
    double log_speedup; /* sum over the compared of log(default / tuned) */
};
/* The closing table: a row a matrix, and all together. */
void cli_tune_report(const struct cli_tuned *rows, int n);

#endif
