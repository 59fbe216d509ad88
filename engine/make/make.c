/* Plans and writes a made model: its values, its tensors, its files. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_tmp.h"
#include "base/mem.h"
#include "format/fill.h"
#include "format/write.h"
#include "make/parts.h"

/* ---- seeded values ----
 *
 * A 16-bit piece of a hash of the position chooses one of the 65536 quantiles of the normal
 * distribution. One hash serves four weights, so writing the file, not making the numbers,
 * takes the time. All arithmetic that decides a byte is on integers or is a single correctly
 * rounded operation: no library function, no order of sums, no fused multiply. */

#define N_HALF 32768
#define N_ALL  65536

/* Cells of 2^-12 for integrating the density; a cell's mass is the last one's times a
 * ratio that itself shrinks by exp(-2^-24) a cell. Scaled by 2^63. */
#define FIRST_MASS  898338145985973ull     /* 2^63 2^-12 / sqrt(2 pi) exp(-2^-27) */
#define RATIO_DECAY 9223371487098978303ull /* 2^63 exp(-2^-24) */

/* Distinct fan-ins of a model's matrices: dim, heads x head_dim, hidden, that of an expert. */
#define TABLES_MAX 6

struct random {
    uint64_t seed;
    /* 1 is added to norms by who reads a folder, and in files of the other format by us. */
    bool plus_one, less_one;
    enum kern_type type;
    int32_t
        *quantile; /* [32768] positive half of the normal distribution, units of 2^-24 */
    struct {
        int64_t fan_in;
        void *value;         /* [65536] of `type`: every value a weight can have */
    } table[TABLES_MAX + 1]; /* the last has no value */
};

static uint64_t mul63(uint64_t a, uint64_t b)
{
    return (uint64_t)(((unsigned __int128)a * b) >> 63);
}

/* quantile[i] = the z for which the mass of [0, z] is (i + 1/2) / 65536. */
static void fill_quantiles(int32_t *quantile)
{
    uint64_t mass = FIRST_MASS, ratio = RATIO_DECAY, below = 0, target, cell = 0;
    int i;

    for (i = 0; i < N_HALF; i++) {
        target = (2 * (uint64_t)i + 1) << (63 - 17);
        while (below + mass <= target) {
            below += mass;
            mass = mul63(mass, ratio);
            ratio = mul63(ratio, RATIO_DECAY);
            cell++;
        }
        quantile[i] = (int32_t)((cell << 12) + ((target - below) << 12) / mass);
    }
}

static uint16_t to_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); /* finite: no NaN to keep */
}

/* Round to nearest even; |x| is far below the largest f16. */
static uint16_t to_f16(float x)
{
    uint32_t u, sign, shift, half;

    memcpy(&u, &x, sizeof(u));
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u < 0x33000000) /* at most 2^-25: half of the smallest */
        return (uint16_t)sign;
    if (u >= 0x38800000) /* 2^-14: normal */
        return (uint16_t)(sign | ((u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13));
    shift = 126 - (u >> 23); /* subnormal: units of 2^-24 */
    u = (u & 0x7fffff) | 0x800000;
    half = u >> shift;
    u &= (1u << shift) - 1;
    if (u > 1u << (shift - 1) || (u == 1u << (shift - 1) && (half & 1)))
        half++;
    return (uint16_t)(sign | half);
}

static int32_t signed_quantile(const struct random *r, uint32_t i)
{
    return i < N_HALF ? r->quantile[i] : -r->quantile[i - N_HALF];
}

static int add_table(struct random *r, int64_t fan_in)
{
    double unit = 1 / sqrt((double)fan_in) / (1 << 24);
    float x;
    uint32_t i;
    int t;

    if (fan_in == 0)
        return OK;
    for (t = 0; r->table[t].value; t++)
        if (r->table[t].fan_in == fan_in)
            return OK;
    r->table[t].fan_in = fan_in;
    r->table[t].value = mem_new(MEM_MODEL_FILE, N_ALL, kern_type_bytes(r->type));
    if (!r->table[t].value)
        return ERR_NOMEM;
    for (i = 0; i < N_ALL; i++) {
        x = (float)((double)signed_quantile(r, i) * unit);
        if (r->type == KERN_F32)
            ((float *)r->table[t].value)[i] = x;
        else
            ((uint16_t *)r->table[t].value)[i] =
                r->type == KERN_BF16 ? to_bf16(x) : to_f16(x);
    }
    return OK;
}

static void random_fini(struct random *r)
{
    int t;

    for (t = 0; t < TABLES_MAX; t++)
        mem_free(r->table[t].value);
    mem_free(r->quantile);
    *r = (struct random){0};
}

static int random_init(struct random *r, const struct model_config *c,
                       enum kern_type type, uint64_t seed)
{
    int rc;

    *r = (struct random){.seed = seed, .type = type};
    r->quantile = mem_new(MEM_MODEL_FILE, N_HALF, sizeof(r->quantile[0]));
    if (!r->quantile)
        return ERR_NOMEM;
    fill_quantiles(r->quantile);
    if ((rc = add_table(r, c->dim)) != OK ||
        (rc = add_table(r, (int64_t)c->n_heads * model_o_dim(c))) != OK ||
        (rc = add_table(r, c->latent_dim)) != OK ||
        (rc = add_table(r, c->q_rank)) != OK || (rc = add_table(r, c->hidden)) != OK ||
        (rc = add_table(r, c->expert_hidden)) != OK ||
        (rc = add_table(r, c->dense_hidden)) != OK)
        random_fini(r);
    return rc;
}

/* The finaliser of splitmix64: every bit of x moves every bit of the result. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
#define GOLDEN 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio: splitmix64's step */

/* Each layer has 15 keys, as many as there were roles when the first models were made, so
 * that the weights of a seed stay the same. Later roles use keys of the next layer that
 * belong to roles outside of layers, which it does not use itself. The roles of mixtures of
 * experts have keys of their own, far from these, and so has the bias of the output, which came
 * after them. */
static uint64_t row_key(uint64_t seed, enum format_role role, int layer, int expert,
                        int64_t row)
{
    /* Roles behind the bias of the output came after those of experts. */
    const uint64_t n_later = FORMAT_N_ROLES - FORMAT_ATTN_AFTER;
    const uint64_t bias = FORMAT_OUT_NORM_BIAS; /* of the last norm: later, too */
    uint64_t number = role >= FORMAT_EXPERT_GATE_BIAS
                          ? 96 + (uint64_t)role - FORMAT_EXPERT_GATE_BIAS
                      : role < bias                ? role
                      : role == bias               ? 64
                      : role < FORMAT_O_BIAS       ? role - 1
                      : role >= FORMAT_EXPERT_GATE ? role - n_later - 2
                      : role == FORMAT_O_BIAS      ? FORMAT_EXPERT_GATE_BIAS - n_later - 2
                                                   : 64 + (uint64_t)role - FORMAT_O_BIAS;
    uint64_t n = (uint64_t)layer * 15 + number + 1, tensor;

    if (role >= FORMAT_ROUTER)
        n = 1u << 20 | ((uint64_t)layer * MODEL_MAX_EXPERTS + (uint64_t)expert) << 32 |
            number;
    tensor = mix(seed + GOLDEN * n);

    return mix(tensor + GOLDEN * (uint64_t)(row + 1));
}

static void vector_row(const struct random *r, uint64_t key, double centre, int64_t n,
                       float *out)
{
    int64_t j, z;

    /* centre + z / 10, with the sum on integers */
    for (j = 0; j < n; j++) {
        z = signed_quantile(r, (uint32_t)(mix(key + GOLDEN * (uint64_t)(j + 1)) >> 48));
        out[j] =
            (float)((double)((int64_t)centre * 10 * (1 << 24) + z) / (10.0 * (1 << 24)));
    }
}

#define MATRIX_ROW(name, type)                                                           \
    static void name(const type *table, uint64_t key, int64_t n, type *out)              \
    {                                                                                    \
        uint64_t h;                                                                      \
        int64_t j;                                                                       \
                                                                                         \
        for (j = 0; j + 4 <= n; j += 4) {                                                \
            h = mix(key += GOLDEN);                                                      \
            out[j] = table[h & 0xffff];                                                  \
            out[j + 1] = table[h >> 16 & 0xffff];                                        \
            out[j + 2] = table[h >> 32 & 0xffff];                                        \
            out[j + 3] = table[h >> 48];                                                 \
        }                                                                                \
        for (h = mix(key + GOLDEN); j < n; j++, h >>= 16)                                \
            out[j] = table[h & 0xffff];                                                  \
    }
MATRIX_ROW(matrix_row_32, float)
MATRIX_ROW(matrix_row_16, uint16_t)

/* One row of a matrix (r->type) or a vector (f32). Depends on nothing but seed, role,
 * layer, row and column, so that threads may take rows in any order. */
static void fill_row(const struct random *r, const struct make_tensor *x, int64_t row,
                     void *out)
{
    int64_t of_one = x->n_experts > 0 ? x->rows / x->n_experts : x->rows;
    int expert = x->expert + (int)(row / of_one);
    uint64_t key = row_key(r->seed, x->role, x->layer, expert, row % of_one);
    int64_t n = x->cols;
    double centre;
    int t = 0;

    if (format_role_vector(x->role, &centre) || x->role == FORMAT_OUT_NORM ||
        x->role == FORMAT_OUT_NORM_BIAS || x->role == FORMAT_SHARED_SCALE) {
        centre = x->role == FORMAT_OUT_NORM ? 1 : centre;
        vector_row(r, key, r->plus_one && centre == 1 ? 0 : centre, n, out);
        for (int64_t i = 0; r->plus_one && centre == 1 && !r->less_one && i < n; i++)
            ((float *)out)[i] += 1;
        return;
    }
    while (r->table[t].fan_in != n) /* a matrix has as many columns as inputs */
        t++;
    if (r->type == KERN_F32)
        matrix_row_32(r->table[t].value, key, n, out);
    else
        matrix_row_16(r->table[t].value, key, n, out);
}

#define PATH_BYTES 600

struct making {
    const struct make_plan *plan;
    const struct random *random;
};

/* The generator's rows are in half-split order; where rotary pairs are interleaved, row
 * 2i + j of a head is row i + j head_dim / 2 of the model. So both formats hold the same
 * model. */
static int64_t model_row(const struct make_plan *p, const struct make_tensor *t,
                         int64_t row)
{
    int64_t d = p->config.head_dim, in_head = row % d, r = model_rope_dims(&p->config);

    if (!p->interleave || in_head >= r || p->config.latent_dim > 0 || /* in both, there */
        (t->role != FORMAT_Q && t->role != FORMAT_K && t->role != FORMAT_Q_BIAS &&
         t->role != FORMAT_K_BIAS))
        return row;
    return row - in_head + in_head / 2 + in_head % 2 * (r / 2);
}

/* The role that has row `row` of a tensor: the tensor as it would be without others; *row:
 * there. Of biases, a number. */
static struct make_tensor part_of(const struct make_plan *p, const struct make_tensor *t,
                                  int64_t *row)
{
    struct make_tensor out = *t;
    enum model_naming fused = (enum model_naming)p->family->fused;
    int64_t first, all, rows, cols;

    if (!format_role_slice(&p->config, fused, t->role, &first, &all))
        return out;
    for (int k = 2; k >= 0; k--) {
        enum format_role role = t->role + (enum format_role)k;

        if (!format_role_slice(&p->config, fused, role, &first, &all) || first > *row)
            continue;
        format_role_shape(&p->config, role, &rows, &cols);
        *row -= first;
        out.role = role;
        *(t->rows == 1 ? &out.cols : &out.rows) = t->rows == 1 ? cols : rows;
        break;
    }
    return out;
}

static struct format_write_tensor tensor_at(const void *ctx, int i)
{
    const struct make_tensor *t = &((const struct making *)ctx)->plan->tensor[i];

    return (struct format_write_tensor){t->rows, t->bytes, t->at};
}

static void fill_vector(const struct making *k, const struct make_tensor *t, char *out,
                        float *scratch)
{
    for (int64_t c = 0; c < t->cols;) {
        int64_t at = c;
        const struct make_tensor part = part_of(k->plan, t, &at);

        fill_row(k->random, &part, 0, scratch);
        for (at = 0; at < part.cols; at++, c++)
            memcpy(out + (size_t)c * sizeof(float),
                   scratch + model_row(k->plan, &part, at), sizeof(float));
    }
}

static int make_rows(const void *ctx, int i, int64_t row, int64_t n, char *out,
                     void *scratch)
{
    const struct making *k = ctx;
    const struct make_plan *p = k->plan;
    const struct make_tensor *t = &p->tensor[i];
    size_t row_bytes = t->bytes / (uint64_t)t->rows;

    for (int64_t r = row; r < row + n; r++, out += row_bytes) {
        int64_t at = r;
        const struct make_tensor part = part_of(p, t, &at);

        if (t->role >= FORMAT_EXPERT_GATE_BIAS) /* of an expert */
            fill_row(k->random, t, r, out);
        else if (t->given)
            memcpy(out, t->given, row_bytes);
        else if (t->rows == 1) /* a bias has an element for each row of its matrix */
            fill_vector(k, t, out, scratch);
        else if (t->type == p->plain_type)
            fill_row(k->random, &part, model_row(p, &part, at), out);
        else {
            fill_row(k->random, &part, model_row(p, &part, at), scratch);
            if (t->role == FORMAT_ROUTER)
                kern_row_to_f32(p->plain_type, (float *)out, scratch, t->cols);
            else
                TRY(kern_quantize(kern_quant_scheme_for_row(p->opts->scheme, t->cols),
                                  out, scratch, t->cols));
        }
    }
    return OK;
}

/* Write the planned file, open for writing and empty. */
static int write_file(const struct make_plan *p, int fd, const char *path)
{
    struct random random = {0};
    const struct making k = {p, &random};
    const struct format_writer w = {.head = &p->head,
                                    .data_bytes = p->data_bytes,
                                    .n_tensors = p->n_tensors,
                                    .n_threads = p->opts->n_threads,
                                    .tensor = tensor_at,
                                    .rows = make_rows,
                                    .scratch_bytes = p->cols_max * sizeof(float),
                                    .ctx = &k,
                                    .progress = p->opts->progress,
                                    .progress_ctx = p->opts->progress_ctx};
    int rc;

    TRY(random_init(&random, &p->config, p->plain_type, p->opts->seed));
    random.plus_one = p->family->gemma;
    random.less_one = !p->stacked;
    rc = format_write(&w, fd, path);
    random_fini(&random);
    return rc;
}

/* Type and bytes of a tensor whose shape is known. */
static int plan_type(struct make_plan *p, struct make_tensor *t)
{
    const struct kern_quant_scheme *s = p->opts->scheme;
    char name[MODEL_NAME_BYTES];

    if (s)
        s = kern_quant_scheme_for_row(s, t->cols);
    /* vectors stay exact, as is usual, and in GGUF files routers */
    if (t->role == FORMAT_KV_B) /* is read by columns, too */
        t->type = p->plain_type;
    else if (t->rows == 1 || t->role >= FORMAT_EXPERT_GATE_BIAS ||
             (t->role == FORMAT_ROUTER && p->stacked))
        t->type = KERN_F32;
    else
        t->type = s ? s->type : p->plain_type;
    if (t->cols % kern_type_block(t->type) != 0) {
        format_role_name(MODEL_NAMES_GGUF, t->role, t->layer, t->expert, name);
        return err_set(ERR_UNSUPPORTED,
                       "model make: tensor %s: expected rows of a multiple of %d weights "
                       "for %s, found %lld",
                       name, kern_type_block(t->type), s->name, (long long)t->cols);
    }
    t->bytes = (uint64_t)t->rows * kern_type_size(t->type, t->cols);
    if ((size_t)t->cols > p->cols_max)
        p->cols_max = (size_t)t->cols;
    return OK;
}

/* Another tensor with the rows of n_experts experts; 0: it is not of experts. */
static int plan_tensor(struct make_plan *p, enum format_role role, int layer, int expert,
                       int n_experts)
{
    struct make_tensor *t = &p->tensor[p->n_tensors];
    int64_t first, all;
    bool fused = format_role_slice(&p->config, (enum model_naming)p->family->fused, role,
                                   &first, &all);

    bool written = role == FORMAT_K_B || role == FORMAT_V_B ? false
                   : role == FORMAT_KV_B                    ? p->config.latent_dim > 0
                                         : format_role_needed(&p->config, role, layer);

    if (!written || (fused && first > 0))
        return OK;
    p->n_tensors++;
    *t = (struct make_tensor){
        .role = role, .layer = layer, .expert = expert, .n_experts = n_experts};
    format_role_shape(&p->config, role, &t->rows, &t->cols);
    if (fused)
        *(t->rows == 1 ? &t->cols : &t->rows) = all;
    if (n_experts > 0)
        t->rows *= n_experts;
    if (!p->stacked)
        t->n_experts = 0;
    return plan_type(p, t);
}

static int plan_layer(struct make_plan *p, int layer)
{
    int all = p->config.n_experts, step = p->stacked ? all : 1;

    for (int role = FORMAT_ATTN_NORM; role < FORMAT_N_ROLES; role++)
        TRY(plan_tensor(p, (enum format_role)role, layer, 0, 0));
    for (int role = FORMAT_EXPERT_GATE; role < FORMAT_ALL_ROLES; role++)
        for (int e = 0; e < all; e += step)
            TRY(plan_tensor(p, (enum format_role)role, layer, e, step));
    return OK;
}

/* The tensors in the order of their use: embedding, layers, final norm, head. */
static int plan_tensors(struct make_plan *p)
{
    const struct model_config *c = &p->config;
    int per_layer = FORMAT_N_ROLES - FORMAT_ATTN_NORM +
                    FORMAT_N_EXPERT_ROLES * (p->stacked ? 1 : c->n_experts);

    /* two more for what a format adds */
    p->tensor =
        mem_new(MEM_MODEL_FILE, (size_t)(FORMAT_ATTN_NORM + c->n_layers * per_layer + 2),
                sizeof(p->tensor[0]));
    if (!p->tensor)
        return ERR_NOMEM;
    TRY(plan_tensor(p, FORMAT_EMBED, 0, 0, 0));
    for (int i = 0; i < c->n_layers; i++)
        TRY(plan_layer(p, i));
    TRY(plan_tensor(p, FORMAT_OUT_NORM, 0, 0, 0));
    TRY(plan_tensor(p, FORMAT_OUT_NORM_BIAS, 0, 0, 0));
    return plan_tensor(p, FORMAT_HEAD, 0, 0, 0);
}

static int make_gguf(struct make_plan *p, struct file_tmp *tmp)
{
    int rc = file_check_target(p->opts->out, p->opts->tokenizer);

    if (rc == OK)
        rc = make_gguf_head(p);
    if (rc == OK)
        rc = file_tmp_open(tmp, p->opts->out);
    return rc == OK ? write_file(p, tmp->fd, tmp->path) : rc;
}

static int write_safetensors(const struct make_plan *p, const char *path)
{
    int rc, fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return err_set(ERR_IO, "%s: cannot create: %m", path);
    rc = write_file(p, fd, path);
    if (rc == OK && fdatasync(fd) != 0)
        rc = err_set(ERR_IO, "%s: cannot write to disk: %m", path);
    close(fd);
    return rc;
}

static int make_safetensors(struct make_plan *p, struct file_tmp *tmp)
{
    char path[PATH_BYTES + 64];
    int rc;

    if (rmdir(p->opts->out) != 0 && errno != ENOENT)
        return err_set(ERR_IO, "%s: expected no such file, or an empty directory: %m",
                       p->opts->out);
    if ((rc = make_safetensors_head(p)) != OK ||
        (rc = file_tmp_open_dir(tmp, p->opts->out)) != OK ||
        (rc = make_hf_files(p, tmp->path)) != OK)
        return rc;
    snprintf(path, sizeof(path), "%s/model.safetensors", tmp->path);
    return write_safetensors(p, path);
}

static int check_opts(const struct make_opts *o, bool *gguf)
{
    *gguf = strcmp(o->format, "gguf") == 0;
    if (!*gguf && strcmp(o->format, "safetensors") != 0)
        return err_set(ERR_ARG,
                       "model make: format: expected gguf or safetensors, found %.40s",
                       o->format);
    if ((int)o->type < 0 || o->type >= KERN_N_PLAIN_TYPES)
        return err_set(ERR_ARG, "model make: type: expected f32, f16 or bf16, found %d",
                       (int)o->type);
    if (o->scheme && !*gguf)
        return err_set(ERR_UNSUPPORTED,
                       "model make: type: expected f32, f16 or bf16 for safetensors, "
                       "found %s",
                       o->scheme->name);
    if (o->tokenizer && (strstr(o->tokenizer, ".json") != NULL) == *gguf)
        return err_set(
            ERR_UNSUPPORTED,
            "model make: tokenizer: expected a %s for a %s model, found %.200s",
            *gguf ? ".gguf file" : "tokenizer.json", o->format, o->tokenizer);
    return OK;
}

int make_model(const struct make_opts *o)
{
    struct make_plan p = {.opts = o, .plain_type = o->scheme ? KERN_F32 : o->type};
    struct file_tmp tmp = {.fd = -1};
    bool gguf;
    int rc;

    if ((rc = check_opts(o, &gguf)) != OK || (rc = make_shape(o->arch, &p.shape)) != OK ||
        (rc = make_config(o->arch, &p.config)) != OK)
        return rc;
    if (strlen(o->out) > PATH_BYTES - 60)
        return err_set(ERR_LIMIT, "%.60s...: path: expected at most %d bytes, found %zu",
                       o->out, PATH_BYTES - 60, strlen(o->out));
    p.family = format_family_of_class(p.shape->hf_class);
    if (!gguf && p.family->gguf_only)
        return err_set(ERR_UNSUPPORTED,
                       "model make: format: expected gguf for %s, found safetensors: %s",
                       o->arch, p.family->gguf_only);
    p.dense_hidden = p.config.n_experts == 0     ? p.config.hidden
                     : p.shape->dense_hidden > 0 ? p.shape->dense_hidden
                                                 : p.config.expert_hidden;
    p.stacked = gguf;
    if ((rc = plan_tensors(&p)) == OK)
        rc = gguf ? make_gguf(&p, &tmp) : make_safetensors(&p, &tmp);
    if (rc == OK)
        rc = file_tmp_publish(&tmp, o->out);
    file_tmp_close(&tmp);
    mem_free(p.tensor);
    text_fini(&p.head);
    return rc;
}
