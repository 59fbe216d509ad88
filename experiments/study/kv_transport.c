/* Transports of keys and values between two processes that compute nothing: bytes per second,
 * processor time, checksums; and what decode of a third process loses while they move keys and
 * values at a set rate. MPI's with the library of the mpirun that is named.
 * Paper: Splitwise IV-C. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/home.h"
#include "base/mem.h"
#include "base/stats.h"
#include "experiments/study/support/rows.h"
#include "serve/serve.h"

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

/* What one run said. */
struct said {
    double gb, seconds, hash_s, sender_cpu_s, receiver_cpu_s, begin_s, end_s;
    double n_pieces;
};

struct gap {
    double from_s, to_s; /* clock_ns() / 1e9 */
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct serve *neighbour;
    struct gap *gaps;
    int n_gaps;
    double last_s;
    bool ended;
    pid_t pid;
    FILE *answer;
};

/* ---- a run of the program ---- */

struct command {
    char program[4096], transport[64], library[16], launcher[32];
    char numbers[6][24], checksums[24];
    const char *argv[48];
    int n;
};

static void add(struct command *k, const char *word)
{
    k->argv[k->n++] = word;
}

static void add_number(struct command *k, int i, const char *flag, double v)
{
    snprintf(k->numbers[i], sizeof(k->numbers[i]), "%.10g", v);
    add(k, flag);
    add(k, k->numbers[i]);
}

static void make_command(struct command *k, const struct opts *o, int64_t n, double gbps)
{
    const char *colon = strchr(o->way, ':');

    memset(k, 0, sizeof(*k));
    snprintf(k->transport, sizeof(k->transport), "%.*s",
             colon ? (int)(colon - o->way) : 60, o->way);
    snprintf(k->library, sizeof(k->library), "%s", colon ? colon + 1 : "");
    if (colon) {
        snprintf(k->launcher, sizeof(k->launcher), "mpirun.%s", k->library);
        add(k, k->launcher);
        add(k, "-n");
        add(k, "2");
        if (strcmp(k->library, "openmpi") == 0) {
            add(k, "--allow-run-as-root");
            add(k, "--oversubscribe");
            add(k, "--bind-to");
            add(k, "none");
        }
    }
    add(k, home_program(k->program, sizeof(k->program), "sandwich"));
    add(k, "transfer");
    add(k, "--json");
    add(k, "--transport");
    add(k, k->transport);
    add(k, "--kv-type");
    add(k, o->kv_type);
    snprintf(k->checksums, sizeof(k->checksums), "--%schecksums",
             o->checksums ? "" : "no-");
    add(k, k->checksums);
    add_number(k, 0, "--tok", (double)o->tok);
    add_number(k, 1, "--n-layers", (double)o->n_layers);
    add_number(k, 2, "--n-kv-heads", (double)o->n_kv_heads);
    add_number(k, 3, "--head-dim", (double)o->head_dim);
    add_number(k, 4, "--n", (double)n);
    add_number(k, 5, "--gbps", gbps);
}

static int begin(struct cell *c, int64_t n, double gbps)
{
    struct command k;
    struct child_program p = {.argv = k.argv, .fd = {-1, -1, -1}};

    make_command(&k, c->o, n, gbps);
    c->answer = tmpfile();
    if (!c->answer)
        return err_set(ERR_IO, "cannot make a temporary file: %m");
    p.fd[1] = fileno(c->answer);
    return child_start(&c->pid, &p);
}

static int parse(const json_t *j, struct said *s)
{
    json_int_t bytes, pieces;
    json_error_t e;

    if (json_unpack_ex((json_t *)j, &e, 0, "{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}",
                       "bytes", &bytes, "pieces", &pieces, "seconds", &s->seconds,
                       "hash_s", &s->hash_s, "sender_cpu_s", &s->sender_cpu_s,
                       "receiver_cpu_s", &s->receiver_cpu_s, "begin_s", &s->begin_s,
                       "end_s", &s->end_s) != 0)
        return err_set(ERR_FORMAT, "sandwich transfer: %s", e.text);
    s->gb = 1e-9 * (double)bytes;
    s->n_pieces = (double)pieces;
    return OK;
}

/* When the child has ended. */
static int read_answer(struct cell *c, struct said *s)
{
    json_error_t e;
    json_t *j;
    int rc;

    rewind(c->answer);
    j = json_loadf(c->answer, 0, &e);
    fclose(c->answer);
    c->answer = NULL;
    rc = j ? parse(j, s) : err_set(ERR_FORMAT, "sandwich transfer: %s", e.text);
    json_decref(j);
    return rc;
}

static int wait_for(struct cell *c, struct said *s)
{
    int rc = child_wait(&c->pid, LIMIT_S);

    if (rc != OK)
        return err_prefix(rc, "sandwich transfer by %s", c->o->way);
    return read_answer(c, s);
}

/* A library that is not here, or cannot do this, is no failure of the cell. */
static int check_there(struct cell *c)
{
    const char *colon = strchr(c->o->way, ':');
    char program[32], part[64], path[4096];
    const char *const argv[] = {program, "--version", NULL};
    const struct child_program p = {.argv = argv, .fd = {-1, -1, -1}};
    pid_t pid;

    if (!colon)
        return OK;
    snprintf(program, sizeof(program), "mpirun.%s", colon + 1);
    snprintf(part, sizeof(part), "mpi/%.40s.so", colon + 1);
    home_program(path, sizeof(path), part);
    if (access(path, R_OK) != 0)
        return err_set(ERR_NOTFOUND, "%s is not built", part);
    if (child_start(&pid, &p) != OK)
        return err_set(ERR_NOTFOUND, "%s is not installed", program);
    if (child_wait(&pid, 20) != OK)
        err_clear();
    child_kill(&pid);
    if (strcmp(c->o->way, "mpi_partitioned:openmpi") == 0)
        return err_set(ERR_NOTFOUND, "Open MPI 4 has no partitioned communication");
    return OK;
}

/* ---- the neighbour ---- */

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct cell *c = ctx;
    double now = 1e-9 * (double)clock_ns();

    (void)request, (void)logits;
    if (id >= 0 && c->last_s > 0 && c->n_gaps < GAPS_MAX)
        c->gaps[c->n_gaps++] = (struct gap){c->last_s, now};
    c->last_s = id >= 0 ? now : 0;
    c->ended = finish != SERVE_RUNNING;
}

static int decode_once(struct cell *c)
{
    static const int32_t prompt[] = {1, 2, 3, 4};
    const struct serve_request q = {.prompt = prompt,
                                    .n_prompt = 4,
                                    .max_new = 60,
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1},
                                    .on_token = on_token,
                                    .ctx = c};
    int64_t id;
    bool busy;

    c->ended = false;
    c->last_s = 0;
    TRY(serve_submit(c->neighbour, &q, &id));
    while (!c->ended)
        TRY(serve_step(c->neighbour, &busy));
    return OK;
}

static int open_neighbour(struct cell *c)
{
    struct serve_opts so;
    int rc;

    c->gaps = mem_new(MEM_OTHER, GAPS_MAX, sizeof(*c->gaps));
    if (!c->gaps)
        return ERR_NOMEM;
    TRY(opt_init(serve_opt_table, &so));
    rc = opt_set(serve_opt_table, &so, "model", c->o->model, "study");
    so.threads = 1;
    so.pin = false;
    so.max_seqs = 1;
    so.max_tok = 64;
    if (rc == OK)
        rc = serve_open(&c->neighbour, &so);
    opt_free(serve_opt_table, &so);
    return rc == OK ? decode_once(c) : rc; /* warm */
}

/* Of the gaps that lie in [from, to]. NaN: none does. */
static double median_gap_ms(const struct cell *c, double from_s, double to_s)
{
    double *v = mem_new(MEM_OTHER, (size_t)c->n_gaps + 1, sizeof(*v)), m = NAN;
    size_t n = 0;

    for (int i = 0; v && i < c->n_gaps; i++)
        if (c->gaps[i].from_s >= from_s && c->gaps[i].to_s <= to_s)
            v[n++] = 1e3 * (c->gaps[i].to_s - c->gaps[i].from_s);
    if (n > 0)
        m = stats_median(v, n);
    mem_free(v);
    return m;
}

/* Alone, and then while a run moves keys and values. */
static int with_neighbour(struct cell *c, double *alone_ms, double *with_ms,
                          struct said *s)
{
    int rc = ERR_LIMIT;

    c->n_gaps = 0;
    for (int i = 0; i < 5; i++)
        TRY(decode_once(c));
    *alone_ms = median_gap_ms(c, 0, INFINITY);
    c->n_gaps = 0;
    TRY(begin(c, c->o->paced_n, c->o->paced_gbps));
    for (uint64_t t = clock_ns(); rc == ERR_LIMIT;) {
        TRY(decode_once(c));
        rc = child_wait(&c->pid, 1e-6);
        if (rc == ERR_LIMIT && clock_ns() - t > (uint64_t)LIMIT_S * 1000000000)
            return err_set(ERR_STATE, "sandwich transfer takes more than %d s", LIMIT_S);
    }
    if (rc != OK)
        return err_prefix(rc, "sandwich transfer by %s", c->o->way);
    err_clear();
    TRY(read_answer(c, s));
    *with_ms = median_gap_ms(c, s->begin_s, s->end_s);
    return isfinite(*with_ms) ? OK
                              : err_set(ERR_STATE,
                                        "no token of the neighbour's came during %.2f s: "
                                        "set more prompts at this rate",
                                        s->seconds);
}

/* ---- what it says ---- */

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
    struct said s;

    TRY(begin(c, c->o->n, 0));
    TRY(wait_for(c, &s));
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
    double of[ROUNDS_MAX], median[N_VALUES];
    size_t n = (size_t)c->o->rounds;

    _Static_assert(sizeof(metrics) / sizeof(metrics[0]) == N_VALUES + 1,
                   "a value for each metric, in their order");
    if (!c->o->model)
        return err_set(ERR_ARG, "study.model: expected a path, found none");
    TRY(check_there(c));
    TRY(open_neighbour(c));
    for (size_t r = 0; r < n; r++) {
        study_progress(c->out, (double)r / (double)n, c->o->way);
        TRY(one_round(c, v[r]));
    }
    for (int k = 0; k < N_VALUES; k++) {
        for (size_t r = 0; r < n; r++)
            of[r] = v[r][k];
        median[k] = stats_median(of, n);
        study_value(c->out, metrics[k].name, median[k], "");
        study_series(c->out, metrics[k].name, metrics[k].unit, of, n);
    }
    return OK;
}

static void end(struct cell *c)
{
    child_kill(&c->pid);
    if (c->answer)
        fclose(c->answer);
    serve_close(&c->neighbour);
    mem_free(c->gaps);
}

STUDY(kv_transport, "transports of keys and values: rate, processor time, a neighbour");
