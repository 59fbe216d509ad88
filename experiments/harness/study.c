#include "experiments/harness/study.h"

#include <string.h>

#define MAX_WORDS 256

static int unknown(const char *what, const char *name, const char *const *words)
{
    const char *near = opt_nearest(name, words);

    return err_set(ERR_NOTFOUND, "%s \"%s\" does not exist%s%s%s", what, name,
                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

int study_find(const char *name, const struct study **out)
{
    const char *words[MAX_WORDS + 1] = {0};

    *out = NULL;
    for (int i = 0; studies[i] && i < MAX_WORDS; i++) {
        words[i] = studies[i]->name;
        if (strcmp(words[i], name) != 0)
            continue;
        *out = studies[i];
        return OK;
    }
    return unknown("study", name, words);
}

const struct study_metric *study_metric_find(const struct study *s, const char *name)
{
    const char *words[MAX_WORDS + 1] = {0};
    int n = 0;

    for (const struct study_metric *m = s->metrics; m->name && n < MAX_WORDS; m++) {
        words[n++] = m->name;
        if (strcmp(m->name, name) == 0)
            return m;
    }
    if (unknown("metric", name, words) != OK)
        err_prefix(ERR_NOTFOUND, "study %s", s->name);
    return NULL;
}

void study_docs(FILE *f)
{
    for (int i = 0; studies[i]; i++) {
        fprintf(f, "\n## study %s\n%s\n\n", studies[i]->name, studies[i]->help);
        fprintf(f, "| metric | unit | better | definition |\n|---|---|---|---|\n");
        for (const struct study_metric *m = studies[i]->metrics; m->name; m++)
            fprintf(f, "| `%s` | %s | %s | %s |\n", m->name, m->unit, m->better, m->text);
    }
}
