#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/home.h"
#include "base/mem.h"
#include "base/name.h"
#include "experiments/cli/verb.h"
#include "experiments/report/coverage.h"

struct coverage_opts {
};

#define OPT_OF struct coverage_opts
static const struct opt_row table[] = {{0}};

static bool has(const json_t *names, const char *word)
{
    const json_t *e;
    size_t i;

    json_array_foreach(names, i,
                       e) if (strcmp(json_string_value(e), word) == 0) return true;
    return false;
}

static bool is_chosen(const struct coverage_row *r, const struct verb_words *w)
{
    for (int i = 0; i < w->n_rest; i++)
        if (strcmp(w->rest[i], r->paper) == 0 || has(r->experiments, w->rest[i]))
            return true;
    return w->n_rest == 0;
}

/* Every word must name something. */
static int check_words(const struct coverage *c, const struct verb_words *w)
{
    const char **words;
    size_t n = c->n + 1, i, k;
    const json_t *e;
    int rc = OK;

    for (i = 0; i < c->n; i++)
        n += json_array_size(c->v[i].experiments);
    words = mem_new(MEM_HARNESS, n, sizeof(*words));
    n = 0;
    for (i = 0; i < c->n; i++) {
        words[n++] = c->v[i].paper;
        json_array_foreach(c->v[i].experiments, k, e) words[n++] = json_string_value(e);
    }
    for (int a = 0; a < w->n_rest && rc == OK; a++)
        if (name_index(words, w->rest[a]) < 0)
            rc = name_unknown(ERR_ARG, w->rest[a], words,
                              "no paper or experiment \"%s\" in the list", w->rest[a]);
    mem_free(words);
    return rc;
}

static void print_row(const struct coverage_row *r)
{
    char names[512], evidence[128];

    coverage_join(names, sizeof(names), r->experiments);
    coverage_join(evidence, sizeof(evidence), r->evidence);
    printf("  %-11s %s", r->where, coverage_kinds[r->kind]);
    if (*names)
        printf("%*s %s (%s)", 8 - (int)strlen(coverage_kinds[r->kind]), "", names,
               evidence);
    printf("\n");
    if (r->why)
        printf("  %-20s %s\n", "", r->why);
}

static void print_total(const char *name, const int count[COVERAGE_KINDS])
{
    printf("%s: ", name);
    for (int k = 0; k < COVERAGE_KINDS; k++)
        printf("%s%d %s", k ? ", " : "", count[k], coverage_kinds[k]);
    printf("\n");
}

static void print_rows(const struct coverage *c, const struct verb_words *w)
{
    int all[COVERAGE_KINDS] = {0}, n_papers = 0;

    for (size_t i = 0; i < c->n;) {
        const char *paper = c->v[i].paper;
        int count[COVERAGE_KINDS] = {0}, n = 0;

        for (; i < c->n && strcmp(c->v[i].paper, paper) == 0; i++) {
            if (!is_chosen(&c->v[i], w))
                continue;
            if (n++ == 0)
                printf("%s\n", paper);
            print_row(&c->v[i]);
            count[c->v[i].kind]++;
            all[c->v[i].kind]++;
        }
        if (n == 0)
            continue;
        print_total(paper, count);
        printf("\n");
        n_papers++;
    }
    if (n_papers > 1)
        print_total("All papers", all);
}

static int coverage(const struct verb_words *w)
{
    char path[PATH_MAX];
    struct coverage c;
    int rc;

    home_find(path, sizeof(path), "results/coverage.json");
    rc = coverage_read(&c, path);
    if (rc == OK)
        rc = check_words(&c, w);
    if (rc == OK)
        print_rows(&c, w);
    coverage_fini(&c);
    return rc == OK ? PROGRAM_OK : verb_fail(PROGRAM_USAGE);
}

const struct verb verb_coverage = {
    .name = "coverage",
    .help = "List what of the papers is tested, and what is not.",
    .usage = {"testbed coverage [NAME...]",
              "List every place of the papers that results/reference/ has, which are all "
              "figures and tables and the sections with numbers: full; partial, some of "
              "it or on a smaller scale; other, the same question "
              "asked in another way; none. Then the experiments that test it, what their "
              "numbers rest on, and what is missing. A NAME is that of a paper or an "
              "experiment.",
              "  testbed coverage\n"
              "  testbed coverage ODMA\n"},
    .n_optional = INT_MAX,
    .opts = {{table}},
    .opts_bytes = sizeof(struct coverage_opts),
    .run = coverage,
};
