/* The program `testbed`: runs experiments, describes them and exports their results. What it
 * can do is in verb/, one file each. */
#include "base/process.h"
#include "experiments/run/resume.h"
#include "experiments/cli/verb.h"

extern const struct verb *const verbs[]; /* written by make */

int main(int argc, char **argv)
{
    const struct program testbed = {
        .name = "testbed",
        .line = "testbed VERB [arguments] [options]",
        .about = "Run experiments on language model serving and keep what was measured.",
        .verbs = verbs,
        .examples = "  testbed run quickstart\n"
                    "  testbed describe quickstart\n",
        .exit_status = VERB_EXIT_STATUS,
        .failed = VERB_INVALID};

    process_exit_when_short(testbed.name, VERB_INVALID);
    run_resume_remember(argc, argv); /* while the words are in their order */
    return program_main(&testbed, argc, argv);
}
