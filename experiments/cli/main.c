/* The program `testbed`: runs experiments, describes them and exports their results. What it
 * can do is in verb/, one file each. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "cpu/program.h"
#include "experiments/run/resume.h"
#include "experiments/cli/verb.h"

int verb_fail(int status)
{
    fprintf(stderr, "testbed: %s\n", err_msg());
    return status;
}

int verb_end(int rc)
{
    return rc == OK ? VERB_OK : verb_fail(rc == ERR_ARG ? VERB_USAGE : VERB_INVALID);
}

static int n_verbs(void)
{
    int n = 0;

    while (verbs[n])
        n++;
    return n;
}

static void help(FILE *f)
{
    fputs("Usage: testbed VERB [arguments] [options]\n\n"
          "Run experiments on language model serving and keep what was measured.\n\n"
          "Verbs:\n",
          f);
    for (int i = 0; verbs[i]; i++)
        fprintf(f, "  %-11s %s\n", verbs[i]->name, verbs[i]->help);
    fputs("\nOptions:\n"
          "  -h, --help     Print this text. `testbed VERB --help` describes a verb.\n"
          "  --version      Print commit, compiler and instruction sets.\n"
          "\nExamples:\n"
          "  testbed run quickstart\n"
          "  testbed describe quickstart\n"
          "\nExit status:\n" VERB_EXIT_STATUS,
          f);
}

/* --set may come many times, which an option table has no row for: take them out first.
 */
static int take_sets(struct verb_words *w, int argc, char **argv)
{
    int n = 0;

    w->sets = mem_new(MEM_HARNESS, (size_t)argc, sizeof(*w->sets));
    if (!w->sets)
        return ERR_NOMEM;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--set=", 6) == 0)
            w->sets[w->n_sets++] = argv[i] + 6;
        else if (strcmp(argv[i], "--set") != 0)
            argv[n++] = argv[i];
        else if (i + 1 < argc)
            w->sets[w->n_sets++] = argv[++i];
        else
            return err_set(ERR_ARG, "--set: expected KEY=VALUE after it, found nothing; "
                                    "example: --set load.n_requests=10");
    }
    w->n_rest = n;
    return OK;
}

static int run_words(const struct verb *v, void *opts, struct verb_words *w, int argc,
                     char **argv)
{
    w->n_rest = argc;
    if ((v->takes_set && take_sets(w, argc, argv) != OK) ||
        opt_from_argv(v->opts, opts, w->n_rest, argv, &w->n_rest) != OK)
        return verb_fail(VERB_USAGE);
    if (*(const bool *)opts) {
        opt_help_usage(&v->usage, v->opts, stdout);
        return VERB_OK;
    }
    if (w->n_rest < v->n_args || w->n_rest > v->n_args + v->n_optional) {
        fprintf(stderr,
                "testbed %s: expected %d argument%s, found %d (usage: %s; --help "
                "describes the options)\n",
                v->name, v->n_args, v->n_args == 1 ? "" : "s", w->n_rest, v->usage.line);
        return VERB_USAGE;
    }
    return v->run(w);
}

static int run_verb(int verb, int argc, char **argv)
{
    const struct verb *v = verbs[verb];
    void *opts = mem_new(MEM_HARNESS, 1, v->opts_bytes);
    struct verb_words w = {.opts = opts, .rest = argv};
    int status = VERB_USAGE;

    if (!opts || opt_init(v->opts, opts) != OK) {
        status = verb_fail(VERB_USAGE);
    } else {
        status = run_words(v, opts, &w, argc, argv);
        opt_free(v->opts, opts);
    }
    mem_free(w.sets);
    mem_free(opts);
    return status;
}

int verb_call(const char *name, int argc, char **argv)
{
    for (int i = 0; verbs[i]; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return run_verb(i, argc, argv);
    err_set(ERR_NOTFOUND, "no verb \"%s\"", name);
    return verb_fail(VERB_USAGE);
}

static const char *verb_name(int i)
{
    return i < n_verbs() ? verbs[i]->name : NULL;
}

int main(int argc, char **argv)
{
    const struct cpu_program program = {.name = "testbed",
                                        .verb = verb_name,
                                        .help = help,
                                        .run = run_verb,
                                        .exit_usage = VERB_USAGE,
                                        .exit_lost = VERB_INVALID};

    process_exit_when_short(program.name, VERB_INVALID);
    run_resume_remember(argc, argv); /* while the words are in their order */
    return cpu_program_main(&program, argc, argv);
}
