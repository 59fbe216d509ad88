/* tests/support/leftovers.h - what a part under test must not leave behind: processes, open
 * files, names of shared memory. */
#ifndef TESTS_SUPPORT_LEFTOVERS_H
#define TESTS_SUPPORT_LEFTOVERS_H

/* Descriptors that this process has open; the same count before and after. */
int left_fds(void);
/* Entries of a directory. */
int left_files(const char *dir);
/* Fail the test where this process has a child, ended or not. */
void left_no_child(void);
/* Fail the test where /dev/shm has a name of the project's. */
void left_no_shm(void);

#endif
