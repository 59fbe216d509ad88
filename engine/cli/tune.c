/* sandwich tune: searches schedules for matrix products and keeps them in a file that the
 * engine reads (--schedules). */
#include "cli/tune.h"

#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "ir/build.h"
#include "plan/plan.h"

struct tune_flags {
    struct tune_opts tune; /* first: its table's offsets hold here */
    char *model, *shapes, *weight_type, *isa, *cache, *rows, *kernel;
    int precision;
    int64_t threads, m_max, rounds;
    bool every, pin, help;
};
#define OPT_OF struct tune_flags
static const struct opt_row own_rows[] = {
    OPT_ROW(STR, model, NULL,
            "Tune the matrix products of this model. Its weights are not read.",
            .unit = "FILE"),
    OPT_ROW(
        STR, shapes, NULL,
        "Tune these matrices in place of a model's: outputs x inputs, with /ROWS where "
        "a matrix is split along K in units of ROWS. Example: 5504x2048,2048x5504/64",
        .unit = "SHAPES"),
    OPT_ROW(STR, cache, "results/schedules.json",
            "File that keeps the schedules. Shapes that are already in it are not "
            "searched again.",
            .unit = "FILE"),
    OPT_ROW(STR, weight_type, "file",
            "Type in which the engine will keep the weights: file (as stored; f32 with "
            "--shapes), f32, f16 or bf16.",
            .unit = "TYPE"),
    OPT_ROW(ENUM, precision, "exact", "Precision with which the engine will run.",
            .values = KERN_PRECISIONS),
    CPU_ISA_ROW,
    OPT_ROW(INT, threads, NULL,
            "Number of threads of the phase to tune. 0: one per available CPU core.",
            .min = 0, .max = CPU_MAX),
    OPT_ROW(INT, m_max, "512",
            "Tune for values of M up to N: the engine's --max-step-tok.", .unit = "rows",
            .min = 1, .max = 65536),
    OPT_ROW(STR, rows, NULL,
            "Values of M to tune for, ascending. Default: 1 to 16, then steps of one "
            "eighth. Example: --rows 1,8,64",
            .unit = "LIST"),
    OPT_ROW(BOOL, every, NULL, "Tune for every value of M from 1 to --m-max."),
    OPT_ROW(
        STR, kernel, NULL,
        "Tune a product of `sandwich kernel` next to the engine's, as one more variant: "
        "each gets schedules of its own.",
        .unit = "FILE"),
    OPT_ROW(INT, rounds, "7",
            "Rounds of the closing comparison with the default schedules. 0: no "
            "comparison.",
            .min = 0, .max = 1000),
    OPT_ROW(BOOL, pin, "true", "Pin each thread to its CPU."),
    OPT_HELP_ROW,
};
#define N_OWN    ((int)(sizeof(own_rows) / sizeof(own_rows[0])))
#define ROWS_MAX 32

static const struct opt_usage usage = {
    .line = "sandwich tune --model FILE|--shapes SHAPES [--cache FILE] [options]",
    .about =
        "Search the fastest schedule of every matrix product by measuring, and keep the "
        "schedules in a file that `sandwich run --schedules` reads. An interrupted "
        "search continues when the same command is given again.",
    .examples = "  sandwich tune --model llama-160m.gguf --budget 60\n"
                "  sandwich tune --shapes 5504x2048,2048x5504/64 --rows 1,16,128\n"
                "  sandwich tune --shapes 5504x2048 --kernel gemm.ir\n",
    .exit_status = CLI_EXIT_STATUS,
};

/* The policies' options and ours as one table. */
static const struct opt_row *table(void)
{
    static struct opt_row rows[ROWS_MAX];
    int n = 0;

    for (const struct opt_row *r = tune_opt_table; r->name && n < ROWS_MAX - N_OWN - 1;
         r++) {
        rows[n] = *r;
        if (!strcmp(r->name, "budget_s"))
            rows[n].name = "budget"; /* of the whole run here */
        n++;
    }
    memcpy(rows + n, own_rows, sizeof(own_rows));
    return rows;
}

static int open_all(struct cli_tune_run *r, const struct tune_flags *f,
                    struct ir_kernel *own)
{
    struct cli_tune_ask ask = {.model = f->model,
                               .shapes = f->shapes,
                               .weight_type = f->weight_type,
                               .rows = f->rows,
                               .precision = (enum kern_precision)f->precision,
                               .m_max = f->m_max,
                               .every = f->every};
    static struct plan plan; /* too large for the stack */
    const struct tune_policy *policy = NULL;
    struct cpu_budget budget;
    int rc = tune_policy_find(f->tune.policy, &policy);

    if (rc == OK)
        rc = cpu_isa_limit(f->isa);
    if (rc == OK)
        rc = cpu_budget_get(&budget);
    if (rc == OK)
        rc = plan_default(&plan, &budget, (int)f->threads);
    if (rc != OK)
        return rc;
    memcpy(r->cpus, plan.cpus, sizeof(r->cpus));
    r->n_threads = plan.n_cpus;
    if (f->kernel) {
        TRY(cli_kernel_build(own, f->kernel));
        ask.own = &own->v;
    }
    return cli_tune_jobs(&r->jobs, &ask);
}

static int tune(const struct tune_flags *f)
{
    static struct cli_tune_run r; /* too large for the stack */
    struct ir_kernel own = {.handle = NULL};
    int rc;

    r = (struct cli_tune_run){.tune = &f->tune,
                              .cache_path = f->cache,
                              .input = f->model,
                              .rounds = (int)f->rounds,
                              .pin = f->pin};
    rc = open_all(&r, f, &own);
    if (rc == OK) {
        cli_catch_interrupts();
        rc = cli_tune_run(&r);
        if (rc == ERR_CANCELED && cli_interrupted)
            rc = OK;
    }
    if (rc == OK) {
        cli_tune_report(r.tuned, r.jobs.n);
        printf("%d threads: %s\n", r.n_threads, f->cache);
    }
    cli_tune_run_close(&r);
    ir_unload(&own);
    return rc;
}

int cli_tune(int argc, char **argv)
{
    struct tune_flags f;
    int status = cli_fail("tune", opt_init(table(), &f));

    if (status == 0)
        status = cli_flags(&usage, table(), &f, &f.help, argc, argv, 0);
    if (status == -1)
        status = cli_fail("tune", tune(&f));
    if (status == 0 && cli_interrupted) {
        fprintf(stderr,
                "sandwich tune: interrupted; the same command continues the search\n");
        status = EXIT_INTERRUPTED;
    }
    opt_free(table(), &f);
    return status;
}
