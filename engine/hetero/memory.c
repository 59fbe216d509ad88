#include "hetero/memory.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

static double sum_of(const int *units, const struct hetero_share *layers, int n_layers)
{
    double s = 0;

    for (int j = 0; j < n_layers; j++)
        s += layers[j].layer_s[units[j]];
    return s;
}

/* The change of a layer that saves most time per byte, within `left` bytes. */
struct change {
    double saved_per_byte; /* 0: none saves */
    int to;
};

static struct change best_change(const struct hetero_share *l, int units, int n_units,
                                 int64_t left)
{
    struct change best = {0, 0};

    for (int u = units + 1; u <= n_units && (u - units) * l->unit_bytes <= left; u++) {
        double bytes = (double)((u - units) * l->unit_bytes);
        double saved = (l->layer_s[units] - l->layer_s[u]) / bytes;

        if (saved > best.saved_per_byte)
            best = (struct change){saved, u};
    }
    return best;
}

int hetero_assign_greedy(int *units, double *sum_s, const struct hetero_share *layers,
                         int n_layers, int n_units, int64_t budget_bytes)
{
    struct change *changes = mem_new(MEM_OTHER, (size_t)n_layers, sizeof(*changes));
    int64_t left = budget_bytes;

    if (!changes)
        return ERR_NOMEM;
    memset(units, 0, (size_t)n_layers * sizeof(*units));
    for (int j = 0; j < n_layers; j++)
        changes[j] = best_change(&layers[j], 0, n_units, left);
    for (;;) {
        int at = 0;
        int64_t bytes;

        for (int j = 1; j < n_layers; j++)
            at = changes[j].saved_per_byte > changes[at].saved_per_byte ? j : at;
        if (changes[at].saved_per_byte <= 0)
            break;
        bytes = (changes[at].to - units[at]) * layers[at].unit_bytes;
        if (bytes <= left) {
            left -= bytes;
            units[at] = changes[at].to;
        } /* else it was found when more was left */
        changes[at] = best_change(&layers[at], units[at], n_units, left);
    }
    mem_free(changes);
    *sum_s = sum_of(units, layers, n_layers);
    return OK;
}

int hetero_assign_whole(int *units, double *sum_s, const struct hetero_share *layers,
                        int n_layers, int n_units, int64_t budget_bytes)
{
    int64_t left = budget_bytes;

    for (int j = 0; j < n_layers; j++) {
        int64_t bytes = n_units * layers[j].unit_bytes;
        bool stays = bytes <= left && layers[j].layer_s[n_units] < layers[j].layer_s[0];

        units[j] = stays ? n_units : 0;
        left -= stays ? bytes : 0;
    }
    *sum_s = sum_of(units, layers, n_layers);
    return OK;
}

static int check_units(const struct hetero_share *layers, int n_layers, int64_t *smallest)
{
    *smallest = layers[0].unit_bytes;
    for (int j = 1; j < n_layers; j++)
        *smallest = layers[j].unit_bytes < *smallest ? layers[j].unit_bytes : *smallest;
    for (int j = 0; j < n_layers; j++)
        if (*smallest < 1 || layers[j].unit_bytes % *smallest != 0)
            return err_set(ERR_ARG,
                           "layer %d: units of %lld bytes: expected a multiple of %lld",
                           j, (long long)layers[j].unit_bytes, (long long)*smallest);
    return OK;
}

/* best[c]: the least sum of the layers so far within c cells; choice[j][c]: layer j's units. */
static void add_layer(double *best, uint16_t *choice, const struct hetero_share *l,
                      int n_units, int64_t n_cells, int64_t cells_per_unit)
{
    for (int64_t c = n_cells; c >= 0; c--) {
        double least = INFINITY;

        for (int u = 0; u <= n_units && u * cells_per_unit <= c; u++) {
            double s = best[c - u * cells_per_unit] + l->layer_s[u];

            if (s < least) {
                least = s;
                choice[c] = (uint16_t)u;
            }
        }
        best[c] = least;
    }
}

int hetero_assign_exact(int *units, double *sum_s, const struct hetero_share *layers,
                        int n_layers, int n_units, int64_t budget_bytes)
{
    int64_t cell, most = 0, n_cells, left;
    double *best = NULL;
    uint16_t *choice = NULL;
    int rc = ERR_NOMEM;

    TRY(check_units(layers, n_layers, &cell));
    for (int j = 0; j < n_layers; j++)
        most += layers[j].unit_bytes / cell * n_units;
    n_cells = budget_bytes / cell < most ? budget_bytes / cell : most;
    best = mem_new(MEM_OTHER, (size_t)n_cells + 1, sizeof(*best));
    choice =
        mem_new(MEM_OTHER, ((size_t)n_cells + 1) * (size_t)n_layers, sizeof(*choice));
    if (!best || !choice)
        goto out;
    for (int j = 0; j < n_layers; j++)
        add_layer(best, choice + j * (n_cells + 1), &layers[j], n_units, n_cells,
                  layers[j].unit_bytes / cell);
    *sum_s = best[n_cells];
    left = n_cells;
    for (int j = n_layers - 1; j >= 0; j--) {
        units[j] = choice[j * (n_cells + 1) + left];
        left -= units[j] * (layers[j].unit_bytes / cell);
    }
    rc = OK;
out:
    mem_free(best);
    mem_free(choice);
    return rc;
}
