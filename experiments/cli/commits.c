#include "experiments/cli/commits.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/home.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "experiments/cli/compare_folders.h"
#include "experiments/cli/compare_rounds.h"

#define SHORT      12 /* digits of a commit in names of files and in texts */
#define TREE       "{tree}"
#define MAX_TABLES 3 /* of a report */

#define OPT_OF struct commits_opts
const struct opt_row commits_opt_table[] = {
    OPT_ROW(STR, out, NULL, "Folder of worktrees, builds, records and report.md.",
            .unit = "PATH"),
    OPT_ROW(STR, repo, NULL, "The git repository. Required.", .unit = "PATH"),
    OPT_ROW(STR, job, NULL,
            "Experiment to run, a name or a file; the flag may be repeated. "
            "Required.",
            .unit = "NAME", .joins = ','),
    OPT_ROW(STR, build, NULL,
            "Command that builds a commit, run by sh in its worktree. "
            "Required. Example: 'make -j4'.",
            .unit = "CMD"),
    OPT_ROW(STR, testbed, NULL,
            "The testbed that runs the job, by its path in the worktree, such "
            "as build/testbed. Default: this one, with a --set whose value has "
            "{tree}, which stands for the worktree.",
            .unit = "PATH"),
    OPT_ROW(STR, metric, NULL,
            "Metric to compare; the flag may be repeated. Default: as of "
            "`testbed compare`.",
            .unit = "NAME", .joins = ','),
    OPT_ROW(STR, margin, "5%",
            "A commit is worse only where all of an interval is by more than "
            "this share.",
            .unit = "P%"),
    OPT_ROW(INT, rounds_max, "30",
            "The most rounds of a comparison. It ends earlier with a verdict.",
            .min = COMPARE_SEQUENTIAL_LEAST, .max = 1000),
    OPT_ROW(BOOL, aa, "true",
            "Run the good commit a second time in each round: a difference "
            "that is not above what this A/A could have seen is no verdict."),
    OPT_ROW(BOOL, keep, "false", "Keep the worktrees."),
    OPT_ROW(INT, seed, "1", "Seed of the draws of requests for the intervals.", .min = 0,
            .max = 1e9),
    OPT_ROW(BOOL, smoke, "false", "Use the job's smoke section: small and quick."),
    {0},
};

const char *commits_verdict_name(enum commits_verdict v)
{
    static const char *const names[] = {"not worse", "worse", "cannot say", "skipped"};

    return names[v];
}

/* --- git */

/* Run a program with its output in a file without a name; *text: mem_free(), NULL on error. The
 * error line ends with the last line that it wrote to standard error. */
static int run(char **text, const char *const *argv, const char *what)
{
    FILE *out = tmpfile(), *err = tmpfile();
    struct child_program p = {.argv = argv};
    char line[200];
    long n = 0;
    pid_t pid = 0;
    int rc = out && err ? OK : err_set(ERR_IO, "%s: no temporary file: %m", what);

    *text = NULL;
    if (rc == OK) {
        p.fd[0] = -1;
        p.fd[1] = fileno(out);
        p.fd[2] = fileno(err);
        rc = child_start(&pid, &p);
    }
    if (rc == OK && (rc = child_wait(&pid, 0)) != OK) {
        child_last_line(fileno(err), line, sizeof(line));
        rc = line[0] ? err_set(rc, "%s: %s", what, line) : err_prefix(rc, "%s", what);
    }
    if (rc == OK) {
        n = fseek(out, 0, SEEK_END) == 0 ? ftell(out) : 0;
        rewind(out);
        *text = mem_new(MEM_HARNESS, (size_t)n + 1, 1);
        n = (long)fread(*text, 1, (size_t)n, out);
        while (n > 0 && (*text)[n - 1] == '\n')
            (*text)[--n] = '\0';
    }
    if (out)
        fclose(out);
    if (err)
        fclose(err);
    return rc;
}

/* git in the repository, whatever repository a hook that calls us has named; NULL ends words. */
static int git(char **text, const struct commits *c, const char *const *words)
{
    const char *argv[24] = {
        "env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE",
        "git", "-C", c->o->repo};
    int n = 10;

    for (; *words; words++)
        argv[n++] = *words;
    return run(text, argv, "git");
}

#define GIT(text, c, ...) git(text, c, (const char *const[]){__VA_ARGS__, NULL})

/* The same where only success matters. */
static int git_do(const struct commits *c, const char *const *words)
{
    char *text;
    int rc = git(&text, c, words);

    mem_free(text);
    return rc;
}
#define GIT_DO(c, ...) git_do(c, (const char *const[]){__VA_ARGS__, NULL})

int commits_find(char out[COMMITS_SHA_BYTES], const struct commits *c, const char *rev,
                 const char *flag)
{
    char *text = NULL, *name = mem_new(MEM_HARNESS, strlen(rev) + 16, 1);
    int rc;

    sprintf(name, "%s^{commit}", rev);
    rc = GIT(&text, c, "rev-parse", "--verify", "--quiet", "--end-of-options", name);
    if (rc != OK || strlen(text) >= COMMITS_SHA_BYTES)
        rc = err_set(ERR_ARG, "%s: expected a commit of %s, found \"%s\"", flag,
                     c->o->repo, rev);
    else
        strcpy(out, text);
    mem_free(name);
    mem_free(text);
    return rc;
}

int commits_check_ancestor(const struct commits *c, const char *old, const char *sha)
{
    if (GIT_DO(c, "merge-base", "--is-ancestor", old, sha) == OK)
        return OK;
    return err_set(ERR_ARG, "%s: %.*s is not an ancestor of %.*s", c->o->repo, SHORT, old,
                   SHORT, sha);
}

int commits_list(char (**out)[COMMITS_SHA_BYTES], size_t *n, const struct commits *c,
                 const char *old, const char *sha)
{
    char range[2 * COMMITS_SHA_BYTES + 2], *text, *line, *rest;
    int rc;

    *out = NULL;
    *n = 0;
    snprintf(range, sizeof(range), "%s..%s", old, sha);
    rc = GIT(&text, c, "rev-list", "--first-parent", "--reverse", range);
    if (rc == OK)
        *out = mem_new(MEM_HARNESS, strlen(text) / 40 + 1, sizeof(**out));
    for (line = strtok_r(text, "\n", &rest); rc == OK && line;
         line = strtok_r(NULL, "\n", &rest))
        snprintf((*out)[(*n)++], COMMITS_SHA_BYTES, "%s", line);
    mem_free(text);
    return rc;
}

void commits_line(char *out, size_t n, const struct commits *c, const char *sha)
{
    char *text;

    if (GIT(&text, c, "show", "-s", "--format=%cs %s", sha) != OK)
        text = mem_strdup(MEM_HARNESS, "");
    snprintf(out, n, "%.*s %s", SHORT, sha, text);
    mem_free(text);
}

/* --- worktrees and builds */

/* OUT/FOLDER/COMMIT<SUFFIX>. commits_open() sees to it that it fits. */
static const char *path_of(char out[PATH_MAX], const struct commits *c,
                           const char *folder, const char *sha, const char *suffix)
{
    snprintf(out, PATH_MAX, "%.3000s/%s/%.*s%s", c->out, folder, SHORT, sha, suffix);
    return out;
}

void commits_drop(const struct commits *c, const char *sha)
{
    char tree[PATH_MAX], mark[PATH_MAX];

    if (c->o->keep || access(path_of(tree, c, "trees", sha, ""), F_OK) != 0)
        return;
    unlink(path_of(mark, c, "trees", sha, ".built"));
    if (GIT_DO(c, "worktree", "remove", "--force", tree) != OK)
        log_info("%s stays: %s", tree, err_msg());
}

static int check_out(const struct commits *c, const char *sha, const char *tree)
{
    if (access(tree, F_OK) == 0)
        TRY(GIT_DO(c, "worktree", "remove", "--force", "--force", tree));
    TRY(GIT_DO(c, "worktree", "prune")); /* of trees that were deleted by hand */
    return GIT_DO(c, "worktree", "add", "--detach", tree, sha);
}

static int run_build(const struct commits *c, const char *sha, const char *tree)
{
    const char *argv[] = {"sh",        "-c", "cd \"$1\" && exec sh -c \"$2\"", "sh", tree,
                          c->o->build, NULL};
    struct child_program p = {.argv = argv};
    char log[PATH_MAX], last[160];
    pid_t pid = 0;
    int fd, rc;

    path_of(log, c, "builds", sha, ".log");
    TRY(file_make_parents(log));
    fd = open(log, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set(ERR_IO, "%s: cannot open: %m", log);
    p.fd[0] = -1;
    p.fd[1] = p.fd[2] = fd;
    rc = child_start(&pid, &p);
    if (rc == OK)
        rc = child_wait(&pid, 0);
    if (rc != OK) {
        child_last_line(fd, last, sizeof(last));
        rc = err_set(ERR_IO, "%.*s: --build %s%s%s (%s)", SHORT, sha, err_msg(),
                     last[0] ? ": " : "", last, log);
    }
    close(fd);
    return rc;
}

/* Was this tree built by the command that is asked for? */
static bool is_built(const struct commits *c, const char *sha)
{
    char mark[PATH_MAX], tree[PATH_MAX], *text = NULL;
    size_t n = 0;
    bool is;

    if (access(path_of(tree, c, "trees", sha, ""), F_OK) != 0 ||
        access(path_of(mark, c, "trees", sha, ".built"), F_OK) != 0)
        return false;
    is = file_read(&text, &n, mark, 1 << 20) == OK && n == strlen(c->o->build) &&
         memcmp(text, c->o->build, n) == 0;
    mem_free(text);
    return is;
}

static int build_afresh(const struct commits *c, const char *sha)
{
    char tree[PATH_MAX], mark[PATH_MAX], program[2 * PATH_MAX];

    log_info("build %.*s", SHORT, sha);
    path_of(tree, c, "trees", sha, "");
    path_of(mark, c, "trees", sha, ".built");
    TRY(file_make_parents(tree));
    unlink(mark);
    TRY(check_out(c, sha, tree));
    TRY(run_build(c, sha, tree));
    snprintf(program, sizeof(program), "%s/%s", tree, c->o->testbed ? c->o->testbed : "");
    if (access(program, X_OK) != 0)
        return err_set(ERR_IO,
                       "%.*s: --build ended, but --testbed %s is not a program there",
                       SHORT, sha, c->o->testbed);
    return file_write(mark, c->o->build, strlen(c->o->build));
}

static int build(const struct commits *c, const char *sha)
{
    int rc = is_built(c, sha) ? OK : build_afresh(c, sha);
    char text[600];

    if (rc == OK)
        return OK;
    snprintf(text, sizeof(text), "%s", err_msg());
    commits_drop(c, sha);
    return err_set(rc, "%s", text);
}

/* --- begin and end */

static int check_job(const char *job)
{
    char name[PATH_MAX], path[PATH_MAX];

    if (strpbrk(job, "./")) {
        snprintf(path, sizeof(path), "%s", job);
    } else {
        snprintf(name, sizeof(name), "experiments/%.200s.json", job);
        home_find(path, sizeof(path), name);
    }
    if (access(path, R_OK) != 0)
        return err_set(ERR_ARG, "--job: expected an experiment or its file, found \"%s\"",
                       job);
    return OK;
}

/* The k-th job, from 0; false: there are no more. */
static bool job_at(char out[PATH_MAX], const struct commits *c, int k)
{
    const char *p = c->o->job;

    for (; k > 0 && p; k--)
        p = (p = strchr(p, ',')) ? p + 1 : NULL;
    if (!p)
        return false;
    snprintf(out, PATH_MAX, "%.*s", (int)strcspn(p, ","), p);
    return true;
}

/* Where nothing of a commit takes part, all commits are the same. */
static int check_part(const struct commits *c)
{
    for (int i = 0; i < c->n_sets; i++)
        if (strstr(c->sets[i], TREE))
            return OK;
    if (c->o->testbed)
        return OK;
    return err_set(ERR_ARG,
                   "nothing of a commit would be run: expected --testbed PATH or a --set "
                   "whose value has " TREE ", such as --set system.program=" TREE
                   "/build/bin/llama-server");
}

int commits_open(struct commits *c, const struct commits_opts *o, const char *out,
                 char *const *sets, int n_sets)
{
    char job[PATH_MAX], *real;

    *c = (struct commits){.o = o, .sets = sets, .n_sets = n_sets};
    if (!o->repo || !o->job || !o->build)
        return err_set(ERR_ARG,
                       "--%s: expected a value, found none (--help describes it)",
                       !o->repo  ? "repo"
                       : !o->job ? "job"
                                 : "build");
    TRY(compare_share(&c->margin_frac, o->margin, "--margin"));
    TRY(check_part(c));
    if (GIT_DO(c, "rev-parse", "--git-dir") != OK)
        return err_set(ERR_ARG, "--repo: expected a git repository, found \"%s\" (%s)",
                       o->repo, err_msg());
    for (int k = 0; job_at(job, c, k); k++)
        TRY(check_job(job));
    TRY(file_check_dir(out));
    real = realpath(out, NULL);
    if (!real || strlen(real) > 700) /* struct compare_folders */
        return err_set(ERR_ARG, "--out: %s: expected a path of at most 700 bytes", out);
    snprintf(c->out, sizeof(c->out), "%s", real);
    free(real);
    return OK;
}

void commits_close(struct commits *c)
{
    for (size_t i = 0; i < c->n_steps; i++) {
        commits_drop(c, c->steps[i].commit);
        commits_drop(c, c->steps[i].good);
        free(c->steps[i].table); /* open_memstream()'s */
    }
    mem_free(c->steps);
    c->steps = NULL;
    c->n_steps = 0;
}

/* --- compare */

/* The settings of a side, in lines, with its worktree in them. mem_free(). */
static int side_sets(char **out, const struct commits *c, const char *sha)
{
    char tree[PATH_MAX];
    struct text t = {0};

    path_of(tree, c, "trees", sha, "");
    for (int i = 0; i < c->n_sets; i++) {
        const char *p = c->sets[i], *at;

        for (; (at = strstr(p, TREE)) != NULL; p = at + strlen(TREE)) {
            text_put(&t, p, (size_t)(at - p));
            text_puts(&t, tree);
        }
        text_puts(&t, p);
        text_puts(&t, "\n");
    }
    text_put(&t, "", 1);
    *out = t.p;
    return t.rc;
}

/* Records of other settings are not of this comparison. */
static void choose_dir(struct compare_folders *f, const struct commits *c,
                       const char *good, const char *sha, const char *job)
{
    const struct commits_opts *o = c->o;
    uint64_t h = hash_fnv1a(HASH_FNV1A, job);

    h = hash_fnv1a(hash_fnv1a(h, "\n"), o->build);
    h = hash_fnv1a(hash_fnv1a(h, "\n"), o->testbed ? o->testbed : "");
    h = hash_fnv1a(h, o->smoke ? "\nsmoke" : "\n");
    for (int i = 0; i < c->n_sets; i++)
        h = hash_fnv1a(hash_fnv1a(h, "\n"), c->sets[i]);
    snprintf(f->dir, sizeof(f->dir), "%.700s/compare/%.*s-%.*s-%08x", c->out, SHORT, good,
             SHORT, sha, (unsigned)(h ^ h >> 32));
    compare_folders_fill(f);
}

/* Rounds until there is a verdict. They are checked after 6, 8, 10, 13 ... rounds: a check after
 * each round would take longer than the rounds of a small job. */
static int decide(struct commits_step *s, const struct commits *c,
                  struct compare_rounds *r, const struct compare_folders *f)
{
    const struct compare_report_opts report = {.metrics = c->o->metric,
                                               .margin_frac = c->margin_frac,
                                               .no_aa = !c->o->aa,
                                               .sequential = true,
                                               .seed = (uint64_t)c->o->seed};
    int64_t n = COMPARE_SEQUENTIAL_LEAST;

    TRY(compare_folders_keep(f, 0, NAN, "not yet"));
    for (;; n += (n + 3) / 4) {
        struct compare_totals t = {0};
        size_t bytes;
        FILE *table;
        int rc;

        n = n < c->o->rounds_max ? n : c->o->rounds_max;
        s->n_rounds = r->n_rounds = n;
        TRY(compare_rounds_run(r));
        free(s->table);
        s->table = NULL;
        table = open_memstream(&s->table, &bytes);
        if (!table)
            return err_set(ERR_NOMEM, "no memory for a comparison");
        rc =
            compare_paths_report(&t, f->a, f->b, c->o->aa ? f->aa : NULL, &report, table);
        fclose(table);
        TRY(rc);
        s->verdict = t.n[COMPARE_WORSE] ? COMMITS_WORSE
                     : t.n_maybe_worse  ? COMMITS_UNKNOWN
                                        : COMMITS_SAME;
        if (s->verdict != COMMITS_UNKNOWN || n >= c->o->rounds_max)
            break;
    }
    return compare_folders_keep(f, n, NAN, commits_verdict_name(s->verdict));
}

static int compare_job(struct commits_step *s, const struct commits *c, const char *job)
{
    struct compare_rounds r = {
        .smoke = c->o->smoke, .aa = c->o->aa, .n_rounds_max = c->o->rounds_max};
    char program[2][2 * PATH_MAX], tree[PATH_MAX], *sets[2] = {NULL, NULL};
    const char *sha[] = {s->good, s->commit};
    struct compare_folders f;
    int rc = OK;

    choose_dir(&f, c, s->good, s->commit, job);
    snprintf(s->dir, sizeof(s->dir), "%s", f.dir);
    r.dir = f.dir;
    for (int side = 0; side < 2 && rc == OK; side++) {
        rc = side_sets(&sets[side], c, sha[side]);
        snprintf(program[side], sizeof(program[side]), "%s/%s",
                 path_of(tree, c, "trees", sha[side], ""),
                 c->o->testbed ? c->o->testbed : "");
        r.side[side] = (struct compare_variant){c->o->testbed ? program[side] : NULL, job,
                                                sets[side]};
    }
    if (rc == OK)
        rc = decide(s, c, &r, &f);
    mem_free(sets[0]);
    mem_free(sets[1]);
    return rc;
}

/* Worse in one job is worse; of the others the least sure decides. */
static int compare_all(struct commits_step *s, const struct commits *c)
{
    enum commits_verdict all = COMMITS_SAME;
    char job[PATH_MAX];

    for (int k = 0; job_at(job, c, k); k++) {
        log_info("%.*s against %.*s: %s", SHORT, s->commit, SHORT, s->good, job);
        TRY(compare_job(s, c, job));
        if (s->verdict == COMMITS_WORSE)
            return OK;
        all = s->verdict == COMMITS_UNKNOWN ? COMMITS_UNKNOWN : all;
    }
    s->verdict = all;
    return OK;
}

int commits_compare(const struct commits_step **out, struct commits *c, const char *good,
                    const char *sha)
{
    struct commits_step *s;
    int rc;

    *out = NULL;
    TRY(build(c, good));
    c->steps = mem_resize(MEM_HARNESS, c->steps, c->n_steps + 1, sizeof(*c->steps));
    s = &c->steps[c->n_steps++];
    *s = (struct commits_step){0};
    snprintf(s->commit, sizeof(s->commit), "%s", sha);
    snprintf(s->good, sizeof(s->good), "%s", good);
    rc = build(c, sha);
    if (rc == OK)
        rc = compare_all(s, c);
    if (rc == ERR_NOTFOUND)
        return rc;
    if (rc != OK) {
        s->verdict = COMMITS_SKIPPED;
        snprintf(s->why, sizeof(s->why), "%s", err_msg());
    }
    *out = s;
    return OK;
}

/* --- the page */

static void report_step(const struct commits *c, const struct commits_step *s, FILE *f)
{
    char line[160];

    commits_line(line, sizeof(line), c, s->commit);
    for (char *p = line; *p; p++)
        *p = *p == '|' ? '/' : *p;
    fprintf(f, "| %.*s | %s | %.*s | %lld | %s%s%s |\n", SHORT, s->commit,
            line + SHORT + (line[SHORT] == ' '), SHORT, s->good, (long long)s->n_rounds,
            commits_verdict_name(s->verdict), s->why[0] ? ": " : "", s->why);
}

/* Print the tables of the steps with this verdict; `n` were printed before. Returns how many
 * there are. */
static int report_tables(const struct commits *c, enum commits_verdict v, int n, FILE *f)
{
    for (size_t i = 0; i < c->n_steps; i++) {
        const struct commits_step *s = &c->steps[i];

        if (!s->table || s->verdict != v || n++ >= MAX_TABLES)
            continue;
        fprintf(f,
                "\n## %.*s: %s\n\n```\n%s```\n\nThe same from its records: `testbed "
                "compare %s/a %s/b`\n",
                SHORT, s->commit, commits_verdict_name(v), s->table, s->dir, s->dir);
    }
    return n;
}

int commits_report(const struct commits *c, const char *title, const char *result)
{
    char path[PATH_MAX + 16];
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    int rc, n_tables;

    if (!f)
        return err_set(ERR_NOMEM, "no memory for a report");
    fprintf(f, "# %s\n\n%s\n\n", title, result);
    fprintf(
        f,
        "- repository: %s, built with `%s`\n- jobs: %s, margin %s, at most %lld "
        "rounds\n\n"
        "A commit is worse where all of the interval of a metric is, by more than the "
        "margin. Each\ncomparison ended with its verdict, or at the limit of rounds.\n\n",
        c->o->repo, c->o->build, c->o->job, c->o->margin, (long long)c->o->rounds_max);
    fprintf(f, "| commit | date and subject | against | rounds | verdict |\n"
               "|---|---|---|---|---|\n");
    for (size_t i = 0; i < c->n_steps; i++)
        report_step(c, &c->steps[i], f);
    n_tables = report_tables(c, COMMITS_WORSE, 0, f);
    n_tables = report_tables(c, COMMITS_UNKNOWN, n_tables, f);
    if (n_tables > MAX_TABLES) /* more would not be a page */
        fprintf(f, "\nThe records of %d more are in %s/compare.\n", n_tables - MAX_TABLES,
                c->out);
    fclose(f);
    snprintf(path, sizeof(path), "%s/report.md", c->out);
    rc = file_write(path, text, n);
    free(text);
    return rc;
}
