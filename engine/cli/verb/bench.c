/* sandwich bench: tokens per second of prefill and decode, in the columns and with the flags
 * that users of llama-bench know. All tests of a model are measured in turn. */
#include "cli/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/offload.h"
#include "par/coll.h"

#define STEP_TOK   512 /* the engine's own --max-step-tok */
#define LENGTH_MAX (1 << 20)
#define SEED       1 /* of the token ids, which no time depends on */

#define OPT_OF struct cli_bench_flags
static const struct opt_row table[] = {
    OPT_ROW(STR, model, NULL,
            "Model to measure. Several are separated by commas, or -m is given again, as "
            "with each of the following lists.",
            .unit = "FILE", .letter = 'm', .joins = ','),
    OPT_ROW(STR, n_prompt, "512",
            "Lengths of prompts whose prefill is measured (pp). 0: none.", .unit = "LIST",
            .letter = 'p', .joins = ','),
    OPT_ROW(STR, n_gen, "128",
            "Numbers of tokens whose decode is measured, from an empty context on (tg). "
            "0: none.",
            .unit = "LIST", .letter = 'n', .joins = ','),
    OPT_ROW(STR, threads, "0", "Numbers of threads. 0: one per available CPU core.",
            .unit = "LIST", .letter = 't', .joins = ','),
    OPT_ROW(STR, batch, "1",
            "Numbers of sequences that are decoded together. Their tokens all count.",
            .unit = "LIST", .letter = 'b', .joins = ','),
    OPT_ROW(STR, ranks, "1",
            "Numbers of tensor-parallel ranks that share the threads; each number must "
            "divide each number of threads.",
            .unit = "LIST", .joins = ','),
    OPT_ROW(STR, team, "pthread", "Threads, as in `sandwich run`.", .unit = "NAME",
            .names = par_team_kind_name),
    OPT_ROW(INT, repetitions, "5", "Number of times each test is measured.", .min = 1,
            .max = CLI_BENCH_ROUNDS_MAX, .letter = 'r'),
    /* in the order of enum cli_bench_output */
    OPT_ROW(ENUM, output, "md",
            "Format of the result: a Markdown table, or JSON or CSV with all that was "
            "measured and, where a machine card exists, the share of its bounds, and "
            "joules per token of all packages where the machine counts them.",
            .values = "md|json|csv", .letter = 'o'),
    OPT_ROW(ENUM, precision, "exact",
            "Arithmetic of the matrix products, as in `sandwich run`.",
            .values = KERN_PRECISIONS),
    OPT_ROW(ENUM, kv_type, "f32",
            "Type of the cached keys and values, as in `sandwich run`.",
            .values = KERN_KV_TYPES),
    OPT_ROW(BOOL, deterministic, NULL,
            "Compute the same tokens for any batch, number of threads and ranks, as in "
            "`sandwich run`."),
    OPT_ROW(
        BOOL, ops, NULL,
        "Measure kernels instead of a model: each variant of each operator that this "
        "processor can execute, and phases of the threads in which nothing is computed "
        "(dispatch, barrier). -t, -r, -o, --team, --only and --isa apply."),
    OPT_ROW(STR, only, NULL,
            "With --ops: the operators to measure, e.g. gemm_bf16,attn_f32,rmsnorm.",
            .unit = "LIST", .joins = ','),
    CLI_NGL_ROW(n_gpu_layers),
    CPU_ISA_ROW,
    {0},
};

/* ---- what is asked ---- */

static int parse_list(struct cli_bench_list *out, const char *flag, const char *text,
                      int64_t min, int64_t max)
{
    const char *p = text;

    for (out->n = 0; out->n < CLI_BENCH_LIST_MAX; p++) {
        char *end;
        long long v;

        errno = 0;
        v = strtoll(p, &end, 10);
        if (errno || end == p || *p == ' ' || (*end && *end != ',') || v < min || v > max)
            return err_set(ERR_ARG,
                           "%s: expected numbers in [%lld, %lld] separated by commas, "
                           "found \"%.40s\"",
                           flag, (long long)min, (long long)max, text);
        out->v[out->n++] = v;
        p = end;
        if (!*p)
            return OK;
    }
    return err_set(ERR_ARG, "%s: expected at most %d numbers", flag, CLI_BENCH_LIST_MAX);
}

static int64_t largest(const struct cli_bench_list *l)
{
    int64_t most = 0;

    for (int i = 0; i < l->n; i++)
        most = l->v[i] > most ? l->v[i] : most;
    return most;
}

static int add_test(struct cli_bench *b, int phase, int64_t n_tok, int64_t n_seqs)
{
    if (n_tok == 0)
        return OK;
    if (b->n_tests == CLI_BENCH_TESTS_MAX)
        return err_set(ERR_ARG, "expected at most %d tests of a model",
                       CLI_BENCH_TESTS_MAX);
    b->tests[b->n_tests++] = (struct cli_bench_test){phase, n_tok, (int)n_seqs};
    return OK;
}

static int list_phases(struct cli_bench *b)
{
    for (int t = 0; t < b->threads.n; t++) {
        for (int r = 0; r < b->ranks.n; r++) {
            int n_threads = (int)b->threads.v[t], n_ranks = (int)b->ranks.v[r];

            if (n_threads % n_ranks != 0)
                return err_set(ERR_ARG, "--ranks: %d ranks do not divide %d threads",
                               n_ranks, n_threads);
            if (b->n_phases == CLI_BENCH_LIST_MAX)
                return err_set(ERR_ARG, "-t, --ranks: expected at most %d combinations",
                               CLI_BENCH_LIST_MAX);
            b->phases[b->n_phases++] =
                (struct cli_bench_phase){.n_threads = n_threads, .n_ranks = n_ranks};
        }
    }
    return OK;
}

static int list_tests(struct cli_bench *b)
{
    TRY(list_phases(b));
    for (int i = 0; i < b->n_phases; i++) {
        for (int p = 0; p < b->prompt.n; p++)
            TRY(add_test(b, i, b->prompt.v[p], 0));
        for (int g = 0; g < b->gen.n; g++)
            for (int k = 0; k < b->batch.n; k++)
                TRY(add_test(b, i, b->gen.v[g], b->batch.v[k]));
    }
    return b->n_tests > 0 ? OK : err_set(ERR_ARG, "-p and -n: nothing to measure");
}

static int parse(struct cli_bench *b)
{
    const struct cli_bench_flags *f = b->f;

    cli_ngl_warn(f->n_gpu_layers);
    if (f->ops && f->model)
        return err_set(ERR_ARG, "--ops measures kernels, not a model: remove -m");
    if (f->only && !f->ops)
        return err_set(ERR_ARG, "--only selects operators of --ops, which is missing");
    if (!f->ops && (!f->model || !*f->model))
        return err_set(ERR_ARG, "-m is needed: the file of the model to measure");
    TRY(cpu_isa_limit(f->isa));
    TRY(par_team_find(f->team, &b->team_kind));
    TRY(cpu_budget_get(&b->budget));
    TRY(parse_list(&b->threads, "-t", f->threads, 0, CPU_MAX));
    for (int i = 0; i < b->threads.n; i++) {
        if (b->threads.v[i] > b->budget.n)
            return err_set(ERR_ARG, "-t: %lld asked for, %d allowed (%s)",
                           (long long)b->threads.v[i], b->budget.n, b->budget.reason);
        if (b->threads.v[i] == 0)
            b->threads.v[i] = b->budget.n;
    }
    if (f->ops)
        return OK;
    TRY(parse_list(&b->prompt, "-p", f->n_prompt, 0, LENGTH_MAX));
    TRY(parse_list(&b->gen, "-n", f->n_gen, 0, LENGTH_MAX));
    TRY(parse_list(&b->batch, "-b", f->batch, 1, STEP_TOK));
    TRY(parse_list(&b->ranks, "--ranks", f->ranks, 1, PAR_RANKS_MAX));
    return list_tests(b);
}

/* Every file, before the first is measured. */
static int check_model(struct cli_bench *b, const char *path)
{
    int64_t most = largest(&b->prompt), n_gen = largest(&b->gen);
    struct format_file *f = NULL;
    char name[128];

    most = most > n_gen ? most : n_gen;
    TRY(format_open(&f, path));
    cli_bench_type(f, name, sizeof(name));
    b->name_width = (int)strlen(name) > b->name_width ? (int)strlen(name) : b->name_width;
    if (f->config.max_tok < most)
        err_set(ERR_ARG, "-p, -n: %s is made for sequences of %d tokens, found %lld",
                path, f->config.max_tok, (long long)most);
    most -= f->config.max_tok;
    format_close(&f);
    return most > 0 ? ERR_ARG : OK;
}

/* ---- measuring ---- */

static int open_phases(struct cli_bench *b)
{
    for (int i = 0; i < b->n_phases; i++) {
        struct cli_bench_phase *p = &b->phases[i];
        const struct model_phase_opts o = {.n_ranks = p->n_ranks,
                                           .n_threads = p->n_threads / p->n_ranks};

        TRY(model_phase_open(&p->phase, b->engine.model, &o));
    }
    return OK;
}

static int open_model(struct cli_bench *b, const struct format_file *f)
{
    const struct model_config *c = &f->config;
    int64_t n_prompt = largest(&b->prompt), n_gen = largest(&b->gen);
    int n_seqs = (int)largest(&b->batch);
    struct model_bench_opts o = {.precision = (enum kern_precision)b->f->precision,
                                 .kv_type = (enum kern_kv_type)b->f->kv_type,
                                 .one_rank = largest(&b->ranks) == 1,
                                 .deterministic = b->f->deterministic,
                                 .n_seqs = 1,
                                 .kind = b->team_kind,
                                 .max_tok = n_prompt > n_gen ? n_prompt : n_gen,
                                 .step_tok = STEP_TOK,
                                 .seed = SEED};
    struct kv_shape shape;

    model_kv_shape_of(c, o.kv_type, &shape);
    o.caller_bytes = (int64_t)kv_token_bytes(&shape) * n_seqs * n_gen +
                     (int64_t)sizeof(float) * n_seqs * c->vocab;
    TRY(model_bench_open(&b->engine, f, &o));
    TRY(open_phases(b));
    return n_gen == 0
               ? OK
               : model_bench_steps_open(&b->gen_steps, b->engine.model, b->engine.team,
                                        n_seqs, n_gen, STEP_TOK, SEED);
}

static void close_model(struct cli_bench *b)
{
    model_bench_steps_close(&b->gen_steps);
    for (int i = 0; i < b->n_phases; i++)
        model_phase_close(&b->phases[i].phase);
    model_bench_close(&b->engine);
}

static void show_progress(struct cli_bench *b, const struct cli_bench_test *t)
{
    char name[48];

    if (!isatty(STDERR_FILENO))
        return;
    cli_bench_test_name(b, t, name, sizeof(name));
    fprintf(stderr, "\r\033[K%s: %d of %d: %s, %d threads", b->path, ++b->n_trials,
            b->n_tests * (int)b->f->repetitions, name, b->phases[t->phase].n_threads);
    fflush(stderr);
}

/* The first n_tok tokens of n_seqs sequences. */
static int generate(struct cli_bench *b, const struct cli_bench_test *t, int64_t n_tok,
                    double *seconds)
{
    double step = 0;

    *seconds = 0;
    for (int64_t i = 0; i < n_tok; i++) {
        if (cli_interrupted)
            return err_set(ERR_CANCELED, "interrupted");
        TRY(model_bench_steps_batch(&b->gen_steps, b->phases[t->phase].phase, t->n_seqs,
                                    i, &step));
        *seconds += step;
    }
    return OK;
}

/* The energy since the reading before; 0 where the machine does not count it. */
static double joules(struct cli_bench *b)
{
    double before = b->energy.n ? b->joules_read : 0, now = 0;

    if (!*b->no_energy && cpu_energy_read(&b->energy, &now) != OK) {
        snprintf(b->no_energy, sizeof(b->no_energy), "%s", err_msg());
        err_clear();
    }
    b->joules_read = now;
    return now - before;
}

static int trial(void *arg, int i, struct measure_trial *out)
{
    struct cli_bench *b = arg;
    const struct cli_bench_test *t = &b->tests[i];

    if (cli_interrupted)
        return err_set(ERR_CANCELED, "interrupted");
    show_progress(b, t);
    (void)joules(b);
    if (t->n_seqs)
        TRY(generate(b, t, t->n_tok, &out->seconds));
    else
        TRY(model_bench_steps_prefill(&b->engine.steps, b->phases[t->phase].phase,
                                      t->n_tok, &out->seconds));
    b->joules[i] += joules(b);
    return OK;
}

/* A whole prompt, a single token: each test's memory is touched and its team awake. */
static int warm_up(struct cli_bench *b)
{
    double seconds;

    for (int i = 0; i < b->n_tests; i++) {
        const struct cli_bench_test *t = &b->tests[i];

        TRY(t->n_seqs
                ? generate(b, t, 1, &seconds)
                : model_bench_steps_prefill(&b->engine.steps, b->phases[t->phase].phase,
                                            t->n_tok, &seconds));
    }
    return OK;
}

/* ---- all of it ---- */

static int one_model(struct cli_bench *b, const char *path)
{
    const struct measure_opts o = {MEASURE_EXACTLY((int)b->f->repetitions),
                                   .n_warm_up = -1};
    size_t first = json_array_size(b->rows);
    struct format_file *f = NULL;
    int rc = format_open(&f, path);

    b->path = path;
    b->n_trials = 0;
    memset(b->joules, 0, sizeof(b->joules));
    if (rc == OK)
        rc = open_model(b, f);
    if (rc == OK)
        rc = warm_up(b);
    if (rc == OK)
        rc = measure_compare(b->measure, b->n_tests, &o, trial, b);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    for (int i = 0; i < b->n_tests && rc == OK; i++)
        rc = cli_bench_add_row(b, f, i);
    if (rc == OK)
        cli_bench_print(b, first);
    close_model(b);
    format_close(&f);
    return rc;
}

/* Each of the files, which commas separate. */
static int each_model(struct cli_bench *b,
                      int (*fn)(struct cli_bench *b, const char *path))
{
    char *copy = mem_strdup(MEM_OTHER, b->f->model), *save = NULL;
    int rc = copy ? OK : ERR_NOMEM;

    for (char *p = copy ? strtok_r(copy, ",", &save) : NULL; p && rc == OK;
         p = strtok_r(NULL, ",", &save))
        rc = fn(b, p);
    mem_free(copy);
    return rc;
}

static int run(struct cli_bench *b)
{
    TRY(parse(b));
    if (!b->f->ops)
        TRY(each_model(b, check_model));
    if (b->f->ops || b->f->output != CLI_BENCH_MD)
        TRY(cli_read_card(NULL, &b->card));
    TRY(measure_open(&b->measure, b->f->ops ? CLI_BENCH_VARIANTS_MAX : b->n_tests,
                     (int)b->f->repetitions));
    b->rows = json_array();
    if (!b->rows)
        return err_set(ERR_NOMEM, "no memory for the result");
    cli_catch_interrupts();
    if (b->f->ops) {
        TRY(cli_bench_ops(b));
    } else {
        if (b->f->output == CLI_BENCH_MD)
            cli_bench_print_head(b);
        TRY(each_model(b, one_model));
    }
    return b->f->output == CLI_BENCH_JSON ? cli_print_json(b->rows) : OK;
}

static int bench(const struct verb_words *w)
{
    struct cli_bench *b = mem_new(MEM_OTHER, 1, sizeof(*b));
    int rc = ERR_NOMEM;

    if (!b)
        return rc;
    b->f = w->opts;
    b->name_width = (int)strlen("model");
    rc = run(b);
    measure_close(&b->measure);
    json_decref(b->rows);
    json_decref(b->card);
    mem_free(b);
    if (rc != OK && cli_interrupted)
        (void)verb_end(rc);
    return cli_interrupted ? CLI_INTERRUPTED : rc;
}

const struct verb cli_verb_bench = {
    .name = "bench",
    .help = "Measure prefill and decode of models, as llama-bench does.",
    .place = 3,
    .usage =
        {.line = "sandwich bench -m FILE|--ops [-p LIST] [-n LIST] [-t LIST] [-b LIST] "
                 "[options]",
         .about =
             "Measure the tokens per second of prefill (pp512: a prompt of 512 tokens) "
             "and "
             "decode (tg128: 128 tokens; tg128 b8: of 8 sequences at once), as mean and "
             "standard deviation over the repetitions. Token ids are random.",
         .examples =
             "  sandwich bench -m llama-160m.gguf\n"
             "  sandwich bench -m a.gguf -m b.gguf -p 16,512 -n 128 -t 1,2 -b 1,8 -o "
             "json\n"
             "  sandwich bench --ops --only gemm_bf16,gemm_q4_0 -t 2\n"},

    .fills = {"model"},
    .opts = {{table}},
    .opts_bytes = sizeof(struct cli_bench_flags),
    .run = bench,
};
