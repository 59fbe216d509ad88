/* tests/job/jobs.h - what every kind of job must do: be described, and end cleanly when memory
 * is short. */
#ifndef TESTS_JOBS_H
#define TESTS_JOBS_H

#include <stdlib.h>

#include "base/json.h"
#include "experiments/job/job.h"
#include "tests/support/faults.h"

/* The description of a job, in which every word (NULL-terminated) is, then what `more`, if not
 * NULL, prints of it, and the documentation of all keys. free() */
static inline char *jobs_described(const struct job *j, const char *const *words,
                                   void (*more)(const struct job *j, FILE *f))
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    job_describe(j, f);
    fflush(f);
    for (; *words; words++)
        if (!strstr(text, *words))
            fail_msg("\"%s\" is not in the description:\n%s", *words, text);
    if (more)
        more(j, f);
    job_docs(f);
    fclose(f);
    return text;
}

/* Each allocation of reading the job fails in turn; returns how many did. */
static inline int jobs_short_of_memory(const json_t *root)
{
    size_t before = mem_used_bytes(MEM_HARNESS);
    struct job *j = NULL;
    long n = test_allocations(job_from_json(&j, root, "t", "t.json", NULL),
                              !j && mem_used_bytes(MEM_HARNESS) == before);

    job_free(&j);
    assert_int_equal(mem_used_bytes(MEM_HARNESS), before);
    return (int)n;
}

#endif
