#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"

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

/* ---- what a terminal is shown ---- */

static FILE *terminal; /* the stream that stdout was */
static char held[4];   /* the beginning of a character */
static size_t n_held;

static void show_held(void)
{
    char shown[UTF8_SHOWN_BYTES];
    int used, len = utf8_show_one(shown, held, n_held, &used);

    if (held[0] == '\n' || held[0] == '\t')
        fputc(held[0], terminal);
    else
        fwrite(shown, 1, (size_t)len, terminal);
    n_held -= (size_t)used;
    memmove(held, held + used, n_held);
}

static ssize_t show(void *cookie, const char *text, size_t n)
{
    (void)cookie;
    for (size_t i = 0; i < n; i++) {
        held[n_held++] = text[i];
        while (n_held > 0 && utf8_len(held, n_held) != 0)
            show_held();
    }
    return fflush(terminal) == 0 && !ferror(terminal) ? (ssize_t)n : 0;
}

static int show_end(void *cookie)
{
    (void)cookie;
    while (n_held > 0)
        show_held();
    return fclose(terminal);
}

static int protect_terminal(void)
{
    const cookie_io_functions_t functions = {.write = show, .close = show_end};
    FILE *shown;

    if (!isatty(STDOUT_FILENO))
        return OK;
    shown = fopencookie(NULL, "w", functions);
    if (!shown || setvbuf(shown, NULL, _IOLBF, BUFSIZ) != 0)
        return err_set(ERR_NOMEM, "no memory for standard output");
    terminal = stdout;
    stdout = shown;
    return OK;
}

int process_start(void)
{
    int rc = open_standard_descriptors();

    signal(SIGCHLD, SIG_DFL);
    return rc == OK ? protect_terminal() : rc;
}

/* ---- what is done on a signal ---- */

typedef void (*signal_fn)(int sig);
static struct {
    _Atomic(signal_fn) fn;
    _Atomic pid_t pid; /* a forked child does not do what its parent would */
} at_signal[4];
#define N_AT_SIGNAL ((int)(sizeof(at_signal) / sizeof(at_signal[0])))

static void tidy_up(int sig)
{
    for (int i = 0; i < N_AT_SIGNAL; i++) {
        signal_fn fn = at_signal[i].fn;

        if (fn && at_signal[i].pid == getpid())
            fn(sig);
    }
}

static void on_signal(int sig)
{
    tidy_up(sig);
    raise(sig); /* its default action, when this returns */
}

void process_at_signal(void (*fn)(int sig))
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    struct sigaction now;

    for (int i = 0; i < N_AT_SIGNAL; i++) {
        signal_fn there = NULL;

        if (!atomic_compare_exchange_strong(&at_signal[i].fn, &there, fn) && there != fn)
            continue;
        at_signal[i].pid = getpid();
        break;
    }
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(signals[i], &ours, NULL);
}

static const char *short_program;
static int short_status;

static void end_short_of_memory(void)
{
    char line[600];
    int n = snprintf(line, sizeof(line), "%s: %s\n", short_program, err_msg());

    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        n = 0; /* nobody reads it */
    tidy_up(0);
    _exit(short_status); /* other threads still run: nothing of theirs is torn down */
}

void process_exit_when_short(const char *program, int status)
{
    short_program = program;
    short_status = status;
    mem_when_short(end_short_of_memory);
}

/* ---- the end ---- */

int process_end(void)
{
    bool lost = ferror(stdout); /* its errno is gone */

    errno = 0;
    if (fclose(stdout) == 0 && !lost)
        return OK;
    return errno ? err_set(ERR_IO, "standard output: cannot write: %m")
                 : err_set(ERR_IO, "standard output: a part could not be written");
}
