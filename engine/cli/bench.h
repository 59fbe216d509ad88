/* cli/bench.h - options, measurements and output of `sandwich bench`. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <jansson.h>

#include "cpu/energy.h"
#include "format/format.h"
#include "measure/compare.h"
#include "ranks/bench_steps.h"

#define CLI_BENCH_LIST_MAX     32
#define CLI_BENCH_TESTS_MAX    256
#define CLI_BENCH_ROUNDS_MAX   1000
#define CLI_BENCH_VARIANTS_MAX 16 /* of an operator */

enum cli_bench_output { CLI_BENCH_MD, CLI_BENCH_JSON, CLI_BENCH_CSV };

struct cli_bench_flags {
    char *model, *n_prompt, *n_gen, *threads, *batch, *ranks, *team, *only, *isa;
    int64_t repetitions, n_gpu_layers;
    int output, precision, kv_type;
    bool deterministic, ops;
};
struct cli_bench_list {
    int64_t v[CLI_BENCH_LIST_MAX];
    int n;
};

/* Numbers of threads and ranks, and (of the model in hand) how steps are computed by them. */
struct cli_bench_phase {
    int n_threads, n_ranks; /* n_threads: of all ranks together */
    struct model_phase *phase;
};

struct cli_bench_test {
    int phase; /* index into struct cli_bench's */
    int64_t n_tok;
    int n_seqs; /* 0: a prompt */
};

struct cli_bench {
    const struct cli_bench_flags *f;
    struct cpu_budget budget;
    const struct par_team_kind *team_kind;
    struct cli_bench_list prompt, gen, threads, batch, ranks;
    struct cli_bench_test tests[CLI_BENCH_TESTS_MAX];
    int n_tests, n_trials; /* n_trials: of this model so far */
    struct cpu_energy energy;
    char no_energy[160]; /* why it is unknown; "": it is counted */
    double joules_read, joules[CLI_BENCH_TESTS_MAX]; /* of all trials of a test */
    int name_width;
    json_t *card; /* NULL: unknown bounds */
    json_t *rows;
    struct measure *measure;
    /* The current model. */
    const char *path;
    struct model_bench engine; /* its steps are those of prompts */
    struct model_bench_steps gen_steps;
    struct cli_bench_phase phases[CLI_BENCH_LIST_MAX];
    int n_phases;
};

/* "llama-160m bf16". */
void cli_bench_type(const struct format_file *f, char *out, size_t n);
/* "pp512", "tg128", "tg128 b8"; "pp512 r2" by two ranks. */
void cli_bench_test_name(const struct cli_bench *b, const struct cli_bench_test *t,
                         char *out, size_t n);

/* A row of b->rows with what all rows have: the build, this CPU and the time. Lent; NULL:
 * no memory. */
json_t *cli_bench_new_row(struct cli_bench *b);
/* The bound of a rate (name NULL: there is none), in the card's unit, and the share of it that
 * `rate` reaches. */
void cli_bench_set_bound(json_t *row, const char *name, double bound, double rate);
/* Append the measured test i of the model in hand, which is in `f`, to b->rows. */
MUST int cli_bench_add_row(struct cli_bench *b, const struct format_file *f, int i);
/* Measure the kernels instead of a model; b->threads and b->measure are ready. */
MUST int cli_bench_ops(struct cli_bench *b);
/* The head of the Markdown table. */
void cli_bench_print_head(const struct cli_bench *b);
/* Rows from `first` on, as Markdown or CSV. */
void cli_bench_print(const struct cli_bench *b, size_t first);

#endif
