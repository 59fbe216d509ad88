#include "experiments/run/impl.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

void run_flight_saturation(struct run_flight *f)
{
    if (f->end_saturated && !f->over && metrics_saturation_result(f->saturation)->found)
        f->over = "canceled: the cell was saturated and was ended";
}

void run_flight_close(struct run_flight *f, size_t i, enum metrics_status status,
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
        run_flight_saturation(f);
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

static void take_token(struct run_flight *f, size_t i, int64_t t)
{
    struct metrics_row *r = &f->rows[i];

    if (r->n_tok == r->n_output_tok) {
        run_flight_close(f, i, METRICS_FAILED, t, "more tokens than asked for");
        return;
    }
    f->token_ns[i][r->n_tok++] = t;
    if (r->n_tok > 1)
        return;
    r->first_token_ns = t;
    if (f->saturation) {
        metrics_saturation_first_token(f->saturation, i, t);
        run_flight_saturation(f);
    }
}

static void take_end(struct run_flight *f, size_t i, int64_t t, const struct sut_event *e)
{
    struct metrics_row *r = &f->rows[i];
    char text[96];

    if (e->kind == SUT_FAILED) {
        run_flight_close(f, i, METRICS_FAILED, t, e->error ? e->error : "failed");
    } else if (e->any_length && r->n_tok > 0) {
        r->n_output_tok = r->n_tok; /* what came is what is measured */
        run_flight_close(f, i, METRICS_OK, t, NULL);
    } else if (r->n_tok != r->n_output_tok) {
        snprintf(text, sizeof(text), "ended after %lld tokens, asked for %lld",
                 (long long)r->n_tok, (long long)r->n_output_tok);
        run_flight_close(f, i, METRICS_FAILED, t, text);
    } else {
        run_flight_close(f, i, METRICS_OK, t, NULL);
    }
}

/* From the adapter's thread. The stamp is taken before anything else. */
static void on_event(void *ctx, const struct sut_event *e)
{
    uint64_t now = clock_ns();
    struct run_system *s = ctx;
    struct run_flight *f;
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
    if (!s)
        return ERR_NOMEM;
    rc = thread_mutex_init(&s->lock);
    if (rc == OK)
        rc = thread_cond_init(&s->changed);
    if (rc == OK)
        rc = thread_cond_init(&s->progressed);
    if (rc != OK)
        goto out;
    s->config = json_deep_copy(config);
    options = json_deep_copy(config);
    if (!s->config || !options) {
        rc = err_set(ERR_NOMEM, "system: out of memory");
        goto out;
    }
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

bool run_system_is(const struct run_system *s, const json_t *config)
{
    return json_equal(s->config, config);
}

int run_system_describe(struct run_system *s, json_t **out)
{
    *out = NULL;
    if (s->adapter->describe)
        return s->adapter->describe(s->sut, out);
    *out = json_pack("{s:s}", "system", s->adapter->name);
    return *out ? OK : err_set(ERR_NOMEM, "system: out of memory");
}

bool run_system_has_bound(struct run_system *s)
{
    return (s->adapter->token_bytes && s->adapter->token_bytes(s->sut, 1) > 0) ||
           (s->adapter->prefill_flop && s->adapter->prefill_flop(s->sut, 1) > 0);
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
