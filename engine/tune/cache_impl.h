/* tune/cache_impl.h - the inside of a schedule cache, for the files of this module and their
 * tests: cache_file.c reads and writes the file, cache_key.c identifies this machine and
 * build, schedule_cache.c answers look-ups. */
#ifndef TUNE_CACHE_IMPL_H
#define TUNE_CACHE_IMPL_H

#include <jansson.h>

#include "cpu/cpu.h"
#include "tune/schedule_cache.h"

/* The machine and the code of a measurement. */
struct tune_key {
    char cpu[64], microcode[24];
    char commit[64]; /* the newest commit that changed engine/kernels or engine/par */
};
void tune_key_here(struct tune_key *out);

struct tune_entry {
    int64_t m;
    struct kern_schedule s;
    struct measure_report t; /* n = 0: not measured; best and n_disturbed are not kept */
    bool put;                /* by this process: it replaces what the file holds */
};

/* The schedules of one matrix on one thread set. */
struct tune_group {
    struct tune_key key;
    char cpus[CPU_MAX * 5 + 1]; /* "0-3,8" */
    char variant[32];
    enum kern_type type;
    int64_t n, k, k_unit;       /* k_unit: 0 where not split along K */
    struct tune_entry *entries; /* ascending m */
    int n_entries, capacity;
};

struct tune_cache {
    char *path;
    struct tune_key key; /* of this machine and build */
    int cpus[CPU_MAX], n_threads;
    struct tune_group *groups;
    int n_groups, capacity;
};

/* tune_cache_open() as if the key were this one. */
MUST int tune_cache_open_as(struct tune_cache **out, const char *path,
                            const struct tune_key *key, const int *cpus, int n_threads);

/* Add to c what the file holds, all of it checked; ERR_NOTFOUND: there is no file. */
MUST int tune_cache_read(struct tune_cache *c);
/* The same of the object of a file, which error lines call `where`. */
MUST int tune_cache_parse(struct tune_cache *c, const json_t *root, const char *where);
/* An empty group, zeroed but for nothing; NULL: ERR_NOMEM. Lent until the next one. */
MUST struct tune_group *tune_cache_add_group(struct tune_cache *c);
/* The group of the same key as x; NULL: there is none. Lent as above. */
struct tune_group *tune_cache_find(const struct tune_cache *c,
                                   const struct tune_group *x);
/* The entry for m, made where there is none; NULL: ERR_NOMEM. */
MUST struct tune_entry *tune_group_entry(struct tune_group *g, int64_t m);

#endif
