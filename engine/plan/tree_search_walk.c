/* Exploration: the transformation tree of every grouped tree.
 *
 * With all CPUs kept the grouped trees tie but for their cross-sections, so their own
 * scores order nothing. What tells them apart is the first remove: that is tried on all
 * trees of as many groups, cheaply, before any of them is followed, the most promising
 * first. Trees of one group more come after that. */
#include "plan/tree_search_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

struct node {
    struct plan_tree_id recipe;
    int n_removed; /* children, over all levels: the topological order */
    double score, best_parent;
};

/* Configurations of the same ranks and memory nodes in a transformation tree. */
struct kin {
    uint64_t key;
    double best;
    int n_worse; /* in a row, since a remove run began */
    bool dropped;
};
#define KIN_MAX 128

/* One transformation tree, partly walked. */
struct walk {
    int grouped;
    struct node *nodes;
    int n, size;
    int *heap; /* [n_heap] of nodes[] yet to be followed, fewest removed on top */
    int n_heap, heap_size;
    double best; /* score of a removed tree so far */
};

struct explorer {
    struct plan_trials *b;
    struct map seen; /* tree hash to grouped << 32 | node, over the whole search */
    double eps;
    struct kin kin[KIN_MAX]; /* [n_kin] of the transformation tree being walked */
    int n_kin;
    struct rng order;
};

static void walk_fini(struct walk *w)
{
    mem_free(w->nodes);
    mem_free(w->heap);
    w->nodes = NULL;
    w->heap = NULL;
    w->n = w->size = w->n_heap = w->heap_size = 0;
}

static bool heap_before(const struct walk *w, int a, int b)
{
    const struct node *x = &w->nodes[a], *y = &w->nodes[b];

    return x->n_removed != y->n_removed ? x->n_removed < y->n_removed : a < b;
}

static void heap_up(struct walk *w)
{
    for (int i = w->n_heap - 1; i > 0;) {
        int up = (i - 1) / 2, t = w->heap[i];

        if (!heap_before(w, t, w->heap[up]))
            break;
        w->heap[i] = w->heap[up];
        w->heap[up] = t;
        i = up;
    }
}

static int heap_pop(struct walk *w)
{
    int top = w->heap[0], last = w->heap[--w->n_heap], i = 0;

    for (;;) {
        int child = 2 * i + 1;

        if (child + 1 < w->n_heap && heap_before(w, w->heap[child + 1], w->heap[child]))
            child++;
        if (child >= w->n_heap || !heap_before(w, w->heap[child], last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

/* Room for one more element of *array. */
static int widen(void **array, int n, int *size, size_t bytes)
{
    int wider = *size ? 2 * *size : 16;
    void *p;

    if (n < *size)
        return OK;
    p = mem_resize(MEM_OTHER, *array, (size_t)wider, bytes);
    if (!p)
        return ERR_NOMEM;
    *array = p;
    *size = wider;
    return OK;
}

static int walk_push(struct walk *w, const struct node *node)
{
    int rc = widen((void **)&w->nodes, w->n, &w->size, sizeof(w->nodes[0]));

    if (rc == OK)
        rc = widen((void **)&w->heap, w->n_heap, &w->heap_size, sizeof(w->heap[0]));
    if (rc != OK)
        return rc;
    w->nodes[w->n] = *node;
    w->heap[w->n_heap++] = w->n++;
    heap_up(w);
    return OK;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* The patience group of a configuration: its ranks and their memory nodes. NULL: there
 * are too many groups to tell apart, or patience is off. */
static struct kin *kin_of(struct explorer *x, int grouped, const struct topo_config *c)
{
    uint64_t key = mix(1, (uint64_t)c->n_ranks);
    int nodes[16];

    /* The tree without groups is what groups are compared with: all of it is seen. */
    if (!x->b->o->patience || !grouped)
        return NULL;
    for (int r = 0; r < c->n_ranks; r++) {
        int n = topo_config_nodes(c, r, nodes, 16);

        key = mix(key, (uint64_t)n);
        for (int i = 0; i < n && i < 16; i++)
            key = mix(key, (uint64_t)nodes[i]);
    }
    for (int i = 0; i < x->n_kin; i++)
        if (x->kin[i].key == key)
            return &x->kin[i];
    if (x->n_kin == KIN_MAX)
        return NULL;
    x->kin[x->n_kin] = (struct kin){.key = key, .best = INFINITY};
    return &x->kin[x->n_kin++];
}

/* Clearly worse than the best of its kind spends patience, a new best restores it, and
 * what lies between, where noise decides, does neither. */
static void kin_learn(const struct explorer *x, struct kin *k, double seconds)
{
    if (seconds < k->best) {
        k->best = seconds;
        k->n_worse = 0;
    } else if (seconds > k->best * (1 + x->eps)) {
        k->n_worse++;
    }
    k->dropped = k->n_worse >= x->b->o->patience;
}

/* sandwich-config: the best of a tree's cross-sections. */
static int score(struct explorer *x, const struct topo_tree *t,
                 const struct plan_tree_id *r, double *best)
{
    struct plan_trials *b = x->b;
    /* All trees are compared with the whole fundamental one. */
    bool reference = r->grouped == 0 && t == b->grouped[0];
    int64_t repeats = reference ? b->o->final_repeats : b->o->repeats;

    *best = INFINITY;
    b->counts->n_trees++;
    for (int l = 0; l < t->n_levels && !b->spent; l++) {
        struct topo_config c;
        struct kin *kin;
        double seconds;
        bool is_new;
        int i, rc = topo_config_cut(&c, t, l, b->limits);

        if (rc == ERR_UNSUPPORTED) {
            b->counts->n_refused++;
            continue;
        }
        if (rc == OK)
            rc = plan_trials_entry(b, &c, r, &i, &is_new);
        if (rc != OK)
            return rc;
        kin = kin_of(x, r->grouped, &c);
        if (b->entries[i].n == 0 && !b->entries[i].refused && kin && kin->dropped) {
            b->counts->n_dropped++;
            continue;
        }
        if (b->entries[i].n == 0 || !b->o->hash)
            rc = plan_trials_measure(b, i, &c, (int)repeats, NULL, NULL);
        if (rc != OK)
            return rc;
        seconds = plan_trial_mean(&b->entries[i]);
        if (kin && isfinite(seconds))
            kin_learn(x, kin, seconds);
        *best = fmin(*best, seconds);
    }
    return OK;
}

/* A child of nodes[parent], unless it is known. */
static int try_child(struct explorer *x, struct walk *w, const struct topo_tree *from,
                     int parent, int level, int n)
{
    struct node child = {.recipe = w->nodes[parent].recipe,
                         .n_removed = w->nodes[parent].n_removed + n,
                         .best_parent = w->nodes[parent].score};
    struct topo_tree *t = NULL;
    uint64_t hash = 0;
    int64_t known;
    int rc = topo_tree_remove(&t, from, n, level + 1);

    if (rc != OK)
        return rc;
    child.recipe.kept[level] = (uint16_t)(child.recipe.kept[level] - n);
    if (x->b->o->hash) {
        hash = topo_tree_hash(t);
        if (map_find(&x->seen, hash, &known)) {
            x->b->counts->n_merged++;
            if (known >> 32 == w->grouped) {
                struct node *same = &w->nodes[known & 0xFFFFFFFF];

                same->best_parent = fmin(same->best_parent, child.best_parent);
            }
            goto out;
        }
        rc = map_put(&x->seen, hash, (int64_t)w->grouped << 32 | w->n);
    }
    if (rc == OK)
        rc = score(x, t, &child.recipe, &child.score);
    if (rc == OK)
        rc = walk_push(w, &child);
    w->best = fmin(w->best, child.score);
out:
    mem_free(t);
    return rc;
}

static int expand(struct explorer *x, struct walk *w, int i)
{
    struct plan_tree_id r = w->nodes[i].recipe;
    struct topo_tree *t = NULL;
    int n_levels = x->b->grouped[w->grouped]->n_levels;
    int rc = plan_tree_id_tree(&t, x->b, &r);

    for (int l = 0; rc == OK && l + 1 < n_levels; l++) {
        for (int k = 0; k < x->n_kin; k++)
            x->kin[k] = (struct kin){.key = x->kin[k].key, .best = x->kin[k].best};
        for (int n = 1; rc == OK && n < r.kept[l] && !x->b->spent; n++)
            rc = try_child(x, w, t, i, l, n);
    }
    mem_free(t);
    return rc;
}

/* The whole tree and one remove of each kind. */
static int walk_begin(struct explorer *x, struct walk *w, int grouped)
{
    struct plan_trials *b = x->b;
    struct node root = {.recipe = plan_tree_id_whole(b, grouped),
                        .best_parent = INFINITY};
    int rc = OK;

    *w = (struct walk){.grouped = grouped, .best = INFINITY};
    x->n_kin = 0;
    if (b->o->hash)
        rc = map_put(&x->seen, topo_tree_hash(b->grouped[grouped]),
                     (int64_t)grouped << 32);
    if (rc == OK)
        rc = score(x, b->grouped[grouped], &root.recipe, &root.score);
    if (rc == OK && b->o->remove && !b->o->all_cores) {
        rc = walk_push(w, &root);
        if (rc == OK)
            rc = expand(x, w, heap_pop(w));
    }
    return rc;
}

/* Parents come before children, so a node's best parent is known when it is its turn. */
static int walk_follow(struct explorer *x, struct walk *w)
{
    int rc = OK;

    x->n_kin = 0;
    while (rc == OK && w->n_heap && !x->b->spent) {
        int i = heap_pop(w);
        const struct node *node = &w->nodes[i];

        if (x->b->o->prune && node->score >= node->best_parent * (1 - x->eps))
            x->b->counts->n_pruned++;
        else
            rc = expand(x, w, i);
    }
    return rc;
}

static int by_promise(const void *a, const void *b)
{
    const struct walk *x = *(struct walk *const *)a, *y = *(struct walk *const *)b;

    if (x->best != y->best)
        return x->best < y->best ? -1 : 1;
    return x->grouped - y->grouped;
}

/* Give a stage this share of the measurements that are left; returns the limit to put
 * back with stage_end(). */
static int64_t stage_begin(struct plan_trials *b, double share)
{
    int64_t limit = b->stop_at, used = b->counts->n_measurements;

    if (limit)
        b->stop_at = used + (int64_t)ceil(share * (double)(limit - used));
    return limit;
}

static void stage_end(struct plan_trials *b, int64_t limit)
{
    if (b->spent)
        b->counts->complete = false;
    b->stop_at = limit;
    b->spent = false; /* where all is spent, the next look says so */
}

static void shuffle(struct explorer *x, int *v, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)rng_below(&x->order, (uint64_t)i + 1), t = v[i];

        v[i] = v[j];
        v[j] = t;
    }
}

/* Trees first ... first + n - 1 of the closure, of as many groups each. Three quarters of
 * what is left may go into looking at all of them, in random order so that a small budget
 * sees all sorts; then, but for the last round, half of the rest into following. */
static int walk_round(struct explorer *x, int first, int n, bool last)
{
    struct plan_trials *b = x->b;
    struct walk *walks = mem_new(MEM_OTHER, (size_t)n, sizeof(*walks));
    struct walk **order = mem_new(MEM_OTHER, (size_t)n, sizeof(struct walk *));
    int *trees = mem_new(MEM_OTHER, (size_t)n, sizeof(*trees));
    int rc = walks && order && trees ? OK : ERR_NOMEM, n_begun = 0;
    int64_t limit = stage_begin(b, 0.75);

    for (int i = 0; rc == OK && i < n; i++)
        trees[i] = first + i;
    if (rc == OK)
        shuffle(x, trees, n);
    while (rc == OK && n_begun < n && !plan_trials_spent(b)) {
        order[n_begun] = &walks[n_begun];
        rc = walk_begin(x, &walks[n_begun], trees[n_begun]);
        n_begun++;
    }
    stage_end(b, limit);
    if (rc == OK)
        qsort(order, (size_t)n_begun, sizeof(struct walk *), by_promise);
    limit = stage_begin(b, last ? 1 : 0.5);
    for (int i = 0; rc == OK && i < n_begun && !plan_trials_spent(b); i++)
        rc = walk_follow(x, order[i]);
    stage_end(b, limit);
    for (int i = 0; i < n_begun; i++)
        walk_fini(&walks[i]);
    mem_free(trees);
    mem_free(order);
    mem_free(walks);
    return rc;
}

int plan_tree_search_walk(struct plan_trials *b)
{
    struct explorer x = {
        .b = b, .eps = b->o->margin * b->e->noise_frac / sqrt((double)b->o->repeats)};
    int rc = OK;

    rng_init(&x.order, (uint64_t)b->o->seed, "topo_search_order");
    for (int first = 0, end; rc == OK && first < b->n_grouped; first = end) {
        int groups = plan_tree_groups(b->grouped[first]);

        for (end = first + 1; end < b->n_grouped; end++)
            if (plan_tree_groups(b->grouped[end]) != groups)
                break;
        if (plan_trials_spent(b)) {
            b->counts->complete = false;
            break;
        }
        rc = walk_round(&x, first, end - first, end == b->n_grouped);
    }
    map_fini(&x.seen);
    return rc;
}
