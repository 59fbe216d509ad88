#include "plan/lengths.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

#define REQUESTS_MAX 10000000
#define TOK_MAX      (1 << 28) /* as a model's context may be */

/* The arrays while they grow. */
struct growing {
    int64_t *prompt, *output;
    int64_t n, capacity;
};

static int grow(struct growing *g)
{
    int64_t capacity = g->capacity ? 2 * g->capacity : 1024, *p;

    if (g->n < g->capacity)
        return OK;
    p = mem_resize(MEM_OTHER, g->prompt, (size_t)capacity, sizeof(*p));
    if (!p)
        return ERR_NOMEM;
    g->prompt = p;
    p = mem_resize(MEM_OTHER, g->output, (size_t)capacity, sizeof(*p));
    if (!p)
        return ERR_NOMEM;
    g->output = p;
    g->capacity = capacity;
    return OK;
}

/* A number of 1 .. TOK_MAX; *s moves behind it and the spaces after it. */
static bool take_number(const char **s, int64_t *out)
{
    char *end;

    if (!isdigit((unsigned char)**s))
        return false;
    errno = 0;
    *out = strtoll(*s, &end, 10);
    while (*end == ' ' || *end == '\t' || *end == '\r' || *end == '\n')
        end++;
    *s = end;
    return errno == 0 && *out >= 1 && *out <= TOK_MAX;
}

static int take_line(struct growing *g, const char *line, int64_t number,
                     const char *path)
{
    const char *s = line;
    int64_t prompt, output;
    bool ok;
    int rc;

    while (*s == ' ' || *s == '\t')
        s++;
    if (*s == '\0' || *s == '\n' || *s == '\r')
        return OK;
    if (number == 1 && !isdigit((unsigned char)*s))
        return OK;
    ok = take_number(&s, &prompt) && *s == ',';
    for (s += ok; ok && *s == ' ';)
        s++;
    if (!ok || !take_number(&s, &output) || *s)
        return err_set(ERR_FORMAT,
                       "%s: line %lld: expected PROMPT,OUTPUT in tokens, 1 to %d each, "
                       "found \"%.*s\"",
                       path, (long long)number, TOK_MAX, (int)strcspn(line, "\r\n"),
                       line);
    if (g->n == REQUESTS_MAX)
        return err_set(ERR_LIMIT, "%s: more than %d requests", path, REQUESTS_MAX);
    rc = grow(g);
    if (rc != OK)
        return rc;
    g->prompt[g->n] = prompt;
    g->output[g->n++] = output;
    return OK;
}

int plan_lengths_read(struct plan_lengths *out, const char *path)
{
    struct growing g = {0};
    char *line = NULL;
    size_t capacity = 0;
    int64_t number = 0;
    ssize_t got;
    FILE *f;
    int rc = file_stream(&f, path);

    *out = (struct plan_lengths){0};
    if (rc != OK)
        return rc;
    while (rc == OK && (got = getline(&line, &capacity, f)) >= 0) {
        number++;
        rc = strlen(line) == (size_t)got
                 ? take_line(&g, line, number, path)
                 : err_set(ERR_FORMAT, "%s: line %lld: expected text, found a zero byte",
                           path, (long long)number);
    }
    if (rc == OK && ferror(f))
        rc = err_set(ERR_IO, "%s: cannot read: %m", path);
    if (rc == OK && g.n == 0)
        rc = err_set(ERR_FORMAT, "%s: expected a request at least, found none", path);
    free(line);
    fclose(f);
    *out = (struct plan_lengths){g.prompt, g.output, g.n};
    if (rc != OK)
        plan_lengths_free(out);
    return rc;
}

void plan_lengths_free(struct plan_lengths *l)
{
    mem_free((void *)l->n_prompt);
    mem_free((void *)l->n_output);
    *l = (struct plan_lengths){0};
}
