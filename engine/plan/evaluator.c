#include "plan/evaluator.h"

#include <string.h>

#include "base/name.h"

int plan_evaluator_find(const char *name, const struct plan_evaluator **out)
{
    *out = name_find(plan_evaluators, name, "evaluator");
    return *out ? OK : ERR_NOTFOUND;
}
