#include "experiments/cli/compare_folders.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int compare_share(double *out, const char *text, const char *flag)
{
    char *end;

    *out = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0)
        *out /= 100, end++;
    if (end == text || *end || !(*out >= 0 && *out < 1))
        return err_set(ERR_ARG,
                       "%s: expected a share from 0%% to 100%%, found \"%s\"; "
                       "example: 5%%",
                       flag, text);
    return OK;
}

int compare_paths_report(struct compare_totals *t, const char *a, const char *b,
                         const char *again, const struct compare_report_opts *o, FILE *f)
{
    struct compare_records x = {0}, y = {0}, z = {0};
    struct compare_report_opts with = *o;
    int rc = compare_read(&x, a);

    if (rc == OK)
        rc = compare_read(&y, b);
    if (rc == OK && again)
        rc = compare_read(&z, again);
    if (rc == OK && again)
        with.aa = &z;
    if (rc == OK)
        rc = compare_report(t, &x, &y, &with, f);
    compare_records_fini(&x);
    compare_records_fini(&y);
    compare_records_fini(&z);
    return rc;
}

void compare_folders_fill(struct compare_folders *f)
{
    snprintf(f->a, sizeof(f->a), "%s/a", f->dir);
    snprintf(f->b, sizeof(f->b), "%s/b", f->dir);
    snprintf(f->aa, sizeof(f->aa), "%s/aa", f->dir);
    snprintf(f->rounds, sizeof(f->rounds), "%s/" COMPARE_ROUNDS_FILE, f->dir);
}

int compare_folders_keep(const struct compare_folders *f, int64_t n, double precision,
                         const char *stopped)
{
    json_t *j =
        json_pack("{s:s s:I s:o s:s}", "rounds", "auto", "n_rounds", (json_int_t)n,
                  "precision_frac", json_number(precision), "stopped", stopped);
    int rc = json_write_file(j, f->rounds);

    json_decref(j);
    return rc;
}
