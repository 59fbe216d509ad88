/* make bench: operators and whole-model steps against the machine's measured limits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/process.h"
#include "characterize/probe.h"
#include "cpu/cpu.h"
#include "measure/card.h"
#include "tests/bench/bench.h"

#define OPT_OF struct bench_opts
const struct opt_row bench_opt_table[] = {
    OPT_ROW(STR, models, "llama-160m,sheared-llama-1.3b",
            "Architectures to measure, separated by commas. An empty list measures none.",
            .unit = "LIST"),
    OPT_ROW(STR, types, "f32,bf16,q4_0,q4_k", "Weight types to measure.", .unit = "LIST"),
    OPT_ROW(STR, precisions, "exact,relaxed,a8",
            "Precisions to measure. relaxed is measured for bf16 weights only, a8 for "
            "quantised ones.",
            .unit = "LIST"),
    OPT_ROW(
        STR, schedules, NULL,
        "Measure prefill with these tuned schedules (from `sandwich tune`) as well, in "
        "the same rounds.",
        .unit = "FILE"),
    OPT_ROW(STR, out, "results/bench/latest.json", "File to write the results to.",
            .unit = "FILE"),
    OPT_ROW(INT, rounds, "7", "Number of interleaved rounds.", .min = 1, .max = 1000),
    OPT_ROW(BOOL, ops, "true", "Measure single operators."),
    OPT_ROW(BOOL, deterministic, "false", "Measure models in the deterministic mode."),
    OPT_ROW(BOOL, ranks, "true",
            "Measure models with one rank per thread as well, in the same rounds."),
    OPT_ROW(BOOL, version, NULL,
            "Print commit, compiler and instruction sets, and exit."),
    OPT_HELP_ROW,
    {0},
};

static const struct opt_usage usage = {
    .line = "bench [options]",
    .about =
        "Measure operators, prefill and decode of this engine and compare them with the "
        "measured read bandwidth and peak arithmetic of this machine. Models are made "
        "with random weights when they are missing.",
    .examples = "  make bench\n"
                "  build/bench --models llama-160m --types bf16 --no-ops\n",
    .exit_status = "  0  success\n"
                   "  1  a measurement failed\n"
                   "  2  wrong usage\n"
                   "  3  standard output could not be written\n",
};

/* One probe, a fraction of a second, so that the bound is of the same moment as the
 * figure. */
double bench_read_gbps(struct bench *b)
{
    struct probe_value values[32];
    struct probe_ctx c = {.team = b->team,
                          .n_threads_max = b->n_threads,
                          .budget_s = 0.4,
                          .values = values,
                          .max_values = 32};
    double best = NAN;

    for (int i = 0; probes[i]; i++) {
        if (strncmp(probes[i]->name, "read", 4) != 0)
            continue;
        if (probes[i]->run(&c) != OK)
            return NAN;
    }
    for (int i = 0; i < c.n_values; i++) {
        if (strcmp(values[i].name, "read_gbps") == 0 &&
            values[i].n_threads == b->n_threads)
            best = values[i].estimate;
    }
    return best;
}

const char *bench_interval(const struct measure_report *r)
{
    static char text[40];

    snprintf(text, sizeof(text), "(%+.1f .. %+.1f %%)", 100 * (r->lo / r->estimate - 1),
             100 * (r->hi / r->estimate - 1));
    return text;
}

double bench_peak_gflops(const struct bench *b, const char *type, const char *precision)
{
    return measure_card_peak_gflops(b->card, type, precision, b->n_threads);
}

int bench_headline(struct bench *b, const char *name, double value, const char *unit,
                   bool higher_is_better)
{
    json_t *v = json_pack("{s:f, s:s, s:s}", "value", value, "unit", unit, "better",
                          higher_is_better ? "higher" : "lower");

    if (!v || json_object_set_new(b->headline, name, v) != 0)
        return err_set(ERR_NOMEM, "headline %s", name);
    return OK;
}

int bench_row(struct bench *b, json_t *row)
{
    if (!row || json_array_append_new(b->rows, row) != 0)
        return err_set(ERR_NOMEM, "a row of the benchmark");
    return OK;
}

static int save(struct bench *b)
{
    char utc[32];
    json_t *all;
    int rc;

    clock_utc(utc, sizeof(utc));
    /* NULL of the last two: json_pack() fails */
    all = json_pack("{s:s, s:s, s:i, s:O, s:O, s:O, s:o, s:o}", "utc", utc, "evidence",
                    "measured", "n_threads", b->n_threads, "headline", b->headline,
                    "rows", b->rows, "machine_card", b->card, "counters",
                    measure_noise_json(&b->noise), "warnings", json_warnings_take());
    if (!all)
        return err_set(ERR_NOMEM, "the benchmark's record");
    rc = json_write_file(all, b->o.out);
    json_decref(all);
    return rc;
}

static int run(struct bench *b)
{
    const struct machine_card_opts card = {.dir = MEASURE_CARD_DIR, .check = true};
    struct cpu_budget budget;
    int rc = cpu_budget_get(&budget);

    if (rc != OK)
        return rc;
    printf("CPUs: %s\n", budget.reason);
    rc = machine_card_get(&b->card, &card);
    if (rc != OK)
        return rc;
    b->n_threads = budget.n;
    b->cpus = budget.cpus;
    b->headline = json_object();
    b->rows = json_array();
    if (!b->headline || !b->rows)
        return err_set(ERR_NOMEM, "the benchmark's record");
    rc = par_team_open(&b->team, budget.cpus, budget.n, 1);
    if (rc == OK)
        rc = measure_noise_begin(&b->noise);
    if (rc == OK && b->o.ops)
        rc = bench_ops(b);
    if (rc == OK)
        rc = bench_models(b);
    if (rc == OK)
        rc = measure_noise_end(&b->noise);
    if (rc == OK) {
        measure_noise_warn(&b->noise, "bench");
        rc = save(b);
    }
    if (rc == OK)
        printf("written: %s\n", b->o.out);
    return rc;
}

static int run_flags(int argc, char **argv)
{
    struct bench b = {0};
    int n_rest = 0, rc = process_start();

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (rc == OK)
        rc = cpu_isa_check_env();
    if (rc == OK)
        rc = opt_init(bench_opt_table, &b.o);
    if (rc == OK)
        rc = opt_from_argv(bench_opt_table, &b.o, argc - 1, argv + 1, &n_rest);
    if (rc == OK && n_rest > 0)
        rc = err_set(ERR_ARG, "unexpected argument \"%s\"", argv[1]);
    if (rc != OK) {
        fprintf(stderr, "bench: %s (usage: %s; --help describes the options)\n",
                err_msg(), usage.line);
        opt_free(bench_opt_table, &b.o);
        return 2;
    }
    if (b.o.help || b.o.version) {
        char isa[256];

        cpu_isa_words(cpu_isa_usable(), isa, sizeof(isa));
        if (b.o.help)
            opt_help_usage(&usage, bench_opt_table, stdout);
        else
            build_print("bench", isa, stdout);
        opt_free(bench_opt_table, &b.o);
        return 0;
    }
    rc = run(&b);
    if (rc != OK)
        fprintf(stderr, "bench: %s\n", err_msg());
    par_team_close(&b.team);
    json_decref(b.card);
    json_decref(b.headline);
    json_decref(b.rows);
    opt_free(bench_opt_table, &b.o);
    return rc == OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    int status = run_flags(argc, argv);

    if (process_end() == OK || status != 0)
        return status;
    fprintf(stderr, "bench: %s\n", err_msg());
    return 3;
}
