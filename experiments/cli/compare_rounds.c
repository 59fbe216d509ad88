#include "experiments/cli/compare_rounds.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/home.h"
#include "base/log.h"
#include "base/mem.h"
#include "experiments/metrics/compare.h"
#include "experiments/record/head.h"

/* The finished records in a folder; 0 where there is none. */
static int64_t n_records(const char *dir)
{
    json_t *paths;
    int64_t n = export_list(&paths, dir) == OK ? (int64_t)json_array_size(paths) : 0;

    json_decref(paths);
    return n;
}

/* The same file for both sides, whichever experiments a program comes with. */
static const char *find_job(char out[PATH_MAX], const char *job)
{
    char name[PATH_MAX];

    if (strpbrk(job, "./"))
        return job;
    snprintf(name, sizeof(name), "experiments/%s.json", job);
    return home_find(out, PATH_MAX, name);
}

struct command {
    const char **argv;
    int n;
    char *sets; /* copied, and cut at its lines */
};

static int make_command(struct command *c, const struct compare_rounds *r,
                        const struct compare_variant *v, const char *program,
                        const char *job, const char *dir)
{
    size_t n_lines = 1;

    for (const char *p = v->sets; p && *p; p++)
        n_lines += *p == '\n';
    *c = (struct command){.argv =
                              mem_new(MEM_HARNESS, 10 + 2 * (n_lines + (size_t)r->n_sets),
                                      sizeof(*c->argv)),
                          .sets = mem_strdup(MEM_HARNESS, v->sets ? v->sets : "")};
    c->argv[c->n++] = program;
    c->argv[c->n++] = "run";
    c->argv[c->n++] = job;
    c->argv[c->n++] = "--quiet";
    c->argv[c->n++] = "--fresh";
    c->argv[c->n++] = "--out";
    c->argv[c->n++] = dir;
    if (r->smoke)
        c->argv[c->n++] = "--smoke";
    for (int i = 0; i < r->n_sets; i++) {
        c->argv[c->n++] = "--set";
        c->argv[c->n++] = r->sets[i];
    }
    for (char *p = strtok(c->sets, "\n"); p; p = strtok(NULL, "\n")) {
        c->argv[c->n++] = "--set";
        c->argv[c->n++] = p;
    }
    return OK;
}

static const struct arm {
    const char *name, *dir;
    int side;
} arms[] = {{"A", "a", 0}, {"B", "b", 1}, {"A again", "aa", 0}};
enum { N_ARMS = sizeof(arms) / sizeof(arms[0]) };

/* A run of which cells failed leaves a record, too: the comparison states them. */
static int run_once(const struct compare_rounds *r, const struct arm *arm,
                    const char *dir)
{
    const struct compare_variant *v = &r->side[arm->side];
    const struct child_program p0 = {.fd = {-1, -1, STDERR_FILENO}};
    struct child_program p = p0;
    char program[PATH_MAX], job[PATH_MAX];
    struct command c;
    int64_t n_before = n_records(dir);
    pid_t pid = 0;
    int rc = make_command(&c, r, v,
                          v->program ? v->program
                                     : home_program(program, sizeof(program), "testbed"),
                          find_job(job, v->job), dir);

    p.argv = c.argv;
    if (rc == OK)
        rc = child_start(&pid, &p);
    if (rc == OK)
        rc = child_wait(&pid, 0);
    if (rc == ERR_IO && n_records(dir) > n_before)
        rc = OK;
    if (rc != OK)
        rc = err_prefix(rc, "%s run %s, side %s", c.argv ? c.argv[0] : "testbed", v->job,
                        arm->name);
    mem_free(c.argv);
    mem_free(c.sets);
    return rc;
}

static bool dir_of(char out[PATH_MAX], const struct compare_rounds *r, int arm)
{
    return snprintf(out, PATH_MAX, "%s/%s", r->dir, arms[arm].dir) < PATH_MAX;
}

int64_t compare_rounds_done(const struct compare_rounds *r)
{
    int64_t n = INT64_MAX;
    char dir[PATH_MAX];

    for (int arm = 0; arm < (r->aa ? N_ARMS : 2); arm++) {
        int64_t n_of_arm = dir_of(dir, r, arm) ? n_records(dir) : 0;

        n = n_of_arm < n ? n_of_arm : n;
    }
    return n;
}

int compare_rounds_run(const struct compare_rounds *r)
{
    const int n_arms = r->aa ? N_ARMS : 2;
    char dir[N_ARMS][PATH_MAX];

    for (int arm = 0; arm < n_arms; arm++)
        if (!dir_of(dir[arm], r, arm))
            return err_set(ERR_ARG, "--out: the path is too long");
    for (int64_t round = 0; round < r->n_rounds; round++)
        for (int turn = 0; turn < n_arms; turn++) {
            int arm = compare_turn(round, turn, n_arms);

            if (n_records(dir[arm]) > round)
                continue;
            log_info("round %lld of %s%lld: %s", (long long)round + 1,
                     r->n_rounds_max ? "at most " : "",
                     (long long)(r->n_rounds_max ? r->n_rounds_max : r->n_rounds),
                     arms[arm].name);
            TRY(run_once(r, &arms[arm], dir[arm]));
        }
    return OK;
}
