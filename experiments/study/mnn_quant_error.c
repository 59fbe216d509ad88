/* What rounding the weights costs: a model quantised by one scheme, compared with itself, on text
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
#include "experiments/study/support/engine.h"
#include "experiments/study/support/rows.h"
#include "format/fill.h"
#include "kernels/quant.h"
#include "model/sampler.h"

struct opts {
    char *model, *scheme;
    int precision;
    int64_t n_tok, seed;
};

static const struct opt_row table[] = {
    OPT_ROW(STR, model, NULL,
            "Model file with f32, f16 or bf16 weights, also below $SANDWICH_DATA."),
    OPT_ROW(STR, scheme, "w4c",
            "How the matrices are rounded: q8_0, q4_0, q4_1, q4_k, w4b64, w4b128, w4c or "
            "w8c. none: they are kept as they are."),
    ROW_PRECISION,
    OPT_ROW(INT, n_tok, "256", "Tokens of the text.", .min = 2, .max = 65536),
    OPT_ROW(INT, seed, "1", "Seed of the text."),
    {0},
};

static const struct study_metric metrics[] = {
    {"weight_error", "", "lower",
     "root mean square error of the weights / root mean square of the weights"},
    {"weight_bits", "bit", "lower", "bits of a weight in the file, scales included"},
    {"logit_error", "", "lower",
     "root mean square error of the logits / their root mean square around the mean"},
    {"kl_mean", "nat", "lower", "divergence of the next token's probabilities, mean"},
    {"kl_max", "nat", "lower", "... of the worst token"},
    {"same_top_frac", "", "higher",
     "share of tokens with the same most probable successor"},
    {"perplexity", "", "", "of the text, by the rounded model"},
    {"perplexity_ratio", "", "lower", "perplexity / that of the unrounded model"},
    {"n_plain", "", "", "matrices kept as f32, because their rows are not whole blocks"},
    {0},
};

struct cell {
    const struct opts *o;
    struct study_cell *out;
    struct format_file *file, rounded;
    struct model_bench engine;
    struct model_phase *phase;
    struct sampler *sampler;
    char *bytes; /* of the rounded matrices */
    float *row, *back, *want, *got;
    int32_t *ids;
    double error2, weight2, n_weights, n_bits;
    int n_plain;
};

/* ---- rounding ---- */

/* Quantised rows to `to`, or, where they are not whole blocks, the f32 numbers that blocks
 * would give if the last weight were repeated to the end. */
static int round_tensor(struct cell *f, const struct kern_quant_scheme *s,
                        struct format_tensor *t, char **to)
{
    const struct kern_quant *q = kern_quant_of(s->type);
    const int block = kern_type_block(s->type);
    int64_t whole = (t->cols + block - 1) / block * block;
    bool plain = whole != t->cols;
    const size_t row_bytes = kern_type_size(t->type, t->cols);
    struct format_tensor out = *t;

    out.data = *to;
    out.type = plain ? KERN_F32 : s->type;
    f->n_plain += plain;
    for (int64_t r = 0; r < t->rows; r++) {
        char *blocks = plain ? *to + (size_t)t->cols * sizeof(float) : *to;

        kern_row_to_f32(t->type, f->row, (const char *)t->data + (size_t)r * row_bytes,
                        t->cols);
        for (int64_t i = t->cols; i < whole; i++)
            f->row[i] = f->row[t->cols - 1];
        TRY(kern_quantize(s, blocks, f->row, whole));
        kern_quant_to_f32(q, f->back, blocks, whole);
        for (int64_t i = 0; i < t->cols; i++) {
            double e = (double)f->row[i] - (double)f->back[i];

            f->error2 += e * e;
            f->weight2 += (double)f->row[i] * (double)f->row[i];
        }
        f->n_bits +=
            8 * (double)kern_type_size(s->type, whole) * (double)t->cols / (double)whole;
        if (plain)
            memcpy(*to, f->back, (size_t)t->cols * sizeof(float));
        *to += kern_type_size(out.type, t->cols);
    }
    f->n_weights += (double)(t->rows * t->cols);
    *t = out;
    return OK;
}

/* The i-th matrix of a model; NULL after the last. Vectors are left out. */
static struct format_tensor *matrix_at(struct format_file *f, int i)
{
    const int per_layer = FORMAT_N_ROLES - FORMAT_ATTN_NORM;

    if (i < FORMAT_ATTN_NORM)
        return &f->global[i];
    i -= FORMAT_ATTN_NORM;
    return i < per_layer * f->config.n_layers ? &f->layer[i / per_layer][i % per_layer]
                                              : NULL;
}

static bool is_matrix(const struct format_tensor *t)
{
    return t->data && t->rows > 1;
}

static int round_model(struct cell *f, const struct kern_quant_scheme *s)
{
    size_t all = 0, cols = 0, layers;
    struct format_tensor *t;
    char *to;

    f->rounded = *f->file;
    f->rounded.layer = NULL;
    TRY(format_fill_layers(&f->rounded));
    layers = (size_t)f->file->config.n_layers * sizeof(f->rounded.layer[0]);
    memcpy(f->rounded.layer, f->file->layer, layers);
    for (int i = 0; (t = matrix_at(&f->rounded, i)) != NULL; i++) {
        if (!is_matrix(t))
            continue;
        if (kern_type_quantised(t->type))
            return err_set(ERR_ARG, "%s: expected f32, f16 or bf16 weights, found %s",
                           f->file->path, kern_type_name(t->type));
        /* one row more: blocks that are read back */
        all += (size_t)(t->rows + 1) * (size_t)(t->cols + KERN_QUANT_MAX) * sizeof(float);
        cols = (size_t)t->cols > cols ? (size_t)t->cols : cols;
    }
    f->bytes = mem_new(MEM_OTHER, all, 1);
    f->row = mem_new(MEM_OTHER, cols + KERN_QUANT_MAX, sizeof(float));
    f->back = mem_new(MEM_OTHER, cols + KERN_QUANT_MAX, sizeof(float));
    if (!f->bytes || !f->row || !f->back)
        return ERR_NOMEM;
    to = f->bytes;
    for (int i = 0; s && (t = matrix_at(&f->rounded, i)) != NULL; i++)
        if (is_matrix(t))
            TRY(round_tensor(f, s, t, &to));
    format_fill_types(&f->rounded);
    return OK;
}

/* ---- the text, token by token ---- */

static int open_engine(struct cell *f, const struct format_file *file,
                       const struct opts *o, enum kern_precision precision)
{
    const struct model_phase_opts p = {.n_ranks = 1};
    struct model_phase_opts all = p;

    TRY(model_bench_open(&f->engine, file,
                         &(struct model_bench_opts){.precision = precision,
                                                    .n_seqs = 1,
                                                    .step_tok = 1,
                                                    .max_tok = o->n_tok + 1,
                                                    .seed = (uint64_t)o->seed}));
    all.n_threads = f->engine.budget.n;
    return model_phase_open(&f->phase, f->engine.model, &all);
}

static void close_engine(struct cell *f)
{
    model_phase_close(&f->phase);
    model_bench_close(&f->engine);
}

/* Logits after each token, to out[n_tok][vocab]; with a sampler, of a text that it draws. */
static int read_text(struct cell *f, const struct opts *o, float *out)
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

/* What follows token i. */
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

static int report(const struct cell *f, const struct opts *o, struct study_cell *c)
{
    int64_t vocab = f->file->config.vocab;
    double n = (double)o->n_tok, *kl = mem_new(MEM_OTHER, (size_t)o->n_tok, sizeof(*kl));
    struct totals t = {0};

    if (!kl)
        return ERR_NOMEM;
    for (int64_t i = 0; i < o->n_tok; i++)
        kl[i] =
            add_token(&t, f->want + i * vocab, f->got + i * vocab, vocab, f->ids[i + 1]);

    const struct study_number all[] = {
        {"weight_error", f->weight2 > 0 ? sqrt(f->error2 / f->weight2) : 0},
        {"weight_bits", f->n_weights > 0 ? f->n_bits / f->n_weights : NAN},
        {"logit_error", sqrt(t.error2 / t.spread2)},
        {"kl_mean", t.kl / n},
        {"kl_max", t.kl_max},
        {"same_top_frac", (double)t.same / n},
        {"perplexity", exp(t.nll / n)},
        {"perplexity_ratio", exp((t.nll - t.nll_base) / n)},
        {"n_plain", f->n_plain},
    };

    STUDY_VALUES(c, all, "the weights are not rounded");
    study_series(c, "kl_each", "nat", kl, (size_t)o->n_tok);
    study_engine_report(c, &f->engine);
    mem_free(kl);
    return OK;
}

static int open_file(struct cell *f, const char *model)
{
    char path[600];

    if (!model)
        return err_set(ERR_ARG, "model: expected a model file");
    if (access(home_data(path, sizeof(path), model), R_OK) != 0)
        return err_set(ERR_NOTFOUND, "%s: no such file here or below $SANDWICH_DATA",
                       model);
    return format_open(&f->file, path);
}

static int run(struct cell *f)
{
    const struct opts *o = f->o;
    const struct sampler_opts draw = {.temperature = 1, .top_p = 1, .seed = o->seed};
    const struct kern_quant_scheme *s = NULL;
    size_t n;

    TRY(open_file(f, o->model));
    if (strcmp(o->scheme, "none") != 0)
        TRY(kern_quant_scheme_find(o->scheme, &s));
    n = (size_t)o->n_tok * (size_t)f->file->config.vocab;
    f->want = mem_new(MEM_OTHER, n, sizeof(float));
    f->got = mem_new(MEM_OTHER, n, sizeof(float));
    f->ids = mem_new(MEM_OTHER, (size_t)o->n_tok + 1, sizeof(int32_t));
    if (!f->want || !f->got || !f->ids)
        return ERR_NOMEM;
    TRY(round_model(f, s));
    f->ids[0] = f->file->config.bos_id > 0 ? f->file->config.bos_id : 0;
    TRY(open_engine(f, f->file, o, KERN_EXACT));
    TRY(sampler_open(&f->sampler, &draw, f->file->config.vocab,
                     model_kern(f->engine.model)));
    TRY(read_text(f, o, f->want));
    sampler_close(&f->sampler);
    close_engine(f);
    study_progress(f->out, 0.5, "models");
    TRY(open_engine(f, &f->rounded, o, (enum kern_precision)o->precision));
    TRY(read_text(f, o, f->got));
    return report(f, o, f->out);
}

static void end(struct cell *f)
{
    sampler_close(&f->sampler);
    close_engine(f);
    mem_free(f->rounded.layer);
    mem_free(f->bytes);
    mem_free(f->row);
    mem_free(f->back);
    mem_free(f->want);
    mem_free(f->got);
    mem_free(f->ids);
    format_close(&f->file);
}

STUDY(mnn_quant_error, "what rounding the weights costs: logits, divergence, perplexity");
