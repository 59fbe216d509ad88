#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/process.h"
#include "experiments/report/assumptions.h"
#include "experiments/report/claim_null.h"
#include "experiments/report/claims.h"
#include "experiments/record/head.h"
#include "experiments/record/published.h"
#include "experiments/run/resume.h"
#include "experiments/cli/verb.h"
#include "experiments/cli/verb_run.h"

/* An addition to enum verb_status. */
#define STATUS_FAILED 4

struct check_opts {
    bool run, quiet, published, null, assumptions, json;
    char *claims;
};

#define OPT_OF struct check_opts
static const struct opt_row table[] = {
    OPT_ROW(BOOL, run, "false",
            "First run the experiments that the claims need and that have no record."),
    OPT_ROW(BOOL, quiet, "false", "With --run: print no progress."),
    OPT_ROW(BOOL, published, "false",
            "Judge only by the records that come with the program, also where you have "
            "records of your own."),
    OPT_ROW(
        BOOL, null, "false",
        "For each rule print how often chance passes it: where nothing differs but for "
        "noise, where effects are of any size, and with the record's numbers exchanged."),
    OPT_ROW(BOOL, assumptions, "false",
            "Print what the papers leave open, and each claim's verdict in every setting "
            "of it that was tried (results/assumptions.json)."),
    OPT_ROW(BOOL, json, "false", "With --assumptions: print the matrix as JSON."),
    OPT_ROW(STR, claims, NULL,
            "List of claims. Default: results/claims.json, which comes with the program.",
            .unit = "FILE"),
    {0},
};

struct check {
    struct claims claims;
    json_t *records; /* {experiment: record, or null with `reasons`} */
    json_t *reasons; /* {experiment: why its record cannot be read} */
    int count[CLAIM_NO_RECORD + 1];
    struct text failed; /* names of claims that should hold */
    int n_failed;
    int n_never_fail;        /* rules that no draw fails */
    bool in_full, published; /* print what the paper says; only these records */
    bool is_live;            /* a person waits at a terminal */
};

/* One line that is written again; before other words it goes. */
static void show(const struct check *k, const char *what, size_t i, size_t n)
{
    if (k->is_live)
        fprintf(stderr, "\r\033[K%s %zu of %zu", what, i, n);
}

static void unshow(const struct check *k)
{
    if (k->is_live)
        fputs("\r\033[K", stderr);
}

/* --- which claims */

static bool is_named(const struct claim *c, const char *word)
{
    return strcmp(word, c->name) == 0 || strcmp(word, c->paper) == 0 ||
           (c->experiment && strcmp(word, c->experiment) == 0);
}

static bool is_chosen(const struct claim *c, const struct verb_words *w)
{
    for (int i = 0; i < w->n_rest; i++)
        if (is_named(c, w->rest[i]))
            return true;
    return w->n_rest == 0;
}

/* Every word must name something. */
static int check_words(const struct claims *c, const struct verb_words *w)
{
    const char **words = mem_new(MEM_HARNESS, 3 * c->n + 1, sizeof(*words));
    int rc = OK, n = 0;

    for (size_t i = 0; i < c->n; i++) {
        words[n++] = c->v[i].name;
        words[n++] = c->v[i].paper;
        if (c->v[i].experiment)
            words[n++] = c->v[i].experiment;
    }
    for (int i = 0; i < w->n_rest && rc == OK; i++)
        if (name_index(words, w->rest[i]) < 0)
            rc = name_unknown(ERR_ARG, w->rest[i], words,
                              "no claim, experiment or paper \"%s\" in the list",
                              w->rest[i]);
    mem_free(words);
    return rc;
}

/* --- records */

static void read_record(struct check *k, const char *experiment)
{
    json_t *record = NULL;
    int rc;

    if (json_object_get(k->records, experiment))
        return;
    rc = k->published ? export_published_head(&record, experiment, NULL)
                      : claim_record(&record, experiment);
    if (rc != OK && rc != ERR_NOTFOUND)
        json_object_set_new(k->reasons, experiment, json_string_lossy(err_msg()));
    json_object_set_new(k->records, experiment, record ? record : json_null());
}

static const json_t *record_of(void *ctx, const char *experiment)
{
    const struct check *k = ctx;
    const json_t *record;

    read_record(ctx, experiment);
    record = json_object_get(k->records, experiment);
    return json_is_object(record) ? record : NULL;
}

/* Returns the exit status. */
static int run_missing(struct check *k, const char *experiment, bool quiet)
{
    const struct verb_run_opts o = {.quiet = quiet};
    const struct job_read_opts read = {0};
    struct job *j = NULL;
    struct verb_ran ran;
    int status;

    if (!json_is_null(json_object_get(k->records, experiment)) ||
        json_object_get(k->reasons, experiment))
        return PROGRAM_OK;
    if (job_read(&j, experiment, NULL) != OK)
        return verb_fail(PROGRAM_USAGE);
    status = verb_run_job(&ran, j, &read, &o);
    verb_ran_fini(&ran);
    job_free(&j);
    json_object_del(k->records, experiment);
    read_record(k, experiment);
    return status;
}

/* Returns the exit status. */
static int get_records(struct check *k, const struct verb_words *w)
{
    const struct check_opts *o = w->opts;
    int status = PROGRAM_OK, ran;

    for (size_t i = 0; i < k->claims.n; i++) {
        const struct claim *c = &k->claims.v[i];

        if (!is_chosen(c, w) || !c->experiment || c->why)
            continue;
        show(k, "records: claim", i + 1, k->claims.n);
        read_record(k, c->experiment);
        if (o->run)
            unshow(k);
        ran = o->run ? run_missing(k, c->experiment, o->quiet) : PROGRAM_OK;
        status = ran != PROGRAM_OK ? ran : status;
    }
    return status;
}

/* --- the answer */

static void print_how_to_run(const struct claim *c)
{
    struct job *j = NULL;

    if (job_read(&j, c->experiment, NULL) == OK)
        printf("    %g min: testbed run %s\n", j->cost.minutes, c->experiment);
    else
        printf("    %s\n", err_msg());
    job_free(&j);
}

static void print_record(const json_t *record)
{
    const json_t *run = json_object_get(record, "run");

    printf("    %s%s, %s, %s, %.10s%s\n",
           json_object_get(record, "published") ? "published with the program: " : "",
           json_str_at(run, "evidence", "?"), json_str_at(run, "cpu_model", "?"),
           json_str_at(run, "utc", "?"), json_str_at(run, "commit", "?"),
           json_is_true(json_object_get(run, "dirty")) ? " with changes" : "");
}

static void print_claim(struct check *k, const struct claim *c, enum claim_verdict v,
                        const struct text *found)
{
    const json_t *record =
        json_object_get(k->records, c->experiment ? c->experiment : "");
    const char *unreadable = json_string_value(
        json_object_get(k->reasons, c->experiment ? c->experiment : ""));
    const bool judged = v <= CLAIM_NOT_REPRODUCED;
    struct text warnings = {0};
    char evidence[96];

    claim_evidence(c, record, evidence);
    printf("%-28s %s%s  (%s, sec. %s%s%s%s%s)\n", c->name, claim_verdict_name(v),
           !judged                                ? ""
           : claim_is_noisy(c, record)            ? ", from a noisy record"
           : json_object_get(record, "published") ? ", from a published record"
                                                  : "",
           c->paper, c->section, c->figure ? ", " : "", c->figure ? c->figure : "",
           judged ? "; " : "", judged ? evidence : "");
    if (k->in_full) {
        printf("    the paper: %s\n", c->text);
        if (c->here)
            printf("    here: %s\n", c->here);
        if (json_is_object(record))
            print_record(record);
    }
    if (found->n)
        printf("    %.*s\n", (int)found->n, found->p);
    if (unreadable)
        printf("    %s\n", unreadable);
    else if (v == CLAIM_NO_RECORD)
        print_how_to_run(c);
    export_put_warnings(&warnings, record);
    if (warnings.n && v != CLAIM_NO_RECORD && !c->why)
        printf("    warnings: %.*s\n", (int)warnings.n, warnings.p);
    text_fini(&warnings);
}

static void judge(struct check *k, const struct claim *c)
{
    const json_t *record =
        json_object_get(k->records, c->experiment ? c->experiment : "");
    struct text found = {0};
    enum claim_verdict v;

    show(k, "claim", (size_t)(c - k->claims.v) + 1, k->claims.n);
    v = claim_judge(c, json_is_object(record) ? record : NULL, &found);
    unshow(k);
    print_claim(k, c, v, &found);
    k->count[v]++;
    if (claim_is_failure(c, v)) {
        text_puts(&k->failed, k->n_failed++ ? ", " : "");
        text_puts(&k->failed, c->name);
    }
    text_fini(&found);
}

static void print_null(struct check *k, const struct claim *c, const char *rule,
                       const char *name)
{
    const json_t *record =
        json_object_get(k->records, c->experiment ? c->experiment : "");
    struct claim_null null;
    json_t *headline;

    if (!rule)
        return;
    headline = claim_headline(c, record);
    claim_null_draw(&null, c->compared, rule, c->tolerance, headline);
    json_decref(headline);
    k->n_never_fail += null.never_fails;
    printf("    by chance, %s: %.1f %% (equal %.1f %%, of any size %.1f %%", name,
           100 * claim_null_rate(&null), 100 * null.equal, 100 * null.sized);
    if (null.exchanged >= 0)
        printf(", exchanged %.1f %%%s", 100 * null.exchanged,
               null.is_opposite ? ", the opposite holds" : "");
    printf(")%s\n", null.never_fails ? ": refused, no draw fails it" : "");
}

static void print_totals(const struct check *k)
{
    printf("\n");
    for (int v = 0; v <= CLAIM_NO_RECORD; v++)
        printf("%s%d %s", v ? ", " : "", k->count[v], claim_verdict_name(v));
    printf("\n");
    if (k->n_failed)
        printf("%d should hold and %s not: %.*s\n", k->n_failed,
               k->n_failed == 1 ? "does" : "do", (int)k->failed.n, k->failed.p);
}

/* Returns the exit status. */
static int check_claims(struct check *k, const struct verb_words *w)
{
    int status = get_records(k, w);

    if (status == PROGRAM_USAGE)
        return status;
    claims_find_errors(&k->claims, record_of, k);
    unshow(k);
    for (size_t i = 0; i < k->claims.n; i++)
        if (is_chosen(&k->claims.v[i], w)) {
            judge(k, &k->claims.v[i]);
            if (((const struct check_opts *)w->opts)->null) {
                print_null(k, &k->claims.v[i], k->claims.v[i].reproduced, "reproduced");
                print_null(k, &k->claims.v[i], k->claims.v[i].shape, "in shape");
            }
        }
    print_totals(k);
    if (k->n_never_fail) {
        printf("%d that no draw fails: expected rules that chance can fail\n",
               k->n_never_fail);
        return PROGRAM_USAGE;
    }
    if (k->n_failed)
        return STATUS_FAILED;
    return json_object_size(k->reasons) ? VERB_INVALID : status;
}

/* Returns the exit status. */
static int print_assumptions(struct check *k, bool as_json)
{
    json_t *list = NULL, *matrix = NULL;
    struct text page = {0};
    char path[PATH_MAX];
    int status = PROGRAM_OK;

    home_find(path, sizeof(path), "results/assumptions.json");
    if (assumptions_read(&list, path, &k->claims) == OK) {
        claims_find_errors(&k->claims, record_of, k);
        matrix = assumptions_judge(list, &k->claims, record_of, k);
        if (as_json)
            json_dumpf(matrix, stdout, JSON_INDENT(1));
        else
            assumptions_print(&page, matrix);
        printf("%.*s", (int)page.n, page.n ? page.p : "\n");
    } else {
        status = verb_fail(PROGRAM_USAGE);
    }
    text_fini(&page);
    json_decref(matrix);
    json_decref(list);
    return status;
}

static int check(const struct verb_words *w)
{
    const struct check_opts *o = w->opts;
    struct check k = {.in_full = w->n_rest > 0,
                      .published = o->published,
                      .is_live = isatty(STDERR_FILENO),
                      .records = json_object(),
                      .reasons = json_object()};
    char path[PATH_MAX];
    int status, rc;

    home_find(path, sizeof(path), "results/claims.json");
    rc = claims_read(&k.claims, o->claims ? o->claims : path);
    if (rc == OK)
        rc = check_words(&k.claims, w);
    if (rc == OK && o->run && o->published)
        rc = err_set(ERR_ARG, "--run makes records, --published judges those that come "
                              "with the program: expected one of the two");
    if (o->run) /* without it nothing is measured that could be continued */
        process_at_signal(run_resume_report);
    status = rc != OK         ? verb_fail(PROGRAM_USAGE)
             : o->assumptions ? print_assumptions(&k, o->json)
                              : check_claims(&k, w);
    text_fini(&k.failed);
    json_decref(k.records);
    json_decref(k.reasons);
    claims_fini(&k.claims);
    return status;
}

const struct verb verb_check = {
    .name = "check",
    .help = "Compare the newest records with the papers' claims.",
    .usage =
        {"testbed check [NAME...] [options]",
         "Compare the newest records in results/ with what the papers claim, and print "
         "for "
         "each claim: reproduced; reproduced in shape (the order, not the size); "
         "consistent (chance passes its rule too often to show it); "
         "undecided (the intervals of its numbers allow both, or a measured one has "
         "none); not reproduced; not "
         "testable here, and why; or the command that makes the record; and the "
         "warnings of the record. A "
         "NAME is that of a claim, an experiment or a paper; then what the paper says is "
         "printed, too.",
         "  testbed check\n"
         "  testbed check fig03a_core_removal MNN-LLM\n"
         "  testbed check --published\n"
         "  testbed check --published --null\n"
         "  testbed check --assumptions\n"
         "  testbed check tab02_topk --run\n",
         VERB_EXIT_STATUS "  4  a claim that should hold on every machine does not\n"},
    .n_optional = INT_MAX,
    .opts = {{table}},
    .opts_bytes = sizeof(struct check_opts),
    .run = check,
};
