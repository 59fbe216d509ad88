#include "experiments/load/study.h"

#include <string.h>

#include "base/name.h"

#define METRICS_MAX 256

int study_find(const char *name, const struct study **out)
{
    /* jobs of before are refused with the name and the key of now */
    if (strcmp(name, "topo_truth") == 0)
        return err_set(
            ERR_NOTFOUND,
            "study \"topo_truth\" is now \"topo_hidden_structure\", and its key "
            "\"truth\" is \"machine\": \"tiled:0.2\" or a machine's name");
    *out = name_find(studies, name, "study");
    return *out ? OK : ERR_NOTFOUND;
}

const struct study_metric *study_metric_find(const struct study *s, const char *name)
{
    const char *words[METRICS_MAX + 1] = {0};
    int n = 0;

    for (const struct study_metric *m = s->metrics; m->name && n < METRICS_MAX; m++) {
        words[n++] = m->name;
        if (strcmp(m->name, name) == 0)
            return m;
    }
    name_unknown(ERR_NOTFOUND, name, words, "study %s: no metric \"%s\"", s->name, name);
    return NULL;
}

const char *study_aa_find(const struct study *s, const char *metric)
{
    for (const struct study_aa *a = s->aa; a && a->metric; a++)
        if (strcmp(a->metric, metric) == 0)
            return a->again;
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
