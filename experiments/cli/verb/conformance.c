#include <stdio.h>

#include "experiments/cli/verb.h"
#include "experiments/conformance/conform.h"

enum { FOUND = 1, INCOMPLETE = 4 };

static int conformance(const struct verb_words *w)
{
    struct conform_result r;
    int rc = conform_run(&r, w->n_rest ? w->rest[0] : NULL, w->opts, stdout);

    if (rc != OK)
        return verb_end(rc);
    if (r.n_wrong || r.n_silent || r.n_hangs)
        return FOUND;
    return r.n_unchecked || r.n_failed ? INCOMPLETE : PROGRAM_OK;
}

const struct verb verb_conformance = {
    .name = "conformance",
    .help = "Check a running server for wrong answers, silent outcomes and hangs.",
    .usage =
        {"testbed conformance [URL] [options]",
         "Send requests whose answers must be related to a server of the OpenAI protocol "
         "(this project's, llama-server, vLLM): again, with a prompt that it has "
         "computed before, in pieces, together with others, streamed, continued. How "
         "often a request that is only sent again gets another answer is reported first. "
         "With --roles, prompt and token machines are started and compared with one "
         "process.",
         "  testbed conformance http://127.0.0.1:8080\n"
         "  testbed conformance --roles prompt=1,token=1 --model M.gguf --json "
         "report.json\n",
         "  0  every relation was checked, and nothing was found\n"
         "  1  wrong answers, silent outcomes or hangs were found\n"
         "  2  wrong usage\n"
         "  3  no server answers, or the report could not be written\n"
         "  4  nothing was found, but a relation could not be checked, or requests "
         "failed\n"},
    .n_optional = 1,
    .opts = {{conform_opt_table}},
    .opts_bytes = sizeof(struct conform_opts),
    .run = conformance,
};
