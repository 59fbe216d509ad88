#include "experiments/study/support/program.h"

#include <limits.h>
#include <string.h>

#include "base/child.h"
#include "base/home.h"

#define WORDS_MAX  64
#define LINE_CHARS 160

int study_program_start(struct study_program *p)
{
    const char *argv[WORDS_MAX + 1] = {0};
    struct child_program child = {.argv = argv, .env = p->env, .fd = {-1, -1, -1}};
    char path[PATH_MAX];
    int rc;

    for (int i = 0; p->argv[i]; i++) {
        if (i == WORDS_MAX)
            return err_set(ERR_ARG, "%s: more than %d words", p->name, WORDS_MAX);
        argv[i] = p->argv[i];
    }
    if (strcmp(argv[0], "sandwich") == 0)
        argv[0] = home_program(path, sizeof(path), "sandwich");
    p->answer = tmpfile();
    p->log = tmpfile();
    if (!p->answer || !p->log)
        return err_set(ERR_IO, "%s: cannot make a temporary file: %m", p->name);
    child.fd[1] = fileno(p->answer);
    child.fd[2] = fileno(p->log);
    rc = child_start(&p->pid, &child);
    return rc == OK ? OK : err_prefix(rc, "%s", p->name);
}

int study_program_wait(struct study_program *p, double limit_s, json_t **answer)
{
    char line[LINE_CHARS] = "";
    json_error_t e;
    int rc = child_wait(&p->pid, limit_s);

    if (answer)
        *answer = NULL;
    if (rc == ERR_LIMIT)
        return err_prefix(rc, "%s", p->name);
    if (rc == OK && answer) {
        rewind(p->answer);
        *answer = json_loadf(p->answer, 0, &e);
        if (!*answer)
            rc = err_set(ERR_FORMAT, "%s", e.text);
    }
    if (rc == OK)
        return OK;
    child_last_line(fileno(p->log), line, sizeof(line));
    return *line ? err_prefix(rc, "%s (%s)", p->name, line)
                 : err_prefix(rc, "%s", p->name);
}

void study_program_close(struct study_program *p)
{
    child_kill(&p->pid);
    if (p->answer)
        fclose(p->answer);
    if (p->log)
        fclose(p->log);
    p->answer = p->log = NULL;
}

int study_program_run(struct study_program *p, json_t **answer)
{
    int rc = study_program_start(p);

    if (rc == OK)
        rc = study_program_wait(p, 0, answer);
    study_program_close(p);
    return rc;
}
