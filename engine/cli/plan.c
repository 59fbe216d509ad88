/* sandwich plan: which CPUs each phase should use, searched on this host or on a machine
 * that is simulated; or as the user says. */
#include "cli/plan.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cpu/cpu.h"
#include "cli/cli.h"

#define AT(member) offsetof(struct cli_plan_flags, member)

static const struct opt_row own_rows[] = {
    {.name = "machine",
     .type = OPT_STR,
     .offset = AT(machine),
     .def = "host",
     .help = "host; a machine of engine/simulate/machines; FILE.json; FILE.xml; "
             "synthetic:SPEC; fsroot:DIR"},
    {.name = "machine_params",
     .type = OPT_STR,
     .offset = AT(machine_params),
     .help = "a JSON file with the rates of the machine to simulate, such as "
             "engine/simulate/machines/params/kunpeng920x4.json; default: those of the "
             "named machine"},
    {.name = "model",
     .type = OPT_STR,
     .offset = AT(model),
     .help = "a model's file; to simulate, an architecture's name does"},
    {.name = "type",
     .type = OPT_ENUM,
     .offset = AT(type),
     .def = "file",
     .values = "file|f32|f16|bf16", /* in the order of enum cli_plan_type */
     .help = "type of the weights to simulate; file: as stored, bf16 for a name"},
    {.name = "precision",
     .type = OPT_ENUM,
     .offset = AT(precision),
     .def = "exact",
     .values = "exact|relaxed",
     .help = "to measure with"},
    {.name = "lengths",
     .type = OPT_STR,
     .offset = AT(lengths),
     .help = "FILE.csv, a line a request: tokens of the prompt, of the output; without "
             "it quantiles of ShareGPT"},
    {.name = "batch",
     .type = OPT_INT,
     .offset = AT(batch),
     .min = 1,
     .max = 1024,
     .def = "1",
     .help = "sequences of a decode step"},
    {.name = "strict_tp",
     .type = OPT_BOOL,
     .offset = AT(strict_tp),
     .help = "ranks must divide the heads"},
    {.name = "max_ranks",
     .type = OPT_INT,
     .offset = AT(max_ranks),
     .max = CPU_MAX,
     .help = "0: any number"},
    {.name = "one_team",
     .type = OPT_BOOL,
     .offset = AT(one_team),
     .help = "prefill on decode's CPUs and more, as this engine runs it; always on this "
             "host"},
    {.name = "hide",
     .type = OPT_ENUM,
     .offset = AT(hide),
     .def = "nothing",
     .values = "nothing|cluster",
     .help = "what the machine reports and is not to be believed"},
    {.name = "explain",
     .type = OPT_BOOL,
     .offset = AT(explain),
     .help = "what was tried, what was given up, and why this plan"},
    {.name = "render",
     .type = OPT_BOOL,
     .offset = AT(render),
     .help = "print the plan as PREFILL_CPUS=... for shells"},
    {.name = "show",
     .type = OPT_STR,
     .offset = AT(show),
     .help = "print this plan; search none"},
    {.name = "threads",
     .type = OPT_INT,
     .offset = AT(threads),
     .max = CPU_MAX,
     .help = "no search: threads of prefill; 0: every CPU of the budget"},
    {.name = "decode_threads",
     .type = OPT_INT,
     .offset = AT(decode_threads),
     .max = CPU_MAX,
     .help = "no search: threads of decode; 0: as many"},
    {.name = "out",
     .type = OPT_STR,
     .offset = AT(out),
     .letter = 'o',
     .help = "file to write the plan to"},
    {.name = "help", .type = OPT_BOOL, .offset = AT(help), .letter = 'h', .help = "this"},
};
#undef AT
#define N_OWN    ((int)(sizeof(own_rows) / sizeof(own_rows[0])))
#define ROWS_MAX 64

/* The search's options and ours as one table. */
static const struct opt_row *table(void)
{
    static struct opt_row rows[ROWS_MAX];

    return cli_join(rows, ROWS_MAX, plan_tree_search_opt_table, own_rows, N_OWN);
}

/* ---- plans ---- */

static int print_plan(const struct cli_plan_flags *f, const struct plan *p)
{
    char *text = NULL;
    int rc = f->render ? plan_render(p, &text) : plan_text(p, &text);

    if (rc == OK)
        fputs(text, stdout);
    mem_free(text);
    return rc;
}

static int put_plan(const struct cli_plan_flags *f, const struct plan *p)
{
    int rc = print_plan(f, p);

    return rc == OK && f->out ? plan_write(p, f->out) : rc;
}

static int show(const struct cli_plan_flags *f)
{
    struct plan p;
    int rc = plan_read(&p, f->show);

    return rc == OK ? put_plan(f, &p) : rc;
}

/* No search: what the budget gives, or exactly the threads asked for. */
static int given(const struct cli_plan_flags *f)
{
    struct cpu_budget budget;
    struct plan p;
    int rc = cpu_budget_get(&budget);

    if (rc == OK && !cli_plan_is_host(f))
        rc = err_set(ERR_ARG, "--threads: without a search there is only this host");
    if (rc == OK)
        rc = plan_default(&p, &budget, (int)f->threads);
    if (rc != OK)
        return rc;
    if (f->decode_threads > p.n_cpus)
        return err_set(ERR_ARG, "--decode-threads: expected at most %d, found %lld",
                       p.n_cpus, (long long)f->decode_threads);
    if (f->decode_threads > 0) {
        p.decode.n_threads = (int)f->decode_threads;
        snprintf(p.decode.why, sizeof(p.decode.why), "%d threads asked for",
                 p.decode.n_threads);
        rc = plan_number_cpus(&p);
    }
    if (rc == OK && f->threads + f->decode_threads == 0)
        fprintf(stderr, "sandwich plan: no --model, so nothing is measured: every CPU\n");
    return rc == OK ? put_plan(f, &p) : rc;
}

static void explain(FILE *to, const char *phase, const struct plan_tree_found *found)
{
    size_t n = strlen(found->explain);

    fprintf(to, "\n%s\n%s%s", phase, found->explain,
            n > 0 && found->explain[n - 1] != '\n' ? "\n" : "");
}

static int searched(const struct cli_plan_flags *f)
{
    struct plan_found found = {0};
    struct cli_plan_job *j = NULL;
    int rc = cli_plan_open(&j, f);

    if (rc == OK && cli_plan_is_host(f) && isatty(STDERR_FILENO))
        fprintf(
            stderr,
            "sandwich plan: measuring two phases, at most about %g s each, then steps "
            "of both for about %g s\n",
            f->search.max_s, PLAN_COSTS_S);
    if (rc == OK)
        rc = cli_plan_search(j, &found);
    if (rc == OK && *found.note)
        fprintf(stderr, "sandwich plan: %s\n", found.note);
    if (rc == OK)
        rc = put_plan(f, &found.plan);
    if (rc == OK && f->explain) {
        FILE *to = f->render ? stderr : stdout; /* what a shell reads stays clean */

        explain(to, "Decode, whose CPUs place the weights:", &found.decode);
        explain(to, "Prefill, over weights that lie there:", &found.prefill);
    }
    plan_found_free(&found);
    cli_plan_close(&j);
    return rc;
}

static int make_plan(const struct cli_plan_flags *f)
{
    if (f->show)
        return show(f);
    if (f->threads + f->decode_threads > 0 || (!f->model && cli_plan_is_host(f)))
        return given(f);
    return searched(f);
}

int cli_plan(int argc, char **argv)
{
    struct cli_plan_flags f;
    int status = cli_fail("plan", opt_init(table(), &f));

    if (status == 0)
        status = cli_flags("plan [--machine M] [--model M] [--out FILE] [options]",
                           table(), &f, &f.help, argc, argv, 0);
    if (status == -1)
        status = cli_fail("plan", make_plan(&f));
    opt_free(table(), &f);
    return status;
}
