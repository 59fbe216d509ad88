/* The search as the paper prints it; --patience is the one value that the paper leaves open. */
#include <stdio.h>

#include "plan/method.h"

#define NAME "sandwich_paper_search"

static int run(struct plan_search_result *out, const struct plan_search_opts *o)
{
    struct plan_search_opts paper = *o;

    plan_tree_search_as_paper(&paper.search);
    TRY(plan_search(out, &paper));
    snprintf(out->plan.method, sizeof(out->plan.method), NAME);
    for (int i = 0; i < out->n_ranked; i++)
        snprintf(out->ranked[i].method, sizeof(out->ranked[i].method), NAME);
    return OK;
}

const struct plan_method plan_method_sandwich_paper_search = {
    .name = NAME,
    .help = "searches as the paper prints it: trees alone, against all parents",
    .run = run,
};
