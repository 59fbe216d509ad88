#include "http/metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/build.h"
#include "base/mem.h"
#include "base/thread.h"

/* Upper ends in seconds: a token of a small model to a long wait in the queue. */
static const double upper_s[HTTP_N_BUCKETS] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                                               0.1,   0.2,   0.5,   1,    2,    5,
                                               10,    20,    50,    100,  200,  500};
static const char *const closed_name[] = {"slow_head", "slow_body", "slow_reader",
                                          "client_gone"};

int http_metrics_init(struct http_metrics *m)
{
    *m = (struct http_metrics){0};
    return thread_mutex_init(&m->lock);
}

void http_metrics_fini(struct http_metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

static void observe(struct http_histogram *h, uint64_t ns)
{
    double s = (double)ns * 1e-9;
    int i = 0;

    while (i < HTTP_N_BUCKETS && s > upper_s[i])
        i++;
    h->bucket[i]++;
    h->n++;
    h->sum_s += s;
}

void http_metrics_status(struct http_metrics *m, int status)
{
    pthread_mutex_lock(&m->lock);
    m->n_status[status - HTTP_STATUS_MIN]++;
    pthread_mutex_unlock(&m->lock);
}

void http_metrics_closed(struct http_metrics *m, enum http_closed why)
{
    pthread_mutex_lock(&m->lock);
    m->n_closed[why]++;
    pthread_mutex_unlock(&m->lock);
}

void http_metrics_accepted(struct http_metrics *m, int64_t n_prompt)
{
    pthread_mutex_lock(&m->lock);
    m->n_prompt_tok += n_prompt;
    pthread_mutex_unlock(&m->lock);
}

void http_metrics_token(struct http_metrics *m, bool first, uint64_t ns)
{
    pthread_mutex_lock(&m->lock);
    m->n_new_tok++;
    observe(first ? &m->first : &m->next, ns);
    pthread_mutex_unlock(&m->lock);
}

void http_metrics_queued(struct http_metrics *m, uint64_t ns)
{
    pthread_mutex_lock(&m->lock);
    observe(&m->queued, ns);
    pthread_mutex_unlock(&m->lock);
}

void http_metrics_ended(struct http_metrics *m, bool canceled, uint64_t ns)
{
    pthread_mutex_lock(&m->lock);
    m->n_canceled += canceled;
    if (!canceled)
        observe(&m->whole, ns);
    pthread_mutex_unlock(&m->lock);
}

void http_metrics_steps(struct http_metrics *m, double prefill_s, double decode_s)
{
    pthread_mutex_lock(&m->lock);
    m->step_s[0] = prefill_s;
    m->step_s[1] = decode_s;
    pthread_mutex_unlock(&m->lock);
}

static void put_head(struct text *out, const char *name, const char *type,
                     const char *help)
{
    text_printf(out, "# HELP sandwich_%s %s\n# TYPE sandwich_%s %s\n", name, help, name,
                type);
}

static void put_one(struct text *out, const char *name, const char *type,
                    const char *help, double value)
{
    put_head(out, name, type, help);
    text_printf(out, "sandwich_%s %.17g\n", name, value);
}

static void put_histogram(struct text *out, const char *name, const char *help,
                          const struct http_histogram *h)
{
    int64_t below = 0;

    put_head(out, name, "histogram", help);
    for (int i = 0; i < HTTP_N_BUCKETS; i++) {
        below += h->bucket[i];
        text_printf(out, "sandwich_%s_bucket{le=\"%g\"} %lld\n", name, upper_s[i],
                    (long long)below);
    }
    text_printf(out, "sandwich_%s_bucket{le=\"+Inf\"} %lld\n", name, (long long)h->n);
    text_printf(out, "sandwich_%s_sum %.17g\nsandwich_%s_count %lld\n", name, h->sum_s,
                name, (long long)h->n);
}

static void put_labelled(struct text *out, const struct http_metrics *m)
{
    put_head(out, "http_responses_total", "counter", "Responses by status code.");
    for (int i = 0; i <= HTTP_STATUS_MAX - HTTP_STATUS_MIN; i++)
        if (m->n_status[i] > 0)
            text_printf(out, "sandwich_http_responses_total{code=\"%d\"} %lld\n",
                        i + HTTP_STATUS_MIN, (long long)m->n_status[i]);
    put_head(out, "http_closed_total", "counter",
             "Connections that the server closed before their request was answered.");
    for (int i = 0; i < HTTP_N_CLOSED; i++)
        text_printf(out, "sandwich_http_closed_total{reason=\"%s\"} %lld\n",
                    closed_name[i], (long long)m->n_closed[i]);
    put_head(out, "step_seconds_total", "counter",
             "Time that the engine computed, by phase.");
    text_printf(out,
                "sandwich_step_seconds_total{phase=\"prefill\"} %.17g\n"
                "sandwich_step_seconds_total{phase=\"decode\"} %.17g\n",
                m->step_s[0], m->step_s[1]);
}

static void put_kv(struct text *out, const struct serve_kv_stat *kv)
{
    const struct {
        const char *name, *type, *help;
        double value;
    } all[] = {
        {"kv_budget_tokens", "gauge",
         "Most tokens whose keys and values may be reserved.", (double)kv->budget_tok},
        {"kv_reserved_tokens", "gauge", "Tokens whose keys and values are reserved.",
         (double)kv->reserved_tok},
        {"kv_pool_bytes", "gauge", "Memory for keys and values.", (double)kv->pool_bytes},
        {"kv_reserved_bytes", "gauge", "Of it, in blocks that requests have.",
         (double)kv->reserved_bytes},
        {"kv_used_bytes", "gauge", "Of it, keys and values of tokens that were computed.",
         (double)kv->used_bytes},
        {"kv_usage_ratio", "gauge", "Share of that memory in blocks that requests have.",
         kv->pool_bytes > 0 ? (double)kv->reserved_bytes / (double)kv->pool_bytes : 0},
        {"kv_overflow_total", "counter", "Requests that outgrew their memory.",
         (double)kv->n_overflow},
        {"kv_migrated_bytes_total", "counter",
         "Keys and values copied because requests outgrew their memory.",
         (double)kv->migrated_bytes},
        {"kv_reused_requests_total", "counter",
         "Requests whose first tokens were taken from a sequence before them.",
         (double)kv->n_reused},
        {"kv_reused_tokens_total", "counter", "These tokens.", (double)kv->n_reused_tok},
        {"kv_alloc_total", "counter", "Calls of the allocator.", (double)kv->n_alloc},
        {"kv_alloc_seconds_total", "counter", "Time in the allocator.", kv->alloc_s},
        {"length_predictions_total", "counter", "Lengths predicted.",
         (double)kv->n_predicted},
        {"length_prediction_seconds_total", "counter", "Time for predicting lengths.",
         kv->predict_s},
        {"kv_preempt_total", "counter",
         "Requests that lost their memory to an older one and were computed again.",
         (double)kv->n_preempted},
        {"recomputed_tokens_total", "counter",
         "Tokens computed again after a preemption.", (double)kv->n_recomputed_tok},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        put_one(out, all[i].name, all[i].type, all[i].help, all[i].value);
}

/* What Prometheus' own client libraries report of a process, under their names. */
static void put_process(struct text *out, int64_t started_s)
{
    struct rlimit files = {0};
    struct rusage used = {0};
    int64_t n_files = -1; /* the folder's own */
    DIR *d = opendir("/proc/self/fd");

    while (d && readdir(d))
        n_files++;
    if (d)
        closedir(d);
    getrlimit(RLIMIT_NOFILE, &files);
    getrusage(RUSAGE_SELF, &used);
    const struct {
        const char *name, *type, *help;
        double value;
    } all[] = {
        {"cpu_seconds_total", "counter", "Processor time of all threads.",
         (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec)},
        {"resident_memory_bytes", "gauge", "Resident memory.", (double)mem_rss_bytes()},
        {"open_fds", "gauge", "Open files.", (double)(n_files - 2)},
        {"max_fds", "gauge", "Most files that may be open.", (double)files.rlim_cur},
        {"start_time_seconds", "gauge", "When the server started, since 1970.",
         (double)started_s},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        text_printf(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s %.17g\n",
                    all[i].name, all[i].help, all[i].name, all[i].type, all[i].name,
                    all[i].value);
}

void http_metrics_text(struct http_metrics *m, const struct http_gauges *g,
                       struct text *out)
{
    int64_t running = g->n_requests < g->max_seqs ? g->n_requests : g->max_seqs;

    pthread_mutex_lock(&m->lock);
    put_one(out, "requests_running", "gauge", "Requests that the engine may compute.",
            (double)running);
    put_one(out, "requests_waiting", "gauge", "Requests that wait for memory.",
            (double)(g->n_requests - running));
    put_one(out, "http_connections", "gauge", "Open connections.",
            (double)g->n_connections);
    put_one(out, "prompt_tokens_total", "counter", "Tokens of accepted prompts.",
            (double)m->n_prompt_tok);
    put_one(out, "generated_tokens_total", "counter", "Tokens generated.",
            (double)m->n_new_tok);
    put_one(out, "requests_canceled_total", "counter",
            "Requests that ended because their client had gone or the server stopped.",
            (double)m->n_canceled);
    put_kv(out, &g->kv);
    put_one(out, "draft_guessed_tokens_total", "counter", "Tokens that a draft guessed.",
            (double)g->draft.n_guessed);
    put_one(out, "draft_checked_tokens_total", "counter",
            "Of them, those before which all of their step were right.",
            (double)g->draft.n_checked);
    put_one(out, "draft_right_tokens_total", "counter",
            "Of these, those that were right, too.", (double)g->draft.n_right);
    put_one(out, "draft_seconds_total", "counter", "Time for guessing.",
            g->draft.seconds);
    put_histogram(out, "queue_seconds",
                  "Time from a request's arrival to the first step that computes it, of "
                  "those that have a token.",
                  &m->queued);
    put_histogram(out, "time_to_first_token_seconds",
                  "Time from a request's arrival to its first token.", &m->first);
    put_histogram(out, "inter_token_seconds", "Time between two tokens of a request.",
                  &m->next);
    put_histogram(out, "request_seconds", "Time from a request's arrival to its end.",
                  &m->whole);
    put_labelled(out, m);
    put_head(out, "build_info", "gauge", "1, with what the program was built from.");
    text_printf(out, "sandwich_build_info{version=\"%s\",commit=\"%s\"} 1\n",
                build_info.version, build_info.commit);
    put_process(out, g->started_s);
    pthread_mutex_unlock(&m->lock);
}
