#include "experiments/run/resume.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* The command that continues this run, for a signal handler to print. */
static char resume_line[2048];

/* A word as a shell reads it, behind a space. */
static void put_word(struct text *t, const char *word)
{
    bool plain = word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789_-+=./,:@%")] == 0;

    text_puts(t, plain ? " " : " '");
    for (; *word; word++)
        if (*word == '\'')
            text_puts(t, "'\\''");
        else
            text_put(t, word, 1);
    text_puts(t, plain ? "" : "'");
}

/* --fresh is left out: it would discard what has been measured. */
void run_resume_remember(int argc, char **argv)
{
    struct text t = {0};

    /* Below the line of progress. */
    text_puts(&t, isatty(STDERR_FILENO) ? "\ntestbed: " : "testbed: ");
    text_puts(&t,
              "interrupted; what was measured is kept, and this command continues the "
              "run:");
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--fresh") != 0)
            put_word(&t, argv[i]);
    text_put(&t, "\n", 2);
    snprintf(resume_line, sizeof(resume_line), "%s", t.rc == OK ? t.p : "");
    text_fini(&t);
}

void run_resume_add(const char *word)
{
    const size_t n =
        strcspn(resume_line + (*resume_line == '\n'), "\n") + (*resume_line == '\n');

    if (!strstr(resume_line, word))
        snprintf(resume_line + n, sizeof(resume_line) - n, " %s\n", word);
}

void run_resume_report(int sig)
{
    (void)sig;
    if (write(STDERR_FILENO, resume_line, strlen(resume_line)) < 0)
        return; /* nobody reads it */
}
