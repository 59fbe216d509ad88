/* The time that moving keys and values from a prompt machine to a token machine adds to requests
 * that come one at a time: by this engine in two processes, over a link whose time for a layer is
 * x_over_c times the time that the prompt machine computes it, serially and layer by layer.
 *   visible = second token - first token - a later token
 *   form:     serial n x + alpha; layer by layer x + max(0, (n - 1) (x - c)) + alpha
 * with n layers, x to send and c to compute one; alpha is fitted for each cell and both ways.
 * Paper: Splitwise IV-C, VI-A, Fig. 14 and 15. */
#include <math.h>

#include "base/clock.h"
#include "base/stats.h"
#include "cluster/transfer.h"
#include "cluster/transport.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/gemm.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/roles_run.h"
#include "roles/roles.h"
#include "serve/handoff.h"

#define PROMPTS_MAX 16
#define ROUNDS_MAX  64
#define OUTPUT_MAX  64

enum { ALONE, SERIAL, LAYER_WISE, N_WAYS };
static const char *const way_names[N_WAYS] = {"alone", "serial", "layer"};

static const char *transport_name(int i)
{
    return cluster_transports[i] ? cluster_transports[i]->name : NULL;
}

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    OPTION_KV_TYPE(X, "bf16")                                                            \
    X(STR, prompts, "32 64 128 256 512", "Lengths of prompts, ascending.",               \
      .unit = "tok")                                                                     \
    X(F64, x_over_c, "0",                                                                \
      "Time that the emulated link needs for a layer of the prompt, over the time "      \
      "that the prompt machine computes it. 0: as fast as it goes.",                     \
      .min = 0, .max = 1000)                                                             \
    X(STR, transport, "shm", "Transport.", .unit = "NAME", .names = transport_name)      \
    X(BOOL, checksums, "true", "Compare a checksum of each layer.")                      \
    X(INT, output_tok, "6", "Tokens of each output.", .unit = "tok", .min = 4,           \
      .max = OUTPUT_MAX)                                                                 \
    X(INT, rounds, "5", "Rounds, each of all prompts all ways.", .min = 1,               \
      .max = ROUNDS_MAX)

#define RESULTS(X)                                                                       \
    X(alpha_serial, "ms", LOWER, "fitted alpha of serial transfers")                     \
    X(alpha_layer, "ms", LOWER, "fitted alpha of layer-wise transfers")                  \
    X(form_error_serial, "%", LOWER,                                                     \
      "|measured / form - 1| of the visible time, serial, median over prompts")          \
    X(form_error_layer, "%", LOWER, "the same, layer-wise")                              \
    X(form_error_max, "%", LOWER, "the most of all prompts and both ways")               \
    X(visible_serial, "ms", LOWER, "visible time after the longest prompt, serial")      \
    X(visible_layer, "ms", LOWER, "the same, layer-wise")                                \
    X(visible_layer_frac, "%", LOWER,                                                    \
      "visible time over that of the prompt, layer-wise, longest prompt")                \
    X(interference, "%", LOWER,                                                          \
      "how much longer prompts take while their layers are sent, median over prompts")   \
    X(crossing_tok, "tok", 0,                                                            \
      "shortest prompt from which on layer-wise brings the second token sooner")         \
    X(crossing_form_tok, "tok", 0, "the same as the form predicts it")                   \
    X(crossing_steps, "", LOWER,                                                         \
      "prompts of the list between what is measured and predicted")                      \
    X(second_serial, "%", LOWER,                                                         \
      "second token later than without a transfer, longest prompt, serial")              \
    X(second_layer, "%", LOWER, "the same, layer-wise")                                  \
    X(e2e_serial, "%", LOWER,                                                            \
      "request longer than in one process, longest prompt, serial")                      \
    X(e2e_layer, "%", LOWER, "the same, layer-wise")                                     \
    X(x_layer, "ms", 0, "time of the link for a layer of the longest prompt")            \
    X(c_layer, "ms", 0, "time of the prompt machine for it")                             \
    X(link_speed, "Gb/s", 0, "speed of the emulated link, longest prompt")

FRAME_TYPES;

/* Times of one request, in ms from when it was submitted. */
struct times {
    double first, second_gap, later_gap, e2e;
};

/* Medians over the rounds. */
struct point {
    double first, second_gap, later_gap, e2e, visible, form, second_at, form_at;
};

struct kv_transfer {
    FRAME_CELL;
    struct study_serving alone, roles;
    int64_t prompts[PROMPTS_MAX];
    int n;
    int64_t n_requests;
    int n_layers;
    double tok_layer_bytes;
    double c_ms[PROMPTS_MAX], x_ms[PROMPTS_MAX], gbps[PROMPTS_MAX];
    struct times t[PROMPTS_MAX][N_WAYS][ROUNDS_MAX];
    struct point p[PROMPTS_MAX][N_WAYS];
    double alpha[N_WAYS];
};

/* ---- one request ---- */

struct request {
    uint64_t at[OUTPUT_MAX];
    int n;
    enum serve_finish finish;
};

static void request_token(void *ctx, int64_t request, int32_t id, const float *logits,
                          enum serve_finish finish)
{
    struct request *r = ctx;

    (void)request, (void)logits;
    if (id >= 0 && r->n < OUTPUT_MAX)
        r->at[r->n++] = clock_ns();
    r->finish = finish;
}

static int one(struct kv_transfer *c, struct study_serving *s, int64_t n_prompt,
               int64_t n_new, struct times *out)
{
    struct request r = {.n = 0};
    double gaps[OUTPUT_MAX];
    uint64_t begin;

    s->on_token = request_token;
    s->ctx = &r;
    begin = clock_ns();
    TRY(study_serving_submit(s, (uint64_t)++c->n_requests, n_prompt, n_new, NULL));
    TRY(study_serving_finish(s));
    if (r.finish != SERVE_LENGTH)
        return err_set(ERR_STATE, "a request ended early: %s", err_msg());
    for (int i = 1; i < r.n; i++)
        gaps[i - 1] = 1e-6 * (double)(r.at[i] - r.at[i - 1]);
    *out = (struct times){.first = 1e-6 * (double)(r.at[0] - begin),
                          .e2e = 1e-6 * (double)(r.at[r.n - 1] - begin)};
    if (r.n > 2) {
        out->second_gap = gaps[0];
        out->later_gap = stats_median(gaps + 1, (size_t)r.n - 2);
    }
    return OK;
}

/* ---- opening ---- */

static int engine_opts(const struct kv_transfer *c, struct serve_opts *so)
{
    TRY(study_serving_opts(so, c->o->model, "fcfs"));
    so->precision = c->o->precision;
    so->kv_type = c->o->kv_type;
    so->threads = 1;
    so->max_seqs = 1;
    so->max_tok = so->max_step_tok = c->prompts[c->n - 1] + c->o->output_tok;
    return OK;
}

/* The machines first: they are forked. */
static int open_both(struct kv_transfer *c)
{
    struct serve_opts so;
    struct kv_shape shape;

    TRY(engine_opts(c, &so));
    TRY(study_roles_open(&c->roles, &so, "prompt=1,token=1", c->o->transport,
                         c->o->checksums));
    TRY(engine_opts(c, &so));
    so.pin = false;
    TRY(study_serving_open(&c->alone, &so));
    serve_kv_shape(c->alone.serve, &shape);
    c->n_layers = shape.n_layers;
    c->tok_layer_bytes = (double)kv_token_bytes(&shape) / shape.n_layers;
    return OK;
}

/* ---- measuring ---- */

/* How long the prompt machine computes a layer, without a transfer, and so the link's speed. */
static int calibrate(struct kv_transfer *c)
{
    double ms[ROUNDS_MAX];
    struct times t;

    TRY(one(c, &c->roles, c->prompts[0], c->o->output_tok, &t)); /* warms up */
    TRY(one(c, &c->alone, c->prompts[c->n - 1], c->o->output_tok, &t));
    TRY(one(c, &c->roles, c->prompts[c->n - 1], 1, &t));
    for (int i = 0; i < c->n; i++) {
        for (int r = 0; r < c->o->rounds; r++) {
            TRY(one(c, &c->roles, c->prompts[i], 1, &t));
            ms[r] = t.first;
        }
        c->c_ms[i] = stats_median(ms, (size_t)c->o->rounds) / c->n_layers;
        c->x_ms[i] = c->o->x_over_c * c->c_ms[i];
        c->gbps[i] = c->x_ms[i] > 0
                         ? 8e-6 * c->tok_layer_bytes * (double)c->prompts[i] / c->x_ms[i]
                         : 0;
    }
    return OK;
}

static int measure_all(struct kv_transfer *c)
{
    int64_t rounds = c->o->rounds;

    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < c->n; i++) {
            study_progress(c->out, (double)(r * c->n + i) / (double)(rounds * c->n),
                           "requests one at a time, all ways in turn");
            for (int k = 0; k < N_WAYS; k++) {
                int way = r % 2 ? N_WAYS - 1 - k : k;
                const struct roles_link l = {.serial_below_tok =
                                                 way == SERIAL ? INT64_MAX : 0,
                                             .gbps = c->gbps[i]};

                if (way != ALONE)
                    TRY(roles_link_set(c->roles.serve, &l));
                TRY(one(c, way == ALONE ? &c->alone : &c->roles, c->prompts[i],
                        c->o->output_tok, &c->t[i][way][r]));
            }
        }
    return OK;
}

/* ---- the report ---- */

/* Without alpha. The layers' times are those of the same prompt: the link began to be busy when
 * the first of them was stored. */
static double form_ms(const struct kv_transfer *c, int i, int way, double first_ms)
{
    const struct cluster_transfer f = {.n_layers = c->n_layers,
                                       .compute_ns = first_ms / c->n_layers,
                                       .send_ns = c->x_ms[i],
                                       .layer_wise = way == LAYER_WISE};

    return cluster_transfer_visible_ns(&f);
}

static void summarise(struct kv_transfer *c, int i, int way)
{
    size_t n = (size_t)c->o->rounds;
    double v[6][ROUNDS_MAX] = {{0}};
    struct point *p = &c->p[i][way];

    for (size_t r = 0; r < n; r++) {
        const struct times *t = &c->t[i][way][r];

        v[0][r] = t->first;
        v[1][r] = t->second_gap;
        v[2][r] = t->later_gap;
        v[3][r] = t->e2e;
        v[4][r] = t->second_gap - t->later_gap;
        v[5][r] = form_ms(c, i, way, t->first);
    }
    p->first = stats_median(v[0], n);
    p->second_gap = stats_median(v[1], n);
    p->later_gap = stats_median(v[2], n);
    p->e2e = stats_median(v[3], n);
    p->visible = stats_median(v[4], n);
    p->form = stats_median(v[5], n);
    for (size_t r = 0; r < n; r++)
        v[0][r] += v[1][r];
    p->second_at = stats_median(v[0], n);
}

/* The shortest prompt from which on layer-wise brings the second token sooner, as measured or
 * by the form; -1: none. */
static int sooner_from(const struct kv_transfer *c, bool of_form)
{
    int from = -1;

    for (int i = c->n - 1; i >= 0; i--) {
        const struct point *s = &c->p[i][SERIAL], *l = &c->p[i][LAYER_WISE];

        if (of_form ? l->form_at >= s->form_at : l->second_at >= s->second_at)
            break;
        from = i;
    }
    return from;
}

static void fit_alpha(struct kv_transfer *c, double error[N_WAYS][PROMPTS_MAX])
{
    double rest[PROMPTS_MAX], slower[PROMPTS_MAX], median;

    for (int i = 0; i < c->n; i++)
        slower[i] = c->p[i][LAYER_WISE].first - c->p[i][SERIAL].first;
    median = stats_median(slower, (size_t)c->n);
    for (int i = 0; i < c->n; i++)
        slower[i] = 100 * slower[i] / c->p[i][SERIAL].first;
    c->r->interference = stats_median(slower, (size_t)c->n);
    for (int way = SERIAL; way < N_WAYS; way++) {
        for (int i = 0; i < c->n; i++)
            rest[i] = c->p[i][way].visible - c->p[i][way].form;
        c->alpha[way] = stats_median(rest, (size_t)c->n);
        for (int i = 0; i < c->n; i++) {
            struct point *p = &c->p[i][way];

            p->form += c->alpha[way];
            error[way][i] = 100 * fabs(p->visible / p->form - 1);
            p->form_at = p->form + (way == LAYER_WISE ? median : 0);
        }
    }
}

static double tok_at(const struct kv_transfer *c, int i)
{
    return i < 0 ? NAN : (double)c->prompts[i];
}

static void report_series(struct kv_transfer *c)
{
    double v[6][PROMPTS_MAX], tok[PROMPTS_MAX];
    static const char *const stems[] = {"first", "second_gap", "later_gap",
                                        "e2e",   "visible",    "form"};
    char name[48];

    for (int i = 0; i < c->n; i++)
        tok[i] = (double)c->prompts[i];
    study_series(c->out, "prompt_tok", "tok", tok, (size_t)c->n);
    study_series(c->out, "x_ms", "ms", c->x_ms, (size_t)c->n);
    study_series(c->out, "c_ms", "ms", c->c_ms, (size_t)c->n);
    for (int way = 0; way < N_WAYS; way++) {
        for (int i = 0; i < c->n; i++) {
            const struct point *p = &c->p[i][way];

            v[0][i] = p->first;
            v[1][i] = p->second_gap;
            v[2][i] = p->later_gap;
            v[3][i] = p->e2e;
            v[4][i] = p->visible;
            v[5][i] = p->form;
        }
        for (int k = 0; k < (way == ALONE ? 4 : 6); k++) {
            snprintf(name, sizeof(name), "%s_%s_ms", stems[k], way_names[way]);
            study_series(c->out, name, "ms", v[k], (size_t)c->n);
        }
    }
}

static void kv_transfer_report(struct kv_transfer *c)
{
    double error[N_WAYS][PROMPTS_MAX];
    const struct point *a = &c->p[c->n - 1][ALONE], *s = &c->p[c->n - 1][SERIAL],
                       *l = &c->p[c->n - 1][LAYER_WISE];
    struct results *r = c->r;
    int at, form_at;
    size_t n = (size_t)c->n;

    fit_alpha(c, error);
    at = sooner_from(c, false);
    form_at = sooner_from(c, true);
    frame_why(c->f, NULL, "there is none: no prompt of the list, or no limit");
    r->alpha_serial = c->alpha[SERIAL];
    r->alpha_layer = c->alpha[LAYER_WISE];
    r->form_error_serial = stats_median(error[SERIAL], n);
    r->form_error_layer = stats_median(error[LAYER_WISE], n);
    r->form_error_max =
        fmax(stats_max(error[SERIAL], n), stats_max(error[LAYER_WISE], n));
    r->visible_serial = s->visible;
    r->visible_layer = l->visible;
    r->visible_layer_frac = 100 * l->visible / l->first;
    r->crossing_tok = tok_at(c, at);
    r->crossing_form_tok = tok_at(c, form_at);
    r->crossing_steps =
        at < 0 && form_at < 0
            ? NAN
            : fabs((double)((at < 0 ? c->n : at) - (form_at < 0 ? c->n : form_at)));
    r->second_serial = 100 * (s->second_gap / s->later_gap - 1);
    r->second_layer = 100 * (l->second_gap / l->later_gap - 1);
    r->e2e_serial = 100 * (s->e2e / a->e2e - 1);
    r->e2e_layer = 100 * (l->e2e / a->e2e - 1);
    r->x_layer = c->x_ms[c->n - 1];
    r->c_layer = c->c_ms[c->n - 1];
    r->link_speed = c->gbps[c->n - 1] > 0 ? c->gbps[c->n - 1] : NAN;
    report_series(c);
}

static void kv_transfer_close(struct kv_transfer *c)
{
    study_serving_close(&c->roles);
    study_serving_close(&c->alone);
}

static int kv_transfer_run(struct kv_transfer *c)
{
    FRAME_CLOSE(c->f, kv_transfer_close, c);
    TRY(study_numbers_parse(c->o->prompts, "study.prompts", c->prompts, PROMPTS_MAX,
                            &c->n));
    TRY(open_both(c));
    TRY(calibrate(c));
    TRY(measure_all(c));
    for (int i = 0; i < c->n; i++)
        for (int way = 0; way < N_WAYS; way++)
            summarise(c, i, way);
    kv_transfer_report(c);
    return OK;
}

STUDY(kv_transfer, "what moving keys and values adds to requests one at a time");
