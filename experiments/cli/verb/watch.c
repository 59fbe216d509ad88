#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "experiments/cli/commits.h"
#include "experiments/cli/verb.h"

enum { WORSE = 4, CANNOT_SAY = 5 };

struct watch_opts {
    struct commits_opts common;
    bool strict;
    char *since, *until;
};

#define OPT_OF struct watch_opts
static const struct opt_row table[] = {
    OPT_ROW(
        STR, since, NULL,
        "The commit that is good; those after it are compared. Default: the last good "
        "one of the previous watch into the same folder, else the parent of --until.",
        .unit = "COMMIT"),
    OPT_ROW(STR, until, "HEAD", "The last commit to compare.", .unit = "COMMIT"),
    OPT_ROW(BOOL, strict, "false",
            "Exit with status 5 where a commit may be worse by more than the margin."),
    {0},
};
static const struct opt_change changes[] = {{.name = "out", .def = "results/watch"}, {0}};

/* The file in which a watch keeps its last good commit for the next one. */
static const char *state_of(char out[PATH_MAX + 16], const struct commits *c)
{
    snprintf(out, PATH_MAX + 16, "%s/watch.json", c->out);
    return out;
}

/* ERR_ARG: there is no such commit. */
static int find_since(char since[COMMITS_SHA_BYTES], const struct commits *c,
                      const struct watch_opts *o, const char *until)
{
    char path[PATH_MAX + 16], parent[COMMITS_SHA_BYTES + 1];
    json_t *state = NULL;
    const char *last;
    int rc;

    if (o->since)
        return commits_find(since, c, o->since, "--since");
    snprintf(parent, sizeof(parent), "%s^", until);
    if (access(state_of(path, c), F_OK) != 0)
        return commits_find(since, c, parent, "--until: its parent");
    rc = json_read_file(&state, path, 1 << 20);
    if (rc == OK)
        rc = json_get_str(state, "last_good", &last, path);
    if (rc == OK)
        rc = commits_find(since, c, last, path);
    json_decref(state);
    return rc;
}

static int keep_state(const struct commits *c, const char *good)
{
    char path[PATH_MAX + 16];
    json_t *j = json_pack("{s:s s:s}", "last_good", good, "repo", c->o->repo);
    int rc = json_write_file(j, state_of(path, c));

    json_decref(j);
    return rc;
}

struct tally {
    size_t n[COMMITS_SKIPPED + 1]; /* of each verdict */
    char worse[160];               /* the first commit that is worse; "": none is */
};

static void print_step(struct tally *t, const struct commits *c,
                       const struct commits_step *s)
{
    char line[120];

    commits_line(line, sizeof(line), c, s->commit);
    if (s->verdict == COMMITS_WORSE && t->n[COMMITS_WORSE] == 0)
        snprintf(t->worse, sizeof(t->worse), "%s", line);
    t->n[s->verdict]++;
    printf("%s: %s%s%s\n", line, commits_verdict_name(s->verdict), s->why[0] ? ": " : "",
           s->why);
    fflush(stdout);
}

static int report(const struct commits *c, const struct tally *t, size_t n_left)
{
    char text[400];

    snprintf(
        text, sizeof(text),
        "%s%s%sCommits compared%s: %zu. Not worse: %zu, worse: %zu, cannot say: %zu, "
        "skipped: %zu.",
        t->worse[0] ? "The first commit that is worse: " : "", t->worse,
        t->worse[0] ? "\n\n" : "", n_left ? " so far" : "", c->n_steps,
        t->n[COMMITS_SAME], t->n[COMMITS_WORSE], t->n[COMMITS_UNKNOWN],
        t->n[COMMITS_SKIPPED]);
    return commits_report(c, "Commits that were watched", text);
}

static int watch_all(struct tally *t, struct commits *c, const struct watch_opts *o)
{
    char good[COMMITS_SHA_BYTES], until[COMMITS_SHA_BYTES],
        (*list)[COMMITS_SHA_BYTES] = NULL;
    const struct commits_step *s;
    size_t n = 0;
    int rc;

    TRY(commits_find(until, c, o->until, "--until"));
    TRY(find_since(good, c, o, until));
    TRY(commits_check_ancestor(c, good, until));
    rc = commits_list(&list, &n, c, good, until);
    if (rc == OK && n == 0)
        printf("no commit after %.12s\n", good);
    for (size_t i = 0; i < n && rc == OK; i++) {
        rc = commits_compare(&s, c, good, list[i]);
        if (rc != OK)
            break;
        print_step(t, c, s);
        commits_drop(c, s->verdict == COMMITS_SAME ? good : list[i]);
        if (s->verdict == COMMITS_SAME)
            memcpy(good, list[i], sizeof(good));
        rc = keep_state(c, good);
        if (rc == OK)
            rc = report(c, t, n - i - 1);
    }
    mem_free(list);
    return rc;
}

static int watch(const struct verb_words *w)
{
    const struct watch_opts *o = w->opts;
    struct tally t = {.worse = ""};
    struct commits c;
    int rc = commits_open(&c, &o->common, o->common.out, w->sets, w->n_sets);

    if (rc == OK)
        rc = watch_all(&t, &c, o);
    if (rc == OK && c.n_steps)
        printf("%s/report.md\n", c.out);
    commits_close(&c);
    if (rc != OK)
        return verb_fail(rc == ERR_ARG || rc == ERR_NOTFOUND ? PROGRAM_USAGE
                                                             : VERB_INVALID);
    return t.n[COMMITS_WORSE]                  ? WORSE
           : t.n[COMMITS_SKIPPED]              ? VERB_INVALID
           : o->strict && t.n[COMMITS_UNKNOWN] ? CANNOT_SAY
                                               : PROGRAM_OK;
}

const struct verb verb_watch = {
    .name = "watch",
    .help = "Build new commits of an engine and compare each with the last good one.",
    .usage =
        {"testbed watch --repo PATH --job NAME --build CMD [--since COMMIT] [options]",
         "Build each commit after a good one in a worktree of its own, and compare it "
         "with the last good one, in turn, as `testbed compare` does. One that is not "
         "worse is the next good one. The comparisons and what was slower are on one "
         "page, report.md. The next watch into the same folder begins at the last good "
         "commit, so that it can be run every night.",
         "  testbed watch --repo . --job quickstart --build 'make -j4' --testbed "
         "build/testbed --since v0.3.0\n"
         "  testbed watch --repo ~/llama.cpp --job ./serve.json --build 'cmake -B build "
         "&& cmake --build build -j4' \\\n"
         "      --set system.program={tree}/build/bin/llama-server\n",
         "  0  no commit is worse by more than the margin, as far as it can be said\n"
         "  2  wrong usage: a repository, commit or experiment that is not there\n"
         "  3  a commit could not be built or run, or standard output not be written\n"
         "  4  a commit is worse than the last good one by more than the margin\n"
         "  5  --strict: of a commit it cannot be said that it is not\n"},
    .takes_set = true,
    .opts = {{table}, {commits_opt_table, 0, changes}},
    .opts_bytes = sizeof(struct watch_opts),
    .run = watch,
};
