#include "topo/topotree.h"

#include <stdio.h>
#include <string.h>

static const struct {
    int kind;
    const char *name;
} kind_names[] = {
    {TOPO_MACHINE, "machine"}, {TOPO_PACKAGE, "package"}, {TOPO_NODE, "node"},
    {TOPO_L3, "L3"},           {TOPO_CLUSTER, "cluster"}, {TOPO_L2, "L2"},
    {TOPO_GROUP, "group"},     {TOPO_CORE, "core"},       {TOPO_PU, "PU"},
};
#define N_KINDS (sizeof(kind_names) / sizeof(kind_names[0]))

void topo_kinds_print(int kinds, char *out, size_t n)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t k = 0; k < N_KINDS; k++)
        if ((kinds & kind_names[k].kind) && at < n) {
            snprintf(out + at, n - at, "%s%s", at ? "+" : "", kind_names[k].name);
            at = strlen(out);
        }
}
