/* topo/machine.h - a machine as plain arrays. No other module sees hwloc.
 *
 * From this host, an hwloc XML file (1.x or 2.x format), a synthetic string or an
 * unpacked /sys dump. Only machine.c includes hwloc.h. Paper: Sandwich 5.1 (the
 * fundamental tree is built from this).   Threads: a machine is immutable once open. */
#ifndef TOPO_MACHINE_H
#define TOPO_MACHINE_H

#include <stdint.h>
#include <stddef.h>

#include "base/err.h"

/* Indices into the arrays below, or -1 where the machine does not report that level. */
struct topo_pu {
    int os_index; /* the operating system's CPU number */
    int core;     /* logical index of its physical core */
    int l2, l3;   /* logical index of the caches it shares */
    int cluster;  /* of cores, where the kernel reports clusters of several */
    int node;     /* index into nodes[] of its nearest memory node that has memory */
    int package;
    int kind; /* hybrid machines: efficiency rank, 0 = least powerful; -1 unknown. Cores of
                 one type that differ by no more than 10 % have one rank, and so have those
                 of which only the clocks are known */
};

struct topo_node {
    int os_index;
    int64_t bytes; /* 0: not reported */
    int n_pus;
    char subtype[16]; /* "", "HBM", "DRAM", ... */
};

struct topo_machine {
    char name[96];       /* host name, file stem or the synthetic string */
    char source[16];     /* "host", "xml", "synthetic", "fsroot" */
    struct topo_pu *pus; /* ascending os_index */
    int n_pus;
    struct topo_node *nodes;
    int n_nodes; /* >= 1: a machine without NUMA objects gets one */
    int n_cores, n_l2, n_l3, n_clusters, n_packages;
    int64_t l1d_bytes, l2_bytes, l3_bytes; /* of one cache; 0 unknown */
    char note[192]; /* what was missing or assumed, "" if nothing */
};

/* `spec`: NULL or "host"; a path ending in .xml; "synthetic:node:2 core:4 pu:2";
 * "fsroot:DIR". *out is owned by the caller, topo_machine_close(). A process of its own reads
 * it: hwloc crashes on damaged topologies, and on a host whose /sys is not whole, which its
 * processors then describe. Environment variables for hwloc (HWLOC_XMLFILE, ...) have no effect.
 * ERR_FORMAT: hwloc refused the topology or crashed. */
MUST int topo_machine_open(struct topo_machine **out, const char *spec);
void topo_machine_close(struct topo_machine **m);

/* This host as hwloc 2 XML text, owned by the caller (mem_free). ERR_UNSUPPORTED: the
 * machine is not "host". */
MUST int topo_machine_xml(const struct topo_machine *m, char **xml, size_t *n);

/* The NUMA node (os_index) of a CPU (os_index); -1 if unknown. */
int topo_node_of_cpu(const struct topo_machine *m, int cpu);

/* Where the pages of [p, p + bytes) are: counts[i] = pages resident on nodes[i],
 * counts[n_nodes] = pages not resident or unknown.
 * ERR_UNSUPPORTED where the kernel does not report it. */
MUST int topo_pages_on(const struct topo_machine *m, const void *p, size_t bytes,
                       int64_t *counts);

#endif
