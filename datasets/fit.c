#include "datasets/fit.h"

#include <limits.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "datasets/build.h"

#define FIT_MAX_BYTES ((size_t)1 << 20)
#define MAX_FITS      64

/* Numbers of a list, each in [low, high] and none below the one before. */
MUST static int read_rising(const json_t *obj, const char *key, double low, double high,
                            double *out, int *n, const char *where)
{
    const json_t *list;
    int rc = json_get_arr(obj, key, &list, where);

    if (rc != OK)
        return rc;
    if (json_array_size(list) < 2 || json_array_size(list) > DATASET_FIT_POINTS)
        return err_set(ERR_FORMAT, "%s: %s: expected 2 to %d numbers, found %zu", where,
                       key, DATASET_FIT_POINTS, json_array_size(list));
    *n = (int)json_array_size(list);
    for (int i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);

        if (!json_is_number(v))
            return err_set(ERR_FORMAT, "%s: %s[%d]: expected a number", where, key, i);
        out[i] = json_number_value(v);
        if (!(out[i] >= low && out[i] <= high) || (i > 0 && out[i] < out[i - 1]))
            return err_set(ERR_FORMAT,
                           "%s: %s[%d]: expected a number in [%g, %g], not below the one "
                           "before, found %g",
                           where, key, i, low, high, out[i]);
    }
    return OK;
}

MUST static int read_lengths(struct dataset_fit *f, const json_t *j)
{
    int n_prompt, n_output, rc;

    rc = read_rising(j, "quantile_at", 0, 1, f->at, &f->n_points, f->path);
    if (rc == OK)
        rc = read_rising(j, "prompt_tok", 1, DATASET_MAX_TOK, f->prompt_tok, &n_prompt,
                         f->path);
    if (rc == OK)
        rc = read_rising(j, "output_tok", 1, DATASET_MAX_TOK, f->output_tok, &n_output,
                         f->path);
    if (rc != OK)
        return rc;
    if (f->at[0] != 0 || f->at[f->n_points - 1] != 1)
        return err_set(ERR_FORMAT, "%s: quantile_at: expected 0 first and 1 last",
                       f->path);
    for (int i = 1; i < f->n_points; i++)
        if (f->at[i] == f->at[i - 1])
            return err_set(ERR_FORMAT, "%s: quantile_at[%d]: expected more than %g",
                           f->path, i, f->at[i]);
    if (n_prompt != f->n_points || n_output != f->n_points)
        return err_set(
            ERR_FORMAT,
            "%s: expected as many prompt_tok and output_tok as quantile_at (%d), "
            "found %d and %d",
            f->path, f->n_points, n_prompt, n_output);
    return OK;
}

MUST static int read_arrival(struct dataset_fit *f, const json_t *j)
{
    const json_t *a;
    int rc;

    if (!json_object_get(j, "arrival"))
        return OK;
    rc = json_get_obj(j, "arrival", &a, f->path);
    if (rc == OK)
        rc = json_get_f64(a, "rate_per_s", &f->rate_per_s, f->path);
    if (rc == OK)
        rc = json_get_f64(a, "gap_cv", &f->gap_cv, f->path);
    if (rc == OK && !(f->rate_per_s > 0 && f->gap_cv > 0))
        return err_set(
            ERR_FORMAT,
            "%s: arrival: expected rate_per_s > 0 and gap_cv > 0, found %g and %g",
            f->path, f->rate_per_s, f->gap_cv);
    return rc;
}

MUST static int read_fit(struct dataset_fit *f, const char *file)
{
    const char *name;
    json_t *j = NULL;
    int rc;

    rc = json_read_file(&j, file, FIT_MAX_BYTES);
    if (rc != OK)
        goto out;
    rc = json_get_str(j, "name", &name, f->path);
    if (rc != OK)
        goto out;
    snprintf(f->name, sizeof(f->name), "%s", name);
    rc = read_lengths(f, j);
    if (rc != OK)
        goto out;
    rc = json_get_f64(j, "spearman", &f->spearman, f->path);
    if (rc != OK)
        goto out;
    if (!(f->spearman >= -1 && f->spearman <= 1)) {
        rc = err_set(ERR_FORMAT, "%s: spearman: expected a number in [-1, 1], found %g",
                     f->path, f->spearman);
        goto out;
    }
    f->pearson = 2 * sin(M_PI / 6 * f->spearman);
    rc = read_arrival(f, j);
out:
    json_decref(j);
    return rc;
}

/* The error for a name without a file: names the nearest fit, or the folder that is
 * missing. */
MUST static int no_such_fit(const char *name)
{
    char words[MAX_FITS][64];
    const char *list[MAX_FITS + 1] = {NULL};
    struct dirent *e;
    char where[PATH_MAX];
    DIR *dir = opendir(home_find(where, sizeof(where), DATASET_FITS_DIR));
    int n = 0;

    if (!dir)
        return err_set(ERR_NOTFOUND,
                       "dataset.fit: \"%s\": no folder %s, neither near this program nor "
                       "here; set " HOME_ENV ", or give the path of a fit",
                       name, where);
    while (n < MAX_FITS && (e = readdir(dir))) {
        size_t len = strlen(e->d_name);

        if (len <= 5 || len >= sizeof(words[0]) ||
            strcmp(e->d_name + len - 5, ".json") != 0)
            continue;
        memcpy(words[n], e->d_name, len - 5);
        words[n][len - 5] = '\0';
        list[n] = words[n];
        n++;
    }
    closedir(dir);
    return name_not_in(name, list, "dataset.fit: no fit \"%s\" in %s", name,
                       DATASET_FITS_DIR);
}

int dataset_fit_open(struct dataset_fit **out, const char *name)
{
    size_t len = strlen(name);
    int is_path = strchr(name, '/') || (len > 5 && strcmp(name + len - 5, ".json") == 0);
    char where[PATH_MAX];
    struct dataset_fit *f;
    int n, rc;

    *out = NULL;
    f = mem_new(MEM_DATASET, 1, sizeof(*f));
    if (!f)
        return ERR_NOMEM;
    n = is_path
            ? snprintf(f->path, sizeof(f->path), "%s", name)
            : snprintf(f->path, sizeof(f->path), "%s/%s.json", DATASET_FITS_DIR, name);
    if (n >= (int)sizeof(f->path)) {
        rc = err_set(ERR_LIMIT, "dataset.fit: expected a path below %zu bytes, found %d",
                     sizeof(f->path), n);
        goto out;
    }
    snprintf(where, sizeof(where), "%s", f->path);
    if (!is_path)
        home_find(where, sizeof(where), f->path);
    if (!is_path && access(where, F_OK) != 0) {
        rc = no_such_fit(name);
        goto out;
    }
    rc = read_fit(f, where);
    if (rc != OK)
        goto out;
    *out = f, f = NULL;
out:
    dataset_fit_close(&f);
    return rc;
}

void dataset_fit_close(struct dataset_fit **f)
{
    mem_free(*f);
    *f = NULL;
}

double dataset_fit_quantile(const struct dataset_fit *f, const double *marginal, double p)
{
    double t, low, high;
    int i = 1;

    while (i < f->n_points - 1 && f->at[i] < p)
        i++;
    t = (p - f->at[i - 1]) / (f->at[i] - f->at[i - 1]);
    low = log(marginal[i - 1]);
    high = log(marginal[i]);
    return exp(low + t * (high - low));
}

static double normal_to_p(double z)
{
    return 0.5 * erfc(-z / sqrt(2));
}

void dataset_fit_draw(const struct dataset_fit *f, struct rng *r, int64_t *n_prompt,
                      int64_t *n_output)
{
    double z1 = rng_normal(r);
    double z2 = f->pearson * z1 + sqrt(1 - f->pearson * f->pearson) * rng_normal(r);

    *n_prompt = llround(dataset_fit_quantile(f, f->prompt_tok, normal_to_p(z1)));
    *n_output = llround(dataset_fit_quantile(f, f->output_tok, normal_to_p(z2)));
}

double dataset_fit_gap_s(const struct dataset_fit *f, struct rng *r)
{
    double shape = 1 / (f->gap_cv * f->gap_cv);

    return rng_gamma(r, shape) / (shape * f->rate_per_s);
}
