/* The cost of rounding the weights: a model quantised by one scheme, compared with itself, on text
 * that the model itself has drawn.
 *
 * The text is sampled from the logits of the unrounded model, so that no data set is needed and
 * the comparison has a meaning for any weights: the mean of KL(model || rounded model) over the
 * tokens, and how much the perplexity of the text grows.
 * Paper: MNN-LLM, Sec. II (Table I measures what this does to answers). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/mem.h"
#include "datasets/dataset.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/options.h"
#include "experiments/study/support/rounded.h"
#include "model/sampler.h"

#define OPTIONS(X)                                                                       \
    X(STR, model, NULL,                                                                  \
      "Model file with f32, f16 or bf16 weights, also below $SANDWICH_DATA.")            \
    X(STR, scheme, "w4c",                                                                \
      "How the matrices are rounded: q8_0, q4_0, q4_1, q4_k, w4b64, w4b128, w4c or "     \
      "w8c. none: they are kept as they are.")                                           \
    OPTION_PRECISION(X)                                                                  \
    X(INT, n_tok, "256", "Tokens of the text.", .min = 2, .max = 65536)                  \
    X(INT, seed, "1", "Seed of the text.")

#define RESULTS(X)                                                                       \
    X(weight_error, "", LOWER,                                                           \
      "root mean square error of the weights / root mean square of the weights")         \
    X(weight_bits, "bit", LOWER, "bits of a weight in the file, scales included")        \
    X(logit_error, "", LOWER,                                                            \
      "root mean square error of the logits / their root mean square around the mean")   \
    X(kl_mean, "nat", LOWER, "divergence of the next token's probabilities, mean")       \
    X(kl_max, "nat", LOWER, "... of the worst token")                                    \
    X(same_top_frac, "", HIGHER,                                                         \
      "share of tokens with the same most probable successor")                           \
    X(perplexity, "", 0, "of the text, by the rounded model")                            \
    X(perplexity_ratio, "", LOWER, "perplexity / that of the unrounded model")           \
    X(n_plain, "", 0, "matrices kept as f32, because their rows are not whole blocks")

FRAME_TYPES;

struct mnn_quant_error {
    FRAME_CELL;
    struct format_file *file;
    struct study_rounded rounded;
    struct model_bench engine;
    struct model_phase *phase;
    struct sampler *sampler;
    float *want, *got;
    int32_t *ids;
};

/* ---- the text, token by token ---- */

static int mnn_quant_error_open_engine(struct mnn_quant_error *c,
                                       const struct format_file *file,
                                       const struct opts *o,
                                       enum kern_precision precision)
{
    const struct model_phase_opts p = {.n_ranks = 1};
    struct model_phase_opts all = p;

    TRY(model_bench_open(&c->engine, file,
                         &(struct model_bench_opts){.precision = precision,
                                                    .n_seqs = 1,
                                                    .step_tok = 1,
                                                    .max_tok = o->n_tok + 1,
                                                    .seed = (uint64_t)o->seed}));
    all.n_threads = c->engine.budget.n;
    return model_phase_open(&c->phase, c->engine.model, &all);
}

static void close_engine(struct mnn_quant_error *c)
{
    model_phase_close(&c->phase);
    model_bench_close(&c->engine);
}

/* Logits after each token, to out[n_tok][vocab]; with a sampler, of a text that it draws. */
static int read_text(struct mnn_quant_error *f, const struct opts *o, float *out)
{
    int64_t vocab = f->file->config.vocab;

    for (int64_t i = 0; i < o->n_tok; i++, out += vocab) {
        const struct model_chunk c = {.kv = &f->engine.steps.kv[0],
                                      .ids = f->ids + i,
                                      .n_tok = 1,
                                      .pos0 = i,
                                      .want_logits = true};

        TRY(model_forward(f->phase, &c, 1, out));
        if (f->sampler)
            f->ids[i + 1] = sampler_sample(f->sampler, out);
        if (f->ids[i + 1] < 0)
            return err_set(ERR_STATE, "%s: a logit is not finite", f->file->path);
    }
    return OK;
}

/* ---- comparing ---- */

/* The logarithm of the sum of exp(x). */
static double log_sum(const float *x, int64_t n)
{
    double most = -INFINITY, sum = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, (double)x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum);
}

struct totals {
    double error2, spread2, kl, kl_max, nll, nll_base;
    int64_t same;
};

/* Adds the token that follows token i. */
static double add_token(struct totals *t, const float *a, const float *b, int64_t vocab,
                        int32_t next)
{
    double za = log_sum(a, vocab), zb = log_sum(b, vocab), mean = 0, shift = 0, kl = 0;
    int64_t top_a = 0, top_b = 0;

    for (int64_t i = 0; i < vocab; i++) {
        mean += (double)a[i] / (double)vocab;
        shift += ((double)b[i] - (double)a[i]) / (double)vocab;
    }
    for (int64_t i = 0; i < vocab; i++) {
        double pa = (double)a[i] - za, pb = (double)b[i] - zb;
        double e = (double)b[i] - (double)a[i] - shift, d = (double)a[i] - mean;

        kl += exp(pa) * (pa - pb);
        t->error2 += e * e; /* adding a constant to all logits changes nothing */
        t->spread2 += d * d;
        top_a = a[i] > a[top_a] ? i : top_a;
        top_b = b[i] > b[top_b] ? i : top_b;
    }
    kl = kl > 0 ? kl : 0; /* rounding of the sums */
    t->kl += kl;
    t->kl_max = fmax(t->kl_max, kl);
    t->nll_base += za - (double)a[next];
    t->nll += zb - (double)b[next];
    t->same += top_a == top_b;
    return kl;
}

static int mnn_quant_error_report(const struct mnn_quant_error *c, const struct opts *o,
                                  struct study_cell *out)
{
    int64_t vocab = c->file->config.vocab;
    const struct study_rounded *w = &c->rounded;
    double n = (double)o->n_tok, *kl = mem_new(MEM_OTHER, (size_t)o->n_tok, sizeof(*kl));
    struct totals t = {0};

    if (!kl)
        return ERR_NOMEM;
    for (int64_t i = 0; i < o->n_tok; i++)
        kl[i] =
            add_token(&t, c->want + i * vocab, c->got + i * vocab, vocab, c->ids[i + 1]);

    c->r->weight_error = w->weight2 > 0 ? sqrt(w->error2 / w->weight2) : 0;
    c->r->weight_bits = w->n_weights > 0 ? w->n_bits / w->n_weights : NAN;
    c->r->logit_error = sqrt(t.error2 / t.spread2);
    c->r->kl_mean = t.kl / n;
    c->r->kl_max = t.kl_max;
    c->r->same_top_frac = (double)t.same / n;
    c->r->perplexity = exp(t.nll / n);
    c->r->perplexity_ratio = exp((t.nll - t.nll_base) / n);
    c->r->n_plain = w->n_plain;
    frame_why(c->f, NULL, "the weights are not rounded");
    study_series(out, "kl_each", "nat", kl, (size_t)o->n_tok);
    study_engine_report(out, &c->engine);
    mem_free(kl);
    return OK;
}

static int open_file(struct mnn_quant_error *c, const char *model)
{
    char path[600];

    if (!model)
        return err_set(ERR_ARG, "model: expected a model file");
    if (access(home_data(path, sizeof(path), model), R_OK) != 0)
        return dataset_absent(model);
    return format_open(&c->file, path);
}

static void mnn_quant_error_close(struct mnn_quant_error *c)
{
    sampler_close(&c->sampler);
    close_engine(c);
    study_rounded_close(&c->rounded);
    mem_free(c->want);
    mem_free(c->got);
    mem_free(c->ids);
    format_close(&c->file);
}

static int mnn_quant_error_run(struct mnn_quant_error *c)
{
    const struct opts *o = c->o;
    const struct sampler_opts draw = {.temperature = 1, .top_p = 1, .seed = o->seed};
    bool kept = strcmp(o->scheme, "none") == 0;
    size_t n;

    FRAME_CLOSE(c->f, mnn_quant_error_close, c);
    TRY(open_file(c, o->model));
    n = (size_t)o->n_tok * (size_t)c->file->config.vocab;
    c->want = mem_new(MEM_OTHER, n, sizeof(float));
    c->got = mem_new(MEM_OTHER, n, sizeof(float));
    c->ids = mem_new(MEM_OTHER, (size_t)o->n_tok + 1, sizeof(int32_t));
    if (!c->want || !c->got || !c->ids)
        return ERR_NOMEM;
    TRY(study_round(&c->rounded, c->file, kept ? "f32" : o->scheme));
    c->ids[0] = c->file->config.bos_id > 0 ? c->file->config.bos_id : 0;
    TRY(mnn_quant_error_open_engine(c, c->file, o, KERN_EXACT));
    TRY(sampler_open(&c->sampler, &draw, c->file->config.vocab,
                     model_kern(c->engine.model)));
    TRY(read_text(c, o, c->want));
    sampler_close(&c->sampler);
    close_engine(c);
    study_progress(c->out, 0.5, "models");
    TRY(mnn_quant_error_open_engine(c, &c->rounded.file, o,
                                    (enum kern_precision)o->precision));
    TRY(read_text(c, o, c->got));
    return mnn_quant_error_report(c, o, c->out);
}

STUDY(mnn_quant_error, "what rounding the weights costs: logits, divergence, perplexity");
