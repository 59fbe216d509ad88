/* cli/cli.h - what the verbs of the program `sandwich` share. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#include "program/program.h"

#define CLI_INTERRUPTED 130 /* the exit status that a shell reports for SIGINT */

/* From cli_catch_interrupts() on: the number of the SIGINT, SIGTERM or SIGHUP that came, for
 * work to end in order; the same one again ends the program at once. */
extern volatile sig_atomic_t cli_interrupted;
void cli_catch_interrupts(void);

/* Print JSON on standard output. ERR_NOMEM only, also for j NULL: that it arrives is checked at
 * the end. */
MUST int cli_print_json(const json_t *j);
/* The exit statuses that the help of every verb lists. */
#define CLI_EXIT_STATUS                                                                  \
    "  0    success\n"                                                                   \
    "  1    the work could not be done; the error line says why\n"                       \
    "  2    wrong usage\n"                                                               \
    "  3    standard output could not be written\n"                                      \
    "  130  interrupted\n"

/* Show a bar on the terminal, nothing elsewhere. ctx: what is being done ("loading"). */
void cli_progress(void *ctx, int64_t done_bytes, int64_t all_bytes);

/* The machine card at `path`, or (NULL) the standard one, which may be absent: *card is then
 * NULL, and where it does not fit a warning says why. A new reference. */
MUST int cli_read_card(const char *path, json_t **card);

#endif
