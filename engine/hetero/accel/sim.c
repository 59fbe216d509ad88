/* An accelerator in virtual time. Its products are computed at once, on the host; what a stream is
 * given takes the time of the machine's linear model. Operations remember which bytes they read and
 * wrote and what was before them, so that those which no event orders are found, whatever the
 * times happen to be. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "hetero/layer.h"

#define BUFFERS_MAX 64

/* How many operations of each stream are surely over. */
struct order {
    int64_t n[ACCEL_N_STREAMS];
};

struct access {
    int buffer;
    size_t begin, end;
    bool writes;
    enum accel_stream stream;
    int64_t number; /* of the operation in its stream, from 1 */
};

struct event {
    struct order order;
    double t_s;
};

struct sim {
    struct accel accel; /* first */
    struct hetero_machine machine;
    int n_buffers;
    char *buffers[BUFFERS_MAX];
    size_t bytes[BUFFERS_MAX];
    double launched_s;              /* when the last launch is done */
    double free_s[ACCEL_N_STREAMS]; /* when each stream has done all that it was given */
    struct order order[ACCEL_N_STREAMS]; /* what is over when its next operation starts */
    struct access *accesses;
    struct event *events;
    int n_accesses, max_accesses, n_events, max_events;
    char race[240]; /* the first one */
};

static struct sim *sim_of(struct accel *a)
{
    return (struct sim *)a;
}

static int sim_open(struct accel **out, const struct hetero_machine *m)
{
    struct sim *s = mem_new(MEM_OTHER, 1, sizeof(*s));

    *out = NULL;
    if (!s)
        return ERR_NOMEM;
    s->machine = *m;
    *out = &s->accel;
    return OK;
}

static void sim_close(struct accel **a)
{
    struct sim *s = *a ? sim_of(*a) : NULL;

    if (!s)
        return;
    for (int i = 0; i < s->n_buffers; i++)
        mem_free(s->buffers[i]);
    mem_free(s->accesses);
    mem_free(s->events);
    mem_free(s);
    *a = NULL;
}

static int sim_alloc(struct accel *a, size_t bytes, int *buffer)
{
    struct sim *s = sim_of(a);

    if (s->n_buffers == BUFFERS_MAX)
        return err_set(ERR_LIMIT, "more than %d buffers", BUFFERS_MAX);
    s->buffers[s->n_buffers] = mem_new(MEM_OTHER, bytes, 1);
    if (!s->buffers[s->n_buffers])
        return ERR_NOMEM;
    s->bytes[s->n_buffers] = bytes;
    *buffer = s->n_buffers++;
    return OK;
}

static void sim_launch(struct accel *a, int n)
{
    sim_of(a)->launched_s += n * sim_of(a)->machine.launch_s;
}

/* Is the operation of an access over when the stream's next operation starts? */
static bool is_before(const struct sim *s, const struct access *x,
                      enum accel_stream stream)
{
    return x->stream == stream || x->number <= s->order[stream].n[x->stream];
}

static void check_race(struct sim *s, const struct access *x)
{
    for (int i = 0; i < s->n_accesses && !s->race[0]; i++) {
        const struct access *y = &s->accesses[i];

        if (y->buffer != x->buffer || y->end <= x->begin || x->end <= y->begin ||
            !(x->writes || y->writes) || is_before(s, y, x->stream))
            continue;
        snprintf(
            s->race, sizeof(s->race),
            "operation %lld of the %s stream %s bytes %zu to %zu of buffer %d, which "
            "operation %lld of the other one %s: no event orders them",
            (long long)x->number, x->stream == ACCEL_COPY ? "copy" : "compute",
            x->writes ? "writes" : "reads", x->begin, x->end, x->buffer,
            (long long)y->number, y->writes ? "writes" : "reads");
    }
}

static int note(struct sim *s, enum accel_stream stream, struct accel_matrix at,
                size_t bytes, bool writes)
{
    struct access x = {.buffer = at.buffer,
                       .begin = at.offset,
                       .end = at.offset + bytes,
                       .writes = writes,
                       .stream = stream,
                       .number = s->order[stream].n[stream]};

    if (at.buffer < 0 || at.buffer >= s->n_buffers || x.end > s->bytes[at.buffer])
        return err_set(ERR_ARG, "bytes %zu to %zu of buffer %d", x.begin, x.end,
                       at.buffer);
    if (s->n_accesses == s->max_accesses) {
        int max = 2 * s->max_accesses + 64;
        struct access *p = mem_resize(MEM_OTHER, s->accesses, (size_t)max, sizeof(*p));

        if (!p)
            return ERR_NOMEM;
        s->accesses = p;
        s->max_accesses = max;
    }
    check_race(s, &x);
    s->accesses[s->n_accesses++] = x;
    return OK;
}

/* The next operation of a stream, which takes this long. */
static void begin(struct sim *s, enum accel_stream stream, double seconds)
{
    s->order[stream].n[stream]++;
    s->free_s[stream] = fmax(s->free_s[stream], s->launched_s) + seconds;
}

static double link_s(const struct sim *s, size_t bytes)
{
    return s->machine.link_start_s + (double)bytes * s->machine.link_s_per_byte;
}

static int sim_copy(struct accel *a, int to, size_t offset, const void *from,
                    size_t bytes)
{
    struct sim *s = sim_of(a);

    begin(s, ACCEL_COPY, link_s(s, bytes));
    TRY(note(s, ACCEL_COPY, (struct accel_matrix){to, offset}, bytes, true));
    memcpy(s->buffers[to] + offset, from, bytes);
    return OK;
}

static int sim_fetch(struct accel *a, void *to, int from, size_t offset, size_t bytes)
{
    struct sim *s = sim_of(a);

    begin(s, ACCEL_COPY, link_s(s, bytes));
    TRY(note(s, ACCEL_COPY, (struct accel_matrix){from, offset}, bytes, false));
    memcpy(to, s->buffers[from] + offset, bytes);
    return OK;
}

static float *floats(const struct sim *s, struct accel_matrix m)
{
    return (float *)(void *)(s->buffers[m.buffer] + m.offset);
}

static int sim_gemm(struct accel *a, const struct accel_gemm *g)
{
    struct sim *s = sim_of(a);
    int64_t n_in = g->down ? g->n_units : g->dim, n_out = g->down ? g->dim : g->n_units;
    struct accel_matrix x = g->x, y = g->y;

    x.offset += (size_t)(g->tok0 * n_in) * sizeof(float);
    y.offset += (size_t)(g->tok0 * n_out) * sizeof(float);
    begin(s, ACCEL_COMPUTE,
          hetero_product_s(&s->machine, true, (double)(g->n_units * g->dim),
                           (double)g->n_tok));
    TRY(note(s, ACCEL_COMPUTE, x, (size_t)(g->n_tok * n_in) * sizeof(float), false));
    TRY(note(s, ACCEL_COMPUTE, g->w, (size_t)(g->n_units * g->dim) * sizeof(float),
             false));
    TRY(note(s, ACCEL_COMPUTE, y, (size_t)(g->n_tok * n_out) * sizeof(float), true));
    hetero_product(floats(s, y), floats(s, x), floats(s, g->w), g->n_tok, g->n_units,
                   g->dim, g->down);
    return OK;
}

/* Takes no time, as in the paper's model. */
static int sim_swiglu(struct accel *a, struct accel_matrix gate, struct accel_matrix up,
                      int64_t n)
{
    struct sim *s = sim_of(a);

    begin(s, ACCEL_COMPUTE, 0);
    TRY(note(s, ACCEL_COMPUTE, gate, (size_t)n * sizeof(float), true));
    TRY(note(s, ACCEL_COMPUTE, up, (size_t)n * sizeof(float), false));
    hetero_swiglu(floats(s, gate), floats(s, up), n);
    return OK;
}

/* -1, which no stream waits for: there is no memory; finish() says so. */
static int sim_record(struct accel *a, enum accel_stream stream)
{
    struct sim *s = sim_of(a);

    if (s->n_events == s->max_events) {
        int max = 2 * s->max_events + 64;
        struct event *p = mem_resize(MEM_OTHER, s->events, (size_t)max, sizeof(*p));

        if (!p) {
            snprintf(s->race, sizeof(s->race), "no memory for an event");
            return -1;
        }
        s->events = p;
        s->max_events = max;
    }
    s->events[s->n_events] = (struct event){s->order[stream], s->free_s[stream]};
    return s->n_events++;
}

static void sim_wait(struct accel *a, enum accel_stream stream, int event)
{
    struct sim *s = sim_of(a);

    if (event < 0 || event >= s->n_events)
        return;
    for (int i = 0; i < ACCEL_N_STREAMS; i++)
        if (s->events[event].order.n[i] > s->order[stream].n[i] && i != (int)stream)
            s->order[stream].n[i] = s->events[event].order.n[i];
    s->free_s[stream] = fmax(s->free_s[stream], s->events[event].t_s);
}

static int sim_finish(struct accel *a, double *seconds)
{
    struct sim *s = sim_of(a);

    *seconds = fmax(s->launched_s, fmax(s->free_s[ACCEL_COPY], s->free_s[ACCEL_COMPUTE]));
    s->launched_s = *seconds; /* the host has waited */
    return s->race[0] ? err_set(ERR_STATE, "%s", s->race) : OK;
}

const struct accel_kind accel_kind_sim = {
    .name = "sim",
    .help = "virtual time by linear models, products on the host, races found",
    .open = sim_open,
    .close = sim_close,
    .alloc = sim_alloc,
    .launch = sim_launch,
    .copy = sim_copy,
    .fetch = sim_fetch,
    .gemm = sim_gemm,
    .swiglu = sim_swiglu,
    .record = sim_record,
    .wait = sim_wait,
    .finish = sim_finish,
};
