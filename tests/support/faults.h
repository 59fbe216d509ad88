/* tests/support/faults.h - what every parser of files must survive: a valid document with one
 * fault, cut short anywhere, damaged at random, and read while memory runs out.
 *
 * A refusal is one line that names the file; the faults of a table also have an error code and
 * words of the message. What is still read after random damage is used by the parser's
 * function, so that an unsound result shows. */
#ifndef TESTS_SUPPORT_FAULTS_H
#define TESTS_SUPPORT_FAULTS_H

#include "base/thread.h"
#include "tests/support/leftovers.h"
#include "tests/support/test.h"

struct test_document {
    const char *path; /* the file to write */
    const void *data; /* [n] valid */
    size_t n;
    /* Open the path, use and close what was read. On error nothing is left to close. */
    int (*parse)(const char *path);
    const char *opened; /* what parse() is given; NULL: path */
    const char *named;  /* what a refusal names; NULL: path */
};

/* One fault: the first `from` in the document becomes `to`. from NULL: `to` is all of it. */
struct test_fault {
    const char *from, *to;
    int code;
    const char *part; /* of the message */
};

/* The path of a file in memory, for a document of which many variants are made. */
const char *test_memory_file(void);
/* Write these bytes and parse them: the result of parse(). A refusal is one line that names
 * the file, or the test fails; likewise below. */
int test_parse(const struct test_document *d, const void *data, size_t n);
/* The same of the document with the first `from` in it replaced. */
int test_edited(const struct test_document *d, const char *from, const char *to);

/* The document itself is read, and each fault refused with its code and words. */
#define test_faults(document, faults)                                                    \
    test_faults_of(document, faults, sizeof(faults) / sizeof((faults)[0]))
void test_faults_of(const struct test_document *d, const struct test_fault *f, size_t n);

/* Each of the following makes many variants, each of which is read or refused, and returns how
 * many were refused. Of long documents not every offset is tried. */

/* Cut to 0 ... end - 1 bytes. *n_read: how many of them were read; may be NULL. */
int test_cuts(const struct test_document *d, size_t end, int *n_read);
/* Each 1, 2, 4 and 8 bytes that begin below `end` take each extreme value of an integer. */
int test_fields(const struct test_document *d, size_t end, int *n_read);
/* n mutants of tests/support/mutate.h. */
int test_mutants(const struct test_document *d, int n);

/* A call is repeated, its first, second ... allocation failing, until it is OK: each failure
 * is ERR_NOMEM, and `left` is true after it. Returns the number of failures. */
#define test_allocations(call, left)                                                     \
    ({                                                                                   \
        long n_ = 0;                                                                     \
        for (;; n_++) {                                                                  \
            int rc_;                                                                     \
            mem_fail_after(n_, 1);                                                       \
            rc_ = (call);                                                                \
            mem_fail_after(-1, 0);                                                       \
            if (rc_ == OK)                                                               \
                break;                                                                   \
            if (rc_ != ERR_NOMEM || n_ == 10000 || !(left))                              \
                fail_msg("%s: allocation %ld: %s \"%s\"", #call, n_, err_name(rc_),      \
                         err_msg());                                                     \
        }                                                                                \
        n_;                                                                              \
    })

/* The same where threads, locks and conditions are refused, by base/thread.h. No thread and no
 * descriptor is left by a call that fails. */
#define test_thread_faults(call, left)                                                   \
    ({                                                                                   \
        int fds_ = left_fds();                                                           \
        long n_ = 0;                                                                     \
        test_one_thread();                                                               \
        for (;; n_++) {                                                                  \
            int tasks_ = left_files("/proc/self/task"), rc_;                             \
            err_clear();                                                                 \
            thread_fail_after(n_);                                                       \
            rc_ = (call);                                                                \
            thread_fail_after(-1);                                                       \
            if (rc_ == OK)                                                               \
                break;                                                                   \
            if (!strstr(err_msg(), "cannot ") || strchr(err_msg(), '\n') ||              \
                n_ == 1000 || !(left))                                                   \
                fail_msg("%s: thread or lock %ld: %s \"%s\"", #call, n_, err_name(rc_),  \
                         err_msg());                                                     \
            assert_int_equal(left_fds(), fds_);                                          \
            test_no_more_threads(tasks_);                                                \
        }                                                                                \
        n_;                                                                              \
    })
/* Make a thread and wait for its end: a sanitizer's own thread begins with the first one. */
void test_one_thread(void);
/* Wait until this process has at most n threads: one that was joined may have a moment to go. */
void test_no_more_threads(int n);

#endif
