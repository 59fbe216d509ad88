/* The search over TopoTrees, phase by phase. */
#include "plan/method.h"

const struct plan_method plan_method_search = {
    .name = "search",
    .help = "searches the ranks and CPUs of each phase",
    .run = plan_search,
};
