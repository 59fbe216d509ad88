#include "experiments/study/support/hidden_machine.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "simulate/random_machine.h"

struct study_topo_asked study_hidden_asked(const struct hidden_machine *k, int64_t seed,
                                           bool noise)
{
    return (struct study_topo_asked){.t = &k->t,
                                     .phase = TOPO_DECODE,
                                     .placement =
                                         k->is_interleaved ? &k->interleaved : NULL,
                                     .seed = (uint64_t)seed,
                                     .noise = noise};
}

int study_hidden_step_s(const struct hidden_machine *k, const struct topo_config *c,
                        double *seconds)
{
    return simulate_seconds(k->t.sim, c, k->is_interleaved ? &k->interleaved : NULL,
                            &k->t.decode, seconds);
}

static int find_best(struct hidden_machine *k)
{
    const struct study_topo *t = &k->t;
    struct study_topo_asked asked = study_hidden_asked(k, 0, false);
    struct plan_evaluation e;

    TRY(study_topo_evaluator(&e, &asked));
    TRY(simulate_exhaustive(&k->all, t->tree, &t->limits, e.measure, e.ctx, true));
    TRY(simulate_exhaustive(&k->ungrouped, t->tree, &t->limits, e.measure, e.ctx, false));
    return simulate_any_cores(&k->any, &k->all.config, &t->limits, e.measure, e.ctx);
}

/* "tiled:0.2": the kind and the fraction. *kind is -1 where the name does not begin with one. */
static int parse_random(const char *machine, int *kind, double *strength)
{
    size_t n = strcspn(machine, ":");
    char word[32];
    int end = 0;

    snprintf(word, sizeof(word), "%.*s", (int)n, machine);
    *kind = name_index(simulate_hidden_names, word);
    if (*kind < 0)
        return OK;
    if (!machine[n] || sscanf(machine + n + 1, "%lf%n", strength, &end) != 1 ||
        machine[n + 1 + (size_t)end])
        return err_set(ERR_ARG, "study.machine: expected %s:FRACTION, found \"%s\"", word,
                       machine);
    return OK;
}

static int open_random(struct hidden_machine *k, const struct simulate_random_opts *r)
{
    struct simulate_machine_params params;
    static const struct topo_limits none;
    struct study_topo *t = &k->t;

    TRY(simulate_random_machine(&t->machine, &params, r));
    TRY(simulate_machine_new(&t->sim, t->machine, &params));
    TRY(topo_tree_open(&t->tree, t->machine, NULL, t->note, sizeof(t->note)));
    simulate_random_workload(&t->decode, r->seed);
    k->is_interleaved = r->kind == SIMULATE_LINKS;
    return topo_config_cut(&k->interleaved, t->tree, 0, &none);
}

void study_hidden_machine_close(void *kept)
{
    struct hidden_machine *k = kept;

    mem_free(k->all.tree);
    mem_free(k->ungrouped.tree);
    mem_free(k->any.tree);
    study_topo_close(&k->t);
    memset(k, 0, sizeof(*k));
}

int study_hidden_machine_open(struct hidden_machine *k, const struct study_topo_opts *o,
                              int max_cores)
{
    struct simulate_random_opts r = {.max_cores = max_cores, .seed = (uint64_t)o->seed};
    char key[sizeof(k->key)];
    int kind;

    TRY(parse_random(o->machine, &kind, &r.strength));
    snprintf(key, sizeof(key), "%s|%s|%d|%lld", o->machine, o->model,
             kind < 0 ? 0 : max_cores, kind < 0 ? 0LL : (long long)o->seed);
    if (strcmp(key, k->key) == 0)
        return OK;
    study_hidden_machine_close(k);
    r.kind = (enum simulate_hidden)kind;
    TRY(kind < 0 ? study_topo_open(&k->t, o, NULL) : open_random(k, &r));
    TRY(find_best(k));
    memcpy(k->key, key, sizeof(key));
    return OK;
}
