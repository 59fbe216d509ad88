#include "plan/evaluator.h"

#include <string.h>

#include "base/opt.h"

#define EVALUATORS_MAX 32

int plan_evaluator_find(const char *name, const struct plan_evaluator **out)
{
    const char *words[EVALUATORS_MAX + 1];
    const char *near;
    int n = 0;

    *out = NULL;
    for (; plan_evaluators[n] && n < EVALUATORS_MAX; n++) {
        words[n] = plan_evaluators[n]->name;
        if (!strcmp(words[n], name)) {
            *out = plan_evaluators[n];
            return OK;
        }
    }
    words[n] = NULL;
    near = opt_nearest(name, words);
    return err_set(ERR_NOTFOUND, "evaluator \"%s\" does not exist%s%s%s", name,
                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}
