/* The file of a learned predictor: its weights, what they were learned from, and a checksum,
 * so that a file that was cut or edited is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "kv/learn_model.h"

/* Another one for every change of the features: weights of others would mean nothing. */
#define VERSION   1
#define MAX_BYTES (1 << 20)
/* Far beyond what ridge regression gives, and small enough that no sum overflows. */
#define WEIGHT_MAX  1e6
#define LONGEST_MAX 20 /* log of 485 million tokens */
#define EXAMPLE_MAX INT64_C(1000000000000)
#define FOLDS_MAX   1000

/* ---- writing ---- */

static json_t *numbers_json(const float *x, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        if (json_array_append_new(list, json_real((double)x[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *classes_json(const struct kv_learned *l)
{
    json_t *list = json_array();

    for (int k = 1; k <= KV_LEARN_CLASSES; k++)
        if (json_array_append_new(
                list, numbers_json(l->weights[k], KV_LEARN_N_FEATURES)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *learned_json(const struct kv_learned *l,
                            const struct kv_learned_from *from)
{
    return json_pack("{s:o, s:o, s:f, s:{s:o, s:o, s:s*, s:I, s:I, s:I}}", "log_length",
                     numbers_json(l->weights[0], KV_LEARN_N_FEATURES), "classes",
                     classes_json(l), "longest_log", (double)l->longest, "from", "format",
                     json_string_lossy(from->format), "tokens",
                     json_string_lossy(from->tokens), "model",
                     *from->model_id ? from->model_id : NULL, "n_examples",
                     (json_int_t)from->n_examples, "fold", (json_int_t)from->fold,
                     "folds", (json_int_t)from->folds);
}

int kv_learned_save(const struct kv_learned *l, const struct kv_learned_from *from,
                    const char *path)
{
    json_t *learned = learned_json(l, from), *root = NULL;
    char sum[17];
    int rc;

    if (learned && json_checksum(learned, sum) == OK)
        root = json_pack("{s:i, s:s, s:O}", "version", VERSION, "checksum", sum,
                         "predictor", learned);
    rc = root ? json_write_file(root, path)
              : err_set(ERR_NOMEM, "%s: no memory for its text", path);
    json_decref(root);
    json_decref(learned);
    return rc;
}

/* ---- reading ---- */

static int read_numbers(float *x, int n, const json_t *list, const char *where)
{
    if (json_array_size(list) != (size_t)n)
        return err_set(ERR_FORMAT, "%s: expected a list of %d numbers, found %zu", where,
                       n, json_array_size(list));
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);

        if (!json_is_number(v) || !(fabs(json_number_value(v)) <= WEIGHT_MAX))
            return err_set(ERR_FORMAT,
                           "%s[%d]: expected a number from -%g to %g, found %s", where, i,
                           WEIGHT_MAX, WEIGHT_MAX,
                           json_is_number(v) ? "one beyond" : "another type");
        x[i] = (float)json_number_value(v);
    }
    return OK;
}

static int read_weights(struct kv_learned *l, const json_t *o, const char *path)
{
    const json_t *list;
    char where[512];

    snprintf(where, sizeof(where), "%s: predictor", path);
    TRY(json_get_arr(o, "log_length", &list, where));
    snprintf(where, sizeof(where), "%s: predictor.log_length", path);
    TRY(read_numbers(l->weights[0], KV_LEARN_N_FEATURES, list, where));
    snprintf(where, sizeof(where), "%s: predictor", path);
    TRY(json_get_arr(o, "classes", &list, where));
    if (json_array_size(list) != KV_LEARN_CLASSES)
        return err_set(ERR_FORMAT, "%s.classes: expected a list of %d, found %zu", where,
                       KV_LEARN_CLASSES, json_array_size(list));
    for (int k = 0; k < KV_LEARN_CLASSES; k++) {
        snprintf(where, sizeof(where), "%s: predictor.classes[%d]", path, k);
        TRY(read_numbers(l->weights[1 + k], KV_LEARN_N_FEATURES,
                         json_array_get(list, (size_t)k), where));
    }
    return OK;
}

static int read_from(struct kv_learned_from *from, const json_t *o, const char *path)
{
    static const char *const keys[] = {"format", "tokens", "n_examples", "fold",
                                       "folds",  "model",  NULL};
    char where[512];

    snprintf(where, sizeof(where), "%s: predictor.from", path);
    TRY(json_check_keys(o, keys, where));
    TRY(json_copy_str(o, "format", from->format, sizeof(from->format), where));
    TRY(json_copy_str(o, "tokens", from->tokens, sizeof(from->tokens), where));
    from->model_id[0] = '\0';
    if (json_object_get(o, "model"))
        TRY(json_copy_str(o, "model", from->model_id, sizeof(from->model_id), where));
    TRY(json_get_int(o, "n_examples", 1, EXAMPLE_MAX, &from->n_examples, where));
    TRY(json_get_int(o, "folds", 1, FOLDS_MAX, &from->folds, where));
    return json_get_int(o, "fold", 0, from->folds, &from->fold, where);
}

static int read_learned(struct kv_learned *l, struct kv_learned_from *from,
                        const json_t *o, const char *path)
{
    static const char *const keys[] = {"log_length", "classes", "longest_log", "from",
                                       NULL};
    const json_t *source;
    double longest;
    char where[512];

    snprintf(where, sizeof(where), "%s: predictor", path);
    TRY(json_check_keys(o, keys, where));
    TRY(read_weights(l, o, path));
    TRY(json_get_f64(o, "longest_log", &longest, where));
    if (!(longest >= 0 && longest <= LONGEST_MAX))
        return err_set(ERR_FORMAT,
                       "%s: longest_log: expected a number from 0 to %d, found %g", where,
                       LONGEST_MAX, longest);
    l->longest = (float)longest;
    TRY(json_get_obj(o, "from", &source, where));
    return read_from(from, source, path);
}

static int check_whole(const json_t *root, const json_t **learned, const char *path)
{
    static const char *const keys[] = {"version", "checksum", "predictor", NULL};
    const char *wanted;
    int64_t version;
    char sum[17];

    if (!json_is_object(root))
        return err_set(ERR_FORMAT, "%s: expected an object", path);
    TRY(json_get_int(root, "version", VERSION, VERSION, &version, path));
    TRY(json_check_keys(root, keys, path));
    TRY(json_get_str(root, "checksum", &wanted, path));
    TRY(json_get_obj(root, "predictor", learned, path));
    TRY(json_checksum(*learned, sum));
    if (strcmp(sum, wanted) != 0)
        return err_set(ERR_FORMAT,
                       "%s: checksum: the file says \"%.16s\", its predictor has %s",
                       path, wanted, sum);
    return OK;
}

int kv_learned_load(struct kv_learned **out, struct kv_learned_from *from,
                    const char *path)
{
    struct kv_learned_from ours;
    struct kv_learned *l = NULL;
    const json_t *learned;
    json_t *root = NULL;
    int rc = json_read_file(&root, path, MAX_BYTES);

    *out = NULL;
    if (rc == OK)
        rc = check_whole(root, &learned, path);
    if (rc == OK && !(l = mem_new(MEM_KV, 1, sizeof(*l))))
        rc = ERR_NOMEM;
    if (rc == OK)
        rc = read_learned(l, from ? from : &ours, learned, path);
    if (rc == OK)
        *out = l, l = NULL;
    kv_learned_close(&l);
    json_decref(root);
    return rc;
}
