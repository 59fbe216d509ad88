#include "chat/impl.h"

#include "base/mem.h"

#define BLOCK_BYTES ((size_t)32 << 10)

struct chat_block {
    struct chat_block *next;
    size_t used, size;
    _Alignas(16) char bytes[];
};

void *chat_arena_new(struct chat_arena *a, size_t n, int *rc)
{
    struct chat_block *b = a->blocks;
    size_t size;

    n = (n + 15) & ~(size_t)15;
    if (n > a->max || a->used > a->max - n) {
        *rc = err_set(ERR_LIMIT, "it needs more than %zu MiB of memory", a->max >> 20);
        return NULL;
    }
    if (!b || b->size - b->used < n) {
        size = n > BLOCK_BYTES / 4 ? n : BLOCK_BYTES;
        b = mem_new(MEM_OTHER, sizeof(*b) + size, 1);
        if (!b) {
            *rc = ERR_NOMEM;
            return NULL;
        }
        b->size = size;
        if (a->blocks &&
            size == n) { /* its own block, behind the one that has space left */
            b->next = a->blocks->next;
            a->blocks->next = b;
        } else {
            b->next = a->blocks;
            a->blocks = b;
        }
    }
    b->used += n;
    a->used += n;
    return b->bytes + b->used - n;
}

void chat_arena_fini(struct chat_arena *a)
{
    struct chat_block *next;

    for (struct chat_block *b = a->blocks; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    *a = (struct chat_arena){.max = a->max};
}
