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
#include "experiments/study/support/program.h"
#include "experiments/study/support/rows.h"
#include "experiments/study/support/serving.h"

#define ROUNDS_MAX 32
#define GAPS_MAX   65536
#define LIMIT_S    120 /* of one run */

struct opts {
    char *way, *model, *kv_type;
    bool checksums;
    int64_t tok, n_layers, n_kv_heads, head_dim, n, rounds, paced_n;
    double paced_gbps;
};

static const struct opt_row table[] = {
    OPT_ROW(STR, way, "shm",
            "Transport; of MPI with its library. Examples: shm, mpi_put:openmpi, "
            "mpi_isend:mpich",
            .unit = "NAME"),
    OPT_ROW(BOOL, checksums, "true", "Compare a checksum of each layer."),
    OPT_ROW(INT, tok, "512", "Tokens of a prompt.", .min = 1, .max = 1 << 20),
    OPT_ROW(INT, n_layers, "32", "Layers.", .min = 1, .max = 1024),
    OPT_ROW(INT, n_kv_heads, "8", "Heads of keys and values.", .min = 1, .max = 1024),
    OPT_ROW(INT, head_dim, "128", "Elements of a key.", .min = 16, .max = 1024),
    OPT_ROW(STR, kv_type, "bf16", "Type of the keys and values.", .unit = "TYPE"),
    OPT_ROW(INT, n, "32", "Prompts of a round, as fast as it goes.", .min = 1,
            .max = 1 << 20),
    OPT_ROW(INT, rounds, "5", "Rounds.", .min = 1, .max = ROUNDS_MAX),
    ROW_MODEL,
    OPT_ROW(F64, paced_gbps, "4", "Rate while the neighbour's decode is timed.",
            .unit = "Gb/s", .min = 0.001, .max = 1e5),
    OPT_ROW(INT, paced_n, "16", "Prompts of a round at that rate.", .min = 1,
            .max = 1 << 20),
    {0},
};

static const struct study_metric metrics[] = {
    {"gb_per_s", "GB/s", "higher", "as fast as it goes, median of the rounds"},
    {"cpu_per_gb", "s/GB", "lower", "processor time of both ends"},
    {"sender_cpu_per_gb", "s/GB", "lower", "of the sender"},
    {"receiver_cpu_per_gb", "s/GB", "lower", "of the receiver"},
    {"checksum_per_gb", "s/GB", "lower", "time of the sender's checksums"},
    {"pieces_per_gb", "1/GB", "", "messages of keys and values"},
    {"paced_reached", "", "higher", "rate reached over the rate set"},
    {"paced_cpu_frac", "", "lower", "processors busy with the transfer at that rate"},
    {"neighbour_alone", "ms", "lower", "the neighbour's time per token, alone, median"},
    {"neighbour_with", "ms", "lower", "the same while keys and values move"},
    {"neighbour_slowdown", "%", "lower", "neighbour_with / neighbour_alone - 1"},
    {0},
};

/* One run of `sandwich transfer`. */
struct transfer {
    double gb, seconds, hash_s, sender_cpu_s, receiver_cpu_s, begin_s, end_s;
    double n_pieces;
};

struct gap {
    double from_s, to_s; /* clock_ns() / 1e9 */
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct study_serving neighbour;
    struct gap *gaps;
    int n_gaps;
    double last_s; /* the neighbour's last token; 0: none of this request */
    struct study_program program;
    char path[4096], launcher[96],
        options[512]; /* of the program, with NULs between words */
    const char *argv[48];
};

/* ---- a run of the program ---- */

static int add_words(struct cell *c, int n, char *words)
{
    char *rest;

    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        c->argv[n++] = w;
    return n;
}

static int begin_transfer(struct cell *c, int64_t n_prompts, double gbps)
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
static int end_transfer(struct cell *c, double limit_s, struct transfer *t)
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

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct cell *c = ctx;
    double now = 1e-9 * (double)clock_ns();

    (void)request, (void)logits, (void)finish;
    if (id >= 0 && c->last_s > 0 && c->n_gaps < GAPS_MAX)
        c->gaps[c->n_gaps++] = (struct gap){c->last_s, now};
    c->last_s = id >= 0 ? now : 0;
}

static int decode_once(struct cell *c)
{
    c->last_s = 0;
    TRY(study_serving_submit(&c->neighbour, 1, 4, 60, NULL));
    return study_serving_finish(&c->neighbour);
}

static int open_neighbour(struct cell *c)
{
    struct serve_opts so;

    TRY(study_serving_opts(&so, c->o->model, "fcfs"));
    so.threads = 1;
    so.pin = false;
    so.max_seqs = 1;
    so.max_tok = 64;
    c->gaps = mem_new(MEM_OTHER, GAPS_MAX, sizeof(*c->gaps));
    c->neighbour.on_token = on_token;
    c->neighbour.ctx = c;
    TRY(study_serving_open(&c->neighbour, &so));
    return decode_once(c); /* warm */
}

/* The median of the gaps that lie in [from, to]. NaN: none does. */
static double median_gap_ms(const struct cell *c, double from_s, double to_s)
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
static int with_neighbour(struct cell *c, double *alone_ms, double *with_ms,
                          struct transfer *t)
{
    uint64_t begin_ns;
    int rc;

    c->n_gaps = 0;
    for (int i = 0; i < 5; i++)
        TRY(decode_once(c));
    *alone_ms = median_gap_ms(c, 0, INFINITY);
    c->n_gaps = 0;
    TRY(begin_transfer(c, c->o->paced_n, c->o->paced_gbps));
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

/* ---- the report ---- */

enum {
    RATE,
    CPU,
    SENDER,
    RECEIVER,
    CHECKSUM,
    PIECES,
    REACHED,
    BUSY,
    ALONE,
    WITH,
    SLOWDOWN,
    N_VALUES
};

static int one_round(struct cell *c, double v[N_VALUES])
{
    struct transfer s;

    TRY(begin_transfer(c, c->o->n, 0));
    TRY(end_transfer(c, LIMIT_S, &s));
    v[RATE] = s.gb / s.seconds;
    v[SENDER] = s.sender_cpu_s / s.gb;
    v[RECEIVER] = s.receiver_cpu_s / s.gb;
    v[CPU] = v[SENDER] + v[RECEIVER];
    v[CHECKSUM] = s.hash_s / s.gb;
    v[PIECES] = s.n_pieces / s.gb;
    TRY(with_neighbour(c, &v[ALONE], &v[WITH], &s));
    v[REACHED] = 8 * s.gb / s.seconds / c->o->paced_gbps;
    v[BUSY] = (s.sender_cpu_s + s.receiver_cpu_s) / s.seconds;
    v[SLOWDOWN] = 100 * (v[WITH] / v[ALONE] - 1);
    return OK;
}

static int run(struct cell *c)
{
    static double v[ROUNDS_MAX][N_VALUES];
    double of[ROUNDS_MAX];
    size_t n = (size_t)c->o->rounds;

    _Static_assert(sizeof(metrics) / sizeof(metrics[0]) == N_VALUES + 1,
                   "a value for each metric, in their order");
    TRY(check_library(c->o->way));
    TRY(open_neighbour(c));
    for (size_t r = 0; r < n; r++) {
        study_progress(c->out, (double)r / (double)n, c->o->way);
        TRY(one_round(c, v[r]));
    }
    for (int k = 0; k < N_VALUES; k++) {
        for (size_t r = 0; r < n; r++)
            of[r] = v[r][k];
        study_value(c->out, metrics[k].name, stats_median(of, n), "");
        study_series(c->out, metrics[k].name, metrics[k].unit, of, n);
    }
    return OK;
}

static void end(struct cell *c)
{
    study_program_close(&c->program);
    study_serving_close(&c->neighbour);
    mem_free(c->gaps);
}

STUDY(kv_transport, "transports of keys and values: rate, processor time, a neighbour");
