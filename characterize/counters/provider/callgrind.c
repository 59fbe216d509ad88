/* A program under valgrind's callgrind. */
#include "characterize/counters/program.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file_tmp.h"
#include "base/mem.h"
#include "characterize/counters/counters.h"

#define ARGS_MAX  64
#define CALLS_MAX 4096 /* two files a call: a bound for what one folder gets */
#define FILE_STEM "callgrind.counters"

/* ---- running ---- */

static int start(pid_t *pid, const struct counters_program *p, const char *dir)
{
    char dump_before[200], dump_after[200], toggle[200], ll[100], out[600], log[600];
    const char *argv[ARGS_MAX + 16] = {"valgrind",
                                       "--tool=callgrind",
                                       "--cache-sim=yes",
                                       "--collect-atstart=no",
                                       "--combine-dumps=no",
                                       "-q",
                                       toggle,
                                       dump_before,
                                       dump_after,
                                       ll,
                                       out,
                                       log};
    const struct child_program child = {.argv = argv, .fd = {-1, -1, -1}};
    int n = 12, rc;

    snprintf(toggle, sizeof(toggle), "--toggle-collect=%s", p->function);
    snprintf(dump_before, sizeof(dump_before), "--dump-before=%s", p->function);
    snprintf(dump_after, sizeof(dump_after), "--dump-after=%s", p->function);
    snprintf(ll, sizeof(ll), "--LL=%lld,%d,%d", (long long)p->ll_bytes, p->ll_ways,
             p->line_bytes);
    snprintf(out, sizeof(out), "--callgrind-out-file=%s/" FILE_STEM, dir);
    snprintf(log, sizeof(log), "--log-file=%s/" FILE_STEM ".log", dir);
    for (int i = 0; p->argv[i]; i++)
        argv[n++] = p->argv[i];
    rc = child_start(pid, &child);
    return rc == ERR_NOTFOUND
               ? err_set(rc, "no valgrind here: install the package valgrind")
               : rc;
}

/* The last line valgrind or the loader left; "" if there is none. */
static void last_line(const char *dir, char *out, size_t n)
{
    char path[600];
    FILE *f;

    out[0] = 0;
    snprintf(path, sizeof(path), "%s/" FILE_STEM ".log", dir);
    f = fopen(path, "re");
    if (!f)
        return;
    while (fgets(out, (int)n, f))
        out[strcspn(out, "\n")] = 0;
    fclose(f);
}

static int run(const struct counters_program *p, const char *dir)
{
    char line[200];
    pid_t pid;
    int rc = start(&pid, p, dir);

    if (rc == OK) {
        rc = child_wait(&pid, p->limit_s);
        child_kill(&pid);
        last_line(dir, line, sizeof(line));
        if (rc == ERR_LIMIT)
            rc = err_set(ERR_IO, "%s under valgrind: not done after %g s", p->argv[0],
                         p->limit_s);
        else if (rc != OK)
            rc = err_set(rc, "%s under valgrind: %s: %s", p->argv[0], err_msg(), line);
    }
    return rc;
}

/* ---- what it leaves ---- */

/* The columns of a "totals:" line in the order that "events:" gives them. */
static bool read_dump(FILE *f, struct counters_call *c, bool *after)
{
    static const struct {
        const char *name;
        size_t offset;
    } columns[] = {
        {"Ir", offsetof(struct counters_call, instructions)},
        {"Dr", offsetof(struct counters_call, reads)},
        {"Dw", offsetof(struct counters_call, writes)},
        {"I1mr", offsetof(struct counters_call, l1_misses)},
        {"D1mr", offsetof(struct counters_call, l1_misses)},
        {"D1mw", offsetof(struct counters_call, l1_misses)},
        {"DLmr", offsetof(struct counters_call, ll_read_misses)},
        {"DLmw", offsetof(struct counters_call, ll_write_misses)},
    };
    char line[4096], names[16][8] = {""};
    int n_names = 0;
    bool totals = false;

    while (fgets(line, sizeof(line), f)) {
        char *at = line, *end;

        if (strncmp(line, "desc: Trigger: --dump-after", 27) == 0)
            *after = true;
        if (strncmp(line, "events:", 7) == 0) {
            int used = 0;

            for (at += 7; n_names < 16 && sscanf(at, "%7s%n", names[n_names], &used) == 1;
                 at += used)
                n_names++;
        }
        if (strncmp(line, "totals:", 7) != 0)
            continue;
        totals = true;
        at += 7;
        for (int i = 0; i < n_names; i++, at = end) {
            int64_t v = strtoll(at, &end, 10);

            for (size_t k = 0; k < sizeof(columns) / sizeof(columns[0]); k++)
                if (strcmp(columns[k].name, names[i]) == 0)
                    *(int64_t *)((char *)c + columns[k].offset) += v;
        }
    }
    return totals && n_names > 0;
}

/* Dumps are numbered from 1; those after a call hold the call. */
static int read_dumps(const struct counters_program *p, const char *dir,
                      struct counters_call *calls, int *n_calls)
{
    char path[600];
    int rc = OK;

    for (int i = 1; i <= 2 * CALLS_MAX && rc == OK; i++) {
        struct counters_call c = {0};
        bool after = false;
        FILE *f;

        snprintf(path, sizeof(path), "%s/" FILE_STEM ".%d", dir, i);
        f = fopen(path, "re");
        if (!f)
            break;
        if (!read_dump(f, &c, &after))
            rc = err_set(ERR_FORMAT, "%s: no totals in it", path);
        fclose(f);
        if (after && *n_calls < CALLS_MAX)
            calls[(*n_calls)++] = c;
    }
    if (rc == OK && *n_calls == 0)
        rc = err_set(ERR_NOTFOUND, "%s: %s() was never called", p->argv[0], p->function);
    return rc;
}

int counters_program_run(const struct counters_program *p, struct counters_call **calls,
                         int *n_calls)
{
    struct counters_call *c = NULL;
    struct file_tmp dir;
    int n = 0, rc;

    *calls = NULL;
    *n_calls = 0;
    while (p->argv[n])
        n++;
    if (n < 1 || n > ARGS_MAX)
        return err_set(ERR_ARG, "program: expected 1 to %d words, found %d", ARGS_MAX, n);
    c = mem_new(MEM_OTHER, CALLS_MAX, sizeof(*c));
    if (!c)
        return ERR_NOMEM;
    n = 0;
    rc = file_tmp_open_dir(&dir, p->files);
    if (rc == OK)
        rc = run(p, dir.path);
    if (rc == OK)
        rc = read_dumps(p, dir.path, c, &n);
    file_tmp_close(&dir);
    if (rc == OK)
        *calls = c, *n_calls = n, c = NULL;
    mem_free(c);
    return rc;
}

const struct counters_provider counters_callgrind = {
    .name = "callgrind",
    .help = "whole programs under valgrind: instructions, simulated L1 and LL misses",
};
