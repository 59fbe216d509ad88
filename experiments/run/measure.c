#include "experiments/run/session.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/text_number.h"
#include "cpu/cpu.h"
#include "experiments/record/head.h"
#include "experiments/run/bound.h"
#include "experiments/load/study.h"
#include "measure/card.h"
#include "measure/noise.h"

/* A cell's own objects; freed at its end. */
struct cell {
    const struct job_cell *job_cell;
    struct load_opts load;
    struct load_seeds seeds;
    struct metrics_slo slo;
    struct run_requests requests;
    struct run_result result;
    struct metrics metrics;
    json_t *described; /* the system's own description */
    struct measure_noise noise;
    struct run_bound bound;
    char invalid[160];   /* why its numbers must not be used, "" if valid */
    const json_t *trial; /* of a search: which; NULL: a cell of the job */
};

static const json_t *settings(const struct job_cell *c, const char *section)
{
    return json_object_get(c->settings, section);
}

/* --- a cell on its way into the journal: what all kinds of cells state */

/* The codes of the warnings, each once, as one text: a list is no attribute in HDF5, where a
 * table of cells and `testbed compare` look for them. */
static json_t *codes_of(const json_t *warnings)
{
    json_t *codes = json_object(), *w, *text;
    struct text t = {0};
    const char *code;
    size_t i;

    json_array_foreach(warnings, i, w)
        json_object_set(codes, json_string_value(json_object_get(w, "code")), w);
    json_object_foreach(codes, code, w) text_printf(&t, "%s%s", t.n ? " " : "", code);
    text = json_stringn(t.p ? t.p : "", t.n);
    text_fini(&t);
    json_decref(codes);
    return text;
}

static json_t *attributes(const struct job_cell *c, const struct record_cell *r,
                          const char *error)
{
    json_t *a = json_deep_copy(c->settings), *warnings = json_warnings_take();

    json_object_set(a, "axes", c->axes);
    json_object_set_new(a, "repeat", json_integer(c->repeat));
    json_object_set_new(a, "label", json_string_lossy(c->label));
    if (json_array_size(warnings) > 0)
        json_object_set_new(a, "warned", codes_of(warnings));
    json_object_set_new(a, "warnings", warnings);
    if (r->state == RECORD_DONE)
        json_object_update(a, (json_t *)r->attributes);
    else
        json_object_set_new(a, "error", json_string_lossy(error));
    return a;
}

/* A share above what its bound allows says that the bound is wrong: it is n/a, with a warning in
 * the cell. */
static void refuse_shares(const struct job_cell *c, struct record_cell *r)
{
    for (size_t i = 0; i < r->n_values; i++) {
        struct metrics_value *v = &r->values[i];

        if (!metrics_exceeds_bound(v->name, v->unit, v->value, v->why))
            continue;
        log_warning("bound_exceeded", v->value, MEASURE_SHARE_MAX, "%s: %s: %s", c->key,
                    v->name, v->why);
        v->value = NAN;
        v->has_interval = false;
    }
}

static bool was_disturbed(const json_t *warnings)
{
    json_t *w;
    size_t i;

    json_array_foreach((json_t *)warnings, i,
                       w) if (measure_noise_is(json_str_at(w, "code", ""))) return true;
    return false;
}

#define RETRIED_FREELY 3
#define RETRIED_ONE_IN 4
#define LIMIT_FACTOR   10 /* as README.md promises of quickstart, which states a minute */
/* Neighbours come in waves of seconds: the waits are 0.5, 1, 2, 4, 4, ... seconds. */
static void wait_for_quiet(int n_retries_in_turn)
{
    const int doubled = n_retries_in_turn < 4 ? n_retries_in_turn : 4;

    clock_sleep_until_ns(clock_ns() + (UINT64_C(250000000) << doubled), 0);
}

/* Another attempt would end within LIMIT_FACTOR times what the experiment states. */
static bool has_time_to_retry(const struct run_session *s, double attempt_s)
{
    const double limit_s = 60 * LIMIT_FACTOR * s->job->cost.minutes;
    const double past_s = (double)(clock_ns() - s->begin_ns) / 1e9;

    if (!(limit_s > 0) || past_s + attempt_s <= limit_s)
        return true;
    log_info("something else used the machine: this is not measured again, as the run "
             "would then take more than %s min, %d times what the experiment states",
             TEXT_NUMBER(limit_s / 60, 3), LIMIT_FACTOR);
    return false;
}

bool run_retry(struct run_session *s)
{
    const double attempt_s = (double)(clock_ns() - s->attempt_ns) / 1e9;
    const bool again = s->was_disturbed && s->n_retries_in_turn < s->o->retries &&
                       s->n_retried < RETRIED_FREELY + s->n_recorded / RETRIED_ONE_IN &&
                       has_time_to_retry(s, attempt_s);

    s->attempt_ns = clock_ns();
    s->n_retries_in_turn = again ? s->n_retries_in_turn + 1 : 0;
    if (again) /* those of this attempt no longer count */
        s->outcome->n_invalid -= s->n_invalid;
    s->was_disturbed = false;
    s->n_invalid = 0;
    if (!again)
        return false;
    s->n_retried++;
    log_info("something else used the machine: this is measured again (attempt %d of at "
             "most %d), which takes about %s s more%s; --retries 0 saves that time",
             s->n_retries_in_turn + 1, s->o->retries + 1, TEXT_NUMBER(ceil(attempt_s), 2),
             s->n_retries_in_turn == 1 ? " and so doubles its time" : "");
    run_system_close(&s->system);
    wait_for_quiet(s->n_retries_in_turn);
    s->attempt_ns = clock_ns();
    return true;
}

int run_record(struct run_session *s, const struct job_cell *c, struct record_cell *r,
               const char *error)
{
    json_t *a;
    int rc;

    if (r->state != RECORD_DONE)
        r->n_rows = r->n_values = r->n_series = 0;
    refuse_shares(c, r);
    a = attributes(c, r, error); /* which takes the warnings */
    s->n_recorded++;
    if (!r->evidence)
        r->evidence = s->job->evidence;
    s->was_disturbed |= r->state == RECORD_DONE && export_is_timed(r->evidence) &&
                        was_disturbed(json_object_get(a, "warnings"));
    s->n_invalid += json_is_false(json_object_get(a, "valid"));
    r->key = c->key;
    r->attributes = a;
    rc = journal_cell(s->journal, r);
    json_decref(a);
    return rc;
}

/* --- the system and the requests */

/* A system holds memory and threads: the old one goes before the new one comes. */
static int need_system(struct run_session *s, const struct job_cell *c)
{
    const json_t *config = settings(c, "system");
    char line[128];

    if (s->system && json_equal(s->system->config, config))
        return OK;
    run_system_close(&s->system);
    snprintf(line, sizeof(line), "open %s",
             json_string_value(json_object_get(config, "adapter")));
    progress_note(s->progress, line, clock_ns());
    return run_system_open(&s->system, config);
}

static void drop_dataset(struct run_session *s)
{
    dataset_close(&s->dataset);
    if (s->dataset_config)
        opt_free(dataset_opt_table, &s->dataset_opts);
    json_decref(s->dataset_config);
    s->dataset_config = NULL;
}

static int need_dataset(struct run_session *s, const struct job_cell *c)
{
    const json_t *config = settings(c, "dataset");
    int rc;

    if (s->dataset && json_equal(s->dataset_config, config))
        return OK;
    drop_dataset(s);
    rc = opt_init(dataset_opt_table, &s->dataset_opts);
    if (rc != OK)
        return rc;
    s->dataset_config = json_incref((json_t *)config);
    rc = opt_from_json(dataset_opt_table, &s->dataset_opts, config, "dataset");
    if (rc != OK)
        return rc;
    progress_note(s->progress, "read dataset", clock_ns());
    rc = dataset_open(&s->dataset, &s->dataset_opts);
    if (rc == OK && s->dataset->stands_in)
        log_info("%s is absent: the fit %s stands in (datasets/data.md says where to get "
                 "it)",
                 s->dataset_opts.path, s->dataset_opts.stand_in);
    return rc;
}

void run_measure_fini(struct run_session *s)
{
    if (s->study_kept && s->job->study->close)
        s->job->study->close(s->study_kept);
    mem_free(s->study_kept);
    s->study_kept = NULL;
    run_system_close(&s->system);
    drop_dataset(s);
}

int run_measure_open(struct run_session *s, const struct job_cell *c)
{
    TRY(need_system(s, c));
    return need_dataset(s, c);
}

static int read_settings(struct cell *c, const struct job *j)
{
    const json_t *slo = settings(c->job_cell, "slo");
    int rc =
        opt_from_json(load_opt_table, &c->load, settings(c->job_cell, "load"), "load");

    if (rc == OK)
        rc = opt_from_json(load_seeds_opt_table, &c->seeds,
                           settings(c->job_cell, "seeds"), "seeds");
    c->slo = (struct metrics_slo){
        .ttft_ms = json_number_value(json_object_get(slo, "ttft_ms")),
        .tpot_ms = json_number_value(json_object_get(slo, "tpot_ms")),
        .scale = j->slo_scale,
        .n_scale = j->n_slo_scale};
    return rc;
}

static void on_tick(void *ctx, size_t n_ended, size_t n_failed)
{
    progress_tick(ctx, n_ended, n_failed, clock_ns());
}

static double value(const struct cell *c, const char *name)
{
    const struct metrics_value *v = metrics_find(&c->metrics, name);

    return v ? v->value : NAN;
}

/* Mean bytes that a token after the first must read; NaN: not stated. */
static double token_bytes(const struct cell *c)
{
    double bytes = 0, n = 0;

    for (size_t i = 0; i < c->result.n; i++) {
        const struct metrics_row *r = &c->result.rows[i];

        if (r->status != METRICS_OK || r->n_tok < 2)
            continue;
        bytes += r->decode_bytes;
        n += (double)(r->n_tok - 1);
    }
    return bytes / n;
}

/* Every thread may have a last-level cache of its own. */
static bool exceeds_bounds(struct run_session *s, struct cell *c)
{
    int decode = (int)json_integer_value(json_object_get(c->described, "decode_threads"));
    struct cpu_info info;

    cpu_info_get(&info);
    return run_bound_exceeded(&c->bound, s, c->job_cell->key,
                              run_surely_read_gbps(value(c, "decode_read_gbps"),
                                                   token_bytes(c),
                                                   (double)info.l3_bytes * decode),
                              value(c, "prefill_gflops"));
}

/* A search compares rates with each other only, in many trials; a smoke run judges none. */
static void look(const struct run_session *s, struct cell *c, enum run_when when)
{
    if (!c->trial && !s->job->smoke && run_system_has_bound(s->system))
        run_bound_look(&c->bound, s, when);
}

/* 1 us: below it are roundings of a double, above it times that contradict each other. */
#define MAX_IDENTITY_MS 1e-3

/* All failures are recorded; readers of the numbers must not miss them. */
static void warn_failed(const struct cell *c)
{
    const char *first = "";
    size_t n = 0;

    for (size_t i = 0; i < c->result.n; i++) {
        const struct metrics_row *r = &c->result.rows[i];

        if (r->status != METRICS_FAILED)
            continue;
        first = n++ ? first : r->error;
    }
    if (n)
        log_warning("requests_failed", (double)n, 0,
                    "%s: %zu of %zu requests failed; the first: %s", c->job_cell->key, n,
                    c->result.n, first);
}

/* In closed loop a slow system is asked less. */
static void warn_overload(const struct cell *c)
{
    struct metrics_overload o;

    if (c->requests.arrival_s && metrics_overloaded(&c->metrics, &o))
        log_warning("overloaded", o.observed, o.threshold, "%s: %s", c->job_cell->key,
                    o.text);
}

/* As data, also of a trial, which gives no warning. */
static json_t *saturation_json(const struct run_result *r)
{
    const struct metrics_saturated *x = &r->saturated;
    const bool ms = x->walk == METRICS_WALK_TTFT;

    return json_pack("{s:s s:s s:f s:f s:f s:I s:I s:f s:f s:b s:I}", "by",
                     metrics_walk_name(x->walk), "unit", ms ? "ms" : "requests", "growth",
                     x->growth, "bound", x->bound, "slope_per_arrival", x->slope,
                     "n_arrivals", (json_int_t)x->n_arrivals, "n_in_system",
                     (json_int_t)x->n_in_system, "at_s", (double)x->t_ns / 1e9,
                     "false_alarm_frac", METRICS_SATURATION_ALPHA, "ended",
                     r->ended_early, "n_not_sent", (json_int_t)r->n_not_sent);
}

static void warn_saturated(const struct cell *c)
{
    const struct metrics_saturated *x = &c->result.saturated;
    const bool ms = x->walk == METRICS_WALK_TTFT;
    char rest[64] = "";

    if (!x->found)
        return;
    if (c->result.ended_early)
        snprintf(rest, sizeof(rest), "; the cell was ended, %zu requests were not sent",
                 c->result.n_not_sent);
    log_warning("saturated", x->growth, x->bound,
                "%s: saturated, found after %zu requests with %zu in the system: %s grew "
                "by %s%s, by chance at most %s%s",
                c->job_cell->key, x->n_arrivals, x->n_in_system,
                ms ? "time to first token" : "concurrency", TEXT_NUMBER(x->growth, 3),
                ms ? " ms" : "", TEXT_NUMBER(x->bound, 3), rest);
}

/* CPUs of a system that should wait for its turn. */
#define MAX_IDLE_CPUS 0.02

json_t *run_idle_json(const struct job_cell *c, const char *by, double idle_s,
                      double idle_cpu_s)
{
    const double cpus = idle_cpu_s / idle_s;

    if (cpus > MAX_IDLE_CPUS)
        log_warning("not_idle", cpus, MAX_IDLE_CPUS,
                    "%s: it used %.2g CPUs while others had their turns", c->key, cpus);
    return json_pack("{s:s, s:f, s:o*}", "by", by, "idle_s", idle_s, "idle_cpu_s",
                     json_real(idle_cpu_s)); /* NaN is left out */
}

static void judge(const struct run_session *s, struct cell *c)
{
    double late = value(c, "p90_lateness_ms");

    if (value(c, "n_completed") == 0 && !c->trial) /* a trial's rate may be too high */
        snprintf(c->invalid, sizeof(c->invalid), "no measured request completed: %s",
                 c->result.n ? c->result.rows[c->result.n - 1].error : "no request");
    else if (value(c, "identity_e2e_error_ms") > MAX_IDENTITY_MS)
        snprintf(c->invalid, sizeof(c->invalid),
                 "token times contradict each other by %g ms",
                 value(c, "identity_e2e_error_ms"));
    if (late > c->load.lateness_warn_ms)
        log_warning("lateness", late, c->load.lateness_warn_ms,
                    "%s: our own sending was late by %.2f ms (p90): latencies from the "
                    "intended start include it",
                    c->job_cell->key, late);
    warn_failed(c);
    if (s->dataset->stands_in)
        log_warning("dataset_stand_in", 1, 0,
                    "%s: %s is absent: its requests are drawn from the fit %s",
                    c->job_cell->key, s->dataset_opts.path, s->dataset_opts.stand_in);
    measure_noise_warn(&c->noise, c->job_cell->key);
    if (!c->trial) { /* a search looks for the rate at which that begins */
        warn_overload(c);
        warn_saturated(c);
    }
    if (c->requests.n_cut)
        log_warning("requests_cut", (double)c->requests.n_cut, 0,
                    "%s: %zu requests were cut to the system's longest sequence",
                    c->job_cell->key, c->requests.n_cut);
}

static void compute(struct cell *c)
{
    const struct metrics_input in = {.rows = c->result.rows,
                                     .n_rows = c->result.n,
                                     .slo = c->slo,
                                     .read_gbps = c->bound.read_gbps,
                                     .peak_gflops = c->bound.peak_gflops,
                                     .read_why = c->bound.read_why,
                                     .peak_why = c->bound.peak_why,
                                     .timer_error_us = c->result.timer_error_us,
                                     .n_timer_error = c->result.n_timer_error,
                                     .energy_s = c->result.energy.s,
                                     .energy_joules = c->result.energy.joules,
                                     .n_energy = c->result.energy.n,
                                     .energy_why = c->result.energy.why,
                                     .turn_s = c->result.turn_s};

    metrics_compute(&c->metrics, &in);
}

/* After the last request: what the system was, and the numbers. */
static int conclude(struct run_session *s, struct cell *c)
{
    look(s, c, RUN_AFTER);
    run_bounds(&c->result, s->system);
    TRY(run_system_describe(s->system, &c->described)); /* after: what was seen in use */
    run_bound_find(&c->bound, s, c->job_cell->key, c->described);
    compute(c);
    if (exceeds_bounds(s, c)) {
        metrics_fini(&c->metrics); /* without the shares of a wrong bound */
        compute(c);
    }
    return OK;
}

static int measure(struct run_session *s, struct cell *c)
{
    int rc;

    progress_note(s->progress, "make the requests", clock_ns());
    rc = run_requests_new(&c->requests, s->system, s->dataset, &s->dataset_opts, &c->load,
                          &c->seeds);
    if (rc != OK)
        return rc;
    if (!c->trial)
        progress_cell(s->progress, c->job_cell->key, c->requests.n, s->weight,
                      clock_ns());
    look(s, c, RUN_BEFORE);
    rc = measure_noise_begin(&c->noise);
    if (rc == OK)
        rc =
            run_cell(&c->result, s->system, &c->requests, &c->load, on_tick, s->progress);
    if (rc == OK)
        rc = measure_noise_end(&c->noise);
    if (rc != OK)
        return rc;
    return conclude(s, c);
}

/* --- the record of it */

static json_t *dataset_json(const struct run_session *s, const struct cell *c)
{
    const struct dataset *d = s->dataset;

    return json_pack(
        "{s:o, s:o, s:b, s:I, s:I, s:o, s:I, s:I, s:I}", "name",
        json_string_lossy(d->name), "source", json_string_lossy(d->source), "stands_in",
        d->stands_in, "n_items", (json_int_t)d->n_items, "n_skipped",
        (json_int_t)d->n_skipped, "skipped_why", json_string_lossy(d->skipped_why),
        "n_filtered", (json_int_t)c->requests.n_filtered, "n_cut",
        (json_int_t)c->requests.n_cut, "n_repeated", (json_int_t)c->requests.n_repeated);
}

static void add_measured(json_t *a, const struct run_session *s, const struct cell *c)
{
    json_object_set_new(a, "bound", run_bound_json(&c->bound));
    json_object_set(a, "described", c->described);
    json_object_set_new(a, "requests", dataset_json(s, c));
    json_object_set_new(a, "counters", measure_noise_json(&c->noise));
    json_object_set_new(a, "energy", run_energy_json(&c->result.energy));
    if (c->result.saturated.found)
        json_object_set_new(a, "saturation", saturation_json(&c->result));
    if (c->result.turn_s) /* the order is in that series */
        json_object_set_new(a, "pairing",
                            run_idle_json(c->job_cell, "request", c->result.idle_s,
                                          c->result.idle_cpu_s));
    json_object_set_new(a, "wall_s", json_real(c->result.wall_s));
    json_object_set_new(a, "rss_peak_bytes",
                        json_integer((json_int_t)mem_rss_peak_bytes()));
    json_object_set_new(a, "valid", json_boolean(!c->invalid[0]));
    json_object_set_new(a, "invalid_why", json_string_lossy(c->invalid));
}

static int record(struct run_session *s, const struct cell *c, int rc, const char *error)
{
    json_t *measured = json_object();
    struct record_cell r = {.state = rc == OK                ? RECORD_DONE
                                     : rc == ERR_UNSUPPORTED ? RECORD_SKIPPED
                                                             : RECORD_FAILED,
                            .attributes = measured,
                            .rows = c->result.rows,
                            .n_rows = c->result.n,
                            .values = c->metrics.values,
                            .n_values = c->metrics.n_values,
                            .series = c->metrics.series,
                            .n_series = c->metrics.n_series};

    if (rc == OK)
        add_measured(measured, s, c);
    if (c->trial)
        json_object_set(measured, "trial", (json_t *)c->trial);
    if (c->invalid[0]) {
        s->outcome->n_invalid++;
        log_error("%s: invalid: %s", c->job_cell->key, c->invalid);
    }
    rc = run_record(s, c->job_cell, &r, error);
    json_decref(measured);
    return rc;
}

static int open_cell(struct run_session *s, struct cell *c)
{
    TRY(read_settings(c, s->job));
    return run_measure_open(s, c->job_cell);
}

/* Judge or report what was measured, with `rc`. */
static int measured(struct run_session *s, struct cell *c, int rc)
{
    if (rc == OK)
        judge(s, c);
    else
        log_line(rc == ERR_UNSUPPORTED ? LOG_INFO : LOG_ERROR, "%s: %s: %s",
                 c->job_cell->key, rc == ERR_UNSUPPORTED ? "skipped" : "failed",
                 err_msg());
    return rc;
}

static int open_and_measure(struct run_session *s, struct cell *c)
{
    int rc = open_cell(s, c);

    return measured(s, c, rc == OK ? measure(s, c) : rc);
}

/* Record what was measured of `c`, and free it. */
static int end(struct run_session *s, struct cell *c, int rc)
{
    char error[512] = "";

    if (rc != OK)
        snprintf(error, sizeof(error), "%s", err_msg());
    if (c->result.system_stuck) {
        log_warning("system_stuck", 1, 0,
                    "%s: requests never ended; the system is closed", c->job_cell->key);
        run_system_close(&s->system); /* it may still read the prompts freed below */
    }
    rc = rc != OK && c->trial ? err_set(rc, "%s", error) : record(s, c, rc, error);
    metrics_fini(&c->metrics);
    run_result_fini(&c->result);
    run_requests_fini(&c->requests);
    json_decref(c->described);
    opt_free(load_opt_table, &c->load);
    return rc;
}

static int begin(struct cell *c)
{
    int rc = opt_init(load_opt_table, &c->load);

    c->bound = RUN_BOUND_NONE;
    return rc == OK ? opt_init(load_seeds_opt_table, &c->seeds) : rc;
}

int run_measure(struct run_session *s, const struct job_cell *job_cell)
{
    struct cell c = {.job_cell = job_cell};

    TRY(begin(&c));
    return end(s, &c, open_and_measure(s, &c));
}

int run_measure_trial(struct run_session *s, const struct job_cell *job_cell,
                      const json_t *trial, struct load_trial *t, int *cell_rc)
{
    struct cell c = {.job_cell = job_cell, .trial = trial};
    int rc;

    TRY(begin(&c));
    *cell_rc = open_and_measure(s, &c);
    if (*cell_rc == OK) {
        t->ended_early = c.result.ended_early;
        t->within_frac = value(&c, "slo_attainment_frac");
        t->n_requests = value(&c, "n_requests");
    }
    rc = end(s, &c, *cell_rc);
    return *cell_rc == OK ? rc : OK;
}

/* --- cells whose systems have each request in turn; the session's is that of the cell at hand */

/* Open the system, the first of which makes the requests. One that fails is recorded at once. */
static int open_paired(struct run_session *s, struct cell *c, struct run_entry *e,
                       int *n_open, struct run_requests *q)
{
    int rc;

    TRY(begin(c));
    rc = open_cell(s, c);
    if (rc == OK && *n_open == 0)
        rc = run_requests_new(q, s->system, s->dataset, &s->dataset_opts, &c->load,
                              &c->seeds);
    if (rc != OK) {
        rc = end(s, c, measured(s, c, rc));
        run_system_close(&s->system);
        return rc;
    }
    look(s, c, RUN_BEFORE);
    *e = (struct run_entry){s->system, &c->result};
    s->system = NULL;
    (*n_open)++;
    return OK;
}

int run_measure_paired(struct run_session *s, const struct job_cell *job_cells, int n)
{
    struct cell *c = mem_new(MEM_HARNESS, (size_t)n, sizeof(*c));
    struct run_entry *e = mem_new(MEM_HARNESS, (size_t)n, sizeof(*e));
    struct run_requests q = {0}; /* of all, until the last system is closed */
    int n_open = 0, rc = OK, served;

    for (int k = 0; k < n && rc == OK; k++) {
        c[n_open] = (struct cell){.job_cell = &job_cells[k]};
        rc = open_paired(s, &c[n_open], &e[n_open], &n_open, &q);
    }
    served = rc == OK && n_open > 0 ? measure_noise_begin(&c->noise) : rc;
    if (served == OK && n_open > 0) {
        progress_cell(s->progress, c->job_cell->key, q.n * (size_t)n_open, s->weight,
                      clock_ns());
        run_paired(e, n_open, &q, &c->load, on_tick, s->progress);
        served = measure_noise_end(&c->noise);
    }
    for (int k = 0; k < n_open; k++) {
        int ended;

        s->system = e[k].s;
        c[k].noise = c->noise;
        c[k].requests.n_cut = q.n_cut;
        c[k].requests.n_filtered = q.n_filtered;
        c[k].requests.n_repeated = q.n_repeated;
        ended =
            end(s, &c[k], measured(s, &c[k], served == OK ? conclude(s, &c[k]) : served));
        run_system_close(&s->system);
        rc = rc == OK ? ended : rc;
    }
    run_requests_fini(&q);
    mem_free(e);
    mem_free(c);
    return rc;
}
