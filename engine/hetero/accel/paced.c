/* An accelerator that is not there, in real time. What concerns the host is real: a thread
 * copies what is sent, byte by byte and no faster than the link, while the CPU computes its own
 * slices, so that both read the host's memory at once and slow each other as they do. What
 * concerns the device is a time of the machine's model that is waited for: launches, the start of a
 * copy, kernels.
 *
 * A device would write what it reads into its own memory, which takes nothing of the host's. So
 * the thread copies into a window that stays in its cache: the host's memory is read, not written.
 * The thread needs a CPU of its own (struct accel_opts); a device would need none.
 *
 * Values are computed by `sim`, to which finish() hands all that was given, in order, after it
 * has read the clock. The clock stands still meanwhile, and sim finds races. So seconds hold no
 * computing of what a device would compute, and the time of a program that uses this accelerator
 * is not that of the clock on the wall. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "hetero/accel.h"

#define WINDOW_BYTES ((size_t)64 << 10)
#define SLEEP_NS     100000 /* the thread is no more than that ahead of the link */
#define SPIN_NS      80000  /* before a time that counts */

enum op_kind { LAUNCH, COPY, FETCH, GEMM, SWIGLU, RECORD, WAIT };

struct op {
    enum op_kind kind;
    enum accel_stream stream;
    double not_before_s; /* its launch is done */
    struct accel_at at;
    const void *from;
    void *to;
    size_t bytes;
    struct accel_gemm gemm;
    struct accel_swiglu swiglu;
    int event, n;
};

struct paced {
    struct accel accel; /* first */
    struct hetero_machine machine;
    struct accel *values; /* sim */
    const struct accel_kind *sim;
    char *window;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t more, idle;
    /* Under the lock. */
    struct op *ops;
    int n_ops, max_ops, n_done;
    bool quit;
    bool no_memory;

    double launched_s;
    uint64_t zero_ns; /* of the clock; it moves while the clock stands still */
    /* The thread's; the owner's while it is idle. */
    double free_s[ACCEL_N_STREAMS];
    double *event_s;
    int n_events, max_events; /* under the lock */
    int first_event;          /* the number of event_s[0]; those before are over */
};

static struct paced *paced_of(struct accel *a)
{
    return (struct paced *)a;
}

static double now_s(const struct paced *p)
{
    return 1e-9 * (double)(clock_ns() - p->zero_ns);
}

static void wait_until(const struct paced *p, double s)
{
    clock_sleep_until_ns(p->zero_ns + (uint64_t)(1e9 * fmax(0, s)), SPIN_NS);
}

/* ---- the thread ---- */

/* Read `bytes` at the link's rate, from start_s on. Returns when the last has arrived. */
static double transfer(struct paced *p, const char *from, size_t bytes, double start_s)
{
    double begin_s = start_s + p->machine.link_start_s, due_s = begin_s;

    wait_until(p, begin_s);
    for (size_t at = 0; at < bytes; at += WINDOW_BYTES) {
        size_t n = bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES;

        if (from)
            memcpy(p->window, from + at, n);
        due_s = begin_s + (double)(at + n) * p->machine.link_s_per_byte;
        if (due_s - now_s(p) > 1e-9 * SLEEP_NS)
            wait_until(p, due_s - 0.5e-9 * SLEEP_NS);
    }
    wait_until(p, due_s);
    return fmax(due_s, now_s(p));
}

static double compute_s(const struct paced *p, const struct accel_gemm *g)
{
    return hetero_product_s(&p->machine, true,
                            (double)(g->layout.n_panels * KERN_PANEL * g->layout.k),
                            (double)g->n_tok);
}

static void run_op(struct paced *p, const struct op *o)
{
    double *stream_s = &p->free_s[o->stream];
    double start_s = fmax(*stream_s, o->not_before_s);

    switch (o->kind) {
    case LAUNCH:
        break;
    case COPY: /* what a device writes to the host's memory is written when the clock stands */
    case FETCH:
        *stream_s = transfer(p, o->from, o->bytes, start_s);
        break;
    case GEMM:
        *stream_s = start_s + compute_s(p, &o->gemm);
        break;
    case SWIGLU: /* takes no time, as in the paper's model */
        *stream_s = start_s;
        break;
    case RECORD:
        p->event_s[o->event - p->first_event] = *stream_s;
        break;
    case WAIT:
        if (o->event >= p->first_event)
            *stream_s = fmax(*stream_s, p->event_s[o->event - p->first_event]);
        break;
    }
}

static void *thread_main(void *arg)
{
    struct paced *p = arg;

    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct op o;

        while (p->n_done == p->n_ops && !p->quit)
            pthread_cond_wait(&p->more, &p->lock);
        if (p->n_done == p->n_ops)
            break;
        o = p->ops[p->n_done];
        if (o.kind == COPY || o.kind == FETCH) { /* others take no time */
            pthread_mutex_unlock(&p->lock);
            run_op(p, &o);
            pthread_mutex_lock(&p->lock);
        } else {
            run_op(p, &o);
        }
        if (++p->n_done == p->n_ops)
            pthread_cond_signal(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* On o->cpu, or on any that this process may use: not where the opener is pinned. */
static int start(struct paced *p, int cpu)
{
    cpu_set_t set;
    int rc;

    TRY(thread_start(&p->thread, 0, thread_main, p, "accelerator paced"));
    p->started = true;
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (cpu < 0 || i == cpu)
            CPU_SET((size_t)i, &set);
    rc = pthread_setaffinity_np(p->thread, sizeof(set), &set);
    return rc == 0 ? OK
                   : err_set(ERR_IO, "the thread that copies cannot have CPU %d: %s", cpu,
                             strerror(rc));
}

/* ---- the owner ---- */

static void paced_close(struct accel **a)
{
    struct paced *p = *a ? paced_of(*a) : NULL;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
    if (p->started)
        pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->more);
    pthread_cond_destroy(&p->idle);
    if (p->sim)
        p->sim->close(&p->values);
    mem_free(p->window);
    mem_free(p->ops);
    mem_free(p->event_s);
    mem_free(p);
    *a = NULL;
}

static int paced_open(struct accel **out, const struct accel_opts *o)
{
    struct paced *p = mem_new(MEM_OTHER, 1, sizeof(*p));
    int rc;

    *out = NULL;
    if (!p)
        return ERR_NOMEM;
    *out = &p->accel;
    p->machine = *o->machine;
    rc = thread_mutex_init(&p->lock);
    if (rc == OK)
        rc = thread_cond_init(&p->more);
    if (rc == OK)
        rc = thread_cond_init(&p->idle);
    p->window = mem_new(MEM_OTHER, WINDOW_BYTES, 1);
    if (rc == OK)
        rc = p->window ? accel_find("sim", &p->sim) : ERR_NOMEM;
    if (rc == OK)
        rc = p->sim->open(&p->values, o);
    if (rc == OK)
        rc = start(p, o->cpu);
    p->zero_ns = clock_ns();
    if (rc != OK)
        paced_close(out);
    return rc;
}

static int paced_alloc(struct accel *a, size_t bytes, int *buffer)
{
    return paced_of(a)->sim->alloc(paced_of(a)->values, bytes, buffer);
}

/* With the lock. */
static int push(struct paced *p, const struct op *o)
{
    if (accel_grow(&p->ops, p->n_ops, &p->max_ops, sizeof(*o)) != OK) {
        p->no_memory = true;
        return ERR_NOMEM;
    }
    p->ops[p->n_ops] = *o;
    p->ops[p->n_ops++].not_before_s = p->launched_s;
    pthread_cond_signal(&p->more);
    return OK;
}

static int give(struct accel *a, const struct op *o)
{
    struct paced *p = paced_of(a);
    int rc;

    pthread_mutex_lock(&p->lock);
    rc = push(p, o);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* The processor would issue them while it computes: the time is waited for by what is launched. */
static void paced_launch(struct accel *a, int n)
{
    struct paced *p = paced_of(a);

    p->launched_s = fmax(p->launched_s, now_s(p)) + n * p->machine.launch_s;
    (void)give(a, &(struct op){.kind = LAUNCH, .n = n});
}

static int paced_copy(struct accel *a, struct accel_at to, const void *from, size_t bytes)
{
    return give(a, &(struct op){.kind = COPY, .at = to, .from = from, .bytes = bytes});
}

static int paced_fetch(struct accel *a, void *to, struct accel_at from, size_t bytes)
{
    return give(a, &(struct op){.kind = FETCH, .at = from, .to = to, .bytes = bytes});
}

static int paced_gemm(struct accel *a, const struct accel_gemm *g)
{
    return give(a, &(struct op){.kind = GEMM, .stream = ACCEL_COMPUTE, .gemm = *g});
}

static int paced_swiglu(struct accel *a, const struct accel_swiglu *s)
{
    return give(a, &(struct op){.kind = SWIGLU, .stream = ACCEL_COMPUTE, .swiglu = *s});
}

static int paced_record(struct accel *a, enum accel_stream stream)
{
    struct paced *p = paced_of(a);
    struct op o = {.kind = RECORD, .stream = stream, .event = -1};

    pthread_mutex_lock(&p->lock);
    if (accel_grow(&p->event_s, p->n_events, &p->max_events, sizeof(double)) == OK)
        o.event = p->first_event + p->n_events++;
    else
        p->no_memory = true;
    if (o.event >= 0 && push(p, &o) != OK)
        o.event = -1;
    pthread_mutex_unlock(&p->lock);
    return o.event;
}

static void paced_wait(struct accel *a, enum accel_stream stream, int event)
{
    (void)give(a, &(struct op){.kind = WAIT, .stream = stream, .event = event});
}

/* The same to sim, whose events have the same numbers. */
static int replay(struct paced *p)
{
    const struct accel_kind *k = p->sim;
    struct accel *a = p->values;
    double s;

    for (int i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->ops[i];

        switch (o->kind) {
        case LAUNCH:
            k->launch(a, o->n);
            break;
        case COPY:
            TRY(k->copy(a, o->at, o->from, o->bytes));
            break;
        case FETCH:
            TRY(k->fetch(a, o->to, o->at, o->bytes));
            break;
        case GEMM:
            TRY(k->gemm(a, &o->gemm));
            break;
        case SWIGLU:
            TRY(k->swiglu(a, &o->swiglu));
            break;
        case RECORD:
            if (k->record(a, o->stream) < 0)
                return err_set(ERR_NOMEM, "no memory for an event");
            break;
        case WAIT:
            k->wait(a, o->stream, o->event);
            break;
        }
    }
    return k->finish(a, &s);
}

static int paced_finish(struct accel *a, double *seconds)
{
    struct paced *p = paced_of(a);
    uint64_t stopped_ns;
    int rc;

    pthread_mutex_lock(&p->lock);
    while (p->n_done < p->n_ops)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock); /* the thread waits for more */
    *seconds = fmax(p->launched_s, fmax(p->free_s[ACCEL_COPY], p->free_s[ACCEL_COMPUTE]));
    wait_until(p, *seconds);
    stopped_ns = clock_ns();
    rc = p->no_memory ? err_set(ERR_NOMEM, "no memory for what the accelerator was given")
                      : replay(p);
    pthread_mutex_lock(&p->lock);
    p->n_ops = p->n_done = 0;
    p->first_event += p->n_events;
    p->n_events = 0;
    p->zero_ns += clock_ns() - stopped_ns;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

const struct accel_kind accel_kind_paced = {
    .name = "paced",
    .help = "copies in real time at the link's rate, kernels' times waited for",
    .real_time = true,
    .open = paced_open,
    .close = paced_close,
    .alloc = paced_alloc,
    .launch = paced_launch,
    .copy = paced_copy,
    .fetch = paced_fetch,
    .gemm = paced_gemm,
    .swiglu = paced_swiglu,
    .record = paced_record,
    .wait = paced_wait,
    .finish = paced_finish,
};
