/* sandwich tune: searches schedules for matrix products and keeps them in a file that the
 * engine reads (--schedules). */
#include "cli/tune.h"

#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "ir/build.h"
#include "ir/problem.h"
#include "plan/plan.h"

struct tune_flags {
    struct tune_opts tune; /* first: its table's offsets hold here */
    char *model, *shapes, *weight_type, *isa, *cache, *rows, *kernel;
    int precision;
    int64_t threads, m_max, rounds;
    bool every, pin;
};
#define OPT_OF struct tune_flags
static const struct opt_row own_rows[] = {
    OPT_ROW(STR, model, NULL,
            "Tune the matrix products of this model. Its weights are not read.",
            .unit = "FILE", .letter = 'm'),
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
        "each gets schedules of its own. Its code runs with your rights, compared with "
        "kernels/ref/ in a process of its own first: give only a file that you trust.",
        .unit = "FILE"),
    OPT_ROW(INT, rounds, "7",
            "Rounds of the closing comparison with the default schedules. 0: no "
            "comparison.",
            .min = 0, .max = 1000),
    OPT_ROW(BOOL, pin, "true", "Pin each thread to its CPU."),
    {0},
};

/* A product in a file of `sandwich kernel`, compiled and compared with kernels/ref/. */
static int build_kernel(struct ir_kernel *out, const char *path)
{
    struct ir read = {0}, raised = {0};
    const struct ir *high = &read;
    struct ir_check c;
    int rc = ir_read(&read, path);

    if (rc == OK && read.level != IR_HIGH) {
        rc = ir_raise(&raised, &read);
        high = &raised;
    }
    if (rc == OK)
        rc = ir_build(out, high, ir_target_of(cpu_isa_usable()), NULL);
    if (rc == OK && !kern_op_is_gemm(out->v.op))
        rc = err_set(ERR_ARG, "%s, which is not a matrix product",
                     kern_op_name(out->v.op));
    if (rc == OK)
        rc = ir_check(&c, &out->v, 100, 1);
    if (rc == OK)
        rc = ir_check_verdict(&c, ir_keeps_bits(high));
    ir_fini(&raised);
    ir_fini(&read);
    return rc == OK ? OK : err_prefix(rc, "%s", path);
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
        TRY(build_kernel(own, f->kernel));
        ask.own = &own->v;
    }
    return cli_tune_jobs(&r->jobs, &ask);
}

static int tune(const struct verb_words *w)
{
    const struct tune_flags *f = w->opts;
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
    if (rc != OK || !cli_interrupted)
        return rc;
    fprintf(stderr,
            "sandwich tune: interrupted; the same command continues the search\n");
    return CLI_INTERRUPTED;
}

/* The budget is of the whole run here. */
static const struct opt_change changes[] = {{.name = "budget_s", .as = "budget"}, {0}};

const struct verb cli_verb_tune = {
    .name = "tune",
    .help = "Search the fastest schedule of every matrix product.",
    .place = 6,
    .usage =
        {.line = "sandwich tune --model FILE|--shapes SHAPES [--cache FILE] [options]",
         .about =
             "Search the fastest schedule of every matrix product by measuring, and keep "
             "the "
             "schedules in a file that `sandwich run --schedules` reads. An interrupted "
             "search continues when the same command is given again.",
         .examples = "  sandwich tune --model llama-160m.gguf --budget 60\n"
                     "  sandwich tune --shapes 5504x2048,2048x5504/64 --rows 1,16,128\n"
                     "  sandwich tune --shapes 5504x2048 --kernel gemm.ir\n"},

    .fills = {"model"},
    .opts = {{tune_opt_table, 0, changes}, {own_rows}},
    .opts_bytes = sizeof(struct tune_flags),
    .run = tune,
};
