#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static int open_standard_descriptors(void)
{
    static const int modes[] = {
        [STDIN_FILENO] = O_WRONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_RDWR};

    /* From the lowest up, and open() gives the lowest free number: each gets its own. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) < 0)
            return err_set(ERR_IO,
                           "/dev/null: cannot open it in place of the closed "
                           "descriptor %d: %m",
                           fd);
    return OK;
}

int process_start(void)
{
    signal(SIGCHLD, SIG_DFL);
    return open_standard_descriptors();
}

int process_end(void)
{
    bool lost = ferror(stdout); /* its errno is gone */

    errno = 0;
    if (fclose(stdout) == 0 && !lost)
        return OK;
    return errno ? err_set(ERR_IO, "standard output: cannot write: %m")
                 : err_set(ERR_IO, "standard output: a part could not be written");
}
