#include "experiments/run/clients.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

#define N_ROUND_TRIPS 32
#define LEAD_NS       200000000 /* to tell all clients when to begin; each then needs 22 ms */
#define LATE_MS       30000 /* after the end of a cell, of which canceling may take 10 s */

struct client {
    char host[256];
    pid_t pid;
    FILE *in, *out;
    /* Of the last cell. */
    struct run_clock clock; /* before and after it */
    size_t first, n;        /* its rows */
    int64_t start_ns;       /* by the client's clock */
};
struct run_clients {
    struct client *v;
    int n, n_used; /* all, and in the last cell */
};

struct run_clock run_clock_of(const struct run_round_trip *v, int n)
{
    struct run_clock c = {INT64_MIN, INT64_MAX};

    for (int i = 0; i < n; i++) {
        const int64_t least = v[i].there_ns - v[i].back_ns,
                      most = v[i].there_ns - v[i].sent_ns;

        c.lo_ns = least > c.lo_ns ? least : c.lo_ns;
        c.hi_ns = most < c.hi_ns ? most : c.hi_ns;
    }
    return c.lo_ns <= c.hi_ns ? c : (struct run_clock){c.hi_ns, c.lo_ns};
}

struct run_clock run_clock_join(struct run_clock a, struct run_clock b)
{
    return (struct run_clock){a.lo_ns < b.lo_ns ? a.lo_ns : b.lo_ns,
                              a.hi_ns > b.hi_ns ? a.hi_ns : b.hi_ns};
}

static int64_t ahead_ns(const struct client *c)
{
    return c->clock.lo_ns + (c->clock.hi_ns - c->clock.lo_ns) / 2;
}

void run_requests_share(struct run_requests *q, struct load_opts *load, int k, int n)
{
    size_t kept = 0, n_warmup = 0;
    int turn = -1;

    for (size_t i = 0; i < q->n; i++) {
        turn = q->follows && q->follows[i] ? turn : (turn + 1) % n;
        if (turn != k)
            continue;
        n_warmup += i < q->n_warmup;
        q->v[kept] = q->v[i];
        if (q->arrival_s)
            q->arrival_s[kept] = q->arrival_s[i];
        if (q->follows) {
            q->follows[kept] = q->follows[i];
            q->pause_s[kept] = q->pause_s[i];
        }
        kept++;
    }
    q->n = kept;
    q->n_warmup = n_warmup;
    load->concurrency = load->concurrency / n + (k < load->concurrency % n);
}

/* ---- lines ---- */

int run_client_write(FILE *out, json_t *what)
{
    char *text = what ? json_text(what, JSON_COMPACT) : NULL;
    const bool sent = text && fprintf(out, "%s\n", text) > 0 && fflush(out) == 0;

    json_decref(what);
    mem_free(text);
    return sent ? OK : err_set(ERR_IO, "it has ended");
}

static int read_line(json_t **out, FILE *in)
{
    char *line = NULL;
    size_t capacity = 0;
    const ssize_t n = getline(&line, &capacity, in);
    const int rc = n > 0 ? json_read_own(out, line, (size_t)n, "a line") : ERR_IO;

    free(line);
    return n > 0 ? rc : err_set(ERR_IO, "it has ended");
}

int run_client_wait(json_t **out, FILE *in, FILE *answers)
{
    *out = NULL;
    for (;;) {
        TRY(read_line(out, in));
        if (!json_object_get(*out, "time"))
            return OK;
        json_decref(*out);
        *out = NULL;
        TRY(run_client_write(answers,
                             json_pack("{s:I}", "time", (json_int_t)clock_ns())));
    }
}

static int tell(struct client *c, json_t *what)
{
    const int rc = run_client_write(c->out, what);

    return rc == OK ? OK : err_prefix(rc, "%s", c->host);
}

static int hear(json_t **out, struct client *c)
{
    int rc = read_line(out, c->in);
    const char *error = rc == OK ? json_str_at(*out, "error", NULL) : NULL;

    if (error) {
        rc = err_set(ERR_IO, "%s", error);
        json_decref(*out);
        *out = NULL;
    }
    return rc == OK ? OK : err_prefix(rc, "%s", c->host);
}

static int ask_time(struct run_clock *out, struct client *c)
{
    struct run_round_trip v[N_ROUND_TRIPS];
    json_t *answer;

    for (int i = 0; i < N_ROUND_TRIPS; i++) {
        v[i].sent_ns = (int64_t)clock_ns();
        TRY(tell(c, json_pack("{s:b}", "time", 1)));
        TRY(hear(&answer, c));
        v[i].back_ns = (int64_t)clock_ns();
        v[i].there_ns = json_int_at(answer, "time");
        json_decref(answer);
    }
    *out = run_clock_of(v, N_ROUND_TRIPS);
    return OK;
}

/* ---- clients ---- */

static int start(struct client *c, const char *command)
{
    char line[4096];
    int fd[2], rc = OK;

    if (!c->host[0] || strchr(c->host, '\'') ||
        snprintf(line, sizeof(line), "HOST='%s'; exec %s bench -", c->host, command) >=
            (int)sizeof(line))
        return err_set(ERR_ARG,
                       "--clients, --client-command: expected names of hosts, and "
                       "less than 4 KB");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0)
        return err_set(ERR_IO, "no socket: %m");
    c->in = fdopen(fd[0], "r");
    c->out = fdopen(dup(fd[0]), "w");
    rc = child_start(
        &c->pid, &(struct child_program){.argv = (const char *[]){"sh", "-c", line, NULL},
                                         .fd = {fd[1], fd[1], STDERR_FILENO}});
    close(fd[1]);
    return c->in && c->out ? rc : ERR_NOMEM;
}

int run_clients_open(struct run_clients **out, const char *hosts, const char *command,
                     const json_t *hello)
{
    struct run_clients *cs = mem_new(MEM_HARNESS, 1, sizeof(*cs));
    int rc = OK;

    signal(SIGPIPE, SIG_IGN); /* that one has ended is an error, which names it */
    cs->v = mem_new(MEM_HARNESS, strlen(hosts) + 1, sizeof(*cs->v));
    for (const char *at = hosts; at && rc == OK; at = strchr(at, ',')) {
        struct client *c = &cs->v[cs->n++];

        at += at > hosts;
        snprintf(c->host, sizeof(c->host), "%.*s", (int)strcspn(at, ","), at);
        rc = start(c, command);
        if (rc == OK)
            rc = tell(c, json_deep_copy(hello));
    }
    for (int i = 0; i < cs->n && rc == OK; i++) {
        json_t *found = NULL; /* the server */

        rc = hear(&found, &cs->v[i]);
        json_decref(found);
    }
    *out = cs;
    if (rc != OK)
        run_clients_close(out);
    return rc;
}

void run_clients_close(struct run_clients **pcs)
{
    struct run_clients *cs = *pcs;

    *pcs = NULL;
    for (int i = 0; cs && i < cs->n; i++) { /* behind ssh a client ends with its input */
        child_kill(&cs->v[i].pid);
        if (cs->v[i].in)
            fclose(cs->v[i].in);
        if (cs->v[i].out)
            fclose(cs->v[i].out);
    }
    mem_free(cs ? cs->v : NULL);
    mem_free(cs);
}

/* ---- a cell ---- */

int run_client_rows(FILE *out, const struct run_result *r)
{
    size_t n_tok = 0;

    for (size_t i = 0; i < r->n; i++)
        n_tok += (size_t)r->rows[i].n_tok;
    TRY(run_client_write(
        out, json_pack("{s:I s:I s:I s:I s:f}", "n_rows", (json_int_t)r->n, "n_tok",
                       (json_int_t)n_tok, "n_timer_error", (json_int_t)r->n_timer_error,
                       "start_ns", (json_int_t)r->energy.start_ns, "wall_s", r->wall_s)));
    fwrite(r->rows, sizeof(*r->rows), r->n, out);
    for (size_t i = 0; i < r->n; i++)
        fwrite(r->rows[i].token_ns, sizeof(int64_t), (size_t)r->rows[i].n_tok, out);
    fwrite(r->timer_error_us, sizeof(double), r->n_timer_error, out);
    return fflush(out) == 0 ? OK : err_set(ERR_IO, "cannot send rows: %m");
}

/* n more elements of an array that has *n_had. */
static int read_more(void *array, size_t *n_had, size_t n, size_t size, FILE *in)
{
    char *p;

    memcpy(&p, array, sizeof(p));
    p = mem_resize(MEM_HARNESS, p, *n_had + n + 1, size);
    memcpy(array, &p, sizeof(p));
    if (fread(p + *n_had * size, size, n, in) != n)
        return err_set(ERR_IO, "it has ended");
    *n_had += n;
    return OK;
}

static int read_rows(struct run_result *r, size_t *n_tok, struct client *c,
                     uint64_t end_ns)
{
    const uint64_t now = clock_ns();
    struct pollfd p = {.fd = fileno(c->in), .events = POLLIN};
    json_t *j;
    int rc;

    if (end_ns &&
        poll(&p, 1, LATE_MS + (int)(end_ns > now ? (end_ns - now) / 1000000 : 0)) == 0)
        return err_set(ERR_IO, "%s: it does not end a load whose time is over", c->host);
    TRY(hear(&j, c));
    c->first = r->n;
    c->n = (size_t)json_int_at(j, "n_rows");
    c->start_ns = json_int_at(j, "start_ns");
    r->wall_s = fmax(r->wall_s, json_f64_at(j, "wall_s"));
    rc = read_more(&r->rows, &r->n, c->n, sizeof(*r->rows), c->in);
    if (rc == OK)
        rc = read_more(&r->token_ns, n_tok, (size_t)json_int_at(j, "n_tok"),
                       sizeof(*r->token_ns), c->in);
    if (rc == OK)
        rc = read_more(&r->timer_error_us, &r->n_timer_error,
                       (size_t)json_int_at(j, "n_timer_error"), sizeof(double), c->in);
    json_decref(j);
    return rc == OK ? OK : err_prefix(rc, "%s", c->host);
}

/* All on our clock, from the first beginning on, in the order in which they were due. */
static void merge(struct run_result *r, const struct run_clients *cs)
{
    int64_t *token_ns = r->token_ns, first_ns = INT64_MAX;

    for (int k = 0; k < cs->n_used; k++) {
        const int64_t start_ns = cs->v[k].start_ns - ahead_ns(&cs->v[k]);

        first_ns = start_ns < first_ns ? start_ns : first_ns;
    }
    for (int k = 0; k < cs->n_used; k++) {
        const struct client *c = &cs->v[k];

        for (size_t i = c->first; i < c->first + c->n; i++) {
            r->rows[i].token_ns = token_ns;
            r->rows[i].request = (int64_t)i;
            metrics_row_move(&r->rows[i], c->start_ns - ahead_ns(c) - first_ns, token_ns);
            token_ns += r->rows[i].n_tok;
        }
    }
    run_result_sort(r);
}

/* Each client makes the requests of its share. */
static int share_out(struct run_clients *cs, const struct load_opts *load, int64_t seed,
                     size_t n)
{
    for (int k = 0; k < cs->n_used; k++)
        TRY(tell(&cs->v[k],
                 json_pack("{s:i s:i s:I s:o}", "share", k, "of", cs->n_used, "seed",
                           (json_int_t)seed, "load", opt_to_json(load_opt_table, load))));
    for (int k = 0; k < cs->n_used; k++) {
        json_t *answer;
        int64_t has;

        TRY(hear(&answer, &cs->v[k]));
        has = json_int_at(answer, "n_requests");
        json_decref(answer);
        if (has != (int64_t)n)
            return err_set(ERR_IO,
                           "%s: its load has %lld requests, expected %zu: is its "
                           "--dataset another file?",
                           cs->v[k].host, (long long)has, n);
        TRY(ask_time(&cs->v[k].clock, &cs->v[k]));
    }
    return OK;
}

static int begin(struct client *c, uint64_t begin_ns, uint64_t end_ns)
{
    return tell(c, json_pack("{s:I s:I}", "begin_ns", (json_int_t)begin_ns + ahead_ns(c),
                             "end_ns", end_ns ? (json_int_t)end_ns + ahead_ns(c) : 0));
}

int run_clients_cell(struct run_result *out, struct run_clients *cs,
                     const struct load_opts *load, int64_t seed, size_t n,
                     uint64_t end_ns)
{
    const bool closed = strcmp(load->process, "closed") == 0;
    const int64_t most = closed ? load->concurrency : (int64_t)n;
    size_t n_tok = 0;
    uint64_t begin_ns;
    int rc;

    *out = (struct run_result){0};
    cs->n_used = most < cs->n ? (int)most : cs->n;
    rc = share_out(cs, load, seed, n);
    begin_ns = clock_ns() + LEAD_NS;
    for (int k = 0; k < cs->n_used && rc == OK; k++)
        rc = begin(&cs->v[k], begin_ns, end_ns);
    for (int k = 0; k < cs->n_used && rc == OK; k++)
        rc = read_rows(out, &n_tok, &cs->v[k], end_ns);
    for (int k = 0; k < cs->n_used && rc == OK; k++) {
        struct run_clock after;

        rc = ask_time(&after, &cs->v[k]);
        cs->v[k].clock =
            rc == OK ? run_clock_join(cs->v[k].clock, after) : cs->v[k].clock;
    }
    if (rc == OK)
        merge(out, cs);
    else
        run_result_fini(out);
    return rc;
}

json_t *run_clients_json(const struct run_clients *cs)
{
    json_t *list = json_array();

    for (int k = 0; k < cs->n_used; k++) {
        const struct client *c = &cs->v[k];

        json_array_append_new(
            list, json_pack("{s:o s:I s:f s:f}", "host", json_string_lossy(c->host),
                            "n_requests", (json_int_t)c->n, "clock_ahead_ms",
                            (double)ahead_ns(c) / 1e6, "clock_error_ms",
                            (double)(c->clock.hi_ns - c->clock.lo_ns) / 2e6));
    }
    return list;
}
