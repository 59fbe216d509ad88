/* sandwich plan: write the plan that the CPU budget gives, or that the user asks for. */
#include "engine/main.h"

#include <stdbool.h>
#include <stdio.h>

#include "plan/plan.h"

struct plan_flags {
    char *out;
    int64_t threads, decode_threads;
    bool help;
};
#define AT(member) offsetof(struct plan_flags, member)

static const struct opt_row table[] = {
    {.name = "out",
     .type = OPT_STR,
     .offset = AT(out),
     .letter = 'o',
     .help = "where to"},
    {.name = "threads",
     .type = OPT_INT,
     .offset = AT(threads),
     .max = CPU_MAX,
     .help = "threads of prefill; 0: every CPU of the budget"},
    {.name = "decode_threads",
     .type = OPT_INT,
     .offset = AT(decode_threads),
     .max = CPU_MAX,
     .help = "threads of decode; 0: as many"},
    {.name = "help", .type = OPT_BOOL, .offset = AT(help), .letter = 'h', .help = "this"},
    {0},
};
#undef AT

static int write_plan(const struct plan_flags *f)
{
    struct cpu_budget budget;
    struct plan p;
    int rc;

    if (!f->out)
        return err_set(ERR_ARG, "--out is needed");
    rc = cpu_budget_get(&budget);
    if (rc != OK)
        return rc;
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
    if (rc != OK)
        return rc;
    return plan_write(&p, f->out);
}

int main_plan(int argc, char **argv)
{
    struct plan_flags f;
    int status = main_fail("plan", opt_init(table, &f));

    if (status == 0)
        status = main_flags("plan --out F [--threads N] [--decode-threads N]", table, &f,
                            &f.help, argc, argv, 0);
    if (status == -1)
        status = main_fail("plan", write_plan(&f));
    opt_free(table, &f);
    return status;
}
