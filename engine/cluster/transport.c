#include "cluster/transport.h"

#include "base/name.h"

int cluster_transport_find(const char *name, const struct cluster_transport **out)
{
    *out = name_find(cluster_transports, name, "transport");
    return *out ? OK : ERR_NOTFOUND;
}

uint64_t cluster_limiter_due_ns(struct cluster_limiter *l, uint64_t ready_ns,
                                size_t bytes)
{
    uint64_t start_ns = ready_ns > l->free_ns ? ready_ns : l->free_ns;

    if (l->bytes_per_s > 0)
        start_ns += (uint64_t)((double)bytes / l->bytes_per_s * 1e9);
    l->free_ns = start_ns;
    return start_ns + (uint64_t)l->latency_ns;
}
