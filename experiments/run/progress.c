#include "experiments/run/progress.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base/utf8.h"

#define MINUTE_NS 60000000000ull
#define SETTLED_S 2    /* an estimate from less is noise */
#define LATE      1.25 /* times what is shown: the estimate now contradicts it */

struct progress {
    FILE *f;
    enum progress_mode mode;
    size_t n_cells, cell;        /* all, and the running one counted from 1 */
    double weight, weight_ended; /* of the cells to run; of those that have ended */
    size_t in_cell, cell_ended, cell_failed;
    double cell_weight, cell_frac; /* of the running one; how much of it is done */
    double part_from, part_share;  /* the fractions of it that ticks cover */
    double left_s;                 /* the lowest estimate so far */
    char key[160];
    uint64_t start_ns, printed_ns;
    bool live; /* a live line stands on the terminal */
    pthread_mutex_t lock;
};

int progress_open(struct progress **out, FILE *f, enum progress_mode mode, size_t n_cells,
                  size_t n_cells_before, double weight, uint64_t now_ns)
{
    struct progress *p = mem_new(MEM_HARNESS, 1, sizeof(*p));

    *out = p;
    *p = (struct progress){.f = f,
                           .mode = mode,
                           .n_cells = n_cells,
                           .cell = n_cells_before + 1,
                           .weight = weight,
                           .left_s = INFINITY,
                           .start_ns = now_ns,
                           .printed_ns = now_ns};
    return thread_mutex_init(&p->lock);
}

static void clear(struct progress *p)
{
    if (p->live)
        fputs("\r\033[K", p->f);
    p->live = false;
}

void progress_close(struct progress **pp)
{
    struct progress *p = *pp;

    if (!p)
        return;
    clear(p);
    fflush(p->f);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
    *pp = NULL;
}

static void put_duration(char *out, size_t n, double s)
{
    if (s < 90)
        snprintf(out, n, "%.0f s", s);
    else if (s < 5400)
        snprintf(out, n, "%.0f min", s / 60);
    else
        snprintf(out, n, "%.1f h", s / 3600);
}

/* Time left at the rate so far. What is shown only falls: where the estimate has grown, as it
 * does when later cells are slower, "more than" stands before the lowest one. */
static void put_eta(struct progress *p, uint64_t now_ns, char *out, size_t n)
{
    double done = p->weight_ended + p->cell_weight * p->cell_frac;
    double elapsed = (double)(now_ns - p->start_ns) / 1e9, left;
    char t[32];

    out[0] = 0;
    if (done <= 0 || done > p->weight || elapsed < SETTLED_S)
        return;
    left = elapsed * (p->weight - done) / done;
    p->left_s = left < p->left_s ? left : p->left_s;
    put_duration(t, sizeof(t), p->left_s);
    snprintf(out, n, ", %s%s left", left > LATE * p->left_s ? "more than " : "", t);
}

static void print(struct progress *p, uint64_t now_ns, const char *text)
{
    char what[512];

    if (p->mode == PROGRESS_QUIET)
        return;
    if (p->mode == PROGRESS_MINUTE && now_ns - p->printed_ns < MINUTE_NS)
        return;
    clear(p);
    utf8_show(what, sizeof(what), text); /* a cell's name holds words of the job */
    fprintf(p->f, "cell %zu/%zu %s%s", p->cell, p->n_cells, what,
            p->mode == PROGRESS_LIVE ? "" : "\n");
    p->live = p->mode == PROGRESS_LIVE;
    p->printed_ns = now_ns;
    fflush(p->f);
}

void progress_note(struct progress *p, const char *text, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    print(p, now_ns, text);
    pthread_mutex_unlock(&p->lock);
}

static void print_cell(struct progress *p, uint64_t now_ns)
{
    char line[320], eta[64], failed[48] = "";

    put_eta(p, now_ns, eta, sizeof(eta));
    if (p->cell_failed)
        snprintf(failed, sizeof(failed), ", %zu failed", p->cell_failed);
    snprintf(line, sizeof(line), "%s: %zu/%zu requests%s%s", p->key, p->cell_ended,
             p->in_cell, failed, eta);
    print(p, now_ns, line);
}

static void begin_cell(struct progress *p, const char *key, size_t n_requests,
                       double weight)
{
    p->in_cell = n_requests;
    p->cell_ended = p->cell_failed = 0;
    p->cell_weight = weight;
    p->cell_frac = 0;
    p->part_from = 0;
    p->part_share = 1;
    snprintf(p->key, sizeof(p->key), "%s", key);
}

void progress_cell(struct progress *p, const char *key, size_t n_requests, double weight,
                   uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    begin_cell(p, key, n_requests, weight);
    print_cell(p, now_ns);
    pthread_mutex_unlock(&p->lock);
}

void progress_tick(struct progress *p, size_t n_ended, size_t n_failed, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    p->cell_ended = n_ended;
    p->cell_failed = n_failed;
    p->cell_frac = p->part_from;
    if (p->in_cell)
        p->cell_frac += p->part_share * (double)n_ended / (double)p->in_cell;
    print_cell(p, now_ns);
    pthread_mutex_unlock(&p->lock);
}

static void print_step(struct progress *p, const char *what, uint64_t now_ns)
{
    char line[320], eta[64];

    put_eta(p, now_ns, eta, sizeof(eta));
    snprintf(line, sizeof(line), "%s: %s%s", p->key, what, eta);
    print(p, now_ns, line);
}

void progress_study(struct progress *p, const char *key, double weight, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    begin_cell(p, key, 0, weight);
    print_step(p, "begins", now_ns);
    pthread_mutex_unlock(&p->lock);
}

void progress_step(struct progress *p, double fraction, const char *what, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    p->cell_frac = !(fraction > 0) ? 0 : fraction > 1 ? 1 : fraction;
    print_step(p, what, now_ns);
    pthread_mutex_unlock(&p->lock);
}

void progress_part(struct progress *p, const char *key, size_t n_requests, double from,
                   double share)
{
    pthread_mutex_lock(&p->lock);
    p->in_cell = n_requests;
    p->cell_ended = p->cell_failed = 0;
    p->cell_frac = p->part_from = from;
    p->part_share = share;
    snprintf(p->key, sizeof(p->key), "%s", key);
    pthread_mutex_unlock(&p->lock);
}

void progress_cell_end(struct progress *p)
{
    pthread_mutex_lock(&p->lock);
    p->cell++;
    p->weight_ended += p->cell_weight;
    p->cell_weight = p->cell_frac = 0;
    pthread_mutex_unlock(&p->lock);
}

void progress_log(void *ctx, enum log_level level, const char *line)
{
    static const char *const words[] = {"error: ", "warning: ", "", ""};
    struct progress *p = ctx;

    if (!p) {
        fprintf(stderr, "%s%s\n", words[level], line);
        return;
    }
    pthread_mutex_lock(&p->lock);
    clear(p);
    fprintf(p->f, "%s%s\n", words[level], line);
    fflush(p->f);
    pthread_mutex_unlock(&p->lock);
}
