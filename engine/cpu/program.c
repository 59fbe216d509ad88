#include "cpu/program.h"

#include <string.h>

#include "base/build.h"
#include "base/name.h"
#include "base/process.h"
#include "cpu/cpu.h"

#define VERBS_MAX 32

/* Print `name: ` and the last error; returns `status`. */
static int fail(const struct cpu_program *p, int status)
{
    fprintf(stderr, "%s: %s\n", p->name, err_msg());
    return status;
}

static int run(const struct cpu_program *p, int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "", *verbs[VERBS_MAX + 1] = {0};
    char isa[256];

    if (process_start() != OK || cpu_isa_check_env() != OK)
        return fail(p, p->exit_usage);
    if (argc < 2) {
        p->help(stderr);
        return p->exit_usage;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
        p->help(stdout);
        return 0;
    }
    if (!strcmp(word, "--version")) {
        cpu_isa_words(cpu_isa_usable(), isa, sizeof(isa));
        build_print(p->name, isa, stdout);
        return 0;
    }
    for (int i = 0; i < VERBS_MAX && p->verb(i); i++) {
        verbs[i] = p->verb(i);
        if (!strcmp(word, verbs[i]))
            return p->run(i, argc - 2, argv + 2);
    }
    (void)name_unknown(ERR_ARG, word, verbs, "unknown verb \"%s\"", word);
    return fail(p, p->exit_usage);
}

int cpu_program_main(const struct cpu_program *p, int argc, char **argv)
{
    int status = run(p, argc, argv);

    return process_end() == OK || status != 0 ? status : fail(p, p->exit_lost);
}
