/* Transports of keys and values between two processes that compute nothing: bytes per second,
 * processor time, checksums; and what decode of a third process loses while they move keys and
 * values at a set rate. MPI's with the library of the mpirun that is named.
 * Paper: Splitwise IV-C. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/home.h"
#include "base/mem.h"
#include "base/stats.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/program.h"
#include "experiments/study/support/serving.h"

#define ROUNDS_MAX 32
#define GAPS_MAX   65536
#define LIMIT_S    120 /* of one run */
#define PACED_N    16  /* prompts of a round at a set rate */

#define OPTIONS(X)                                                                       \
    X(STR, way, "shm",                                                                   \
      "Transport; of MPI with its library. Examples: shm, mpi_put:openmpi, "             \
      "mpi_isend:mpich",                                                                 \
      .unit = "NAME")                                                                    \
    X(BOOL, checksums, "true", "Compare a checksum of each layer.")                      \
    X(INT, tok, "512", "Tokens of a prompt.", .min = 1, .max = 1 << 20)                  \
    X(INT, n_layers, "32", "Layers.", .min = 1, .max = 1024)                             \
    X(INT, n_kv_heads, "8", "Heads of keys and values.", .min = 1, .max = 1024)          \
    X(INT, head_dim, "128", "Elements of a key.", .min = 16, .max = 1024)                \
    X(STR, kv_type, "bf16", "Type of the keys and values.", .unit = "TYPE")              \
    X(INT, n, "32", "Prompts of a round, as fast as it goes.", .min = 1, .max = 1 << 20) \
    X(INT, rounds, "5", "Rounds.", .min = 1, .max = ROUNDS_MAX)                          \
    OPTION_MODEL(X)                                                                      \
    X(F64, paced_gbps, "4", "Rate while the neighbour's decode is timed.",               \
      .unit = "Gb/s", .min = 0.001, .max = 1e5)

#define RESULTS(X)                                                                       \
    X(gb_per_s, "GB/s", HIGHER, "as fast as it goes, median of the rounds")              \
    X(cpu_per_gb, "s/GB", LOWER, "processor time of both ends")                          \
    X(sender_cpu_per_gb, "s/GB", LOWER, "of the sender")                                 \
    X(receiver_cpu_per_gb, "s/GB", LOWER, "of the receiver")                             \
    X(checksum_per_gb, "s/GB", LOWER, "time of the sender's checksums")                  \
    X(pieces_per_gb, "1/GB", 0, "messages of keys and values")                           \
    X(paced_reached, "", HIGHER, "rate reached over the rate set")                       \
    X(paced_cpu_frac, "", LOWER, "processors busy with the transfer at that rate")       \
    X(neighbour_alone, "ms", LOWER, "the neighbour's time per token, alone, median")     \
    X(neighbour_with, "ms", LOWER, "the same while keys and values move")                \
    X(neighbour_slowdown, "%", LOWER, "neighbour_with / neighbour_alone - 1")

FRAME_TYPES;

/* One run of `sandwich transfer`. */
struct transfer {
    double gb, seconds, hash_s, sender_cpu_s, receiver_cpu_s, begin_s, end_s;
    double n_pieces;
};

struct gap {
    double from_s, to_s; /* clock_ns() / 1e9 */
};

struct kv_transport {
    FRAME_CELL;
    struct results rounds[ROUNDS_MAX];
    struct study_serving neighbour;
    struct gap *gaps;
    int n_gaps;
    double last_s; /* the neighbour's last token; 0: none of this request */
    struct study_program program;
    char path[4096];
    char launcher[96], options[512]; /* of the program, with NULs between words */
    const char *argv[48];
};

/* ---- a run of the program ---- */

static int add_words(struct kv_transport *c, int n, char *words)
{
    char *rest;

    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        c->argv[n++] = w;
    return n;
}

static int begin_transfer(struct kv_transport *c, int64_t n_prompts, double gbps)
{
    const struct opts *o = c->o;
    const char *colon = strchr(o->way, ':');
    int n = 0;

    if (colon) {
        snprintf(c->launcher, sizeof(c->launcher), "mpirun.%.15s -n 2%s", colon + 1,
                 strcmp(colon, ":openmpi") == 0
                     ? " --allow-run-as-root --oversubscribe --bind-to none"
                     : "");
        n = add_words(c, n, c->launcher);
    }
    snprintf(c->options, sizeof(c->options),
             "transfer --json --transport %.*s --kv-type %.60s --%schecksums --tok %lld "
             "--n-layers %lld --n-kv-heads %lld --head-dim %lld --n %lld --gbps %.10g",
             (int)strcspn(o->way, ":"), o->way, o->kv_type, o->checksums ? "" : "no-",
             (long long)o->tok, (long long)o->n_layers, (long long)o->n_kv_heads,
             (long long)o->head_dim, (long long)n_prompts, gbps);
    c->argv[n++] = home_program(c->path, sizeof(c->path), "sandwich");
    n = add_words(c, n, c->options);
    c->argv[n] = NULL;
    c->program.name = "sandwich transfer";
    c->program.argv = c->argv;
    return study_program_start(&c->program);
}

/* ERR_LIMIT: it still runs. */
static int end_transfer(struct kv_transport *c, double limit_s, struct transfer *t)
{
    json_int_t bytes, pieces;
    json_error_t e;
    json_t *j;
    int rc = study_program_wait(&c->program, limit_s, &j);

    if (rc != OK)
        return rc == ERR_LIMIT ? rc : err_prefix(rc, "%s", c->o->way);
    if (json_unpack_ex(j, &e, 0, "{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "bytes",
                       &bytes, "pieces", &pieces, "seconds", &t->seconds, "hash_s",
                       &t->hash_s, "sender_cpu_s", &t->sender_cpu_s, "receiver_cpu_s",
                       &t->receiver_cpu_s, "begin_s", &t->begin_s, "end_s",
                       &t->end_s) != 0)
        rc = err_set(ERR_FORMAT, "sandwich transfer: %s", e.text);
    json_decref(j);
    study_program_close(&c->program);
    t->gb = 1e-9 * (double)bytes;
    t->n_pieces = (double)pieces;
    return rc;
}

/* A library that is not here, or cannot do this, is no failure of the cell. */
static int check_library(const char *way)
{
    const char *colon = strchr(way, ':');
    char program[32], part[64], path[4096];
    const char *const argv[] = {program, "--version", NULL};
    struct study_program p = {.name = "mpirun", .argv = argv};
    int rc;

    if (!colon)
        return OK;
    snprintf(program, sizeof(program), "mpirun.%s", colon + 1);
    snprintf(part, sizeof(part), "mpi/%.40s.so", colon + 1);
    home_program(path, sizeof(path), part);
    if (access(path, R_OK) != 0)
        return err_set(ERR_NOTFOUND, "%s is not built", part);
    rc = study_program_start(&p);
    if (rc == OK && study_program_wait(&p, 20, NULL) != OK)
        err_clear();
    study_program_close(&p);
    if (rc != OK)
        return err_set(ERR_NOTFOUND, "%s is not installed", program);
    if (strcmp(way, "mpi_partitioned:openmpi") == 0)
        return err_set(ERR_NOTFOUND, "Open MPI 4 has no partitioned communication");
    return OK;
}

/* ---- the neighbour ---- */

static void neighbour_token(void *ctx, int64_t request, int32_t id, const float *logits,
                            enum serve_finish finish)
{
    struct kv_transport *c = ctx;
    double now = 1e-9 * (double)clock_ns();

    (void)request, (void)logits, (void)finish;
    if (id >= 0 && c->last_s > 0 && c->n_gaps < GAPS_MAX)
        c->gaps[c->n_gaps++] = (struct gap){c->last_s, now};
    c->last_s = id >= 0 ? now : 0;
}

static int decode_once(struct kv_transport *c)
{
    c->last_s = 0;
    TRY(study_serving_submit(&c->neighbour, 1, 4, 60, NULL));
    return study_serving_finish(&c->neighbour);
}

static int open_neighbour(struct kv_transport *c)
{
    struct serve_opts so;

    TRY(study_serving_opts(&so, c->o->model, "fcfs"));
    so.threads = 1;
    so.pin = false;
    so.max_seqs = 1;
    so.max_tok = 64;
    c->gaps = mem_new(MEM_OTHER, GAPS_MAX, sizeof(*c->gaps));
    c->neighbour.on_token = neighbour_token;
    c->neighbour.ctx = c;
    TRY(study_serving_open(&c->neighbour, &so));
    return decode_once(c); /* warm */
}

/* The median of the gaps that lie in [from, to]. NaN: none does. */
static double median_gap_ms(const struct kv_transport *c, double from_s, double to_s)
{
    double *v = mem_new(MEM_OTHER, (size_t)c->n_gaps + 1, sizeof(*v)), m;
    size_t n = 0;

    for (int i = 0; i < c->n_gaps; i++)
        if (c->gaps[i].from_s >= from_s && c->gaps[i].to_s <= to_s)
            v[n++] = 1e3 * (c->gaps[i].to_s - c->gaps[i].from_s);
    m = stats_median(v, n);
    mem_free(v);
    return m;
}

/* Alone, and then while a run moves keys and values. */
static int with_neighbour(struct kv_transport *c, double *alone_ms, double *with_ms,
                          struct transfer *t)
{
    uint64_t begin_ns;
    int rc;

    c->n_gaps = 0;
    for (int i = 0; i < 5; i++)
        TRY(decode_once(c));
    *alone_ms = median_gap_ms(c, 0, INFINITY);
    c->n_gaps = 0;
    TRY(begin_transfer(c, PACED_N, c->o->paced_gbps));
    begin_ns = clock_ns();
    do {
        TRY(decode_once(c));
        rc = end_transfer(c, 1e-6, t);
    } while (rc == ERR_LIMIT && clock_ns() - begin_ns < (uint64_t)LIMIT_S * 1000000000);
    TRY(rc);
    *with_ms = median_gap_ms(c, t->begin_s, t->end_s);
    return isfinite(*with_ms) ? OK
                              : err_set(ERR_STATE,
                                        "no token of the neighbour's came during %.2f s: "
                                        "set more prompts at this rate",
                                        t->seconds);
}

/* ---- rounds ---- */

static int one_round(struct kv_transport *c, struct results *r)
{
    struct transfer s;

    TRY(begin_transfer(c, c->o->n, 0));
    TRY(end_transfer(c, LIMIT_S, &s));
    r->gb_per_s = s.gb / s.seconds;
    r->sender_cpu_per_gb = s.sender_cpu_s / s.gb;
    r->receiver_cpu_per_gb = s.receiver_cpu_s / s.gb;
    r->cpu_per_gb = r->sender_cpu_per_gb + r->receiver_cpu_per_gb;
    r->checksum_per_gb = s.hash_s / s.gb;
    r->pieces_per_gb = s.n_pieces / s.gb;
    TRY(with_neighbour(c, &r->neighbour_alone, &r->neighbour_with, &s));
    r->paced_reached = 8 * s.gb / s.seconds / c->o->paced_gbps;
    r->paced_cpu_frac = (s.sender_cpu_s + s.receiver_cpu_s) / s.seconds;
    r->neighbour_slowdown = 100 * (r->neighbour_with / r->neighbour_alone - 1);
    return OK;
}

static void kv_transport_close(struct kv_transport *c)
{
    study_program_close(&c->program);
    study_serving_close(&c->neighbour);
    mem_free(c->gaps);
}

static int kv_transport_run(struct kv_transport *c)
{
    double of[ROUNDS_MAX];
    size_t n = (size_t)c->o->rounds;

    FRAME_CLOSE(c->f, kv_transport_close, c);
    TRY(check_library(c->o->way));
    TRY(open_neighbour(c));
    for (size_t r = 0; r < n; r++) {
        study_progress(c->out, (double)r / (double)n, c->o->way);
        TRY(one_round(c, &c->rounds[r]));
    }
    /* The members of struct results are in the metrics' order. */
    for (const struct study_metric *m = metrics; m->name; m++) {
        for (size_t r = 0; r < n; r++)
            of[r] = ((const double *)&c->rounds[r])[m - metrics];
        *frame_named(c->f, "%s", m->name) = stats_median(of, n);
        study_series(c->out, m->name, m->unit, of, n);
    }
    return OK;
}

STUDY(kv_transport, "transports of keys and values: rate, processor time, a neighbour");
