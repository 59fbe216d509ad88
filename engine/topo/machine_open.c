/* Opening a machine by its name, in a child process that reads it. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/mem.h"
#include "topo/machine_read.h"
#include "topo/machine_text.h"

/* The largest machines described so far are below 4 MB and 5000 CPUs. */
#define XML_BYTES_MAX (64 << 20)
/* A short string or a folder may cost as much to read as a file of this size; and
 * what this host may, since hwloc takes seconds where there are thousands of CPUs. */
#define NO_FILE_BYTES (1 << 20)
#define HOST_BYTES    (32 << 20)
/* Of a file: hwloc takes 3 MB for 256 CPUs, and a number in a small file can ask for 512 MB. */
#define MEMORY_BYTES ((size_t)64 << 20)

/* A machine as callers see it, and the XML that is kept for topo_machine_xml(). */
struct machine {
    struct topo_machine pub;
    char *xml; /* of this host; NULL: another machine */
};

MUST static int read_in_child(struct machine *m, enum topo_from from, const char *spec,
                              const char *what, size_t bytes)
{
    struct topo_source source = {from, what, &m->pub};
    const struct child child = {.fn = topo_machine_read,
                                .ctx = &source,
                                .where = spec,
                                .if_crash = "hwloc cannot read this topology",
                                .foreign_bytes = bytes,
                                .memory_bytes = from == TOPO_XML ? MEMORY_BYTES : 0};
    const char *rest;
    char *text;
    size_t n;
    int rc = child_run(&child, &text, &n);

    if (rc == OK)
        rc = topo_machine_parse(&m->pub, text, &rest, spec);
    if (rc == OK && strcmp(m->pub.source, "host") == 0) {
        m->xml = mem_strdup(MEM_OTHER, rest);
        rc = m->xml ? OK : ERR_NOMEM;
    }
    mem_free(text);
    return rc;
}

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

/* Every CPU that this process may use must be there: else it is not this machine's topology. */
static void note_missing_cpus(struct topo_machine *m)
{
    cpu_set_t allowed;
    int n = 0, first = -1;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return;
    for (int i = 0; i < m->n_pus; i++)
        if (m->pus[i].os_index < CPU_SETSIZE)
            CPU_CLR(m->pus[i].os_index, &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed)) {
            first = n ? first : cpu;
            n++;
        }
    if (n)
        topo_note(m,
                  "%d CPUs that this process may use are unknown to hwloc, CPU %d first",
                  n, first);
}

static void name_host(struct machine *m)
{
    char host[sizeof(m->pub.name)] = "";

    if (gethostname(host, sizeof(host) - 1) != 0)
        snprintf(host, sizeof(host), "host");
    name_it(m, "host", host);
}

/* Where hwloc cannot read what Linux says of it, the processors are asked: it then knows cores
 * and caches, but one memory node on most machines. */
MUST static int open_host(struct machine *m)
{
    static const char where[] = "this machine";
    int rc;

    name_host(m);
    rc = read_in_child(m, TOPO_HOST, where, NULL, HOST_BYTES);
    if (rc == ERR_FORMAT) {
        mem_free(m->pub.pus);
        mem_free(m->pub.nodes);
        m->pub = (struct topo_machine){0};
        name_host(m);
        rc = read_in_child(m, TOPO_HOST_CPUID, where, NULL, HOST_BYTES);
    }
    if (rc == OK)
        note_missing_cpus(&m->pub);
    return rc;
}

/* hwloc 3 writes a format that version 2 refuses without saying why. */
MUST static int check_version(const char *path)
{
    static const char mark[] = "<topology version=\"";
    char head[1024] = "";
    const char *at;
    FILE *f;

    TRY(file_stream(&f, path));
    head[fread(head, 1, sizeof(head) - 1, f)] = '\0';
    fclose(f);
    at = strstr(head, mark);
    if (!at || at[sizeof(mark) - 1] < '3' || at[sizeof(mark) - 1] > '9')
        return OK;
    return err_set(ERR_UNSUPPORTED,
                   "%s: a topology in format %.*s of hwloc, expected format 1 or 2: "
                   "write it by lstopo --export-xml-flags v2",
                   path, (int)strcspn(at + sizeof(mark) - 1, "\""),
                   at + sizeof(mark) - 1);
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
    TRY(check_version(path));
    return read_in_child(m, TOPO_XML, path, path, (size_t)st.st_size + 1);
}

MUST static int open_fsroot(struct machine *m, const char *spec, const char *dir)
{
    struct stat st;

    name_it(m, "fsroot", last_name(dir));
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return err_set(ERR_IO, "fsroot:%s: not a directory", dir);
    return read_in_child(m, TOPO_FSROOT, spec, dir, NO_FILE_BYTES);
}

MUST static int open_any(struct machine *m, const char *spec)
{
    size_t n = strlen(spec);

    if (strcmp(spec, "host") == 0)
        return open_host(m);
    if (strncmp(spec, "synthetic:", 10) == 0) {
        name_it(m, "synthetic", spec + 10);
        return read_in_child(m, TOPO_SYNTHETIC, spec, spec + 10, NO_FILE_BYTES);
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
    mem_free(m->xml);
    mem_free(m->pub.pus);
    mem_free(m->pub.nodes);
    mem_free(m);
}

int topo_machine_xml(const struct topo_machine *machine, char **xml, size_t *n)
{
    const struct machine *m = (const struct machine *)machine;

    *xml = NULL;
    *n = 0;
    if (!m->xml)
        return err_set(ERR_UNSUPPORTED, "%s: only this host's topology can be written",
                       machine->name);
    *xml = mem_strdup(MEM_OTHER, m->xml);
    *n = *xml ? strlen(*xml) : 0;
    return *xml ? OK : ERR_NOMEM;
}
