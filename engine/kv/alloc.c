#include "kv/alloc.h"

#include "base/name.h"

int kv_alloc_find(const char *name, const struct kv_alloc **out)
{
    *out = name_find(kv_allocs, name, "kv allocator");
    return *out ? OK : ERR_NOTFOUND;
}

int kv_alloc_open(const struct kv_alloc *a, void **state, const struct kv_arena *arena)
{
    *state = NULL;
    if (arena->max_tok < 1 || arena->align_tok < 1 ||
        arena->max_tok % arena->align_tok != 0)
        return err_set(ERR_ARG,
                       "kv: a longest sequence of %lld tokens is not a multiple of the "
                       "alignment, %lld",
                       (long long)arena->max_tok, (long long)arena->align_tok);
    if (arena->n_tok < arena->max_tok)
        return err_set(ERR_NOMEM,
                       "kv: %lld tokens of memory hold no sequence of %lld tokens",
                       (long long)arena->n_tok, (long long)arena->max_tok);
    return a->open(state, arena);
}

int64_t kv_alloc_need_tok(const struct kv_alloc *a, const struct kv_need *need)
{
    return need->prompt_tok + (a->paged && need->gen_tok > 0 ? 1 : need->gen_tok);
}

const struct kv_bounds *kv_alloc_bounds(const struct kv_alloc *a, const void *state)
{
    return a->bounds ? a->bounds(state) : NULL;
}

void kv_alloc_move(struct kv_extent *e, const struct kv_extent *to, int64_t used_tok,
                   struct kv_move *m)
{
    *m = (struct kv_move){.from_tok = e->first_tok,
                          .to_tok = to->first_tok,
                          .n_tok = used_tok,
                          .old_id = e->id};
    *e = *to;
}

void kv_alloc_moved(const struct kv_alloc *a, void *state, struct kv_move *m)
{
    if (m->old_id >= 0)
        a->moved(state, m->old_id);
    *m = (struct kv_move){.old_id = -1};
}

int kv_block_tok_check(int64_t block_tok)
{
    if (block_tok >= 16 && block_tok <= 512 && (block_tok & (block_tok - 1)) == 0)
        return OK;
    return err_set(ERR_ARG,
                   "kv: blocks of %lld tokens: expected a power of two from 16 to 512",
                   (long long)block_tok);
}

int kv_want_check(int64_t want_tok, int64_t max_tok)
{
    if (want_tok <= max_tok)
        return OK;
    return err_set(ERR_LIMIT, "kv: a sequence of %lld tokens, the longest is %lld",
                   (long long)want_tok, (long long)max_tok);
}

int kv_need_check(const struct kv_need *need, int64_t max_tok)
{
    if (need->prompt_tok < 1 || need->gen_tok < 0)
        return err_set(ERR_ARG, "kv: a sequence of %lld tokens that generates %lld more",
                       (long long)need->prompt_tok, (long long)need->gen_tok);
    return kv_want_check(need->prompt_tok + (need->gen_tok > 0), max_tok);
}
