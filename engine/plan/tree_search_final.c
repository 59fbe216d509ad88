/* The choice. The smallest of many noisy means is a lucky one, so what looks best is
 * measured again: by halving fields while many are in question, then the last few in turn,
 * and only what is measured there counts. */
#include "plan/tree_search_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"

/* Configurations that go on to be measured again: one in eight, at most so many, at least
 * four times those that are kept. */
#define FIELD_SHARE 8
#define FIELD_MAX   2048

struct standing {
    int entry;
    double mean;
};

static int by_mean(const void *a, const void *b)
{
    const struct standing *x = a, *y = b;

    if (x->mean != y->mean)
        return x->mean < y->mean ? -1 : 1;
    return x->entry - y->entry;
}

static int by_final_mean(const void *a, const void *b)
{
    const struct plan_candidate *x = a, *y = b;

    if (x->mean != y->mean)
        return x->mean < y->mean ? -1 : 1;
    return x->entry - y->entry;
}

enum field { ANY, PLAIN, WHOLE };

/* The measured entries of a field, best first. *out owned by the caller. */
static int standings(struct standing **out, int *n, const struct plan_trials *b,
                     enum field field)
{
    struct standing *s = mem_new(MEM_OTHER, (size_t)b->n_entries, sizeof(*s));

    *out = s;
    *n = 0;
    if (!s)
        return ERR_NOMEM;
    for (int i = 0; i < b->n_entries; i++) {
        const struct plan_trial *e = &b->entries[i];

        if (e->refused || !e->n || (field != ANY && e->n_groups) ||
            (field == WHOLE && e->n_removes))
            continue;
        s[(*n)++] = (struct standing){i, plan_trial_mean(e)};
    }
    qsort(s, (size_t)*n, sizeof(*s), by_mean);
    return OK;
}

/* The tree and cross-section of an entry; *tree owned by the caller. */
static int rebuild(struct topo_tree **tree, struct topo_config *c,
                   const struct plan_trials *b, int entry)
{
    const struct plan_trial *e = &b->entries[entry];
    int rc = plan_tree_id_tree(tree, b, &e->from);

    if (rc == OK)
        rc = topo_config_cut(c, *tree, e->level, b->limits);
    return rc;
}

/* As many measurements again for each of the first n, then in order of their means. */
static int race_round(struct plan_trials *b, struct standing *s, int n)
{
    int rc = OK;

    for (int i = 0; rc == OK && i < n && !plan_trials_spent(b); i++) {
        struct topo_tree *t = NULL;
        struct topo_config c;
        int more = b->entries[s[i].entry].n;

        if (more > b->o->final_repeats)
            more = (int)b->o->final_repeats;
        rc = rebuild(&t, &c, b, s[i].entry);
        if (rc == OK)
            rc = plan_trials_measure(b, s[i].entry, &c, more, NULL, NULL);
        s[i].mean = plan_trial_mean(&b->entries[s[i].entry]);
        mem_free(t);
    }
    qsort(s, (size_t)n, sizeof(*s), by_mean);
    return rc;
}

/* Successive halving of the best of a field down to `keep`: a quarter goes on with twice
 * the measurements. *n_out of out[] are written, best first. */
static int race(struct plan_trials *b, enum field field, int keep, int *out, int *n_out)
{
    struct standing *s = NULL;
    int n, in, rc = standings(&s, &n, b, field);

    *n_out = 0;
    if (rc != OK)
        goto out;
    in = n / FIELD_SHARE < 4 * keep ? 4 * keep : n / FIELD_SHARE;
    in = in > FIELD_MAX ? FIELD_MAX : in;
    in = in > n ? n : in;
    while (rc == OK && in > keep && !plan_trials_spent(b)) {
        rc = race_round(b, s, in);
        in = in / 4 > keep ? in / 4 : keep;
    }
    for (int i = 0; rc == OK && i < in && i < keep && isfinite(s[i].mean); i++)
        out[(*n_out)++] = s[i].entry;
out:
    mem_free(s);
    return rc;
}

static int enter(struct plan_final *f, const struct plan_trials *b, int entry)
{
    struct plan_candidate *v = &f->v[f->n];

    for (int i = 0; i < f->n; i++)
        if (f->v[i].entry == entry)
            return OK;
    v->entry = entry;
    v->x = mem_new(MEM_OTHER, (size_t)b->o->final_repeats, sizeof(*v->x));
    f->n++;
    return v->x ? rebuild(&v->tree, &v->config, b, entry) : ERR_NOMEM;
}

/* A configuration may be reached with groups though removes alone give it too: it is then
 * no evidence of anything hidden. Looks through all removes of the fundamental tree. */
static int simplify_from(struct plan_trials *b, const struct plan_tree_id *r)
{
    struct topo_tree *t = NULL;
    struct topo_config c;
    int64_t known;
    bool is_new;
    int entry, rc = plan_tree_id_tree(&t, b, r);

    for (int l = 0; rc == OK && l < t->n_levels; l++) {
        rc = topo_config_cut(&c, t, l, b->limits);
        if (rc == OK && map_find(&b->configs, topo_config_key(&c), &known) &&
            b->entries[known].n_groups)
            rc = plan_trials_entry(b, &c, r, &entry, &is_new);
        if (rc == ERR_UNSUPPORTED)
            rc = OK;
    }
    mem_free(t);
    return rc;
}

static int simplify(struct plan_trials *b)
{
    struct plan_tree_id r = plan_tree_id_whole(b, 0);
    const struct topo_tree *t = b->grouped[0];
    int rc = OK;

    if (!b->o->remove || b->o->all_cores || b->n_grouped == 1)
        return OK;
    for (int l = 0; rc == OK && l < t->n_levels;) { /* counts down, digit by digit */
        rc = simplify_from(b, &r);
        for (l = 0; l < t->n_levels; l++) {
            if (r.kept[l] > 1) {
                r.kept[l]--;
                break;
            }
            r.kept[l] = (uint16_t)t->levels[l].arity;
        }
    }
    return rc;
}

/* Measure v[0 ... n) in turn, `repeats` each, so that what drifts drifts for all. */
static int measure_in_turn(struct plan_trials *b, struct plan_candidate **v, int n,
                           int repeats)
{
    int rc = OK, got;

    for (int i = 0; rc == OK && i < repeats; i++)
        for (int j = 0; rc == OK && j < n; j++) {
            struct plan_candidate *f = v[(i + j) % n];

            rc = plan_trials_measure(b, f->entry, &f->config, 1, f->x + f->n, &got);
            f->n += got;
        }
    return rc;
}

static void settle(struct plan_candidate *f, const struct plan_trials *b)
{
    f->mean =
        f->n ? stats_mean(f->x, (size_t)f->n) : plan_trial_mean(&b->entries[f->entry]);
    f->sd = f->n > 1 ? stats_std(f->x, (size_t)f->n) : b->e->noise_frac * f->mean;
}

/* The declared noise, or what the finalists show where that is more. */
static double seen_noise(const struct plan_final *f, double declared)
{
    double sum = 0;
    int dof = 0;

    for (int i = 0; i < f->n; i++) {
        double s = f->v[i].sd / f->v[i].mean;

        if (f->v[i].n > 1) {
            sum += s * s * (f->v[i].n - 1);
            dof += f->v[i].n - 1;
        }
    }
    return dof ? fmax(declared, sqrt(sum / dof)) : declared;
}

/* Two means of n measurements differ by chance by sqrt(2 / n) times the noise. */
static double margin_of(const struct plan_final *f, const struct plan_trials *b, int n)
{
    return b->o->margin * f->noise_frac * sqrt(2.0 / (n ? n : 1));
}

/* Fastest first; ties; the simplest of those that tie. */
static void rank(struct plan_final *f, const struct plan_trials *b)
{
    double limit;

    for (int i = 0; i < f->n; i++)
        settle(&f->v[i], b);
    qsort(f->v, (size_t)f->n, sizeof(*f->v), by_final_mean);
    f->noise_frac = seen_noise(f, b->e->noise_frac);
    limit = f->v[0].mean * (1 + margin_of(f, b, f->v[0].n));
    f->chosen = 0;
    f->plain = f->whole = -1;
    for (int i = 0; i < f->n; i++) {
        const struct plan_trial *e = &b->entries[f->v[i].entry];

        f->v[i].ties = f->v[i].mean <= limit;
        if (f->v[i].ties && plan_trial_simpler(e, &b->entries[f->v[f->chosen].entry]) < 0)
            f->chosen = i;
        if (!e->n_groups && f->plain < 0)
            f->plain = i;
        if (!e->n_groups && !e->n_removes && f->whole < 0)
            f->whole = i;
    }
}

/* A duel takes so many times the final repeats: what counts as a tie is then twice the
 * usual margin away from chance. With the final repeats alone two of a hundred random
 * machines without hidden structure are given one. */
#define DUEL_REPEATS 4
/* ... against so many of the best without groups: which of them is the best is as much in
 * doubt, and to beat a lesser one shows nothing. */
#define RIVALS_MAX 3

struct duel {
    struct plan_candidate v[1 + RIVALS_MAX], *turn[1 + RIVALS_MAX]; /* [0] has groups */
    int n;
};

static void add_duellist(struct duel *d, const struct plan_final *f, int i)
{
    d->v[d->n] = f->v[i];
    d->v[d->n].x = NULL;
    d->v[d->n].n = 0;
    d->turn[d->n] = &d->v[d->n];
    d->n++;
}

static bool all_have(const struct duel *d, int n)
{
    for (int i = 0; i < d->n; i++)
        if (d->v[i].n < n)
            return false;
    return true;
}

/* By how much [0] beats the best of its rivals. */
static void judge(const struct duel *d, struct plan_final *f, const struct plan_trials *b,
                  int n)
{
    double own = stats_mean(d->v[0].x, (size_t)n), least = INFINITY;

    for (int i = 1; i < d->n; i++)
        least = fmin(least, stats_mean(d->v[i].x, (size_t)n));
    f->gain = least / own - 1;
    f->latent = f->gain > margin_of(f, b, (int)b->o->final_repeats);
}

/* A grouped winner is the best of several that noise sorted; it has to beat the best
 * without groups once more, in measurements that chose neither. */
static int duel(struct plan_final *f, struct plan_trials *b)
{
    int n = DUEL_REPEATS * (int)b->o->final_repeats, rc = OK, simplest;
    struct duel d = {.n = 0};
    double limit;

    if (!b->entries[f->v[f->chosen].entry].n_groups || f->plain < 0)
        return OK;
    f->duelled = true;
    f->gain = NAN;
    simplest = f->plain;
    limit = f->v[f->plain].mean * (1 + margin_of(f, b, f->v[f->plain].n));
    add_duellist(&d, f, f->chosen);
    for (int i = 0; i < f->n && d.n <= RIVALS_MAX; i++) {
        const struct plan_trial *e = &b->entries[f->v[i].entry];

        if (e->n_groups || f->v[i].mean > limit)
            continue;
        add_duellist(&d, f, i);
        if (plan_trial_simpler(e, &b->entries[f->v[simplest].entry]) < 0)
            simplest = i;
    }
    for (int i = 0; rc == OK && i < d.n; i++) {
        d.v[i].x = mem_new(MEM_OTHER, (size_t)n, sizeof(*d.v[i].x));
        rc = d.v[i].x ? OK : ERR_NOMEM;
    }
    if (rc == OK)
        rc = measure_in_turn(b, d.turn, d.n, n);
    if (rc == OK && all_have(&d, n)) /* else the budget proves nothing */
        judge(&d, f, b, n);
    if (rc == OK && !f->latent) {
        f->chosen = simplest;
        f->v[simplest].ties = true;
    }
    for (int i = 0; i < d.n; i++)
        mem_free(d.v[i].x);
    return rc;
}

int plan_tree_search_final(struct plan_final *out, struct plan_trials *b)
{
    int keep = (int)b->o->k, n_plain = 1 + keep / 2, n = 0, rc;
    int *list = mem_new(MEM_OTHER, (size_t)(keep + n_plain + 1), sizeof(*list));
    struct plan_candidate **turn = NULL;
    const enum field fields[] = {ANY, PLAIN, WHOLE};
    const int most[] = {keep, n_plain, 1};

    *out = (struct plan_final){.plain = -1, .whole = -1};
    out->v = mem_new(MEM_OTHER, (size_t)(keep + n_plain + 1), sizeof(*out->v));
    turn = mem_new(MEM_OTHER, (size_t)(keep + n_plain + 1), sizeof(*turn));
    rc = list && out->v && turn ? simplify(b) : ERR_NOMEM;
    for (int i = 0; rc == OK && i < 3; i++) {
        rc = race(b, fields[i], most[i], list, &n);
        for (int j = 0; rc == OK && j < n; j++)
            rc = enter(out, b, list[j]);
    }
    if (rc == OK && !out->n)
        rc = err_set(ERR_UNSUPPORTED, "of %lld trees no configuration can be run: %s",
                     (long long)b->counts->n_trees,
                     b->counts->n_refused ? "the model's operators or the evaluator "
                                            "refuse them all"
                                          : "the budget ended before a measurement");
    for (int i = 0; rc == OK && i < out->n; i++)
        turn[i] = &out->v[i];
    if (rc == OK)
        rc = measure_in_turn(b, turn, out->n, (int)b->o->final_repeats);
    if (rc == OK) {
        rank(out, b);
        rc = duel(out, b);
    }
    mem_free(turn);
    mem_free(list);
    if (rc != OK)
        plan_final_free(out);
    return rc;
}

void plan_final_free(struct plan_final *f)
{
    for (int i = 0; i < f->n; i++) {
        mem_free(f->v[i].tree);
        mem_free(f->v[i].x);
    }
    mem_free(f->v);
    *f = (struct plan_final){0};
}
