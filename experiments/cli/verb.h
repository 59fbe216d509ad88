/* experiments/cli/verb.h - what the verbs of `testbed` share. A verb is one file in verb/
 * (program/program.h).   Threads: one. */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include "program/program.h"

/* The run is invalid or failed. More are stated by the verbs that have them. */
#define VERB_INVALID 3

#define VERB_EXIT_STATUS                                                                 \
    "  0  success\n"                                                                     \
    "  2  wrong usage, or an error in the experiment's file\n"                           \
    "  3  the run is invalid or failed, or standard output could not be written\n"

#define VERB_SMOKE_ROW                                                                   \
    OPT_ROW(BOOL, smoke, "false", "Use the job's smoke section: small and quick.")

#endif
