/* sandwich plan: searches which CPUs each phase should use, on this host or on a simulated
 * machine, or writes the plan that the user asked for. */
#include "cli/plan.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cpu/cpu.h"
#include "cli/cli.h"
#include "plan/method.h"

static const char *method_name(int i)
{
    return plan_methods[i] ? plan_methods[i]->name : NULL;
}

#define OPT_OF struct cli_plan_flags
static const struct opt_row own_rows[] = {
    OPT_ROW(STR, method, "search",
            "How the plan is chosen: \"search\" tries ranks and CPUs for each phase. The "
            "others plan as engines without a search do (engine/plan/README.md).",
            .unit = "NAME", .names = method_name),
    OPT_ROW(STR, machine, "host",
            "Machine to plan for: host (measured by running the engine); FILE.json, "
            "FILE.xml (hwloc), synthetic:SPEC (hwloc), fsroot:DIR or a name in "
            "engine/simulate/machines (simulated).",
            .unit = "MACHINE", .names = cli_plan_machine_name),
    OPT_ROW(STR, machine_params, NULL,
            "JSON file with the rates of the machine to simulate, such as "
            "engine/simulate/machines/params/kunpeng920x4.json. Default: the rates of "
            "the named machine.",
            .unit = "FILE"),
    OPT_ROW(STR, model, NULL,
            "Model to plan for: a model file. For a simulated machine the name of an "
            "architecture is enough.",
            .unit = "FILE|NAME", .letter = 'm'),
    /* in the order of enum cli_plan_type */
    OPT_ROW(ENUM, type, "file",
            "Type of the weights in the simulation. file: as stored, bf16 for the name "
            "of an architecture.",
            .values = "file|f32|f16|bf16"),
    OPT_ROW(ENUM, precision, "exact",
            "Precision of the matrix products that are measured, as the engine will run "
            "them.",
            .values = KERN_PRECISIONS),
    OPT_ROW(ENUM, kv_type, "f32",
            "Type of the cached keys and values, as the engine will keep them.",
            .values = KERN_KV_TYPES),
    OPT_ROW(
        STR, lengths, NULL,
        "Data set with the lengths of prompts and outputs, such as a CSV with a request "
        "a line, or a published trace. Default: quantiles of ShareGPT.",
        .unit = "FILE"),
    OPT_ROW(INT, batch, "1", "Number of sequences in a decode step.", .min = 1,
            .max = 1024),
    OPT_ROW(BOOL, strict_tp, NULL,
            "Allow only numbers of ranks that divide the number of attention heads."),
    OPT_ROW(INT, max_ranks, NULL, "Largest number of ranks. 0: no limit.",
            .max = CPU_MAX),
    OPT_ROW(INT, ranks, NULL,
            "Number of ranks of --method even_split. 0: one for each memory node.",
            .max = PAR_RANKS_MAX),
    OPT_ROW(BOOL, one_team, NULL,
            "Let prefill use decode's CPUs and possibly more, which is what this engine "
            "can run. Always on when planning for the host."),
    OPT_ROW(ENUM, hide, "nothing",
            "Part of the reported topology to ignore, to test whether the search finds "
            "it again.",
            .values = "nothing|cluster"),
    OPT_ROW(BOOL, explain, NULL,
            "Print what was tried, what was rejected and why this plan was chosen."),
    OPT_ROW(BOOL, render, NULL,
            "Print the plan as shell variables: PREFILL_CPUS=... DECODE_CPUS=..."),
    OPT_ROW(STR, show, NULL, "Print this plan file and exit without a search.",
            .unit = "FILE"),
    OPT_ROW(INT, threads, NULL,
            "Write a plan with N prefill threads without a search. 0: search.",
            .max = CPU_MAX),
    OPT_ROW(INT, decode_threads, NULL,
            "Write a plan with N decode threads without a search. 0: as many as for "
            "prefill.",
            .max = CPU_MAX),
    OPT_ROW(
        BOOL, tune, NULL,
        "Then tune the schedules of the best configurations, replay the trace with each "
        "and keep the fastest, all of it in one plan (--out). A run that is interrupted "
        "continues when the same command is given again."),
    OPT_ROW(
        STR, budget, "10m",
        "About how long --tune may take: a fifth to search, half of the rest to tune, "
        "the other half to replay. Example: --budget 90s",
        .unit = "TIME"),
    OPT_ROW(INT, top_k, "3", "Number of configurations that --tune tunes and replays.",
            .unit = "configs", .min = 1, .max = PLAN_RANKED_MAX),
    OPT_ROW(STR, cache, "results/schedules.json",
            "File in which --tune keeps the schedules it finds, as `sandwich tune` does. "
            "Shapes that are already in it are not searched again.",
            .unit = "FILE"),
    OPT_ROW(BOOL, progress, NULL,
            "Print what the search is doing every few seconds. On a terminal one line "
            "always shows it."),
    OPT_ROW(STR, out, NULL, "File to write the plan to.", .unit = "FILE", .letter = 'o'),
    {0},
};

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
    /* Static: with every CPU of a large machine it is too large for a small stack. */
    static struct plan p;
    int rc = plan_read(&p, f->show);

    if (rc == OK)
        rc = put_plan(f, &p);
    plan_fini(&p);
    return rc;
}

/* A plan without a search: all CPUs of the budget, or the threads asked for. */
static int given(const struct cli_plan_flags *f)
{
    static struct cpu_budget budget;
    static struct plan p;
    int rc = cpu_budget_get(&budget);

    if (rc == OK && !cli_plan_is_host(f))
        rc = err_set(ERR_ARG, "--threads and --decode-threads write a plan for this host "
                              "without a search: leave out --machine");
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
        fprintf(stderr, "sandwich plan: without --model nothing is measured; the plan "
                        "uses every available CPU core\n");
    return rc == OK ? put_plan(f, &p) : rc;
}

#define LIVE_S    0.1
#define PRINTED_S 5

/* One line that is written over, or one every few seconds. */
struct progress_line {
    bool live;
    char what[64]; /* printed last */
    double at_s;   /* when, since that part began */
};

static void show_progress(void *ctx, const struct plan_progress *p)
{
    struct progress_line *s = ctx;
    char limit[32] = "";

    if (!strcmp(s->what, p->what) && p->elapsed_s >= s->at_s &&
        p->elapsed_s - s->at_s < (s->live ? LIVE_S : PRINTED_S))
        return;
    snprintf(s->what, sizeof(s->what), "%s", p->what);
    s->at_s = p->elapsed_s;
    if (p->limit_s > 0)
        snprintf(limit, sizeof(limit), " of at most %.0f", p->limit_s);
    fprintf(stderr, "%ssandwich plan: %s: %lld measurements, %.0f%s s%s",
            s->live ? "\r\033[K" : "", p->what, (long long)p->n_measurements,
            p->elapsed_s, limit, s->live ? "" : "\n");
    fflush(stderr);
}

/* Plan by the method alone. */
static int put_found(struct cli_plan_job *j, const struct cli_plan_flags *f,
                     const struct cli_plan_progress *progress, bool live)
{
    static struct plan_search_opts o;
    static struct plan_search_result found;
    const struct plan_method *method = NULL;
    int rc = cli_plan_ask(j, &o, &method, progress);

    if (rc == OK)
        rc = method->run(&found, &o);
    if (live)
        fprintf(stderr, "\r\033[K");
    if (rc == OK && o.e.machine->note[0] && strcmp(o.e.machine->source, "synthetic") != 0)
        fprintf(stderr, "sandwich plan: %s: %s\n", o.e.machine->name, o.e.machine->note);
    if (rc == OK && *found.note)
        fprintf(stderr, "sandwich plan: %s\n", found.note);
    if (rc == OK)
        rc = put_plan(f, &found.plan);
    if (rc == OK && f->explain) /* standard output may be for a shell to read */
        fputs(found.explain, f->render ? stderr : stdout);
    plan_search_result_free(&found);
    return rc;
}

static int searched(const struct cli_plan_flags *f)
{
    struct cli_plan_job *j = NULL;
    struct progress_line s = {.live = isatty(STDERR_FILENO)};
    const struct cli_plan_progress progress = {
        s.live || f->progress ? show_progress : NULL, &s};
    int rc = cli_plan_open(&j, f);

    if (rc == OK)
        rc = f->tune ? cli_plan_tune(j, f, &progress, put_plan)
                     : put_found(j, f, &progress, s.live);
    cli_plan_close(&j);
    return rc;
}

static int check_tune(const struct cli_plan_flags *f)
{
    double seconds;

    if (!f->out)
        return err_set(ERR_ARG, "--tune needs --out FILE, the plan with its schedules");
    if (!cli_plan_is_host(f))
        return err_set(ERR_ARG, "--tune measures on this host: leave out --machine");
    if (!f->model || f->threads + f->decode_threads > 0)
        return err_set(ERR_ARG,
                       "--tune needs --model FILE and chooses threads by itself");
    return opt_seconds(&seconds, f->budget, "--budget");
}

/* Before the search, which may take a minute. */
static int check_out(const struct cli_plan_flags *f)
{
    const char *const inputs[] = {f->model, f->lengths, f->show, f->machine,
                                  f->machine_params};
    int rc = OK;

    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]) && rc == OK && f->out; i++)
        rc = file_check_target(f->out, inputs[i]);
    return rc;
}

static int make_plan(const struct cli_plan_flags *f)
{
    int rc = check_out(f);

    if (rc != OK)
        return rc;
    if (f->show)
        return show(f);
    if (f->tune && (rc = check_tune(f)) != OK)
        return rc;
    if (f->ranks > 0 && strcmp(f->method, "even_split") != 0)
        return err_set(ERR_ARG, "--ranks is for --method even_split");
    if (strcmp(f->method, "search") != 0)
        return searched(f);
    if (f->threads + f->decode_threads > 0 || (!f->model && cli_plan_is_host(f)))
        return given(f);
    return searched(f);
}

static int run(const struct verb_words *w)
{
    int rc = make_plan(w->opts);

    if (rc == OK || rc == ERR_ARG || !cli_interrupted)
        return rc;
    (void)verb_end(rc);
    fprintf(stderr, "sandwich plan: the same command continues\n");
    return CLI_INTERRUPTED;
}

const struct verb cli_verb_plan = {
    .name = "plan",
    .help = "Search which CPUs prefill and decode should use.",
    .place = 5,
    .usage =
        {.line =
             "sandwich plan [--machine MACHINE] [--model FILE] [--out FILE] [options]",
         .about =
             "Search which CPUs prefill and decode should use and how many "
             "tensor-parallel "
             "ranks they form. On this host every candidate is measured by running the "
             "model; other machines are simulated. --method plans as other engines do.",
         .examples =
             "  sandwich plan --model llama-160m.gguf --out plan.json --explain\n"
             "  sandwich plan --machine kunpeng920x4 --model sheared-llama-1.3b\n"
             "  sandwich plan --model llama-160m.gguf --method even_split --ranks 2\n"
             "  sandwich plan --model llama-160m.gguf --tune --budget 5m --out "
             "plan.json\n"
             "  sandwich plan --show plan.json --render\n"},

    .fills = {"model"},
    .opts = {{plan_tree_search_opt_table}, {own_rows}},
    .opts_bytes = sizeof(struct cli_plan_flags),
    .run = run,
};
