#include "cluster/card.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/home.h"
#include "base/json.h"

#define CARD_BYTES_MAX (1 << 16)

struct row {
    const char *key;
    size_t offset;
    double min, max;
};
#define ROW(key, min, max)                                                               \
    {                                                                                    \
#key, offsetof(struct cluster_card, key), min, max                               \
    }

static const struct row rows[] = {
    ROW(cost_per_hour_usd, 1e-6, 1e6), ROW(power, 1e-6, 1e6),
    ROW(memory_gib, 1e-3, 1e7),        ROW(link_gbps, 1e-6, 1e6),
    ROW(link_alpha_ms, 0, 1e6),        ROW(prompt_time_factor, 1e-3, 1e3),
    ROW(token_time_factor, 1e-3, 1e3),
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const char *const keys[] = {"about",
                                   "hardware",
                                   "printed",
                                   "cost_per_hour_usd",
                                   "power",
                                   "memory_gib",
                                   "link_gbps",
                                   "link_alpha_ms",
                                   "prompt_time_factor",
                                   "token_time_factor",
                                   "sources",
                                   "assumed",
                                   "note",
                                   NULL};

static int read_members(struct cluster_card *c, const json_t *j, const char *path)
{
    const json_t *sources;

    TRY(json_check_keys(j, keys, path));
    TRY(json_get_arr(j, "sources", &sources, path));
    TRY(json_copy_str(j, "hardware", c->hardware, sizeof(c->hardware), path));
    TRY(json_copy_str(j, "printed", c->printed, sizeof(c->printed), path));
    for (int i = 0; i < N_ROWS; i++) {
        double v;

        TRY(json_get_f64(j, rows[i].key, &v, path));
        if (!(v >= rows[i].min && v <= rows[i].max))
            return err_set(ERR_FORMAT, "%s: %s: expected a number in [%g, %g], found %g",
                           path, rows[i].key, rows[i].min, rows[i].max, v);
        memcpy((char *)c + rows[i].offset, &v, sizeof(v));
    }
    return OK;
}

int cluster_card_read(struct cluster_card *out, const char *name)
{
    char in_folder[128], path[512];
    json_t *j = NULL;
    int rc;

    *out = (struct cluster_card){0};
    snprintf(out->name, sizeof(out->name), "%s", name);
    if (strchr(name, '/')) {
        snprintf(path, sizeof(path), "%s", name);
    } else {
        snprintf(in_folder, sizeof(in_folder), CLUSTER_MACHINES_DIR "/%.64s.json", name);
        home_find(path, sizeof(path), in_folder);
    }
    rc = json_read_file(&j, path, CARD_BYTES_MAX);
    if (rc == OK)
        rc = read_members(out, j, path);
    json_decref(j);
    return rc;
}
