#include "topo/machine_read.h"

#include <hwloc.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "topo/machine_text.h"

/* Kinds of CPU that are distinguished; the most seen so far are five. */
#define KINDS_MAX 64
/* Cores of one type are of one kind up to this ratio of their capacities: a chip's best
 * cores clock a little higher, and leaving the others out would cost more than it gains. */
#define KIND_RATIO 1.1

struct machine {
    struct topo_machine *pub;
    hwloc_topology_t hw;
    struct hwloc_distances_s *distances; /* between memory nodes; NULL: not reported */
    int kind_rank[KINDS_MAX];            /* of hwloc's kind of CPU */
};

/* ---- from hwloc's objects to arrays ---- */

static int logical(hwloc_obj_t pu, hwloc_topology_t hw, hwloc_obj_type_t type)
{
    hwloc_obj_t o = hwloc_get_ancestor_obj_by_type(hw, type, pu);

    return o ? (int)o->logical_index : -1;
}

static int count_of(hwloc_topology_t hw, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(hw, type);

    return n < 0 ? 0 : n;
}

static bool is_fast_memory(const char *subtype)
{
    return strcmp(subtype, "HBM") == 0 || strcmp(subtype, "MCDRAM") == 0;
}

static hwloc_obj_t node_at(const struct machine *m, int i)
{
    return hwloc_get_obj_by_type(m->hw, HWLOC_OBJ_NUMANODE, (unsigned)i);
}

/* A node of 0 bytes is without memory where others report theirs. */
static bool has_memory(const struct machine *m, int node)
{
    bool reported = false;

    for (int i = 0; i < m->pub->n_nodes; i++)
        reported |= m->pub->nodes[i].bytes > 0;
    return !reported || m->pub->nodes[node].bytes > 0;
}

/* Among the nodes of a set of CPUs the one of the smallest set wins, and DRAM before high-bandwidth
 * memory next to it: the kernel puts pages there by default. -1: there is none, with memory if that
 * is wanted. */
static int local_node(const struct machine *m, hwloc_const_bitmap_t cpus, bool memory)
{
    int best = -1, best_pus = INT_MAX;
    bool best_fast = true;

    for (int i = 0; i < m->pub->n_nodes; i++) {
        hwloc_obj_t o = node_at(m, i);
        const struct topo_node *node = &m->pub->nodes[i];
        bool fast = is_fast_memory(node->subtype);

        if (!o || !o->cpuset || !hwloc_bitmap_intersects(o->cpuset, cpus) ||
            (memory && !has_memory(m, i)))
            continue;
        if (best < 0 || (best_fast && !fast) ||
            (best_fast == fast && node->n_pus < best_pus)) {
            best = i;
            best_pus = node->n_pus;
            best_fast = fast;
        }
    }
    return best;
}

/* The node with memory that is the least distance from one without. */
static int next_by_distance(const struct machine *m, int from)
{
    struct hwloc_distances_s *d = m->distances;
    hwloc_uint64_t best_distance = 0;
    int row = d ? hwloc_distances_obj_index(d, node_at(m, from)) : -1, best = -1;

    for (unsigned i = 0; row >= 0 && i < d->nbobjs; i++) {
        hwloc_uint64_t distance = d->values[(unsigned)row * d->nbobjs + i];
        int node = d->objs[i] ? (int)d->objs[i]->logical_index : from;

        if (has_memory(m, node) && (best < 0 || distance < best_distance)) {
            best = node;
            best_distance = distance;
        }
    }
    return best;
}

/* The memory node of a CPU: its own; else the nearest by distance, else one in the smallest
 * part of the machine that has any, else the first. *assumed counts those not its own. */
static int nearest_node(const struct machine *m, hwloc_obj_t pu, int *assumed)
{
    int own = m->pub->n_nodes == 1 ? 0 : local_node(m, pu->cpuset, true), node = -1;

    if (own >= 0)
        return own;
    ++*assumed;
    own = local_node(m, pu->cpuset, false);
    if (own >= 0)
        node = next_by_distance(m, own);
    for (hwloc_obj_t o = pu->parent; o && node < 0; o = o->parent)
        node = local_node(m, o->cpuset, true);
    for (int i = 0; i < m->pub->n_nodes && node < 0; i++)
        node = has_memory(m, i) ? i : -1;
    return node;
}

struct kind {
    int efficiency;
    double capacity, mhz; /* the kernel's capacity; 0: unknown */
    const char *type;     /* "IntelCore", ...; "": unknown */
};

static struct kind kind_at(hwloc_topology_t hw, int i)
{
    struct kind k = {.efficiency = -1, .type = ""};
    struct hwloc_info_s *infos = NULL;
    unsigned n = 0;

    if (hwloc_cpukinds_get_info(hw, (unsigned)i, NULL, &k.efficiency, &n, &infos, 0) < 0)
        return k;
    for (unsigned a = 0; a < n; a++) {
        if (strcmp(infos[a].name, "LinuxCapacity") == 0)
            k.capacity = strtod(infos[a].value, NULL);
        else if (strcmp(infos[a].name, "FrequencyMaxMHz") == 0)
            k.mhz = strtod(infos[a].value, NULL);
        else if (strcmp(infos[a].name, "CoreType") == 0)
            k.type = infos[a].value;
    }
    return k;
}

static bool differ(double a, double b)
{
    return a > 0 && b > 0 && (a > KIND_RATIO * b || b > KIND_RATIO * a);
}

/* Clocks distinguish kinds among cores of a known type only: those of a uniform chip differ too. */
static bool other_kind(const struct kind *a, const struct kind *b)
{
    if (*a->type && *b->type && strcmp(a->type, b->type) != 0)
        return true;
    if (a->capacity > 0 && b->capacity > 0)
        return differ(a->capacity, b->capacity);
    return *a->type && *b->type && differ(a->mhz, b->mhz);
}

/* hwloc lists kinds from the least powerful up, if it can rank them at all. */
static void rank_kinds(struct machine *m)
{
    int n = hwloc_cpukinds_get_nr(m->hw, 0), rank = 0;
    struct kind least = {0};

    for (int i = 0; i < n && i < KINDS_MAX; i++) {
        struct kind k = kind_at(m->hw, i);

        if (i == 0 || other_kind(&k, &least)) {
            rank += i > 0;
            least = k;
        }
        m->kind_rank[i] = k.efficiency < 0 ? -1 : rank;
    }
}

static int kind_of(const struct machine *m, hwloc_obj_t pu)
{
    int i = hwloc_cpukinds_get_by_cpuset(m->hw, pu->cpuset, 0);

    return i < 0 || i >= KINDS_MAX ? -1 : m->kind_rank[i];
}

/* The cluster of cores that a CPU is in; NULL for none and for one of a single core. */
static hwloc_obj_t cluster_of(hwloc_topology_t hw, hwloc_obj_t pu)
{
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(hw, HWLOC_OBJ_CORE, pu);

    for (hwloc_obj_t o = pu->parent; o; o = o->parent)
        if (o->type == HWLOC_OBJ_GROUP && o->subtype &&
            strcmp(o->subtype, "Cluster") == 0)
            return hwloc_bitmap_isequal(o->cpuset, (core ? core : pu)->cpuset) ? NULL : o;
    return NULL;
}

static int by_os_index(const void *a, const void *b)
{
    const struct topo_pu *x = a, *y = b;

    return (x->os_index > y->os_index) - (x->os_index < y->os_index);
}

/* Nodes that are not the nearest of any CPU: high-bandwidth or far memory, often without a
 * label. */
static void note_extra_nodes(struct machine *m)
{
    struct topo_machine *p = m->pub;
    int n_extra = 0;

    for (int i = 0; i < p->n_nodes; i++) {
        bool used = false;

        for (int k = 0; k < p->n_pus && !used; k++)
            used = p->pus[k].node == i;
        n_extra += !used;
    }
    if (n_extra)
        topo_note(p,
                  "%d memory nodes besides the first one of their CPUs or without CPUs",
                  n_extra);
}

MUST static int fill_nodes(struct machine *m)
{
    struct topo_machine *p = m->pub;
    int n = count_of(m->hw, HWLOC_OBJ_NUMANODE);

    p->nodes = mem_new(MEM_OTHER, n ? (size_t)n : 1, sizeof(*p->nodes));
    if (!p->nodes)
        return ERR_NOMEM;
    p->n_nodes = n ? n : 1;
    if (!n) {
        p->nodes[0].n_pus = count_of(m->hw, HWLOC_OBJ_PU);
        topo_note(p, "no NUMA node reported: one assumed");
        return OK;
    }
    for (int i = 0; i < n; i++) {
        hwloc_obj_t o = hwloc_get_obj_by_type(m->hw, HWLOC_OBJ_NUMANODE, (unsigned)i);
        struct topo_node *node = &p->nodes[i];
        int weight = o->cpuset ? hwloc_bitmap_weight(o->cpuset) : 0;

        node->os_index = o->os_index == HWLOC_UNKNOWN_INDEX ? i : (int)o->os_index;
        node->bytes = (int64_t)o->attr->numanode.local_memory;
        node->n_pus = weight < 0 ? 0 : weight;
        if (o->subtype)
            snprintf(node->subtype, sizeof(node->subtype), "%s", o->subtype);
    }
    return OK;
}

MUST static int fill_pus(struct machine *m)
{
    struct topo_machine *p = m->pub;
    int n = count_of(m->hw, HWLOC_OBJ_PU);
    int n_assumed = 0;
    hwloc_obj_t last = NULL;
    bool in_order = true;

    if (n < 1)
        return err_set(ERR_FORMAT, "no processing unit in the topology");
    if (n > TOPO_PUS_MAX)
        return err_set(ERR_LIMIT, "%d processing units, at most %d", n, TOPO_PUS_MAX);
    p->pus = mem_new(MEM_OTHER, (size_t)n, sizeof(*p->pus));
    if (!p->pus)
        return ERR_NOMEM;
    p->n_pus = n;
    for (int i = 0; i < n; i++) {
        hwloc_obj_t o = hwloc_get_obj_by_type(m->hw, HWLOC_OBJ_PU, (unsigned)i);
        hwloc_obj_t cluster = cluster_of(m->hw, o);

        if (o->os_index > INT_MAX)
            return err_set(ERR_FORMAT, "processing unit %d has no CPU number", i);
        in_order = in_order && (int)o->os_index == i;
        if (cluster && cluster != last) { /* its CPUs follow each other */
            p->n_clusters++;
            last = cluster;
        }
        p->pus[i] = (struct topo_pu){
            .os_index = (int)o->os_index,
            .core = logical(o, m->hw, HWLOC_OBJ_CORE),
            .l2 = logical(o, m->hw, HWLOC_OBJ_L2CACHE),
            .l3 = logical(o, m->hw, HWLOC_OBJ_L3CACHE),
            .cluster = cluster ? p->n_clusters - 1 : -1,
            .node = nearest_node(m, o, &n_assumed),
            .package = logical(o, m->hw, HWLOC_OBJ_PACKAGE),
            .kind = kind_of(m, o),
        };
    }
    if (n_assumed)
        topo_note(p, "%d CPUs without a memory node of their own: given the nearest",
                  n_assumed);
    /* hwloc takes no notice of indexes that it does not understand. */
    if (in_order && strcmp(p->source, "synthetic") == 0 && strstr(p->name, "indexes="))
        topo_note(p, "CPU numbers in order, whatever \"indexes\" says");
    qsort(p->pus, (size_t)n, sizeof(*p->pus), by_os_index);
    return OK;
}

/* The largest cache of a level; a difference between caches is noted. */
static int64_t cache_bytes(struct machine *m, hwloc_obj_type_t type, int *n,
                           const char *what)
{
    int64_t largest = 0, smallest = INT64_MAX;

    *n = count_of(m->hw, type);
    for (int i = 0; i < *n; i++) {
        hwloc_obj_t o = hwloc_get_obj_by_type(m->hw, type, (unsigned)i);
        int64_t bytes = (int64_t)o->attr->cache.size;

        largest = bytes > largest ? bytes : largest;
        smallest = bytes < smallest ? bytes : smallest;
    }
    if (!*n)
        topo_note(m->pub, "no %s", what);
    else if (smallest != largest)
        topo_note(m->pub, "%s caches differ: the largest is given", what);
    return largest;
}

MUST static int fill(struct machine *m)
{
    struct topo_machine *p = m->pub;
    unsigned n_distances = 1;
    int n_l1, rc;

    hwloc_distances_get_by_type(m->hw, HWLOC_OBJ_NUMANODE, &n_distances, &m->distances,
                                HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
    rank_kinds(m);
    rc = fill_nodes(m);
    if (rc == OK)
        rc = fill_pus(m);
    if (rc != OK)
        return rc;
    note_extra_nodes(m);
    p->n_cores = count_of(m->hw, HWLOC_OBJ_CORE);
    p->n_packages = count_of(m->hw, HWLOC_OBJ_PACKAGE);
    if (!p->n_cores)
        topo_note(p, "no cores");
    if (!p->n_packages)
        topo_note(p, "no packages");
    p->l1d_bytes = cache_bytes(m, HWLOC_OBJ_L1CACHE, &n_l1, "L1");
    p->l2_bytes = cache_bytes(m, HWLOC_OBJ_L2CACHE, &p->n_l2, "L2");
    p->l3_bytes = cache_bytes(m, HWLOC_OBJ_L3CACHE, &p->n_l3, "L3");
    return OK;
}

/* ---- where a topology comes from ---- */

MUST static int load_xml(struct machine *m, const char *path)
{
    if (hwloc_topology_set_xml(m->hw, path) != 0 || hwloc_topology_load(m->hw) != 0)
        return err_set(ERR_FORMAT,
                       "%s: not a topology that hwloc %s can read; is it cut?", path,
                       HWLOC_VERSION);
    return OK;
}

/* How many CPUs a synthetic string asks for: the product of its levels, attributes in
 * parentheses and memory in brackets left out. */
static double synthetic_pus(const char *s)
{
    double product = 1;
    int depth = 0;

    for (; *s; s++) {
        if (*s == '(' || *s == '[')
            depth++;
        else if (*s == ')' || *s == ']')
            depth--;
        else if (depth == 0 && (*s == ':' || *s == ' ') && s[1] >= '0' && s[1] <= '9')
            product *= strtod(s + 1, NULL);
    }
    return product;
}

MUST static int load_synthetic(struct machine *m, const char *text)
{
    if (synthetic_pus(text) > TOPO_PUS_MAX)
        return err_set(ERR_LIMIT, "synthetic topology \"%.80s\": more than %d CPUs", text,
                       TOPO_PUS_MAX);
    if (hwloc_topology_set_synthetic(m->hw, text) != 0 || hwloc_topology_load(m->hw) != 0)
        return err_set(ERR_FORMAT,
                       "synthetic topology \"%.80s\": expected levels as in "
                       "\"package:2 node:1 core:4 pu:2\"",
                       text);
    return OK;
}

/* Nothing that the user's environment says of hwloc holds: it may name another machine. */
static void clear_environment(void)
{
    char **v = environ;

    while (*v) {
        char name[64];
        size_t n = strcspn(*v, "=");

        if (strncmp(*v, "HWLOC_", 6) != 0 || n >= sizeof(name)) {
            v++;
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)n, *v);
        unsetenv(name); /* moves the following ones here */
    }
}

/* Set the options that hwloc takes from the environment only. By default it keeps only the cache
 * where a cluster of cores is also a cache. */
MUST static int set_environment(const struct topo_source *s)
{
    const char *components = s->from == TOPO_FSROOT       ? "linux,stop"
                             : s->from == TOPO_HOST_CPUID ? "-linux"
                                                          : NULL;
    int failed;

    clear_environment();
    failed = setenv("HWLOC_DONT_MERGE_CLUSTER_GROUPS", "1", 1);
    if (components)
        failed |= setenv("HWLOC_COMPONENTS", components, 1);
    if (s->from == TOPO_FSROOT)
        failed |= setenv("HWLOC_FSROOT", s->what, 1);
    return failed ? err_set(ERR_NOMEM, "cannot set the environment: %m") : OK;
}

MUST static int load(struct machine *m, const struct topo_source *s)
{
    if (s->from == TOPO_XML)
        return load_xml(m, s->what);
    if (s->from == TOPO_SYNTHETIC)
        return load_synthetic(m, s->what);
    if (hwloc_topology_load(m->hw) == 0)
        return OK;
    if (s->from == TOPO_FSROOT)
        return err_set(ERR_FORMAT, "fsroot:%s: hwloc finds no machine there", s->what);
    return err_set(ERR_IO, "this machine: hwloc cannot read the topology: %m");
}

MUST static int print_xml(const struct machine *m, FILE *out)
{
    char *text;
    int n;

    if (hwloc_topology_export_xmlbuffer(m->hw, &text, &n, 0) != 0)
        return err_set(ERR_NOMEM, "%s: hwloc cannot write the topology: %m",
                       m->pub->name);
    fwrite(text, 1, strnlen(text, (size_t)n), out); /* n counts the final zero */
    return OK;
}

int topo_machine_read(void *ctx, FILE *out)
{
    struct topo_source *s = ctx;
    struct machine m = {.pub = s->m};
    bool host = s->from == TOPO_HOST || s->from == TOPO_HOST_CPUID;
    int rc;

    TRY(set_environment(s));
    if (hwloc_topology_init(&m.hw) != 0)
        return err_set(ERR_NOMEM, "hwloc cannot begin a topology: %m");
    TRY(load(&m, s));
    if (s->from == TOPO_HOST_CPUID)
        topo_note(s->m, "hwloc cannot read /sys: described by its processors");
    rc = fill(&m);
    if (rc != OK)
        return err_prefix(rc, "%s", s->what ? s->what : s->m->name);
    topo_machine_print(s->m, out);
    return host ? print_xml(&m, out) : OK;
}

int topo_node_of_cpu(const struct topo_machine *m, int cpu)
{
    const struct topo_pu key = {.os_index = cpu};
    const struct topo_pu *pu =
        bsearch(&key, m->pus, (size_t)m->n_pus, sizeof(key), by_os_index);

    return pu && pu->node >= 0 ? m->nodes[pu->node].os_index : -1;
}
