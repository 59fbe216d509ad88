#include <stdio.h>
#include <string.h>

#include "experiments/run/bench.h"
#include "experiments/cli/verb.h"

static int bench(const struct verb_words *w)
{
    return verb_end(strcmp(w->rest[0], "-") == 0
                        ? run_bench_client(stdin, stdout)
                        : run_bench(w->rest[0], w->opts, stdout));
}

const struct verb verb_bench = {
    .name = "bench",
    .help = "Measure what a running server can do for its users.",
    .usage =
        {"testbed bench URL [options]",
         "Find a server of the OpenAI protocol (this project's, llama-server, Ollama, "
         "vLLM) "
         "at the URL, measure one user, then the highest rate of requests that keeps the "
         "objectives, and report both in four sentences and a table, within two minutes.",
         "  testbed bench http://127.0.0.1:8080\n"
         "  testbed bench 127.0.0.1:11434 --slo-ttft-ms 2000 --slo-tpot-ms 150\n"
         "  testbed bench 127.0.0.1:8080 --stages 1@60s,1-4@60s,4@60s --json --out r\n"
         "  testbed bench 127.0.0.1:8080 --dataset chats.json --turns conversation "
         "--users 8 --limit 5m\n"
         "  testbed bench 10.0.0.1:8080 --users 512 --clients load1,load2\n"},
    .n_args = 1,
    .opts = {{run_bench_opt_table}},
    .opts_bytes = sizeof(struct run_bench_opts),
    .run = bench,
};
