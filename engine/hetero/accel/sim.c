/* An accelerator in virtual time. Its products are computed at once, on the host, by the thread
 * that gives them; what a stream is given takes the time of the machine's linear model.
 * Operations remember which bytes they read and wrote and what was before them, so that those
 * which no event orders are found, whatever the times happen to be. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "hetero/accel.h"
#include "hetero/product.h"

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

struct buffer {
    char *data;
    size_t bytes;
};

struct event {
    struct order order;
    double t_s;
};

struct sim {
    struct accel accel; /* first */
    struct hetero_machine machine;
    struct hetero_work work;
    int n_buffers, max_buffers;
    struct buffer *buffers;
    double launched_s;              /* when the last launch is done */
    double free_s[ACCEL_N_STREAMS]; /* when each stream has done all that it was given */
    struct order order[ACCEL_N_STREAMS]; /* what is over when its next operation starts */
    struct access *accesses;
    struct event *events;
    int n_accesses, max_accesses, n_events, max_events;
    int first_event; /* the number of events[0]; those before are over */
    char race[240];  /* the first one */
};

static struct sim *sim_of(struct accel *a)
{
    return (struct sim *)a;
}

static void sim_close(struct accel **a)
{
    struct sim *s = *a ? sim_of(*a) : NULL;

    if (!s)
        return;
    for (int i = 0; i < s->n_buffers; i++)
        mem_free(s->buffers[i].data);
    mem_free(s->buffers);
    mem_free(s->accesses);
    mem_free(s->events);
    hetero_work_close(&s->work);
    mem_free(s);
    *a = NULL;
}

static int sim_open(struct accel **out, const struct accel_opts *o)
{
    struct sim *s = mem_new(MEM_OTHER, 1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return ERR_NOMEM;
    s->machine = *o->machine;
    *out = &s->accel;
    rc = hetero_work_open(&s->work, 1);
    if (rc != OK)
        sim_close(out);
    return rc;
}

static int sim_alloc(struct accel *a, size_t bytes, int *buffer)
{
    struct sim *s = sim_of(a);
    struct buffer b = {NULL, bytes};

    TRY(accel_grow(&s->buffers, s->n_buffers, &s->max_buffers, sizeof(b)));
    b.data = mem_new(MEM_OTHER, bytes, 1);
    if (!b.data)
        return ERR_NOMEM;
    s->buffers[s->n_buffers] = b;
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

static int note(struct sim *s, enum accel_stream stream, struct accel_at at, size_t bytes,
                bool writes)
{
    struct access x = {.buffer = at.buffer,
                       .begin = at.offset,
                       .end = at.offset + bytes,
                       .writes = writes,
                       .stream = stream,
                       .number = s->order[stream].n[stream]};

    if (at.buffer < 0 || at.buffer >= s->n_buffers || x.end > s->buffers[at.buffer].bytes)
        return err_set(ERR_ARG, "bytes %zu to %zu of buffer %d", x.begin, x.end,
                       at.buffer);
    TRY(accel_grow(&s->accesses, s->n_accesses, &s->max_accesses, sizeof(x)));
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

static char *bytes_at(const struct sim *s, struct accel_at at)
{
    return s->buffers[at.buffer].data + at.offset;
}

static float *floats_at(const struct sim *s, struct accel_at at)
{
    return (float *)(void *)bytes_at(s, at);
}

static int sim_copy(struct accel *a, struct accel_at to, const void *from, size_t bytes)
{
    struct sim *s = sim_of(a);

    begin(s, ACCEL_COPY, link_s(s, bytes));
    TRY(note(s, ACCEL_COPY, to, bytes, true));
    memcpy(bytes_at(s, to), from, bytes);
    return OK;
}

static int sim_fetch(struct accel *a, void *to, struct accel_at from, size_t bytes)
{
    struct sim *s = sim_of(a);

    begin(s, ACCEL_COPY, link_s(s, bytes));
    TRY(note(s, ACCEL_COPY, from, bytes, false));
    memcpy(to, bytes_at(s, from), bytes);
    return OK;
}

static int sim_gemm(struct accel *a, const struct accel_gemm *g)
{
    struct sim *s = sim_of(a);
    struct kern_mat w = g->layout;
    struct hetero_product p = {.w = &w, .ldx = g->ldx, .ldy = g->ldy, .n_tok = g->n_tok};
    int64_t n = w.n_panels * KERN_PANEL;

    begin(s, ACCEL_COMPUTE,
          hetero_product_s(&s->machine, true, (double)(n * w.k), (double)g->n_tok));
    TRY(note(s, ACCEL_COMPUTE, g->x, accel_rows_bytes(g->n_tok, g->ldx, w.k), false));
    TRY(note(s, ACCEL_COMPUTE, g->w, w.bytes, false));
    TRY(note(s, ACCEL_COMPUTE, g->y, accel_rows_bytes(g->n_tok, g->ldy, n), true));
    w.data = bytes_at(s, g->w);
    p.x = floats_at(s, g->x);
    p.y = floats_at(s, g->y);
    p.epilogue = g->accumulate ? KERN_RESIDUAL : KERN_STORE;
    return hetero_product_alone(&s->work, &p);
}

/* Takes no time, as in the paper's model. */
static int sim_swiglu(struct accel *a, const struct accel_swiglu *g)
{
    struct sim *s = sim_of(a);
    int64_t n = g->n_pairs * KERN_PANEL;

    begin(s, ACCEL_COMPUTE, 0);
    TRY(note(s, ACCEL_COMPUTE, g->h, accel_rows_bytes(g->n_tok, g->ldh, n), true));
    TRY(note(s, ACCEL_COMPUTE, g->gate_up, accel_rows_bytes(g->n_tok, g->ld, 2 * n),
             false));
    hetero_swiglu(&s->work, floats_at(s, g->h), g->ldh, floats_at(s, g->gate_up), g->ld,
                  g->n_tok, g->n_pairs);
    return OK;
}

/* -1, which no stream waits for: there is no memory; finish() says so. */
static int sim_record(struct accel *a, enum accel_stream stream)
{
    struct sim *s = sim_of(a);

    if (accel_grow(&s->events, s->n_events, &s->max_events, sizeof(s->events[0])) != OK) {
        snprintf(s->race, sizeof(s->race), "no memory for an event");
        return -1;
    }
    s->events[s->n_events] = (struct event){s->order[stream], s->free_s[stream]};
    return s->first_event + s->n_events++;
}

static void sim_wait(struct accel *a, enum accel_stream stream, int event)
{
    struct sim *s = sim_of(a);
    const struct event *e;

    if (event < s->first_event || event >= s->first_event + s->n_events)
        return;
    e = &s->events[event - s->first_event];
    for (int i = 0; i < ACCEL_N_STREAMS; i++)
        if (e->order.n[i] > s->order[stream].n[i] && i != (int)stream)
            s->order[stream].n[i] = e->order.n[i];
    s->free_s[stream] = fmax(s->free_s[stream], e->t_s);
}

/* The host has waited: nothing that comes later can race with what was before. */
static int sim_finish(struct accel *a, double *seconds)
{
    struct sim *s = sim_of(a);

    *seconds = fmax(s->launched_s, fmax(s->free_s[ACCEL_COPY], s->free_s[ACCEL_COMPUTE]));
    s->launched_s = *seconds;
    s->n_accesses = 0;
    s->first_event += s->n_events;
    s->n_events = 0;
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
