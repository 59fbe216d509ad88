#include "experiments/run/session.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "characterize/probe.h"
#include "cpu/cpu.h"
#include "datasets/dataset.h"
#include "experiments/record/provenance.h"
#include "experiments/load/study.h"
#include "experiments/metrics/compare.h"
#include "topo/machine.h"

static double number_at(const struct job_cell *c, const char *section, const char *key)
{
    return json_number_value(json_object_get(json_object_get(c->settings, section), key));
}

/* How many requests a cell will have; a guess where the dataset decides. */
static size_t n_requests_of(const struct job_cell *c)
{
    double n = number_at(c, "load", "n_requests");

    if (n <= 0)
        n = number_at(c, "dataset", "n");
    if (n <= 0)
        n = 1000;
    return (size_t)(n + number_at(c, "load", "warmup_requests"));
}

/* Cells weigh by their own schedule where all have one, else by their requests; cells of a study
 * weigh alike. */
static double weight_of(const struct job *j, const struct job_cell *c)
{
    double n;

    if (j->study)
        return 1;
    n = (double)n_requests_of(c);
    return isfinite(job_scheduled_s(j)) ? n / number_at(c, "load", "rate_rps") : n;
}

/* Attributes, summary and the four times of a request; token times are extra. */
#define CELL_BYTES    60e3
#define REQUEST_BYTES 120.0

void run_plan_print(const struct job *j, FILE *f)
{
    double s = job_scheduled_s(j), bytes = 0;

    fprintf(f, "%s: %s%d cells\n", j->stem, j->head.repeats_auto ? "at most " : "",
            j->n_cells);
    for (int i = 0; i < j->n_cells; i++) {
        size_t n = j->study ? 0 : n_requests_of(&j->cells[i]);
        double max_tok = number_at(&j->cells[i], "dataset", "max_output_tok");

        /* 1000 output tokens is beyond the mean of every fit we ship. */
        bytes += CELL_BYTES +
                 (double)n * (REQUEST_BYTES +
                              8 * (max_tok > 0 && max_tok < 1000 ? max_tok : 1000));
        fprintf(f, "  %s", j->cells[i].key);
        if (j->cells[i].is_search)
            fprintf(f, " (a search, at least %zu requests a trial)", n);
        else if (!j->study)
            fprintf(f, " (%zu requests)", n);
        fprintf(f, "\n");
    }
    for (size_t i = 0; i < json_array_size(j->prepare); i++) {
        const json_t *p = json_array_get(j->prepare, i),
                     *path = json_object_get(p, "creates");

        fprintf(f, "  prepare ");
        job_put_value(path, false, f);
        fprintf(f, access(json_string_value(path), F_OK) == 0 ? ": is there, else by "
                                                              : ": will be made by ");
        job_put_value(json_object_get(p, "run"), false, f);
        fputc('\n', f);
    }
    if (isfinite(s))
        fprintf(f, "time: %.1f min by its own schedule, and what the last answers take\n",
                s / 60);
    fprintf(f, "time: %g min as stated; disk: %g MB as stated, result at most %.1f MB\n",
            j->cost.minutes, j->cost.disk_mb, bytes / 1e6);
}

/* --- the header of the record */

static bool wants_card(const struct job *j)
{
    if (j->study)
        return j->study->wants_machine;
    for (int i = 0; i < j->n_cells; i++) {
        const json_t *system = json_object_get(j->cells[i].settings, "system");
        const struct sut_adapter *a;

        if (sut_adapter_find(json_string_value(json_object_get(system, "adapter")), &a) ==
                OK &&
            (a->token_bytes || a->prefill_flop))
            return true;
    }
    return false;
}

/* Before any system is open: probes need the machine alone, for 30 s if no card is kept. A smoke
 * run judges no speed. */
static int get_card(struct run_session *s)
{
    const struct machine_card_opts o = {.dir = s->o->machine_dir,
                                        .check = !s->job->smoke,
                                        .any = s->job->smoke,
                                        .budget_s = s->job->smoke ? 0 : 30};
    int rc;

    if (!wants_card(s->job)) {
        snprintf(s->card_why, sizeof(s->card_why), "nothing here states its bound");
        return OK;
    }
    rc = machine_card_get(&s->card, &o);
    if (rc == OK || rc == ERR_NOMEM)
        return rc;
    snprintf(s->card_why, sizeof(s->card_why), "no machine card: %.70s", err_msg());
    log_warning("no_machine_card", NAN, NAN, "%s", s->card_why);
    return OK;
}

static int add_hwloc(json_t *header)
{
    struct topo_machine *m = NULL;
    char *xml = NULL;
    size_t n = 0;
    int rc = topo_machine_open(&m, NULL);

    if (rc == OK)
        rc = topo_machine_xml(m, &xml, &n);
    if (rc == OK)
        json_object_set_new(header, "hwloc_xml", json_stringn(xml, n));
    mem_free(xml);
    topo_machine_close(&m);
    return rc;
}

/* "load.rate_rps system.threads", for the figure. */
static void add_swept(json_t *header, const struct job *j)
{
    struct text t = {0};
    size_t i;
    json_t *name;

    json_array_foreach(j->swept, i, name)
    {
        text_puts(&t, i ? " " : "");
        text_puts(&t, json_string_value(name));
    }
    if (t.n)
        json_object_set_new(header, "swept", json_stringn(t.p, t.n));
    text_fini(&t);
}

int run_header_new(json_t **out, const char *stem, const char *about,
                   const char *evidence, bool smoke, json_t *job)
{
    json_t *h;
    char utc[32], host[128];
    struct cpu_budget budget;
    struct cpu_info cpu;
    int rc;

    TRY(cpu_budget_get(&budget));
    cpu_info_get(&cpu);
    clock_utc(utc, sizeof(utc));
    env_host(host, sizeof(host));
    h = json_pack("{s:o, s:s, s:s, s:o, s:o, s:i, s:s, s:b, s:O, s:o, s:o, s:O}",
                  "experiment", json_string_lossy(stem), "evidence", evidence, "utc", utc,
                  "host", json_string_lossy(host), "cpu_model",
                  json_string_lossy(cpu.model_name), "n_cpus", budget.n, "about", about,
                  "smoke", smoke, "job", job, "provenance", provenance_json(),
                  "environment", env_json(), "claim", json_object_get(job, "claim"));
    rc = add_hwloc(h);
    if (rc == OK)
        *out = h, h = NULL;
    json_decref(h);
    return rc;
}

static int header_new(const struct run_session *s, json_t **out)
{
    const struct job *j = s->job;

    TRY(run_header_new(out, j->stem, j->head.about, j->evidence, j->smoke, j->resolved));
    if (j->head.expect)
        json_object_set_new(*out, "expect", json_string(j->head.expect));
    add_swept(*out, j);
    return OK;
}

/* --- the run */

static bool is_finished(const struct run_session *s, const struct job_cell *c)
{
    enum record_state state;

    /* A cell that failed may work now; one that is not possible here stays so. */
    return journal_finished(s->journal, c->key, &state) && state != RECORD_FAILED;
}

/* The card of a new run, or of one that goes on; the record has that of the first. Where no cell is
 * left, nothing is held against it. */
static int card_for_cells(struct run_session *s)
{
    if (s->outcome->n_resumed == s->job->n_cells)
        return OK;
    TRY(get_card(s));
    if (!s->card || journal_n_attempts(s->journal) > 0)
        return OK;
    return journal_note(s->journal, json_pack("{s:O}", "machine_card", s->card));
}

static int open_session(struct run_session *s)
{
    double weight = 0;
    json_t *header = NULL;
    int rc = header_new(s, &header);

    if (rc == OK)
        rc = journal_open(&s->journal, s->o->out_dir, s->job->stem, header, s->o->fresh);
    json_decref(header);
    if (rc == OK)
        rc = run_prediction_begin(s);
    if (rc != OK)
        return rc;
    for (int i = 0; i < s->job->n_cells; i++) {
        if (is_finished(s, &s->job->cells[i]))
            s->outcome->n_resumed++;
        else
            weight += weight_of(s->job, &s->job->cells[i]);
    }
    if (s->outcome->n_resumed)
        log_info("%s: resuming: %d of %d cells are finished and are not run again",
                 s->job->stem, s->outcome->n_resumed, s->job->n_cells);
    TRY(card_for_cells(s));
    rc = progress_open(&s->progress, s->o->live, s->o->progress, (size_t)s->job->n_cells,
                       (size_t)s->outcome->n_resumed, weight, clock_ns());
    if (rc == OK)
        log_set_sink(progress_log, s->progress);
    return rc;
}

static void close_progress(struct run_session *s)
{
    if (!s->progress)
        return;
    log_set_sink(NULL, NULL);
    progress_close(&s->progress);
}

static int attempt(struct run_session *s, const struct job_cell *c, int n)
{
    if (c->is_search) /* which begins its trials */
        return s->job->head.pairing ? run_ladder(s, c, n) : run_search(s, c);
    for (int k = 0; k < n; k++)
        TRY(journal_begin(s->journal, c[k].key));
    if (s->job->head.pairing)
        return run_measure_paired(s, c, n);
    return s->job->study ? run_study(s, c) : run_measure(s, c);
}

/* n cells that are measured together, or one. */
static int run_cells_of(struct run_session *s, const struct job_cell *c, int n)
{
    int rc;

    s->weight = n * weight_of(s->job, c);
    s->attempt_ns = clock_ns();
    do
        rc = attempt(s, c, n);
    while (rc == OK && run_retry(s));
    progress_cell_end(s->progress);
    for (int k = 0; k < n && rc == OK; k++) {
        enum record_state state = RECORD_FAILED;

        journal_finished(s->journal, c[k].key, &state);
        s->outcome->n_done += state == RECORD_DONE;
        s->outcome->n_skipped += state == RECORD_SKIPPED;
        s->outcome->n_failed += state == RECORD_FAILED;
    }
    return rc;
}

static int write_record(struct run_session *s, const struct run_summary *summary)
{
    int rc;

    if (s->outcome->n_done + s->outcome->n_resumed == 0)
        return err_set(ERR_STATE, "%s: no cell could be measured; nothing is written",
                       s->job->stem);
    run_summary_print(summary, s->o->report);
    if (s->stopped[0])
        fprintf(s->o->report, "\n%s\n", s->stopped);
    TRY(run_prediction_end(s, summary));
    rc = record_finish(&s->journal, summary->headlines, (size_t)s->job->n_headlines,
                       journal_has_failed(s->journal), &s->outcome->path);
    if (rc == OK)
        fprintf(s->o->report, "\n%s\n", s->outcome->path);
    return rc;
}

static int finish(struct run_session *s)
{
    struct run_summary summary;
    int rc;

    TRY(run_summarise(&summary, s->job, journal_path(s->journal)));
    s->outcome->n_cells = s->job->n_cells;
    for (int i = 0; i < s->job->n_cells; i++)
        s->outcome->n_absent +=
            summary.skipped[i] && strstr(summary.skipped[i], DATASET_ABSENT);
    rc = write_record(s, &summary);
    run_summary_fini(&summary);
    return rc;
}

/* After a repeat of a job with repeats "auto": does the run end here? Then the record says why. */
static int end_of_repeat(struct run_session *s, int64_t repeats, bool *ends)
{
    const struct job_head *h = &s->job->head;
    char why[RUN_KNOWN_BYTES];
    bool known;

    if (!h->repeats_auto || repeats < h->repeats_min)
        return OK;
    TRY(run_known(&known, why, s, repeats));
    *ends = known || repeats == h->repeats_max;
    if (!*ends) {
        log_info("%s: %s", s->job->stem, why);
        return OK;
    }
    snprintf(s->stopped, sizeof(s->stopped), "%s", why);
    return journal_note(s->journal, json_pack("{s:s s:I}", "stopped", why, "n_repeats",
                                              (json_int_t)repeats));
}

/* The i-th cell to run: variants change turns from repeat to repeat. */
static const struct job_cell *turn_of(const struct job *j, int i)
{
    const struct job_axis *a = job_variant_axis(j);
    int n = a ? (int)json_array_size(a->values) : 1;

    return &j->cells[i - i % n + compare_turn(j->cells[i].repeat, i % n, n)];
}

/* A variant is started again in each repeat, and so is its second run, whatever ran before it: what
 * a restart changes is part of the noise. */
static bool must_restart(const struct job *j, const struct job_cell *before,
                         const struct job_cell *c)
{
    const struct job_axis *a = job_variant_axis(j);

    return a && before &&
           (before->repeat != c->repeat ||
            !json_equal(json_object_get(before->axes, a->name),
                        json_object_get(c->axes, a->name)));
}

static bool is_time_over(const struct run_session *s)
{
    return s->o->limit_s > 0 && (double)(clock_ns() - s->begin_ns) * 1e-9 > s->o->limit_s;
}

/* The record says of the n cells why they are not measured. */
static int leave_out(struct run_session *s, const struct job_cell *c, int n)
{
    enum record_state state;

    for (int k = 0; k < n; k++) {
        struct record_cell r = {.state = RECORD_SKIPPED};

        if (journal_finished(s->journal, c[k].key, &state))
            continue;
        TRY(run_record(s, &c[k], &r, "the time of --limit was over"));
        s->outcome->n_skipped++;
    }
    return OK;
}

/* `ran`: the job with the repeats that were run. */
static int run_cells(struct run_session *s, struct job *ran)
{
    const struct job *j = s->job;
    const struct job_cell *before = NULL;
    const json_t *together = j->head.pairing ? job_variant_axis(j)->values : NULL;
    int n = j->n_cells / (int)j->head.repeats, rc = OK;
    int step = together ? (int)json_array_size(together) : 1;
    bool ends = false;

    *ran = *j;
    for (int i = 0; i < j->n_cells && rc == OK && !ends; i += step) {
        const struct job_cell *c = step > 1 ? &j->cells[i] : turn_of(j, i);
        int n_finished = 0;

        while (n_finished < step && is_finished(s, &c[n_finished]))
            n_finished++;
        if (n_finished < step) {
            if (must_restart(j, before, c))
                run_system_close(&s->system);
            rc = is_time_over(s) ? leave_out(s, c, step) : run_cells_of(s, c, step);
            before = c;
        }
        if (rc == OK && (i + step) % n == 0)
            rc = end_of_repeat(s, (i + step) / n, &ends);
        if (ends)
            *ran = run_job_of(j, (i + step) / n);
    }
    return rc;
}

static void report(void *ctx, const char *line)
{
    (void)ctx;
    log_info("prepare: %s", line);
}

int run_experiment(struct run_outcome *out, const struct job *j,
                   const struct run_options *o)
{
    struct run_session s = {.job = j, .o = o, .outcome = out, .begin_ns = clock_ns()};
    struct log_warning stale;
    struct job ran;
    int rc;

    *out = (struct run_outcome){0};
    while (log_warnings_take(&stale, 1) > 0)
        ; /* from before this run: no cell's */
    /* Before minutes of preparing and measuring. */
    rc = file_check_dir(o->out_dir);
    if (rc == OK)
        rc = job_prepare(j, o->trust_prepare, report, NULL);
    if (rc == OK)
        rc = open_session(&s);
    if (rc == OK)
        rc = run_cells(&s, &ran);
    run_measure_fini(&s);
    close_progress(&s);
    if (rc == OK) {
        s.job = &ran;
        rc = finish(&s);
    }
    journal_close(&s.journal);
    json_decref(s.prediction);
    json_decref(s.card);
    return rc;
}
