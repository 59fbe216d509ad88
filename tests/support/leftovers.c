#include "tests/support/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <sys/wait.h>

#include "tests/support/test.h"

static int n_entries(const char *dir, const char *with)
{
    DIR *d = opendir(dir);
    int n = 0;

    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += strstr(e->d_name, with) != NULL;
    if (d)
        closedir(d);
    return n;
}

int left_files(const char *dir)
{
    return n_entries(dir, "") - 2; /* . and .. */
}

int left_fds(void)
{
    return n_entries("/proc/self/fd", "");
}

void left_no_child(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

void left_no_shm(void)
{
    assert_int_equal(n_entries("/dev/shm", "sandwich"), 0);
}
