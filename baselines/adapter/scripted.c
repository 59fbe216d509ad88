/* A system that follows a script: programmed delays, stalls and failures, and a log of when it
 * reported each event. It proves that the harness reports what happened.
 *
 * One thread serves all requests from a fixed table; `slots` of them at once, the rest
 * wait in order. Times are absolute: a late wake-up shifts one event, not those after it.
 */
#include "baselines/sut.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/text.h"
#include "base/thread.h"

struct scripted_opts {
    double ttft_ms, itl_ms, stall_ms, block_ms;
    int64_t slots, max_requests, vocab, max_tok;
    int64_t stall_request, block_request, fail_request, short_request, hang_request;
    char *log, *configuration;
};

enum state { FREE, WAITING, SERVED, CANCELED };

struct entry {
    enum state state;
    int64_t request, n_output, n_sent, order;
    uint64_t due_ns; /* of its next event */
};

/* One report: when the call began and when it had returned. */
struct logged {
    int64_t request;
    enum sut_event_kind kind;
    uint64_t before_ns, after_ns;
};

struct sut {
    struct scripted_opts o;
    sut_event_fn on_event;
    void *ctx;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
    struct entry *entries; /* o.max_requests of them */
    int64_t n_submitted;
    uint64_t frozen_until_ns;
    struct logged *log; /* the serving thread's own */
    size_t n_log, max_log;
};

#define AT(member) offsetof(struct scripted_opts, member)
#define DELAY(word, text)                                                                \
    {                                                                                    \
        .name = #word, .type = OPT_F64, .offset = AT(word), .unit = "ms", .min = 0,      \
        .max = 1e6, .def = "0", .help = text                                             \
    }
#define COUNT(word, unit_, min_, def_, text)                                             \
    {                                                                                    \
        .name = #word, .type = OPT_INT, .offset = AT(word), .unit = unit_, .min = min_,  \
        .max = 1e9, .def = def_, .help = text                                            \
    }

#define OPT_OF struct scripted_opts
static const struct opt_row scripted_opts[] = {
    DELAY(ttft_ms, "Time from the start of service to the first token."),
    DELAY(itl_ms, "Time from each token to the next."),
    COUNT(slots, NULL, 0, "0",
          "Number of requests served at once; the others wait. 0: all."),
    COUNT(stall_request, NULL, -1, "-1",
          "Stall all service when this request starts, counted from 0. -1: never."),
    DELAY(stall_ms, "Duration of that stall."),
    COUNT(block_request, NULL, -1, "-1",
          "Block the caller that submits this request. -1: never."),
    DELAY(block_ms, "Duration of that block."),
    COUNT(fail_request, NULL, -1, "-1",
          "Let this request fail after its first token. -1: none."),
    COUNT(short_request, NULL, -1, "-1",
          "Let this request end one token early. -1: none."),
    COUNT(hang_request, NULL, -1, "-1",
          "Do not answer this request until it is canceled. -1: none."),
    COUNT(max_requests, NULL, 1, "4096", "Largest number of requests."),
    COUNT(vocab, "tok", 4, "32000", "Number of token ids."),
    COUNT(max_tok, "tok", 2, "1048576", "Longest sequence."),
    OPT_ROW(STR, configuration, NULL,
            "What it states as its configuration. Variants with the same are reported as "
            "equal.",
            .unit = "TEXT"),
    OPT_ROW(STR, log, NULL,
            "CSV file to write at close, one line per reported event: "
            "request,event,before_ns,after_ns."),
    {0},
};

static uint64_t ms(double x)
{
    return (uint64_t)(x * 1e6);
}

static void report(struct sut *s, int64_t request, enum sut_event_kind kind,
                   const char *error)
{
    struct sut_event e = {.request = request, .kind = kind, .token = 3, .error = error};
    struct logged l = {.request = request, .kind = kind, .before_ns = clock_ns()};

    s->on_event(s->ctx, &e);
    l.after_ns = clock_ns();
    if (s->n_log < s->max_log)
        s->log[s->n_log++] = l;
}

/* Start waiting requests in the order they came while a slot is free. Lock held. */
static void start_waiting(struct sut *s)
{
    int64_t n_served = 0;

    for (int64_t i = 0; i < s->o.max_requests; i++)
        n_served += s->entries[i].state == SERVED;
    while (s->o.slots == 0 || n_served < s->o.slots) {
        struct entry *first = NULL;
        uint64_t now = clock_ns();

        for (int64_t i = 0; i < s->o.max_requests; i++) {
            struct entry *e = &s->entries[i];

            if (e->state == WAITING && (!first || e->order < first->order))
                first = e;
        }
        if (!first)
            return;
        if (first->order == s->o.stall_request) {
            s->frozen_until_ns = now + ms(s->o.stall_ms);
            for (int64_t i = 0; i < s->o.max_requests; i++)
                if (s->entries[i].state == SERVED)
                    s->entries[i].due_ns += ms(s->o.stall_ms);
        }
        first->state = SERVED;
        first->due_ns =
            (now > s->frozen_until_ns ? now : s->frozen_until_ns) + ms(s->o.ttft_ms);
        n_served++;
    }
}

/* The entry whose event comes first; NULL if nothing is to come. Lock held. */
static struct entry *next_due(struct sut *s)
{
    struct entry *next = NULL;

    for (int64_t i = 0; i < s->o.max_requests; i++) {
        struct entry *e = &s->entries[i];

        if (e->state == CANCELED)
            return e;
        if (e->state == SERVED && e->order != s->o.hang_request &&
            (!next || e->due_ns < next->due_ns))
            next = e;
    }
    return next;
}

/* Report one event of `e`. Called with the lock held, reports without it: the harness may
 * submit from another thread meanwhile. An ending entry is free before its end is
 * reported, so that the receiver of the event can use the free slot. */
static void serve(struct sut *s, struct entry *e)
{
    int64_t request = e->request;
    bool canceled = e->state == CANCELED, first = e->n_sent == 0;
    bool fails = e->order == s->o.fail_request && !first;
    int64_t n = e->n_output - (e->order == s->o.short_request);
    bool token = !canceled && !fails && e->n_sent < n;
    bool ends = canceled || fails || e->n_sent + token == n;

    e->n_sent += token;
    e->due_ns += ms(s->o.itl_ms);
    if (ends)
        e->state = FREE;
    pthread_mutex_unlock(&s->lock);
    if (token)
        report(s, request, SUT_TOKEN, NULL);
    if (ends && (canceled || fails))
        report(s, request, SUT_FAILED, canceled ? "canceled" : "failed as scripted");
    else if (ends)
        report(s, request, SUT_DONE, NULL);
    pthread_mutex_lock(&s->lock);
}

static void *serve_all(void *arg)
{
    struct sut *s = arg;

    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        struct entry *e;

        start_waiting(s);
        e = next_due(s);
        if (!e) {
            pthread_cond_wait(&s->changed, &s->lock);
        } else if (e->state == CANCELED || e->due_ns <= clock_ns()) {
            serve(s, e);
        } else {
            struct timespec t = {.tv_sec = (time_t)(e->due_ns / 1000000000),
                                 .tv_nsec = (long)(e->due_ns % 1000000000)};

            pthread_cond_timedwait(&s->changed, &s->lock, &t);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void write_log(const struct sut *s)
{
    static const char *const words[] = {"token", "done", "failed"};
    struct text t = {0};

    text_puts(&t, "request,event,before_ns,after_ns\n");
    for (size_t i = 0; i < s->n_log; i++)
        text_printf(&t, "%lld,%s,%llu,%llu\n", (long long)s->log[i].request,
                    words[s->log[i].kind], (unsigned long long)s->log[i].before_ns,
                    (unsigned long long)s->log[i].after_ns);
    if (t.rc != OK || file_write(s->o.log, t.p, t.n) != OK)
        log_error("scripted: %s", err_msg());
    text_fini(&t);
}

static void scripted_close(struct sut **sp)
{
    struct sut *s = *sp;

    if (!s)
        return;
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        s->closing = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        if (s->o.log)
            write_log(s);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    opt_free(scripted_opts, &s->o);
    mem_free(s->entries);
    mem_free(s->log);
    mem_free(s);
    *sp = NULL;
}

#define MAX_LOGGED 65536

static int scripted_open(struct sut **out, const json_t *config, sut_event_fn on_event,
                         void *ctx)
{
    struct sut *s = mem_new(MEM_HARNESS, 1, sizeof(*s));
    int rc;

    *out = NULL;
    s->on_event = on_event;
    s->ctx = ctx;
    rc = thread_mutex_init(&s->lock);
    if (rc == OK)
        rc = thread_cond_init(&s->changed);
    if (rc == OK)
        rc = opt_init(scripted_opts, &s->o);
    if (rc == OK)
        rc = opt_from_json(scripted_opts, &s->o, config, "scripted");
    if (rc != OK)
        goto out;
    s->max_log = s->o.log ? MAX_LOGGED : 0;
    s->entries = mem_new(MEM_HARNESS, (size_t)s->o.max_requests, sizeof(*s->entries));
    s->log = mem_new(MEM_HARNESS, s->max_log, sizeof(*s->log));
    rc = thread_start(&s->thread, 0, serve_all, s, "scripted");
    s->started = rc == OK;
out:
    if (rc != OK)
        scripted_close(&s);
    *out = s;
    return rc;
}

static int scripted_submit(struct sut *s, const struct sut_request *r)
{
    struct entry *e = NULL;
    int64_t order;

    pthread_mutex_lock(&s->lock);
    order = s->n_submitted++;
    for (int64_t i = 0; i < s->o.max_requests && !e; i++)
        if (s->entries[i].state == FREE)
            e = &s->entries[i];
    if (e) {
        *e = (struct entry){.state = WAITING,
                            .request = r->request,
                            .n_output = r->n_output,
                            .order = order};
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    if (order == s->o.block_request)
        clock_sleep_until_ns(clock_ns() + ms(s->o.block_ms), 0);
    return e ? OK
             : err_set(ERR_LIMIT, "scripted: all %lld requests of its table are taken",
                       (long long)s->o.max_requests);
}

static void scripted_cancel(struct sut *s, int64_t request)
{
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < s->o.max_requests; i++)
        if (s->entries[i].state != FREE && s->entries[i].request == request)
            s->entries[i].state = CANCELED;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* One id per word, the same id for the same word. */
static int scripted_encode(struct sut *s, const char *text, size_t n, int32_t **ids,
                           size_t *n_ids)
{
    size_t count = 0, i = 0;

    *n_ids = 0;
    *ids = mem_new(MEM_HARNESS, n / 2 + 1, sizeof(**ids));
    while (i < n) {
        uint32_t hash = 2166136261u;

        while (i < n && text[i] == ' ')
            i++;
        if (i == n)
            break;
        for (; i < n && text[i] != ' '; i++)
            hash = (hash ^ (uint8_t)text[i]) * 16777619u;
        (*ids)[count++] = (int32_t)(3 + hash % (uint64_t)(s->o.vocab - 3));
    }
    *n_ids = count;
    return OK;
}

static int scripted_limits(struct sut *s, int64_t *vocab, int64_t *max_tok)
{
    *vocab = s->o.vocab;
    *max_tok = s->o.max_tok;
    return OK;
}

static int scripted_describe(struct sut *s, json_t **out)
{
    *out =
        json_pack("{s:s, s:o, s:s*}", "system", "scripted", "options",
                  opt_to_json(scripted_opts, &s->o), "configuration", s->o.configuration);
    return OK;
}

const struct sut_adapter sut_adapter_scripted = {
    .name = "scripted",
    .help = "Answers with programmed delays, stalls and failures, to test the harness.",
    .opts = scripted_opts,
    .open = scripted_open,
    .close = scripted_close,
    .submit = scripted_submit,
    .cancel = scripted_cancel,
    .encode = scripted_encode,
    .limits = scripted_limits,
    .describe = scripted_describe,
};
