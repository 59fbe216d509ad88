#include "experiments/run/run.h"

#include <math.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "experiments/metrics/compare.h"

/* Sleep until this long before a dispatch, then spin: the kernel's wake-up is later than
 * that on a busy machine, and a spin of one request in many milliseconds costs nothing.
 */
#define SPIN_NS 50000
/* The first arrival, after the start: the generator is then waiting, not starting. */
#define LEAD_NS 2000000
/* How long a system may take to end canceled requests. */
#define DRAIN_S 10
#define TICK_NS 200000000

#define N_TIMER_PROBES 20
#define TIMER_PROBE_NS 1000000
#define NEVER_NS       UINT64_MAX

/* A cell in flight. Guarded by the system's lock from the first submit to the last end.
 */
struct flight {
    struct metrics_row *rows;
    int64_t **token_ns; /* [n] where each row's times go, n_output_tok each */
    bool *ended;        /* [n] the adapter reported it: its prompt is free again */
    size_t n;
    int64_t first_request; /* the system-wide number of row 0 */
    uint64_t start_ns;
    size_t n_dispatched, n_closed, n_failed; /* closed: has its final status */
    size_t n_ended; /* dispatched, and the adapter is done with it */
    /* Closed loop: when each slot became free, in order; [n + concurrency]. */
    int64_t *free_ns;
    size_t n_freed;
    /* Conversations: the rows whose turn before has ended, in the order of those ends; [n]. */
    const bool *follows; /* [n]; NULL: there are none */
    size_t *ready;
    size_t n_ready, n_ready_taken;
    const char *over;                      /* run_cell_end(): why; NULL: it goes on */
    struct metrics_saturation *saturation; /* NULL: it is not looked for */
    bool end_saturated;                    /* the cell ends when it is found */
    bool ended_early;                      /* it was, and the rest was not sent */
    bool finished;                         /* the load generator has returned */
};

/* ---- the system, and its reports on requests ---- */

/* After an event that the detector of saturation has seen: end the cell if it asks for that. Lock
 * held. */
static void flight_saturation(struct flight *f)
{
    if (f->end_saturated && !f->over && metrics_saturation_result(f->saturation)->found)
        f->over = "canceled: the cell was saturated and was ended";
}

/* Give row i its final status. Lock held. */
static void flight_close(struct flight *f, size_t i, enum metrics_status status,
                         int64_t done_ns, const char *error)
{
    struct metrics_row *r = &f->rows[i];

    r->status = status;
    r->done_ns = done_ns;
    snprintf(r->error, sizeof(r->error), "%s", error ? error : "");
    f->n_closed++;
    f->n_failed += status != METRICS_OK;
    if (f->saturation) {
        metrics_saturation_end(f->saturation, i, done_ns, status == METRICS_FAILED);
        flight_saturation(f);
    }
    if (f->follows && i + 1 < f->n && f->follows[i + 1])
        f->ready[f->n_ready++] = i + 1; /* the slot stays with its conversation */
    else if (f->free_ns)
        f->free_ns[f->n_freed++] = done_ns;
}

static bool is_open(const struct metrics_row *r)
{
    return r->done_ns == METRICS_NEVER;
}

static void take_token(struct flight *f, size_t i, int64_t t)
{
    struct metrics_row *r = &f->rows[i];

    if (r->n_tok == r->n_output_tok) {
        flight_close(f, i, METRICS_FAILED, t, "more tokens than asked for");
        return;
    }
    f->token_ns[i][r->n_tok++] = t;
    if (r->n_tok > 1)
        return;
    r->first_token_ns = t;
    if (f->saturation) {
        metrics_saturation_first_token(f->saturation, i, t);
        flight_saturation(f);
    }
}

static void take_end(struct flight *f, size_t i, int64_t t, const struct sut_event *e)
{
    struct metrics_row *r = &f->rows[i];
    char text[96];

    if (e->kind == SUT_FAILED) {
        flight_close(f, i, METRICS_FAILED, t, e->error ? e->error : "failed");
    } else if (e->any_length && r->n_tok > 0) {
        r->n_output_tok = r->n_tok; /* what came is what is measured */
        flight_close(f, i, METRICS_OK, t, NULL);
    } else if (r->n_tok != r->n_output_tok) {
        snprintf(text, sizeof(text), "ended after %lld tokens, asked for %lld",
                 (long long)r->n_tok, (long long)r->n_output_tok);
        flight_close(f, i, METRICS_FAILED, t, text);
    } else {
        flight_close(f, i, METRICS_OK, t, NULL);
    }
}

/* From the adapter's thread. The stamp is taken before anything else. */
static void on_event(void *ctx, const struct sut_event *e)
{
    uint64_t now = clock_ns();
    struct run_system *s = ctx;
    struct flight *f;
    int64_t i, t;

    pthread_mutex_lock(&s->lock);
    f = s->flight;
    i = f ? e->request - f->first_request : -1;
    if (i < 0 || (size_t)i >= f->n || f->ended[i])
        goto out;
    t = (int64_t)(now - f->start_ns);
    if (e->kind == SUT_TOKEN) {
        if (is_open(&f->rows[i]))
            take_token(f, (size_t)i, t);
        if (f->over)
            pthread_cond_signal(&s->changed);
        goto out;
    }
    if (is_open(&f->rows[i]))
        take_end(f, (size_t)i, t, e);
    f->ended[i] = true;
    f->n_ended++;
    pthread_cond_signal(&s->changed);
out:
    pthread_mutex_unlock(&s->lock);
}

static int adapter_of(const json_t *config, const struct sut_adapter **out)
{
    const char *name = json_string_value(json_object_get(config, "adapter"));

    if (!name)
        return err_set(ERR_ARG, "system.adapter: expected a string, found none");
    return sut_adapter_find(name, out);
}

int run_system_open(struct run_system **out, const json_t *config)
{
    struct run_system *s = mem_new(MEM_HARNESS, 1, sizeof(*s));
    json_t *options = NULL;
    int rc;

    *out = NULL;
    rc = thread_mutex_init(&s->lock);
    if (rc == OK)
        rc = thread_cond_init(&s->changed);
    if (rc == OK)
        rc = thread_cond_init(&s->progressed);
    if (rc != OK)
        goto out;
    s->config = json_deep_copy(config);
    options = json_deep_copy(config);
    json_object_del(options, "adapter");
    rc = adapter_of(config, &s->adapter);
    if (rc == OK)
        rc = s->adapter->open(&s->sut, options, on_event, s);
out:
    json_decref(options);
    if (rc != OK)
        run_system_close(&s);
    *out = s;
    return rc;
}

void run_system_close(struct run_system **sp)
{
    struct run_system *s = *sp;

    if (!s)
        return;
    if (s->sut)
        s->adapter->close(&s->sut);
    pthread_cond_destroy(&s->progressed);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    json_decref(s->config);
    mem_free(s);
    *sp = NULL;
}

int run_system_describe(struct run_system *s, json_t **out)
{
    *out = NULL;
    if (s->adapter->describe)
        return s->adapter->describe(s->sut, out);
    *out = json_pack("{s:s}", "system", s->adapter->name);
    return OK;
}

bool run_system_has_bound(struct run_system *s)
{
    return (s->adapter->token_bytes && s->adapter->token_bytes(s->sut, 1) > 0) ||
           (s->adapter->prefill_flop && s->adapter->prefill_flop(s->sut, 1) > 0);
}

/* ---- the load generator ---- */

struct generator {
    struct run_system *s;
    struct flight *f;
    const struct run_requests *requests;
    const struct load_opts *load;
    size_t next; /* first row that follows no other and was not yet sent or rejected */
    size_t n_started; /* such rows before it */
    size_t n_taken;   /* rows sent or rejected */
    size_t oldest;    /* no row before it is open or still to come */
    size_t end;       /* no row from it on was sent */
    bool stuck;
};

static void wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t t_ns)
{
    struct timespec t = {.tv_sec = (time_t)(t_ns / 1000000000),
                         .tv_nsec = (long)(t_ns % 1000000000)};

    if (t_ns == NEVER_NS)
        pthread_cond_wait(c, m);
    else
        pthread_cond_timedwait(c, m, &t);
}

/* A row and the absolute time at which it is intended. */
struct due {
    uint64_t ns; /* NEVER_NS: none can be sent before something ends */
    size_t row;
};

/* The next row that starts a conversation, or is one of its own. Lock held. */
static struct due next_start(struct generator *g)
{
    const struct flight *f = g->f;
    struct due d = {NEVER_NS, 0};

    while (f->follows && g->next < f->n && f->follows[g->next])
        g->next++;
    if (g->next == f->n)
        return d;
    d.row = g->next;
    if (g->requests->arrival_s)
        d.ns = f->start_ns + (uint64_t)(g->requests->arrival_s[g->next] * 1e9);
    else if (g->n_started < f->n_freed)
        d.ns = f->start_ns + (uint64_t)f->free_ns[g->n_started];
    return d;
}

/* The same of a turn whose turn before has ended. Lock held. */
static struct due next_turn(const struct generator *g)
{
    const struct flight *f = g->f;
    struct due d = {NEVER_NS, 0};

    if (f->n_ready_taken == f->n_ready)
        return d;
    d.row = f->ready[f->n_ready_taken];
    d.ns = f->start_ns + (uint64_t)f->rows[d.row - 1].done_ns +
           (uint64_t)((g->load->think_s + g->requests->pause_s[d.row]) * 1e9);
    return d;
}

static struct due next_due(struct generator *g)
{
    struct due start = next_start(g), turn = next_turn(g);

    return turn.ns < start.ns ? turn : start;
}

static bool over_limit(const struct generator *g)
{
    int64_t max = g->load->max_requests_outstanding;

    return g->requests->arrival_s && max > 0 &&
           (int64_t)(g->n_taken - g->f->n_closed) >= max;
}

/* This row is sent or rejected now. Lock held. */
static void take(struct generator *g, struct due d)
{
    if (g->f->follows && g->f->follows[d.row]) {
        g->f->n_ready_taken++;
    } else {
        g->next++;
        g->n_started++;
    }
    g->n_taken++;
    g->end = d.row + 1 > g->end ? d.row + 1 : g->end;
    g->f->rows[d.row].intended_ns = (int64_t)(d.ns - g->f->start_ns);
}

/* In a chat with the system's own answers a prompt stands behind what came before. Lock held. */
static void continue_chat(const struct generator *g, size_t row, struct sut_request *q)
{
    const bool *follows = g->requests->follows;
    const struct metrics_row *before = row ? &g->f->rows[row - 1] : NULL;

    if (!g->requests->own_answers)
        return;
    q->keeps = row + 1 < g->f->n && follows[row + 1];
    q->continues = follows[row];
    if (!q->continues)
        return;
    q->before = g->f->first_request + (int64_t)row - 1;
    q->n_before = before->n_prompt_tok + before->n_tok;
    g->f->rows[row].n_prompt_tok = q->n_before + q->n_prompt;
}

/* Send a row. Lock held; released meanwhile, for the adapter may answer at once. */
static void dispatch(struct generator *g, struct due d)
{
    struct flight *f = g->f;
    struct metrics_row *r = &f->rows[d.row];
    struct sut_request q = g->requests->v[d.row];
    int rc;

    take(g, d);
    if (f->saturation && !r->warmup) {
        metrics_saturation_arrival(f->saturation, d.row, r->intended_ns);
        flight_saturation(f);
    }
    q.request = f->first_request + (int64_t)d.row;
    continue_chat(g, d.row, &q);
    f->n_dispatched++;
    pthread_mutex_unlock(&g->s->lock);
    clock_sleep_until_ns(d.ns, SPIN_NS);
    r->dispatch_ns = (int64_t)(clock_ns() - f->start_ns);
    rc = g->s->adapter->submit(g->s->sut, &q);
    pthread_mutex_lock(&g->s->lock);
    if (rc == OK || f->ended[d.row])
        return;
    f->ended[d.row] = true; /* refused: no event follows */
    f->n_ended++;
    if (r->done_ns == METRICS_NEVER)
        flight_close(f, d.row, METRICS_FAILED, (int64_t)(clock_ns() - f->start_ns),
                     err_msg());
}

static void reject(struct generator *g, struct due d)
{
    take(g, d);
    flight_close(g->f, d.row, METRICS_REJECTED, g->f->rows[d.row].intended_ns,
                 "too many requests outstanding");
}

/* Cancel a request that is past its time. Lock held, released to cancel. */
static void cancel(struct generator *g, size_t row, uint64_t now, const char *why)
{
    struct flight *f = g->f;

    flight_close(f, row, METRICS_TIMEOUT, (int64_t)(now - f->start_ns), why);
    pthread_mutex_unlock(&g->s->lock);
    g->s->adapter->cancel(g->s->sut, f->first_request + (int64_t)row);
    pthread_mutex_lock(&g->s->lock);
}

/* Cancel what is past its time; returns when the next one will be. Without conversations the
 * intended times never decrease, so the oldest open row is the first to expire. Lock held. */
static uint64_t expire(struct generator *g, uint64_t now)
{
    const struct flight *f = g->f;
    uint64_t timeout_ns = (uint64_t)(g->load->timeout_s * 1e9), first = NEVER_NS;

    for (size_t i = g->oldest; i < g->end && timeout_ns; i++) {
        const struct metrics_row *r = &f->rows[i];
        bool open = r->done_ns == METRICS_NEVER && r->intended_ns != METRICS_NEVER;
        uint64_t deadline = f->start_ns + (uint64_t)r->intended_ns + timeout_ns;

        if (open && now >= deadline)
            cancel(g, i, now, "canceled after load.timeout_s");
        else if (open)
            first = deadline < first ? deadline : first;
        if (i == g->oldest && r->done_ns != METRICS_NEVER)
            g->oldest++;
        if (first != NEVER_NS && !f->follows)
            break;
    }
    return first;
}

/* Cancel what was sent, and send nothing more. Lock held. */
static void end_early(struct generator *g)
{
    struct flight *f = g->f;

    f->ended_early = f->end_saturated && metrics_saturation_result(f->saturation)->found;
    for (size_t i = 0; i < f->n; i++) {
        struct metrics_row *r = &f->rows[i];
        uint64_t now = clock_ns();

        if (r->done_ns != METRICS_NEVER)
            continue;
        if (r->intended_ns != METRICS_NEVER) {
            cancel(g, i, now, f->over);
            continue;
        }
        if (f->ended_early)
            continue; /* drop_unsent() */
        r->intended_ns = (int64_t)(now > f->start_ns ? now - f->start_ns : 0);
        flight_close(f, i, METRICS_REJECTED, r->intended_ns, f->over);
    }
}

/* Wait for the system to let go of every prompt. Lock held. */
static void drain(struct generator *g)
{
    uint64_t until = clock_ns() + (uint64_t)DRAIN_S * 1000000000;

    while (g->f->n_ended < g->f->n_dispatched && clock_ns() < until)
        wait_until(&g->s->changed, &g->s->lock, until);
    g->stuck = g->f->n_ended < g->f->n_dispatched;
}

static void *generate(void *arg)
{
    struct generator *g = arg;
    struct flight *f = g->f;

    /* The default slack of 50 us would be our own lateness. */
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    pthread_mutex_lock(&g->s->lock);
    while (f->n_closed < f->n) {
        uint64_t now = clock_ns();
        uint64_t deadline = expire(g, now), wake;
        struct due due = next_due(g);

        if (f->over) {
            end_early(g);
            break;
        }
        if (due.ns != NEVER_NS && due.ns <= now + SPIN_NS) {
            if (over_limit(g))
                reject(g, due);
            else
                dispatch(g, due);
            continue;
        }
        wake = due.ns == NEVER_NS ? NEVER_NS : due.ns - SPIN_NS;
        if (f->n_closed < f->n)
            wait_until(&g->s->changed, &g->s->lock, wake < deadline ? wake : deadline);
    }
    drain(g);
    f->finished = true;
    pthread_cond_signal(&g->s->progressed);
    pthread_mutex_unlock(&g->s->lock);
    return NULL;
}

static void flight_new(struct flight *f, struct run_result *out,
                       const struct run_requests *q, const struct load_opts *load)
{
    size_t n_tok = 0;

    for (size_t i = 0; i < q->n; i++)
        n_tok += (size_t)q->v[i].n_output;
    f->n = out->n = q->n;
    out->rows = mem_new(MEM_HARNESS, q->n, sizeof(*out->rows));
    out->token_ns = mem_new(MEM_HARNESS, n_tok, sizeof(*out->token_ns));
    f->token_ns = mem_new(MEM_HARNESS, q->n, sizeof(*f->token_ns));
    f->ended = mem_new(MEM_HARNESS, q->n, sizeof(*f->ended));
    f->rows = out->rows;
    n_tok = 0;
    for (size_t i = 0; i < q->n; i++) {
        f->token_ns[i] = out->token_ns + n_tok;
        n_tok += (size_t)q->v[i].n_output;
        out->rows[i] = (struct metrics_row){.request = (int64_t)i,
                                            .warmup = i < q->n_warmup,
                                            .intended_ns = METRICS_NEVER,
                                            .dispatch_ns = METRICS_NEVER,
                                            .first_token_ns = METRICS_NEVER,
                                            .done_ns = METRICS_NEVER,
                                            .n_prompt_tok = q->v[i].n_prompt,
                                            .n_output_tok = q->v[i].n_output,
                                            .token_ns = f->token_ns[i],
                                            .decode_bytes = NAN,
                                            .prefill_flop = NAN};
    }
    f->follows = q->follows;
    if (q->follows)
        f->ready = mem_new(MEM_HARNESS, q->n, sizeof(*f->ready));
    if (q->arrival_s)
        return;
    f->free_ns = mem_new(MEM_HARNESS, q->n + (size_t)load->concurrency, sizeof(int64_t));
    f->n_freed = (size_t)load->concurrency; /* all free at time 0 */
}

/* The detector of an open loop. In a closed one a slow system is asked less. */
static int look_for_saturation(struct flight *f, const struct run_requests *q,
                               const struct load_opts *load)
{
    double *starts;
    size_t n = 0;
    int rc;

    if (!q->arrival_s || load->saturation == LOAD_SATURATION_OFF)
        return OK;
    starts = mem_new(MEM_HARNESS, q->n, sizeof(*starts));
    for (size_t i = q->n_warmup; i < q->n; i++)
        if (!q->follows || !q->follows[i])
            starts[n++] = q->arrival_s[i];
    rc = metrics_saturation_open(&f->saturation, q->n, starts, n);
    f->end_saturated = load->saturation == LOAD_SATURATION_END;
    mem_free(starts);
    return rc;
}

/* The rows that were sent, in their order. */
static void drop_unsent(struct run_result *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++)
        if (r->rows[i].intended_ns != METRICS_NEVER)
            r->rows[n++] = r->rows[i];
    r->n_not_sent = r->n - n;
    r->n = n;
}

static void flight_free(struct flight *f)
{
    metrics_saturation_close(&f->saturation);
    mem_free(f->token_ns);
    mem_free(f->ended);
    mem_free(f->free_ns);
    mem_free(f->ready);
}

/* How much later than asked a timed wait of this thread returns, here and now. */
static void measure_timer(struct run_result *out)
{
    out->timer_error_us = mem_new(MEM_HARNESS, N_TIMER_PROBES, sizeof(double));
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    for (size_t i = 0; i < N_TIMER_PROBES; i++) {
        uint64_t t = clock_ns() + TIMER_PROBE_NS;

        clock_sleep_until_ns(t, 0);
        out->timer_error_us[i] = (double)(clock_ns() - t) / 1e3;
    }
    prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0); /* 0: the default again */
    out->n_timer_error = N_TIMER_PROBES;
}

/* Follow the generator from the calling thread until it ends. */
static void follow(struct run_system *s, struct flight *f, struct run_energy *energy,
                   run_tick_fn tick, void *ctx)
{
    uint64_t next_tick_ns = 0;

    pthread_mutex_lock(&s->lock);
    while (!f->finished) {
        size_t n_closed = f->n_closed, n_failed = f->n_failed;

        pthread_mutex_unlock(&s->lock);
        if (tick && clock_ns() >= next_tick_ns) {
            tick(ctx, n_closed, n_failed);
            next_tick_ns = clock_ns() + TICK_NS;
        }
        run_energy_read(energy);
        pthread_mutex_lock(&s->lock);
        if (!f->finished)
            wait_until(&s->progressed, &s->lock,
                       clock_ns() + (energy->why[0] ? TICK_NS : RUN_ENERGY_NS));
    }
    pthread_mutex_unlock(&s->lock);
}

void run_cell_end(struct run_system *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    if (s->flight && !s->flight->over) {
        s->flight->over = why;
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
}

static int by_intended(const void *a, const void *b)
{
    const struct metrics_row *x = a, *y = b;

    return x->intended_ns != y->intended_ns ? (x->intended_ns > y->intended_ns) * 2 - 1
                                            : (x->request > y->request) * 2 - 1;
}

void run_result_sort(struct run_result *r)
{
    qsort(r->rows, r->n, sizeof(*r->rows), by_intended);
}

int run_cell(struct run_result *out, struct run_system *s,
             const struct run_requests *requests, const struct load_opts *load,
             run_tick_fn tick, void *ctx)
{
    struct flight f = {.first_request = s->next_request};
    struct generator g = {.s = s, .f = &f, .requests = requests, .load = load};
    pthread_t thread;
    int rc;

    *out = (struct run_result){0};
    flight_new(&f, out, requests, load);
    rc = look_for_saturation(&f, requests, load);
    if (rc != OK)
        goto out;
    measure_timer(out);
    s->next_request += (int64_t)f.n;
    run_energy_open(&out->energy);
    f.start_ns = clock_ns() + LEAD_NS;
    if (f.start_ns < requests->start_ns)
        f.start_ns = requests->start_ns;
    out->energy.start_ns = f.start_ns;
    run_energy_read(&out->energy);
    pthread_mutex_lock(&s->lock);
    s->flight = &f;
    pthread_mutex_unlock(&s->lock);
    rc = thread_start(&thread, 0, generate, &g, "load generator");
    if (rc != OK)
        goto out;
    follow(s, &f, &out->energy, tick, ctx);
    pthread_join(thread, NULL);
    run_energy_read(&out->energy);
    out->wall_s = (double)(clock_ns() - f.start_ns) / 1e9;
    out->system_stuck = g.stuck;
    out->ended_early = f.ended_early;
    if (f.saturation)
        out->saturated = *metrics_saturation_result(f.saturation);
    if (f.ended_early)
        drop_unsent(out);
    if (f.follows) /* turns came between later rows */
        run_result_sort(out);
out:
    pthread_mutex_lock(&s->lock);
    s->flight = NULL;
    pthread_mutex_unlock(&s->lock);
    flight_free(&f);
    if (rc != OK)
        run_result_fini(out);
    return rc;
}

/* ---- the same requests to several systems in turn ---- */

struct turns {
    struct flight f;
    struct generator g;
    struct run_result *result;
    uint64_t end_ns;  /* of its last turn; 0: it has had none */
    double end_cpu_s; /* what the system had taken then */
};

double run_system_cpu_s(const struct run_system *s)
{
    const clockid_t *clocks;
    int n = s->adapter->cpu_clocks ? s->adapter->cpu_clocks(s->sut, &clocks) : 0;
    double sum = n ? 0 : NAN;
    struct timespec t;

    for (int i = 0; i < n; i++)
        sum += clock_gettime(clocks[i], &t) ? NAN
                                            : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return sum;
}

static void begin_turns(struct turns *t, const struct run_entry *e, uint64_t start_ns)
{
    t->f = (struct flight){.first_request = e->s->next_request, .start_ns = start_ns};
    flight_new(&t->f, e->result, t->g.requests, t->g.load);
    e->result->turn_s = mem_new(MEM_HARNESS, t->f.n, sizeof(double));
    snprintf(e->result->energy.why, sizeof(e->result->energy.why), "systems took turns");
    e->s->next_request += (int64_t)t->f.n;
    pthread_mutex_lock(&e->s->lock);
    e->s->flight = &t->f;
    pthread_mutex_unlock(&e->s->lock);
}

/* Send row i, and wait until the system has ended it and let go of it. */
static void run_turn(struct turns *t, size_t i)
{
    struct generator *g = &t->g;
    struct run_result *r = t->result;

    if (t->end_ns) {
        r->idle_s += (double)(clock_ns() - t->end_ns) / 1e9;
        r->idle_cpu_s += run_system_cpu_s(g->s) - t->end_cpu_s;
    }
    pthread_mutex_lock(&g->s->lock);
    dispatch(g, (struct due){clock_ns(), i});
    while (is_open(&t->f.rows[i])) {
        uint64_t deadline = expire(g, clock_ns());

        if (is_open(&t->f.rows[i]))
            wait_until(&g->s->changed, &g->s->lock, deadline);
    }
    drain(g);
    pthread_mutex_unlock(&g->s->lock);
    r->turn_s[i] = (double)t->f.rows[i].intended_ns / 1e9;
    t->end_cpu_s = run_system_cpu_s(g->s);
    t->end_ns = clock_ns();
}

/* Reject the rows that were not sent, and let time stand still between the others. */
static void end_turns(struct turns *t)
{
    struct run_result *r = t->result;
    int64_t now = 0;

    pthread_mutex_lock(&t->g.s->lock);
    t->g.s->flight = NULL;
    pthread_mutex_unlock(&t->g.s->lock);
    for (size_t i = 0; i < r->n; i++) {
        if (i >= t->g.end) {
            r->turn_s[i] = NAN;
            r->rows[i].intended_ns = now;
            flight_close(&t->f, i, METRICS_REJECTED, now, "a system never ended another");
        }
        metrics_row_move(&r->rows[i], now - r->rows[i].intended_ns, t->f.token_ns[i]);
        now = r->rows[i].done_ns;
    }
    r->wall_s = (double)now / 1e9;
    r->system_stuck = t->g.stuck;
    flight_free(&t->f);
}

void run_paired(const struct run_entry *e, int n, const struct run_requests *requests,
                const struct load_opts *load, run_tick_fn tick, void *ctx)
{
    struct turns *t = mem_new(MEM_HARNESS, (size_t)n, sizeof(*t));
    size_t n_failed = 0;
    uint64_t start_ns;
    bool stuck = false;

    for (int k = 0; k < n; k++) {
        *e[k].result = (struct run_result){0};
        measure_timer(e[k].result);
        t[k].result = e[k].result;
        t[k].g = (struct generator){
            .s = e[k].s, .f = &t[k].f, .requests = requests, .load = load};
    }
    start_ns = clock_ns();
    for (int k = 0; k < n; k++)
        begin_turns(&t[k], &e[k], start_ns);
    for (size_t i = 0; i < requests->n && !stuck; i++) {
        for (int turn = 0; turn < n && !stuck; turn++) {
            struct turns *now = &t[compare_turn((int64_t)i, turn, n)];

            run_turn(now, i);
            n_failed += now->f.rows[i].status != METRICS_OK;
            stuck = now->g.stuck;
        }
        tick(ctx, (size_t)n * (i + 1), n_failed);
    }
    for (int k = 0; k < n; k++)
        end_turns(&t[k]);
    mem_free(t);
}

void run_result_fini(struct run_result *r)
{
    mem_free(r->turn_s);
    mem_free(r->rows);
    mem_free(r->token_ns);
    mem_free(r->timer_error_us);
    run_energy_fini(&r->energy);
    *r = (struct run_result){0};
}

static double stated_decode_bytes(struct run_system *s, const struct metrics_row *r)
{
    double sum = 0;

    for (int64_t t = 1; t < r->n_tok; t++) {
        int64_t bytes = s->adapter->token_bytes(s->sut, r->n_prompt_tok + t);

        if (bytes <= 0)
            return NAN;
        sum += (double)bytes;
    }
    return sum;
}

void run_bounds(struct run_result *r, struct run_system *s)
{
    for (size_t i = 0; i < r->n; i++) {
        struct metrics_row *row = &r->rows[i];
        double flop = s->adapter->prefill_flop
                          ? s->adapter->prefill_flop(s->sut, row->n_prompt_tok)
                          : 0;

        row->decode_bytes = s->adapter->token_bytes ? stated_decode_bytes(s, row) : NAN;
        row->prefill_flop = flop > 0 ? flop : NAN;
    }
}
