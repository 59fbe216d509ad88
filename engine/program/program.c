#include "program/program.h"

#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/process.h"
#include "cpu/cpu.h"
#include "cpu/unbind.h"

#define VERBS_MAX 32
#define ROWS_MAX  160 /* of a verb's tables together */

static const struct program *program;
static char running[64]; /* what the lines of errors begin with */

int verb_fail(int status)
{
    fprintf(stderr, "%s: %s\n", running, err_msg());
    return status;
}

int verb_end(int rc)
{
    return rc == OK ? PROGRAM_OK
                    : verb_fail(rc == ERR_ARG ? PROGRAM_USAGE : program->failed);
}

/* ---- the words of a verb */

/* --set may come many times, which an option table has no row for: take them out first. */
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

static bool is_set(const struct opt_row *table, const void *opts, const char *name)
{
    while (strcmp(table->name, name) != 0)
        table++;
    return *(char *const *)((const char *)opts + table->offset) != NULL;
}

static int fill_options(const struct verb *v, const struct opt_row *table, void *opts,
                        struct verb_words *w)
{
    for (int i = 0; v->fills[i] && w->n_rest > 0; i++) {
        if (is_set(table, opts, v->fills[i]))
            continue;
        TRY(opt_set(table, opts, v->fills[i], w->rest[0], v->fills[i]));
        w->rest++;
        w->n_rest--;
    }
    return OK;
}

static int check_rest(const struct verb *v, const struct verb_words *w)
{
    const int n = v->n_args;

    if (w->n_rest < n)
        return err_set(ERR_ARG,
                       "an argument is missing: expected %d argument%s, found %d", n,
                       n == 1 ? "" : "s", w->n_rest);
    if (w->n_rest - n > v->n_optional)
        return err_set(ERR_ARG,
                       "unexpected argument \"%s\": expected %d argument%s, found %d",
                       w->rest[n + v->n_optional], n, n == 1 ? "" : "s", w->n_rest);
    return OK;
}

static int usage_error(const char *line)
{
    fprintf(stderr, "%s: %s (usage: %s; --help describes the options)\n", running,
            err_msg(), line);
    return PROGRAM_USAGE;
}

/* `help` is --help, which `opts` ends in. */
static int run_words(const struct verb *v, const struct opt_row *table, void *opts,
                     const bool *help, struct verb_words *w, int argc, char **argv)
{
    struct opt_usage usage = v->usage;
    int rc = OK;

    w->n_rest = argc;
    if (v->takes_set)
        rc = take_sets(w, argc, argv);
    if (rc == OK)
        rc = opt_from_argv(table, opts, w->n_rest, argv, &w->n_rest);
    if (rc == OK && *help) {
        usage.exit_status = usage.exit_status ? usage.exit_status : program->exit_status;
        opt_help_usage(&usage, table, stdout);
        return PROGRAM_OK;
    }
    if (rc == OK)
        rc = fill_options(v, table, opts, w);
    if (rc == OK)
        rc = check_rest(v, w);
    if (rc != OK)
        return usage_error(usage.line);
    rc = v->run(w);
    return rc < 0 ? verb_end(rc) : rc;
}

static int run_leaf(const struct verb *v, int argc, char **argv)
{
    static const struct opt_row help_row[] = {{.name = "help",
                                               .type = OPT_BOOL,
                                               .help = "Print this text and exit.",
                                               .letter = 'h'},
                                              {0}};
    struct opt_part parts[VERB_TABLES_MAX + 2] = {{0}};
    struct opt_row table[ROWS_MAX];
    char *opts = mem_new(MEM_HARNESS, v->opts_bytes + sizeof(bool), 1);
    struct verb_words w = {.opts = opts, .rest = argv};
    int n = 0, status, rc = opts ? OK : ERR_NOMEM;

    for (; v->opts[n].rows; n++)
        parts[n] = v->opts[n];
    parts[n] = (struct opt_part){help_row, v->opts_bytes, NULL};
    if (rc == OK)
        rc = opt_join(table, ROWS_MAX, parts);
    if (rc == OK)
        rc = opt_init(table, opts);
    if (rc == OK) {
        status = run_words(v, table, opts, (bool *)opts + v->opts_bytes, &w, argc, argv);
        opt_free(table, opts);
    } else {
        status = verb_end(rc);
    }
    mem_free(w.sets);
    mem_free(opts);
    return status;
}

/* ---- verbs that have verbs of their own */

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run_group(const struct verb *v, int argc, char **argv)
{
    char names[128] = "", bars[128] = "";
    size_t n = 0, n_bars = 0;

    for (int i = 0; argc > 0 && v->verbs[i]; i++)
        if (strcmp(argv[0], v->verbs[i]->name) == 0) {
            size_t used = strlen(running);

            snprintf(running + used, sizeof(running) - used, " %s", argv[0]);
            return run_leaf(v->verbs[i], argc - 1, argv + 1);
        }
    if (argc > 0 && asks_help(argv[0])) {
        fputs(v->text, stdout);
        return PROGRAM_OK;
    }
    for (int i = 0; v->verbs[i]; i++) {
        const char *between = i == 0 ? "" : v->verbs[i + 1] ? ", " : " or ";

        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", between,
                              v->verbs[i]->name);
        n_bars += (size_t)snprintf(bars + n_bars, sizeof(bars) - n_bars, "%s%s",
                                   i ? "|" : "", v->verbs[i]->name);
    }
    fprintf(stderr,
            "%s: expected %s, found %s%s%s (usage: %s %s %s [options]; --help describes "
            "the options)\n",
            running, names, argc > 0 ? "\"" : "nothing", argc > 0 ? argv[0] : "",
            argc > 0 ? "\"" : "", program->name, v->name, bars);
    return PROGRAM_USAGE;
}

static int run_verb(const struct verb *v, int argc, char **argv)
{
    char before[sizeof(running)];
    int status;

    memcpy(before, running, sizeof(before));
    snprintf(running, sizeof(running), "%s%s%s", program->name,
             program->names_verb ? " " : "", program->names_verb ? v->name : "");
    status = v->verbs ? run_group(v, argc, argv) : run_leaf(v, argc, argv);
    memcpy(running, before, sizeof(running));
    return status;
}

int verb_call(const char *name, int argc, char **argv)
{
    const struct verb *v = name_find(program->verbs, name, "verb");

    return v ? run_verb(v, argc, argv) : verb_fail(PROGRAM_USAGE);
}

/* ---- the program */

static void list_verbs(FILE *f)
{
    int width = 0;

    for (int i = 0; program->verbs[i]; i++) {
        int n = (int)strlen(program->verbs[i]->name);

        width = n > width ? n : width;
    }
    for (int place = 1; place <= VERBS_MAX; place++)
        for (int i = 0; program->verbs[i]; i++) {
            const struct verb *v = program->verbs[i];

            if (place == (v->place ? v->place : VERBS_MAX))
                fprintf(f, "  %-*s %s\n", width, v->name, v->help);
        }
}

static void help(FILE *f)
{
    fprintf(f, "Usage: %s\n\n%s\n\nVerbs:\n", program->line, program->about);
    list_verbs(f);
    fprintf(f,
            "\nOptions:\n"
            "  -h, --help     Print this text. `%s VERB --help` describes a verb.\n"
            "  --version      Print commit, compiler and instruction sets.\n",
            program->name);
    if (program->environment)
        fprintf(f, "\nEnvironment:\n%s", program->environment);
    fprintf(f, "\nExamples:\n%s\nExit status:\n%s", program->examples,
            program->exit_status);
}

static int run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "", *names[VERBS_MAX + 1] = {0};
    char isa[256];

    if (process_start() != OK || cpu_isa_check_env() != OK)
        return verb_fail(PROGRAM_USAGE);
    cpu_unbind();
    if (argc < 2) {
        help(stderr);
        return PROGRAM_USAGE;
    }
    if (asks_help(word) || strcmp(word, "help") == 0) {
        help(stdout);
        return PROGRAM_OK;
    }
    if (strcmp(word, "--version") == 0) {
        cpu_isa_words(cpu_isa_usable(), isa, sizeof(isa));
        build_print(program->name, isa, stdout);
        return PROGRAM_OK;
    }
    for (int i = 0; i < VERBS_MAX && program->verbs[i]; i++) {
        names[i] = program->verbs[i]->name;
        if (strcmp(word, names[i]) == 0)
            return run_verb(program->verbs[i], argc - 2, argv + 2);
    }
    (void)name_unknown(ERR_ARG, word, names, "unknown verb \"%s\"", word);
    return verb_fail(PROGRAM_USAGE);
}

int program_main(const struct program *p, int argc, char **argv)
{
    int status;

    program = p;
    snprintf(running, sizeof(running), "%s", p->name);
    status = run(argc, argv);
    return process_end() == OK || status != PROGRAM_OK ? status : verb_fail(PROGRAM_LOST);
}
