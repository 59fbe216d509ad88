#include "format/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "format/fill.h"

/* Far above any published model of the family; they keep every product of two of them,
 * and every sum over a model, inside 63 bits. */
#define MAX_DIM    (1 << 17)
#define MAX_HIDDEN (1 << 20)
#define MAX_VOCAB  (1 << 22)
#define MAX_HEADS  (1 << 12)
#define MAX_TOK    (1 << 28)

static int check_size(const char *where, const char *key, int64_t v, int64_t max)
{
    if (v < 1)
        return err_set(ERR_FORMAT, "%s: %s: expected at least 1, found %" PRId64, where,
                       key, v);
    if (v > max)
        return err_set(ERR_LIMIT, "%s: %s: expected at most %" PRId64 ", found %" PRId64,
                       where, key, max, v);
    return OK;
}

static int check_sizes(const struct model_config *c, const char *where)
{
    const struct {
        const char *key;
        int64_t value, max;
    } sizes[] = {
        {"dim", c->dim, MAX_DIM},
        {"n_layers", c->n_layers, MODEL_MAX_LAYERS},
        {"n_heads", c->n_heads, MAX_HEADS},
        {"n_kv_heads", c->n_kv_heads, MAX_HEADS},
        {"head_dim", c->head_dim, MODEL_HEAD_DIM_MAX},
        {"vocab", c->vocab, MAX_VOCAB},
        {"max_tok", c->max_tok, MAX_TOK},
    };
    size_t i;
    int rc = OK;

    for (i = 0; rc == OK && i < sizeof(sizes) / sizeof(sizes[0]); i++)
        rc = check_size(where, sizes[i].key, sizes[i].value, sizes[i].max);
    return rc;
}

static int check_latent(const struct model_config *c, const char *where)
{
    const int dims[] = {c->latent_dim, c->value_dim, c->rope_dims};

    if (c->latent_dim == 0)
        return OK;
    for (int i = 0; i < 3; i++)
        if (dims[i] < 16 || dims[i] % 16 != 0)
            return err_set(
                ERR_UNSUPPORTED,
                "%s: latent attention: expected multiples of 16, found a latent "
                "vector of %d, values of %d and %d rotated elements",
                where, dims[0], dims[1], dims[2]);
    if (c->q_rank < 0)
        return err_set(ERR_FORMAT,
                       "%s: queries of low rank: expected 0 or more, found %d", where,
                       c->q_rank);
    if (c->nope_dim < 1 || c->n_kv_heads != 1 ||
        c->head_dim != c->latent_dim + c->rope_dims || c->qkv_bias || c->qk_norm)
        return err_set(
            ERR_FORMAT,
            "%s: latent attention: expected one key of %d elements and at least "
            "1 that is not rotated, found %d of %d and %d",
            where, c->latent_dim + c->rope_dims, c->n_kv_heads, c->head_dim, c->nope_dim);
    return OK;
}

static int check_dense(const struct model_config *c, const char *where)
{
    if (c->n_dense < 0 || c->n_dense >= c->n_layers)
        return err_set(ERR_FORMAT, "%s: n_dense: expected 0 to %d layers, found %d",
                       where, c->n_layers - 1, c->n_dense);
    return c->n_dense == 0
               ? OK
               : check_size(where, "dense_hidden", c->dense_hidden, MAX_HIDDEN);
}

static int check_groups(const struct model_config *c, const char *where)
{
    if (c->n_groups == 0)
        return OK;
    if (c->n_groups < 0 || c->n_experts % c->n_groups != 0)
        return err_set(ERR_FORMAT,
                       "%s: n_groups: expected a divisor of %d experts, found %d", where,
                       c->n_experts, c->n_groups);
    if (c->n_active_groups < 1 || c->n_active_groups > c->n_groups ||
        c->n_active > c->n_active_groups * (c->n_experts / c->n_groups))
        return err_set(ERR_FORMAT,
                       "%s: n_active_groups: expected 1 to %d groups with at least %d "
                       "experts, found %d",
                       where, c->n_groups, c->n_active, c->n_active_groups);
    return OK;
}

static int check_experts(const struct model_config *c, const char *where)
{
    int rc;

    if (c->n_experts == 0)
        return check_size(where, "hidden", c->hidden, MAX_HIDDEN);
    if ((rc = check_size(where, "n_experts", c->n_experts, MODEL_MAX_EXPERTS)) != OK ||
        (rc = check_size(where, "n_active", c->n_active, c->n_experts)) != OK ||
        (rc = check_size(where, "expert_hidden", c->expert_hidden, MAX_HIDDEN)) != OK ||
        (rc = check_dense(c, where)) != OK || (rc = check_groups(c, where)) != OK)
        return rc;
    return c->hidden == 0 ? OK
                          : check_size(where, "hidden (of the shared expert)", c->hidden,
                                       MAX_HIDDEN);
}

static int check_real(const char *where, const char *key, double v)
{
    return isfinite(v) && v > 0
               ? OK
               : err_set(ERR_FORMAT, "%s: %s: expected a finite number above 0, found %g",
                         where, key, v);
}

static int check_id(const char *where, const char *key, int id, int vocab)
{
    return id >= -1 && id < vocab
               ? OK
               : err_set(ERR_FORMAT, "%s: %s: expected -1 to %d, found %d", where, key,
                         vocab - 1, id);
}

int model_config_check(const struct model_config *c, const char *where)
{
    int i, rc = check_sizes(c, where);

    if (rc == OK)
        rc = check_experts(c, where);
    if (rc == OK)
        rc = check_latent(c, where);
    if (rc != OK)
        return rc;
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(ERR_FORMAT,
                       "%s: n_kv_heads: expected a divisor of %d heads, found %d", where,
                       c->n_heads, c->n_kv_heads);
    if (c->n_heads / c->n_kv_heads > KERN_ATTN_ROWS_MAX)
        return err_set(ERR_LIMIT,
                       "%s: n_kv_heads: expected at most %d heads to share one, "
                       "found %d",
                       where, KERN_ATTN_ROWS_MAX, c->n_heads / c->n_kv_heads);
    if (c->head_dim % 2 != 0)
        return err_set(ERR_FORMAT, "%s: head_dim: expected an even number, found %d",
                       where, c->head_dim);
    if ((rc = check_real(where, "norm_eps", (double)c->norm_eps)) != OK ||
        (rc = check_real(where, "rope_theta", (double)c->rope_theta)) != OK ||
        (rc = check_id(where, "bos_id", c->bos_id, c->vocab)) != OK ||
        (rc = check_id(where, "eos_id", c->eos_id, c->vocab)) != OK)
        return rc;
    for (i = 0; rc == OK && i < FORMAT_N_NUMBERS; i++)
        if (*format_number_of(c, i) != 0)
            rc = check_real(where, format_numbers[i].gguf,
                            (double)*format_number_of(c, i));
    for (i = 0; rc == OK && i < c->n_stop; i++)
        rc = check_id(where, "stop_ids", c->stop_ids[i], c->vocab);
    if (rc == OK && (c->rope_dims < 0 || c->rope_dims > c->head_dim || c->rope_dims % 2))
        return err_set(
            ERR_FORMAT,
            "%s: rope_dims: expected an even number up to head_dim %d, found %d", where,
            c->head_dim, c->rope_dims);
    if (rc == OK && c->rope_ntk != 0 && (!(c->rope_ntk >= 1) || model_rope_dims(c) < 4))
        return err_set(
            ERR_FORMAT,
            "%s: dynamic scaling: expected a factor of at least 1 and at least 4 "
            "rotated elements, found %g and %d",
            where, (double)c->rope_ntk, model_rope_dims(c));
    for (i = 0; rc == OK && c->rope_short_tok > 0 && i < model_rope_dims(c) / 2; i++)
        rc = check_real(where, "rope_long", (double)c->rope_long[i]);
    for (i = 0; rc == OK && i < model_rope_dims(c) / 2; i++)
        rc = check_real(where, "rope_factor", (double)c->rope_factor[i]);
    return rc;
}

/* Wavelengths above original / low are slowed down by `factor`, those below original /
 * high are kept, and in between the two frequencies are mixed linearly. */
void model_config_rope_llama3(struct model_config *c, double factor,
                              double low_freq_factor, double high_freq_factor,
                              double original_max_tok)
{
    double turns, mix;
    int i;

    for (i = 0; i < model_rope_dims(c) / 2; i++) {
        /* how often the slowest original context turns this pair */
        turns = original_max_tok *
                pow((double)c->rope_theta, -2.0 * i / model_rope_dims(c)) / (2 * M_PI);
        mix = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
        mix = fmin(fmax(mix, 0), 1);
        c->rope_factor[i] = (float)(1 / ((1 - mix) / factor + mix));
    }
}

/* The number of the pair that turns so often within the original context. */
static double pair_that_turns(const struct model_config *c, double turns, double original)
{
    return model_rope_dims(c) * log(original / (turns * 2 * M_PI)) /
           (2 * log((double)c->rope_theta));
}

void model_config_rope_yarn(struct model_config *c, double factor, double beta_fast,
                            double beta_slow, double original_max_tok, bool whole)
{
    double low = pair_that_turns(c, beta_fast, original_max_tok);
    double high = pair_that_turns(c, beta_slow, original_max_tok), share;

    low = fmax(whole ? floor(low) : low, 0);
    high = fmin(whole ? ceil(high) : high, model_rope_dims(c) - 1);
    for (int i = 0; i < model_rope_dims(c) / 2; i++) {
        share = fmin(fmax((i - low) / fmax(high - low, 1e-3), 0), 1);
        c->rope_factor[i] = (float)(1 / (share / factor + 1 - share));
    }
}

double model_config_yarn_length(double factor, double mscale)
{
    return factor > 1 ? 1 + 0.1 * mscale * log(factor) : 1;
}

double model_config_rope_theta(const struct model_config *c, int64_t max_tok)
{
    const double f = (double)c->rope_ntk, n = model_rope_dims(c);

    if (f == 0 || max_tok <= c->rope_short_tok)
        return (double)c->rope_theta;
    return (double)c->rope_theta *
           pow(f * (double)max_tok / c->rope_short_tok - (f - 1), n / (n - 2));
}

void model_config_flag(struct model_config *c, unsigned flags, int n)
{
    for (int i = n - 1; n > 0 && i < MODEL_MAX_LAYERS; i += n)
        c->layer_flags[i] |= (uint8_t)flags;
}

int model_config_stop(struct model_config *c, int64_t id, const char *where)
{
    if (id < 0 || id >= c->vocab)
        return OK;
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop_ids[i] == id)
            return OK;
    if (c->n_stop == MODEL_STOP_MAX)
        return err_set(ERR_LIMIT,
                       "%s: expected at most %d tokens that end a text, found "
                       "more",
                       where, MODEL_STOP_MAX);
    c->stop_ids[c->n_stop++] = (int)id;
    return OK;
}

void model_config_window(struct model_config *c, int window, int every, bool flagged)
{
    const uint8_t flag = MODEL_LAYER_WINDOW;

    c->window = window > 0 && window < c->max_tok ? window : 0;
    if (!flagged)
        model_config_flag(c, flag, 1);
    if (!flagged && every > 0)
        for (int i = every - 1; i < MODEL_MAX_LAYERS; i += every)
            c->layer_flags[i] &= (uint8_t)~flag;
    for (int i = 0; i < MODEL_MAX_LAYERS; i++)
        if ((c->window == 0 && c->rope_local_theta == 0) || i >= c->n_layers)
            c->layer_flags[i] &= (uint8_t)~flag;
}

void model_config_latent(struct model_config *c, double yarn_factor, double mscale)
{
    double length = yarn_factor > 1 ? model_config_yarn_length(yarn_factor, mscale) : 1;

    c->head_dim = c->latent_dim + c->rope_dims;
    c->n_kv_heads = 1;
    c->attn_scale = (float)(length * length / sqrt((double)model_q_dim(c)));
}

int64_t model_config_n_vector_params(const struct model_config *c, int layer)
{
    int64_t n = 0, rows, cols;

    for (int role = FORMAT_ATTN_NORM; role < FORMAT_N_ROLES; role++) {
        double centre;

        format_role_shape(c, (enum format_role)role, &rows, &cols);
        if (format_role_needed(c, (enum format_role)role, layer) &&
            format_role_vector((enum format_role)role, &centre))
            n += cols;
    }
    if (c->expert_bias && model_has_experts(c, layer))
        n += (int64_t)c->n_experts * (2 * c->expert_hidden + c->dim);
    return n;
}

int64_t model_n_params(const struct model_config *c)
{
    int64_t dim = c->dim, heads = c->n_heads, o = heads * model_o_dim(c);
    int64_t q = heads * model_q_dim(c);
    int64_t qkv =
        (c->q_rank > 0 ? c->q_rank : q) +
        (c->latent_dim > 0 ? c->head_dim : 2 * (int64_t)c->n_kv_heads * c->head_dim);
    int64_t latent = heads * c->latent_dim * (c->nope_dim + c->value_dim) + c->q_rank * q;
    int64_t inputs = 1 + model_mlp_inputs(c);
    int64_t n = (c->tied ? 1 : 2) * c->vocab * dim + (1 + c->norm_bias) * dim;

    for (int i = 0; i < c->n_layers; i++) {
        int64_t hidden =
            model_has_experts(c, i)
                ? 3 * ((int64_t)c->n_experts * c->expert_hidden + c->hidden) +
                      model_router_rows(c)
                : inputs * model_mlp_hidden(c);

        n += dim * (qkv + o + hidden) + latent + model_config_n_vector_params(c, i);
    }
    return n;
}
