#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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
