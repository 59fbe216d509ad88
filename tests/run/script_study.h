/* tests/run/script_study.h - a scripted study in place of the built-in ones (a program's list of
 * studies replaces the library's), so that every value it reports is known; and jobs that run
 * it. Include it once in a test. */
#ifndef TESTS_SCRIPT_STUDY_H
#define TESTS_SCRIPT_STUDY_H

#include "tests/job/jobs.h"
#include "tests/support/fixture.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "experiments/record/export.h"
#include "experiments/job/job.h"
#include "experiments/run/experiment.h"
#include "experiments/load/study.h"

/* --- the scripted study: speed = m x k, with noise if asked for, and a ratio with an A/A, which is
 * 1 + m x again; a cell named in `fails` fails */

struct script_opts {
    int64_t m;
    double k, noise, again;
    char *type, *fails, *skips, *missing, *misbehaves, *simulates;
};

#define AT(member) offsetof(struct script_opts, member)
static const struct opt_row script_table[] = {
    {.name = "m", .type = OPT_INT, .offset = AT(m), .def = "1", .help = "rows"},
    {.name = "k", .type = OPT_F64, .offset = AT(k), .def = "1", .help = "factor"},
    {.name = "noise", .type = OPT_F64, .offset = AT(noise), .def = "0", .help = "of k"},
    {.name = "again",
     .type = OPT_F64,
     .offset = AT(again),
     .def = "0",
     .help = "0: none"},
    {.name = "type", .type = OPT_STR, .offset = AT(type), .def = "f32", .help = "type"},
    {.name = "fails", .type = OPT_STR, .offset = AT(fails), .help = "type that fails"},
    {.name = "skips", .type = OPT_STR, .offset = AT(skips), .help = "type not here"},
    {.name = "missing", .type = OPT_STR, .offset = AT(missing), .help = "type without"},
    {.name = "misbehaves", .type = OPT_STR, .offset = AT(misbehaves), .help = "how"},
    {.name = "simulates", .type = OPT_STR, .offset = AT(simulates), .help = "type"},
    {0},
};

static const struct study_metric script_metrics[] = {
    {"speed", "x", "higher", "m times k"},
    {"error", "x", "lower", "what it gets wrong"},
    {"m_seen", "", "", "the m it was given"},
    {"roof_frac", "", "higher", "a share of a bound, 0.3 m"},
    {"ratio", "x", "", "k, with an A/A"},
    {"ratio_again", "x", "", "its A/A, from 10 % less to 10 % more"},
    {0},
};
static const struct study_aa script_aa[] = {{"ratio", "ratio_again"}, {0}};

static int n_runs, n_closed, n_kept_at_close;
static const char *energy_file; /* a counter that a run moves on by 2.5 J */
/* Not options: the job must be the same when it is resumed. */
static bool dies_at_4, is_mended;
static uint32_t
    disturbed_runs; /* bit n: others use the machine in the n-th run, from 1 */
static int retries; /* of a run's options */

static bool is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static void misbehave(const char *how, struct study_cell *c)
{
    if (is(how, "unknown"))
        study_value(c, "sped", 1, NULL);
    else if (is(how, "no reason"))
        study_value(c, "error", NAN, "");
    else if (is(how, "no such evidence"))
        study_evidence(c, "guessed", NULL);
    else if (is(how, "evidence of nothing"))
        study_evidence(c, "model", "speed sped");
    else
        study_value(c, "speed", 1, NULL); /* the second time */
    study_value(c, "pace", 1, NULL);      /* the first error stays */
}

/* Normal, of the n-th run. */
static double noise_of(int n)
{
    struct rng rng;

    rng_init(&rng, (uint64_t)n, "script");
    return rng_normal(&rng);
}

static int script_run(void *context, const void *opts, struct study_cell *c)
{
    int *run = context;
    const struct script_opts *o = opts;
    double series[2] = {(double)o->m, o->k};
    double speed = is(o->missing, o->type)
                       ? NAN
                       : (double)o->m * o->k * exp(o->noise * noise_of(n_runs));
    int *n_kept = study_kept(c);

    assert_int_equal(*run, 0);
    *run = ++n_runs;
    ++*n_kept;
    if (dies_at_4 && o->m == 4)
        _exit(9);
    if (disturbed_runs >> n_runs & 1)
        log_warning("steal", 0.2, 0.05, "the host ran others");
    if (is(o->fails, o->type) && !is_mended)
        return err_set(ERR_IO, "the script says no");
    if (is(o->skips, o->type))
        return err_set(ERR_NOTFOUND, "no such unit in this machine");
    study_progress(c, 0.5, "half-way");
    if (energy_file)
        test_write(energy_file, "9500000\n", 8);
    assert_null(study_machine(c));
    study_value_interval(c, "speed", speed, speed - 1,
                         is(o->type, "open") ? NAN : speed + 2, "the script has none");
    study_value(c, "m_seen", (double)o->m, NULL);
    study_value(c, "roof_frac", 0.3 * (double)o->m, NULL);
    if (o->again > 0) {
        double again = 1 + (double)o->m * o->again;

        study_value(c, "ratio", o->k, NULL);
        study_value_interval(c, "ratio_again", again, again / 1.1, again * 1.1, NULL);
    }
    study_series(c, "both", "x", series, 2);
    study_note(c, "rival", json_pack("{s:s}", "version", "script 1.0"));
    study_evidence(c, "model", "both");
    study_evidence(c, "published", "m_seen");
    if (is(o->simulates, o->type))
        study_evidence(c, "simulated", NULL);
    if (o->misbehaves)
        misbehave(o->misbehaves, c);
    return OK;
}

static void script_close(void *kept)
{
    n_closed++;
    n_kept_at_close = *(int *)kept;
}

static const struct study study_script = {
    .name = "script",
    .help = "reports m times k",
    .opts = script_table,
    .opts_bytes = sizeof(struct script_opts),
    .context_bytes = sizeof(int),
    .kept_bytes = sizeof(int),
    .metrics = script_metrics,
    .aa = script_aa,
    .run = script_run,
    .close = script_close,
};
const struct study *const studies[] = {&study_script, NULL};

/* --- reading */

static int read_job(const char *text, struct job **out)
{
    char all[4096];
    json_t *root;
    int rc;

    snprintf(all, sizeof(all), "{\"about\": \"a test\", %s}", text);
    assert_ok(json_read_text(&root, all, strlen(all), "test"));
    rc = job_from_json(out, root, "t", "t.json", NULL);
    json_decref(root);
    return rc;
}

static struct job *job_of(const char *text)
{
    struct job *j;

    assert_ok(read_job(text, &j));
    return j;
}

static inline void refuse(const char *text, const char *part)
{
    struct job *j = NULL;
    int rc = read_job(text, &j);

    assert_null(j);
    if (rc == OK || !strstr(err_msg(), part) || strncmp(err_msg(), "t.json", 6) != 0)
        fail_msg("{%s}: got %s \"%s\", wanted \"t.json... %s\"", text, err_name(rc),
                 err_msg(), part);
}

/* --- running */

struct ran {
    struct run_outcome outcome;
    json_t *latest; /* headline of latest.json */
    char *table;
};

/* Run a job into a folder; the machine card would be looked for next to it. */
static int run_into(const char *dir, const char *text, struct ran *r)
{
    struct job *j = job_of(text);
    struct run_options o = {.out_dir = dir,
                            .machine_dir = dir,
                            .retries = retries,
                            .progress = PROGRESS_QUIET};
    char path[400];
    size_t n;
    int rc;

    *r = (struct ran){.table = NULL};
    o.live = fopen("/dev/null", "w");
    o.report = open_memstream(&r->table, &n);
    rc = run_experiment(&r->outcome, j, &o);
    fclose(o.live);
    fclose(o.report);
    job_free(&j);
    snprintf(path, sizeof(path), "%s/latest.json", dir);
    if (rc == OK) {
        json_t *all;

        assert_ok(json_read_file(&all, path, 1 << 20));
        r->latest = json_incref(json_object_get(all, "headline"));
        json_decref(all);
    }
    return rc;
}

static void run(const char *name, const char *text, struct ran *r)
{
    char dir[300];

    snprintf(dir, sizeof(dir), "%s/%s", test_dir(), name);
    assert_ok(run_into(dir, text, r));
}

static void ran_free(struct ran *r)
{
    mem_free(r->outcome.path);
    json_decref(r->latest);
    free(r->table);
}

static double value(const struct ran *r, const char *name)
{
    const json_t *v = json_object_get(json_object_get(r->latest, name), "value");

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static inline int left_out(const struct ran *r, const char *name)
{
    return (int)json_integer_value(
        json_object_get(json_object_get(r->latest, name), "n_left_out"));
}

static inline const char *why(const struct ran *r, const char *name)
{
    const char *s =
        json_string_value(json_object_get(json_object_get(r->latest, name), "why"));

    return s ? s : "";
}

static inline double end_of(const struct ran *r, const char *name, const char *which)
{
    const json_t *v = json_object_get(json_object_get(r->latest, name), which);

    return v ? json_number_value(v) : NAN;
}

#endif
