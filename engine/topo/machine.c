#include "topo/machine.h"

#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/mem.h"
#include "topo/machine_text.h"

/* The largest machines described so far are below 4 MB and 5000 CPUs. */
#define XML_BYTES_MAX (64 << 20)
/* What a short string or a folder may cost to read, as if it were a file of this size. */
#define NO_FILE_BYTES (1 << 20)
/* Kinds of CPU told apart; the most seen so far are five. */
#define KINDS_MAX 64
/* Cores of one type are of one kind up to this ratio of their capacities: a chip's best
 * cores clock a little higher, and leaving the others out would cost more than it gains. */
#define KIND_RATIO 1.1

/* What the outside sees, and what is kept for topo_machine_xml(). */
struct machine {
    struct topo_machine pub;
    hwloc_topology_t hw;      /* NULL where a child read the topology */
    int kind_rank[KINDS_MAX]; /* of hwloc's kind of CPU */
};

static void note(struct topo_machine *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void note(struct topo_machine *m, const char *fmt, ...)
{
    size_t at = strlen(m->note);
    va_list ap;

    if (at && at + 2 < sizeof(m->note)) {
        strcpy(m->note + at, "; ");
        at += 2;
    }
    va_start(ap, fmt);
    vsnprintf(m->note + at, sizeof(m->note) - at, fmt, ap);
    va_end(ap);
}

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

/* Of the nodes local to a CPU the smallest set wins, and DRAM before high-bandwidth
 * memory next to it: that is where the kernel puts pages unless told otherwise. */
static int nearest_node(const struct machine *m, hwloc_obj_t pu)
{
    int best = -1, best_pus = INT_MAX;
    bool best_fast = true;

    for (int i = 0; i < m->pub.n_nodes; i++) {
        hwloc_obj_t o = hwloc_get_obj_by_type(m->hw, HWLOC_OBJ_NUMANODE, (unsigned)i);
        const struct topo_node *node = &m->pub.nodes[i];
        bool fast = is_fast_memory(node->subtype);

        if (!o || !o->cpuset || !hwloc_bitmap_isset(o->cpuset, pu->os_index))
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

struct kind {
    int efficiency;
    double capacity;  /* of the kernel, else MHz; 0: unknown */
    const char *type; /* "IntelCore", ...; "": not told */
};

static struct kind kind_at(hwloc_topology_t hw, int i)
{
    struct kind k = {.efficiency = -1, .type = ""};
    struct hwloc_info_s *infos = NULL;
    unsigned n = 0;
    double mhz = 0;

    if (hwloc_cpukinds_get_info(hw, (unsigned)i, NULL, &k.efficiency, &n, &infos, 0) < 0)
        return k;
    for (unsigned a = 0; a < n; a++) {
        if (strcmp(infos[a].name, "LinuxCapacity") == 0)
            k.capacity = strtod(infos[a].value, NULL);
        else if (strcmp(infos[a].name, "FrequencyMaxMHz") == 0)
            mhz = strtod(infos[a].value, NULL);
        else if (strcmp(infos[a].name, "CoreType") == 0)
            k.type = infos[a].value;
    }
    k.capacity = k.capacity > 0 ? k.capacity : mhz;
    return k;
}

/* hwloc lists kinds from the least powerful up, if it can rank them at all. */
static void rank_kinds(struct machine *m)
{
    int n = hwloc_cpukinds_get_nr(m->hw, 0), rank = 0;
    struct kind least = {0};

    for (int i = 0; i < n && i < KINDS_MAX; i++) {
        struct kind k = kind_at(m->hw, i);
        bool alike = k.capacity > 0 && least.capacity > 0 &&
                     k.capacity <= KIND_RATIO * least.capacity &&
                     least.capacity <= KIND_RATIO * k.capacity &&
                     strcmp(k.type, least.type) == 0;

        if (i == 0 || !alike) {
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
    struct topo_machine *p = &m->pub;
    int n_extra = 0;

    for (int i = 0; i < p->n_nodes; i++) {
        bool used = false;

        for (int k = 0; k < p->n_pus && !used; k++)
            used = p->pus[k].node == i;
        n_extra += !used;
    }
    if (n_extra)
        note(p, "%d memory nodes besides the first one of their CPUs or without CPUs",
             n_extra);
}

MUST static int fill_nodes(struct machine *m)
{
    struct topo_machine *p = &m->pub;
    int n = count_of(m->hw, HWLOC_OBJ_NUMANODE);

    p->nodes = mem_new(MEM_OTHER, n ? (size_t)n : 1, sizeof(*p->nodes));
    if (!p->nodes)
        return ERR_NOMEM;
    p->n_nodes = n ? n : 1;
    if (!n) {
        p->nodes[0].n_pus = count_of(m->hw, HWLOC_OBJ_PU);
        note(p, "no NUMA node reported: one assumed");
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
    struct topo_machine *p = &m->pub;
    int n = count_of(m->hw, HWLOC_OBJ_PU);
    hwloc_obj_t last = NULL;
    bool in_order = true;

    if (n < 1)
        return err_set(ERR_FORMAT, "%s: no processing unit in the topology", p->name);
    if (n > TOPO_PUS_MAX)
        return err_set(ERR_LIMIT, "%s: %d processing units, at most %d", p->name, n,
                       TOPO_PUS_MAX);
    p->pus = mem_new(MEM_OTHER, (size_t)n, sizeof(*p->pus));
    if (!p->pus)
        return ERR_NOMEM;
    p->n_pus = n;
    for (int i = 0; i < n; i++) {
        hwloc_obj_t o = hwloc_get_obj_by_type(m->hw, HWLOC_OBJ_PU, (unsigned)i);
        hwloc_obj_t cluster = cluster_of(m->hw, o);
        int nearest = nearest_node(m, o);

        if (o->os_index > INT_MAX)
            return err_set(ERR_FORMAT, "%s: processing unit %d has no CPU number",
                           p->name, i);
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
            .node = p->n_nodes == 1 ? 0 : nearest,
            .package = logical(o, m->hw, HWLOC_OBJ_PACKAGE),
            .kind = kind_of(m, o),
        };
    }
    /* hwloc takes no notice of indexes that it does not understand. */
    if (in_order && strcmp(p->source, "synthetic") == 0 && strstr(p->name, "indexes="))
        note(p, "CPU numbers in order, whatever \"indexes\" says");
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
        note(&m->pub, "no %s", what);
    else if (smallest != largest)
        note(&m->pub, "%s caches differ: the largest is given", what);
    return largest;
}

MUST static int fill(struct machine *m)
{
    struct topo_machine *p = &m->pub;
    int n_l1, rc;

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
        note(p, "no cores");
    if (!p->n_packages)
        note(p, "no packages");
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

MUST static int set_env(const char *name, const char *value)
{
    return setenv(name, value, 1) == 0 ? OK
                                       : err_set(ERR_NOMEM, "cannot set %s: %m", name);
}

/* Load what Linux says. Where a cluster of cores is also a cache, hwloc would keep only
 * the cache. It takes this option from the environment only: set for a moment. */
MUST static int load_linux(struct machine *m, bool *found)
{
    static const char name[] = "HWLOC_DONT_MERGE_CLUSTER_GROUPS";
    const char *before = getenv(name);
    char *kept = before ? mem_strdup(MEM_OTHER, before) : NULL; /* setenv() may free it */
    int rc = before && !kept ? ERR_NOMEM : set_env(name, "1");

    if (rc != OK)
        return rc;
    *found = hwloc_topology_load(m->hw) == 0;
    rc = kept ? set_env(name, kept) : OK;
    if (!kept)
        unsetenv(name);
    mem_free(kept);
    return rc;
}

MUST static int load_fsroot(struct machine *m, const char *dir)
{
    bool found;
    int rc = set_env("HWLOC_FSROOT", dir);

    if (rc == OK) /* ask nothing of the real machine */
        rc = set_env("HWLOC_COMPONENTS", "linux,stop");
    if (rc == OK)
        rc = load_linux(m, &found);
    if (rc == OK && !found)
        return err_set(ERR_FORMAT, "fsroot:%s: hwloc finds no machine there", dir);
    return rc;
}

MUST static int load_host(struct machine *m)
{
    bool found;
    int rc = load_linux(m, &found);

    if (rc == OK && !found)
        return err_set(ERR_IO, "this machine: hwloc cannot read the topology: %m");
    return rc;
}

/* ---- foreign topologies: hwloc crashes on damaged ones, so a child reads them ---- */

typedef int (*load_fn)(struct machine *m, const char *what);

struct foreign {
    struct machine *m;
    load_fn load;
    const char *what; /* its argument */
};

MUST static int init_hwloc(struct machine *m)
{
    if (hwloc_topology_init(&m->hw) == 0)
        return OK;
    m->hw = NULL;
    return err_set(ERR_NOMEM, "hwloc cannot begin a topology: %m");
}

static int read_and_print(void *ctx, FILE *out)
{
    struct foreign *f = ctx;
    int rc = init_hwloc(f->m);

    if (rc == OK)
        rc = f->load(f->m, f->what);
    if (rc == OK)
        rc = fill(f->m);
    if (rc == OK)
        topo_machine_print(&f->m->pub, out);
    return rc;
}

MUST static int open_foreign(struct machine *m, const char *spec, load_fn load,
                             const char *what, size_t bytes)
{
    struct foreign f = {m, load, what};
    const struct child child = {.fn = read_and_print,
                                .ctx = &f,
                                .where = spec,
                                .if_crash = "hwloc cannot read this topology",
                                .foreign_bytes = bytes};
    char *text;
    size_t n;
    int rc = child_run(&child, &text, &n);

    if (rc == OK)
        rc = topo_machine_parse(&m->pub, text, spec);
    mem_free(text);
    return rc;
}

/* ---- the four kinds of `spec` ---- */

static void name_it(struct machine *m, const char *source, const char *name)
{
    snprintf(m->pub.source, sizeof(m->pub.source), "%s", source);
    snprintf(m->pub.name, sizeof(m->pub.name), "%s", name);
}

/* The last name of a path. */
static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

MUST static int open_host(struct machine *m)
{
    char host[sizeof(m->pub.name)] = "";
    int rc = init_hwloc(m);

    if (gethostname(host, sizeof(host) - 1) != 0)
        snprintf(host, sizeof(host), "host");
    name_it(m, "host", host);
    if (rc == OK)
        rc = load_host(m);
    return rc == OK ? fill(m) : rc;
}

MUST static int open_xml(struct machine *m, const char *path)
{
    size_t n;
    struct stat st;

    name_it(m, "xml", last_name(path));
    n = strlen(m->pub.name);
    if (n > 4 && n < sizeof(m->pub.name) - 1)
        m->pub.name[n - 4] = '\0'; /* the stem */
    if (stat(path, &st) != 0)
        return err_set(ERR_IO, "%s: cannot open: %m", path);
    if (!S_ISREG(st.st_mode) || st.st_size > XML_BYTES_MAX)
        return err_set(ERR_LIMIT, "%s: expected a file of at most %d bytes, found %lld",
                       path, XML_BYTES_MAX, (long long)st.st_size);
    return open_foreign(m, path, load_xml, path, (size_t)st.st_size + 1);
}

MUST static int open_fsroot(struct machine *m, const char *spec, const char *dir)
{
    struct stat st;

    name_it(m, "fsroot", last_name(dir));
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return err_set(ERR_IO, "fsroot:%s: not a directory", dir);
    return open_foreign(m, spec, load_fsroot, dir, NO_FILE_BYTES);
}

MUST static int open_any(struct machine *m, const char *spec)
{
    size_t n = strlen(spec);

    if (strcmp(spec, "host") == 0)
        return open_host(m);
    if (strncmp(spec, "synthetic:", 10) == 0) {
        name_it(m, "synthetic", spec + 10);
        return open_foreign(m, spec, load_synthetic, spec + 10, NO_FILE_BYTES);
    }
    if (strncmp(spec, "fsroot:", 7) == 0)
        return open_fsroot(m, spec, spec + 7);
    if (n > 4 && strcmp(spec + n - 4, ".xml") == 0)
        return open_xml(m, spec);
    return err_set(ERR_ARG,
                   "machine \"%.80s\": expected host, FILE.xml, synthetic:LEVELS or "
                   "fsroot:DIR",
                   spec);
}

int topo_machine_open(struct topo_machine **out, const char *spec)
{
    struct machine *m;
    struct topo_machine *pub;
    int rc;

    *out = NULL;
    m = mem_new(MEM_OTHER, 1, sizeof(*m));
    if (!m)
        return ERR_NOMEM;
    pub = &m->pub;
    rc = open_any(m, spec ? spec : "host");
    if (rc == OK)
        *out = pub, pub = NULL; /* the caller's now */
    topo_machine_close(&pub);
    return rc;
}

void topo_machine_close(struct topo_machine **machine)
{
    struct machine *m = (struct machine *)*machine; /* its first member */

    *machine = NULL;
    if (!m)
        return;
    if (m->hw)
        hwloc_topology_destroy(m->hw);
    mem_free(m->pub.pus);
    mem_free(m->pub.nodes);
    mem_free(m);
}

int topo_machine_xml(const struct topo_machine *machine, char **xml, size_t *n)
{
    const struct machine *m = (const struct machine *)machine;
    char *text;
    int len;

    *xml = NULL;
    *n = 0;
    if (!m->hw)
        return err_set(ERR_UNSUPPORTED, "%s: only this host's topology can be written",
                       machine->name);
    if (hwloc_topology_export_xmlbuffer(m->hw, &text, &len, 0) != 0)
        return err_set(ERR_NOMEM, "%s: hwloc cannot write the topology: %m",
                       machine->name);
    *n = strnlen(text, (size_t)len); /* len counts the final zero */
    *xml = mem_strndup(MEM_OTHER, text, *n);
    hwloc_free_xmlbuffer(m->hw, text);
    return *xml ? OK : ERR_NOMEM;
}

int topo_node_of_cpu(const struct topo_machine *m, int cpu)
{
    const struct topo_pu key = {.os_index = cpu};
    const struct topo_pu *pu =
        bsearch(&key, m->pus, (size_t)m->n_pus, sizeof(key), by_os_index);

    return pu && pu->node >= 0 ? m->nodes[pu->node].os_index : -1;
}
