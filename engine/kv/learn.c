#include "kv/learn_model.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/ridge.h"

/* Most prompts begin with the word for what they ask. */
#define TEXT_BYTES 4096
#define N_EXAMPLES 16
#define N_TARGETS  (1 + KV_LEARN_CLASSES) /* log length, then the classes */
/* The feature that is always 1. */
#define CONSTANT KV_LEARN_N_HASHED

/* How much weights are shrunk towards 0, so predictions towards the mean: from hardly to nearly all
 * the way. Data sets differ by that much in how well their texts predict lengths. */
static const double lambdas[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1};
#define N_LAMBDAS ((int)(sizeof(lambdas) / sizeof(lambdas[0])))

/* Words that a request can begin with; the last type is any other word. */
static const char *const types[KV_LEARN_N_TYPES] = {
    "what",      "why",      "how",      "who",       "when",   "where",
    "which",     "is",       "can",      "write",     "create", "generate",
    "explain",   "describe", "list",     "give",      "name",   "summarize",
    "translate", "rewrite",  "classify", "calculate", "compare"};

/* --- features */

/* FNV-1a: features are part of what was learned, so they must be the same in every process,
 * unlike those of base/hash.h. */
static uint32_t hash_word(uint32_t h, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)tolower((unsigned char)word[i])) * 16777619u;
    return h;
}

static void add_hashed(float *x, uint32_t h)
{
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 12;
    x[h % KV_LEARN_N_HASHED] +=
        h >> 31 ? 1 : -1; /* signs let words that share a feature cancel */
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

static int type_of(const char *word, size_t n)
{
    int i = 0;

    while (i < KV_LEARN_N_TYPES - 1 &&
           !(strlen(types[i]) == n && strncasecmp(types[i], word, n) == 0))
        i++;
    return i;
}

/* Words and pairs of words, of length 1 together; the first word's type. */
static void add_words(float *x, float *type, const char *text, size_t n)
{
    uint32_t before = 0;
    float squares = 0;

    for (size_t i = 0; i < n;) {
        size_t from = i;
        uint32_t h;

        while (i < n && is_word(text[i]))
            i++;
        if (i == from) {
            i++;
            continue;
        }
        h = hash_word(2166136261u, text + from, i - from);
        if (before == 0)
            type[type_of(text + from, i - from)] = 1;
        else
            add_hashed(x, hash_word(before, text + from, i - from));
        add_hashed(x, h);
        before = h;
    }
    for (int k = 0; k < KV_LEARN_N_HASHED; k++)
        squares += x[k] * x[k];
    for (int k = 0; k < KV_LEARN_N_HASHED && squares > 0; k++)
        x[k] /= sqrtf(squares);
}

static float share_of(int64_t n, size_t all)
{
    return all ? (float)n / (float)all : 0;
}

static void make_features(float x[KV_LEARN_N_FEATURES], const struct kv_example *e)
{
    size_t n = e->text_bytes < TEXT_BYTES ? e->text_bytes : TEXT_BYTES;
    int64_t lines = 0, digits = 0, code = 0, questions = 0, high = 0;
    float *shape = x + KV_LEARN_N_HASHED;

    memset(x, 0, KV_LEARN_N_FEATURES * sizeof(*x));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)e->text[i];

        lines += c == '\n';
        digits += isdigit(c) != 0;
        code += c == '{' || c == '}' || c == ';' || c == '=' || c == '<';
        questions += c == '?';
        high += c >= 0x80;
    }
    shape[0] = 1;
    shape[1] = logf(1 + (float)e->prompt_tok) / 8; /* about as large as the others */
    shape[2] = shape[1] * shape[1];
    shape[3] = logf(1 + (float)lines) / 8;
    shape[4] = share_of(digits, n);
    shape[5] = share_of(code, n);
    shape[6] = questions > 0;
    shape[7] = share_of(high, n);
    add_words(x, shape + KV_LEARN_N_SHAPE, e->text, n);
}

/* --- training */

static float dot(const float *w, const float *x)
{
    float sum = 0;

    for (int i = 0; i < KV_LEARN_N_FEATURES; i++)
        sum += w[i] * x[i];
    return sum;
}

static int by_length(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static float log_length(int64_t n_tok)
{
    return logf(n_tok > 1 ? (float)n_tok : 1);
}

/* The classes' upper bounds: every class has equally many outputs. */
static int class_bounds(float bounds[KV_LEARN_CLASSES], const struct kv_example *examples,
                        int64_t n)
{
    float *sorted = mem_new(MEM_KV, (size_t)n, sizeof(*sorted));

    if (!sorted)
        return ERR_NOMEM;
    for (int64_t i = 0; i < n; i++)
        sorted[i] = log_length(examples[i].output_tok);
    qsort(sorted, (size_t)n, sizeof(*sorted), by_length);
    for (int k = 0; k < KV_LEARN_CLASSES; k++)
        bounds[k] = sorted[n * (k + 1) / KV_LEARN_CLASSES - 1];
    mem_free(sorted);
    return OK;
}

/* The targets are differences from the means, so that shrinking leads to these. */
struct targets {
    float bounds[KV_LEARN_CLASSES];
    float mean[N_TARGETS];
};

static void make_target(float y[N_TARGETS], const struct kv_example *e,
                        const struct targets *t)
{
    int k = 0;

    memset(y, 0, N_TARGETS * sizeof(*y));
    y[0] = log_length(e->output_tok);
    while (k < KV_LEARN_CLASSES - 1 && y[0] > t->bounds[k])
        k++;
    y[1 + k] = 1;
    for (int i = 0; i < N_TARGETS; i++)
        y[i] -= t->mean[i];
}

static int make_targets(struct targets *t, const struct kv_example *examples, int64_t n)
{
    double sum[N_TARGETS] = {0};
    float y[N_TARGETS];

    TRY(class_bounds(t->bounds, examples, n));
    for (int64_t i = 0; i < n; i++) {
        make_target(y, &examples[i], t);
        for (int k = 0; k < N_TARGETS; k++)
            sum[k] += y[k];
    }
    for (int k = 0; k < N_TARGETS; k++)
        t->mean[k] = (float)(sum[k] / (double)n);
    return OK;
}

static void make_example(double x[KV_LEARN_N_FEATURES], double y[N_TARGETS],
                         const struct kv_example *e, const struct targets *t)
{
    float features[KV_LEARN_N_FEATURES], target[N_TARGETS];

    make_features(features, e);
    make_target(target, e, t);
    for (int i = 0; i < KV_LEARN_N_FEATURES; i++)
        x[i] = features[i];
    for (int k = 0; k < N_TARGETS; k++)
        y[k] = target[k];
}

static void add(struct stats_ridge *r, const struct kv_example *e, int64_t n,
                const struct targets *t)
{
    double x[KV_LEARN_N_FEATURES], y[N_TARGETS];

    for (int64_t i = 0; i < n; i++) {
        make_example(x, y, &e[i], t);
        stats_ridge_add(r, x, y);
    }
}

/* Sum of the errors of the logarithm. */
static double error_of(const struct stats_ridge *r, const struct kv_example *e, int64_t n,
                       const struct targets *t)
{
    double x[KV_LEARN_N_FEATURES], y[N_TARGETS], sum = 0;

    for (int64_t i = 0; i < n; i++) {
        make_example(x, y, &e[i], t);
        sum += fabs(stats_ridge_predict(r, x) - y[0]);
    }
    return sum;
}

/* The lambda that predicts the last fifth of the examples best from those before, which
 * are those of r. */
static int choose_lambda(double *lambda, struct stats_ridge *r,
                         const struct kv_example *e, int64_t n, const struct targets *t)
{
    double least = INFINITY;

    for (int i = 0; i < N_LAMBDAS; i++) {
        double error;

        TRY(stats_ridge_solve(r, lambdas[i] * (double)r->n));
        error = error_of(r, e, n, t);
        if (error < least) {
            least = error;
            *lambda = lambdas[i];
        }
    }
    return OK;
}

static int train(struct kv_learned *l, struct stats_ridge *r,
                 const struct kv_example *examples, int64_t n)
{
    int64_t first = n - n / 5;
    struct targets t = {0};
    double lambda = 0;

    TRY(stats_ridge_init(r, KV_LEARN_N_FEATURES, N_TARGETS));
    TRY(make_targets(&t, examples, n));
    add(r, examples, first, &t);
    TRY(choose_lambda(&lambda, r, examples + first, n - first, &t));
    add(r, examples + first, n - first, &t);
    TRY(stats_ridge_solve(r, lambda * (double)r->n));
    for (int k = 0; k < N_TARGETS; k++) {
        for (int i = 0; i < KV_LEARN_N_FEATURES; i++)
            l->weights[k][i] = (float)r->weights[k * KV_LEARN_N_FEATURES + i];
        l->weights[k][CONSTANT] += t.mean[k];
    }
    l->longest = t.bounds[KV_LEARN_CLASSES - 1];
    return OK;
}

int kv_learn(struct kv_learned **out, const struct kv_example *examples, int64_t n)
{
    struct kv_learned *l;
    struct stats_ridge r;
    int rc;

    *out = NULL;
    if (n < N_EXAMPLES)
        return err_set(ERR_ARG, "learned: %lld examples: expected at least %d",
                       (long long)n, N_EXAMPLES);
    l = mem_new(MEM_KV, 1, sizeof(*l));
    if (!l)
        return ERR_NOMEM;
    rc = train(l, &r, examples, n);
    stats_ridge_fini(&r);
    if (rc == OK)
        *out = l;
    else
        kv_learned_close(&l);
    return rc;
}

void kv_learned_close(struct kv_learned **l)
{
    mem_free(*l);
    *l = NULL;
}

/* --- predicting */

void kv_learned_predict(const struct kv_learned *l, const struct kv_example *request,
                        struct kv_prediction *out)
{
    float x[KV_LEARN_N_FEATURES], p[KV_LEARN_CLASSES], sum = 0, entropy = 0, length;

    make_features(x, request);
    length = fminf(dot(l->weights[0], x), l->longest); /* no longer than was ever seen */
    for (int k = 0; k < KV_LEARN_CLASSES; k++) {
        p[k] = fmaxf(dot(l->weights[1 + k], x),
                     0.01f); /* scores are probabilities, nearly */
        sum += p[k];
    }
    for (int k = 0; k < KV_LEARN_CLASSES; k++)
        entropy -= p[k] / sum * logf(p[k] / sum);
    out->gen_tok = expf(fmaxf(length, 0));
    out->uncertainty = fminf(entropy / logf(KV_LEARN_CLASSES), 1);
}
