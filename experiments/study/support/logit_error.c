#include "experiments/study/support/logit_error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/stats_interval.h"
#include "baselines/http.h"
#include "baselines/server.h"
#include "experiments/study/support/engine.h"
#include "model/model.h"
#include "model/sampler.h"

#define ANSWER_S 120

/* ---- this engine ---- */

/* logits: [n_prompts, vocab]; NULL: only the vocabulary is wanted, into e->vocab. */
static int compute(struct study_logit_error *e, struct model_bench *b, float *logits)
{
    struct model_phase *phase;
    int rc = OK;

    TRY(study_engine_phase(b, &phase, 1, par_team_size(e->team)));
    for (int i = 0; i < e->n_prompts; i++) {
        struct model_chunk chunk = {.kv = &b->steps.kv[0],
                                    .ids = e->ids + (int64_t)i * e->n_prompt_tok,
                                    .n_tok = e->n_prompt_tok,
                                    .want_logits = true};

        rc = model_forward(phase, &chunk, 1, logits + (int64_t)i * e->vocab);
        if (rc != OK)
            break;
    }
    model_phase_close(&phase);
    return rc;
}

static int open_engine(struct study_logit_error *e, struct model_bench *out,
                       enum kern_precision precision, enum kern_kv_type kv)
{
    const struct model_bench_opts o = {.precision = precision,
                                       .kv_type = kv,
                                       .n_seqs = 1,
                                       .one_rank = true,
                                       .max_tok = e->n_prompt_tok,
                                       .step_tok = e->n_prompt_tok,
                                       .seed = e->seed,
                                       .team = e->team};

    return e->file ? model_bench_open(out, e->file, &o)
                   : study_engine_open(out, e->model, &o);
}

static int sample_prompts(struct study_logit_error *e, struct model_bench *b,
                          struct model_phase *phase, float *logits)
{
    const struct sampler_opts draw = {
        .temperature = 1, .top_p = 1, .seed = (int64_t)e->seed};
    int bos = model_config_of(b->model)->bos_id, rc;
    struct sampler *s;

    TRY(sampler_open(&s, &draw, e->vocab, model_kern(b->model)));
    rc = OK;
    for (int i = 0; i < e->n_prompts * e->n_prompt_tok && rc == OK; i++) {
        struct model_chunk chunk = {.kv = &b->steps.kv[0],
                                    .ids = e->ids + i,
                                    .n_tok = 1,
                                    .pos0 = i % e->n_prompt_tok,
                                    .want_logits = true};

        if (chunk.pos0 == 0)
            e->ids[i] = bos > 0 ? bos : 0;
        rc = model_forward(phase, &chunk, 1, logits);
        if (rc == OK && chunk.pos0 + 1 < e->n_prompt_tok)
            e->ids[i + 1] = sampler_sample(s, logits);
        if (rc == OK && chunk.pos0 + 1 < e->n_prompt_tok && e->ids[i + 1] < 0)
            rc = err_set(ERR_STATE, "a logit of the model is not finite");
    }
    sampler_close(&s);
    return rc;
}

static int draw_prompts(struct study_logit_error *e, struct model_bench *b)
{
    struct model_phase *phase;
    struct rng rng;
    int rc;

    if (e->sampled) {
        TRY(study_engine_phase(b, &phase, 1, par_team_size(e->team)));
        rc = sample_prompts(e, b, phase, e->reference);
        model_phase_close(&phase);
        return rc;
    }
    rng_init(&rng, e->seed, "prompts");
    for (int i = 0; i < e->n_prompts * e->n_prompt_tok; i++)
        e->ids[i] = (int32_t)rng_below(&rng, (uint64_t)e->vocab);
    return OK;
}

int study_logit_error_open(struct study_logit_error *e)
{
    struct model_bench b;
    int rc;

    TRY(open_engine(e, &b, KERN_EXACT, KERN_KV_F32));
    e->vocab = model_config_of(b.model)->vocab;
    e->ids =
        mem_new(MEM_HARNESS, (size_t)(e->n_prompts * e->n_prompt_tok), sizeof(*e->ids));
    e->reference =
        mem_new(MEM_HARNESS, (size_t)e->n_prompts * (size_t)e->vocab, sizeof(float));
    rc = draw_prompts(e, &b);
    if (rc == OK)
        rc = compute(e, &b, e->reference);
    model_bench_close(&b);
    return rc;
}

void study_logit_error_close(struct study_logit_error *e)
{
    mem_free(e->ids);
    mem_free(e->reference);
    e->ids = NULL;
    e->reference = NULL;
}

/* ---- the error ---- */

/* The logits of n tokens by an engine, up to a constant, and by the reference. */
struct pairs {
    double *said, *reference; /* [n] */
    int n;
};

static double squared_error(const struct pairs *p)
{
    double mean = 0, sum = 0;

    for (int i = 0; i < p->n; i++)
        mean += (p->said[i] - p->reference[i]) / p->n;
    for (int i = 0; i < p->n; i++) {
        double d = p->said[i] - p->reference[i] - mean;

        sum += d * d;
    }
    return sum / p->n;
}

static double variance(const float *logits, int n)
{
    double mean = 0, sum = 0;

    for (int i = 0; i < n; i++)
        mean += logits[i] / n;
    for (int i = 0; i < n; i++)
        sum += (logits[i] - mean) * (logits[i] - mean);
    return sum / n;
}

const struct study_logit_errors study_logit_unknown = {
    NAN,
    {[0 ... STUDY_LOGIT_PROMPTS_MAX - 1] = NAN},
    {[0 ... STUDY_LOGIT_PROMPTS_MAX - 1] = NAN}};

/* Is the token that the engine takes for most probable such a one of the reference? */
static bool agrees(const struct pairs *p, const float *reference, int vocab)
{
    int best = 0;

    for (int i = 1; i < p->n; i++)
        best = p->said[i] > p->said[best] ? i : best;
    for (int i = 0; i < vocab; i++)
        if ((double)reference[i] > p->reference[best])
            return false;
    return true;
}

/* `take` fills the pairs of one. */
static int errors_of(struct study_logit_error *e,
                     int (*take)(void *ctx, int prompt, struct pairs *p), void *ctx,
                     struct study_logit_errors *out)
{
    struct pairs p = {mem_new(MEM_HARNESS, (size_t)e->vocab, sizeof(double)),
                      mem_new(MEM_HARNESS, (size_t)e->vocab, sizeof(double)), 0};
    double squares = 0, variances = 0;
    int n_left_out = 0, rc = OK;

    *out = study_logit_unknown;
    for (int i = 0; i < e->n_prompts; i++) {
        const float *reference = e->reference + (int64_t)i * e->vocab;
        double square, size;

        rc = take(ctx, i, &p);
        if (rc == ERR_UNSUPPORTED && 2 * ++n_left_out <= e->n_prompts) {
            err_clear();
            rc = OK;
            continue;
        }
        if (rc != OK)
            break;
        square = squared_error(&p);
        size = variance(reference, e->vocab);
        out->prompt[i] = sqrt(square / size);
        out->agrees[i] = agrees(&p, reference, e->vocab);
        squares += square;
        variances += size;
    }
    mem_free(p.said);
    mem_free(p.reference);
    if (rc == OK)
        out->rms = sqrt(squares / variances);
    else
        *out = study_logit_unknown;
    return rc;
}

struct own {
    const struct study_logit_error *e;
    const float *logits; /* [n_prompts, vocab] */
};

static int falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

/* The tokens whose logits by the engine are among the highest. */
static int take_own(void *ctx, int prompt, struct pairs *p)
{
    const struct own *o = ctx;
    int vocab = o->e->vocab, top = vocab < STUDY_LOGIT_TOP ? vocab : STUDY_LOGIT_TOP;
    const float *own = o->logits + (int64_t)prompt * vocab;
    const float *reference = o->e->reference + (int64_t)prompt * vocab;
    float *sorted = mem_new(MEM_HARNESS, (size_t)vocab, sizeof(*sorted));
    float least;

    memcpy(sorted, own, (size_t)vocab * sizeof(*sorted));
    qsort(sorted, (size_t)vocab, sizeof(*sorted), falling);
    least = sorted[top - 1];
    mem_free(sorted);
    p->n = 0;
    for (int i = 0; i < vocab; i++) {
        if (own[i] < least)
            continue;
        p->said[p->n] = own[i];
        p->reference[p->n++] = reference[i];
    }
    return OK;
}

int study_logit_error_own(struct study_logit_error *e, enum kern_precision precision,
                          enum kern_kv_type kv, struct study_logit_errors *out)
{
    struct own own = {.e = e};
    struct model_bench b;
    float *logits;
    int rc;

    *out = study_logit_unknown;
    TRY(open_engine(e, &b, precision, kv));
    logits = mem_new(MEM_HARNESS, (size_t)e->n_prompts * (size_t)e->vocab, sizeof(float));
    rc = compute(e, &b, logits);
    model_bench_close(&b);
    own.logits = logits;
    if (rc == OK)
        rc = errors_of(e, take_own, &own, out);
    mem_free(logits);
    return rc;
}

/* ---- a server ---- */

struct server {
    const struct study_logit_error *e;
    const char *url;
};

static char *request_of(const struct study_logit_error *e, int prompt)
{
    json_t *ids = json_array(), *j;
    char *text;

    for (int i = 0; i < e->n_prompt_tok; i++)
        json_array_append_new(
            ids, json_integer(e->ids[(int64_t)prompt * e->n_prompt_tok + i]));
    j = json_pack("{s:o, s:i, s:i, s:i, s:b}", "prompt", ids, "max_tokens", 1,
                  "temperature", 0, "logprobs",
                  e->vocab < STUDY_LOGIT_TOP ? e->vocab : STUDY_LOGIT_TOP, "stream", 0);
    text = json_text(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

/* The list of {"id", "logprob"} of the answer's token; NULL: there is none. */
static const json_t *list_of(const json_t *answer)
{
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    const json_t *content =
        json_object_get(json_object_get(choice, "logprobs"), "content");

    return json_object_get(json_array_get(content, 0), "top_logprobs");
}

static int take_answer(const struct server *s, int prompt, const json_t *answer,
                       struct pairs *p)
{
    const float *reference = s->e->reference + (int64_t)prompt * s->e->vocab;
    const json_t *list = list_of(answer);

    p->n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const json_t *id = json_object_get(one, "id");
        const json_t *logprob = json_object_get(one, "logprob");

        if (!json_is_integer(id) || !json_is_number(logprob) || p->n == s->e->vocab ||
            json_integer_value(id) < 0 || json_integer_value(id) >= s->e->vocab)
            continue;
        p->said[p->n] = json_number_value(logprob);
        p->reference[p->n++] = reference[json_integer_value(id)];
    }
    return p->n > 1
               ? OK
               : err_set(ERR_UNSUPPORTED,
                         "%s: answers do not name the ids of probable tokens", s->url);
}

static int take_server(void *ctx, int prompt, struct pairs *p)
{
    const struct server *s = ctx;
    const struct sut_http_opts o = {
        .url = s->url, .connect_timeout_s = 5, .timeout_s = ANSWER_S};
    char *body = request_of(s->e, prompt);
    struct text answer = {0};
    json_t *j = NULL;
    long status = 0;
    int rc = sut_http_fetch(&o, "/completions", body, &answer, &status);

    mem_free(body);
    if (rc == OK && status != 200)
        rc = err_set(ERR_UNSUPPORTED,
                     "%s: answered %ld to a request for the "
                     "probabilities of tokens",
                     s->url, status);
    if (rc == OK)
        rc = json_read_text(&j, answer.p, answer.n, s->url);
    if (rc == OK)
        rc = take_answer(s, prompt, j, p);
    json_decref(j);
    text_fini(&answer);
    return rc;
}

int study_logit_error_of(struct study_logit_error *e, const char *url,
                         struct study_logit_errors *out)
{
    struct server s = {e, url};

    return errors_of(e, take_server, &s, out);
}

int study_logit_error_served(struct study_logit_error *e, const char *system,
                             const char *precision, struct study_logit_errors *out)
{
    const struct sut_server_opts o = {.system = system,
                                      .model = e->model,
                                      .ctx_tok = 2 * e->n_prompt_tok,
                                      .slots = 1,
                                      .precision = precision};
    struct sut_server *s;
    int rc;

    *out = study_logit_unknown;
    TRY(sut_server_start(&s, &o));
    rc = study_logit_error_of(e, sut_server_url(s), out);
    sut_server_stop(&s);
    return rc;
}

/* ---- two engines ---- */

double study_logit_error_ratio(const struct study_logit_errors *a,
                               const struct study_logit_errors *b, int n, double *lo,
                               double *hi)
{
    double logs[STUDY_LOGIT_PROMPTS_MAX], mean, half;
    size_t n_both = 0;

    for (int i = 0; i < n; i++) {
        double log_ratio = log(a->prompt[i] / b->prompt[i]);

        if (isfinite(log_ratio))
            logs[n_both++] = log_ratio;
    }
    mean = stats_mean(logs, n_both);
    half = stats_mean_half95(logs, n_both);
    *lo = exp(mean - half);
    *hi = exp(mean + half);
    return exp(mean);
}
