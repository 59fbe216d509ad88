/* kv/alloc.h - how the memory of keys and values is divided: plug-ins in kv/alloc/.
 *
 * An allocator divides an arena of tokens among sequences. It is bookkeeping only: it never
 * sees the memory, reads no clock and takes no memory after open(), so that the engine and a
 * simulator run the same file, and being short of memory never loses a block. One file ends
 * in one `const struct kv_alloc kv_alloc_<stem>`.
 *
 * Where a sequence moves, the operation returns what to copy. Both its places stay reserved
 * until kv_alloc_moved(), so that several copies can run at once between two steps.
 * Paper: ODMA 3.4, 3.5.   Threads: one owner. */
#ifndef KV_ALLOC_H
#define KV_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct kv_bounds;

struct kv_arena {
    int64_t n_tok;     /* tokens that the arena holds */
    int64_t max_tok;   /* the longest sequence, which is the size of the large bucket; a
                          multiple of align_tok */
    int64_t align_tok; /* contiguous blocks begin and end at multiples of it */
    int64_t block_tok; /* paged: tokens of a block, see kv_block_tok_check() */
    int64_t max_seqs;  /* paged: sequences that have memory at once */
    double keep_frac;  /* paged: share of the blocks, in [0, 1), that stays free for those
                          that grow while another sequence gets memory */
    bool
        shared; /* paged: tables in memory that processes made by fork() afterwards share */
    int64_t n_fixed; /* s3: number of buckets */
    bool
        to_large; /* odma: as in the paper, a sequence that outgrows its memory moves to a
                        large bucket; else to twice its memory */
    double
        large_frac; /* odma, odma_paper: share of the arena, in [0, 1), that is kept for
                          large blocks, as in the paper; 0: they are of what is free */
    /* odma, odma_paper: the present bounds, lent while the allocator is open. NULL: there are
     * none, so that every sequence gets a large block, as with static. */
    const struct kv_bounds *bounds;
};

/* The lengths of a sequence that are known when it gets memory. */
struct kv_need {
    int64_t
        prompt_tok;  /* tokens that it has: its prompt, after a preemption also those that
                           it had generated */
    int64_t gen_tok; /* further tokens that it is predicted to generate */
    bool large;      /* the prediction is not trusted: the large bucket */
};

/* The memory of a sequence, lent until release(). */
struct kv_extent {
    int64_t id;        /* the allocator's name of it */
    int64_t first_tok; /* where it begins in the arena; -1: it is a table of blocks */
    int64_t cap_tok;   /* tokens that it holds */
    /* [cap_tok / block_tok] numbers of blocks: the i-th holds the sequence's tokens from i *
     * block_tok on and begins at token blocks[i] * block_tok of the arena. NULL: contiguous. */
    const int32_t *blocks;
};

/* The copy to make before the next step, and the block that the sequence leaves. */
struct kv_move {
    int64_t from_tok, to_tok, n_tok; /* n_tok 0: the sequence stayed where it was */
    int64_t old_id;                  /* -1: nothing to release */
};

struct kv_alloc_stat {
    int64_t arena_tok; /* tokens that can be reserved; those of a last, incomplete part of
                             the arena are not counted */
    int64_t reserved_tok; /* tokens of blocks that sequences have */
    int64_t n_live;       /* blocks, or with paged tables, that are reserved */
    int64_t
        n_visited; /* list nodes, words and blocks that operations visited: the bound of
                          an operation's work that a test checks */
};

struct kv_alloc {
    const char *name, *help;
    bool paged;         /* a sequence's memory is a table of blocks */
    bool several_sizes; /* contiguous blocks are of several sizes */
    bool learns; /* its buckets are those of kv_arena.bounds, which follow the lengths */
    /* ERR_ARG: a size is out of range. ERR_NOMEM: the arena holds no sequence of max_tok, or
     * the system has no more memory. */
    int (*open)(void **state, const struct kv_arena *a);
    void (*close)(void *state);
    /* Memory for a sequence, at least its prompt and one token more where gen_tok > 0.
     * ERR_NOMEM: none is free now. ERR_LIMIT: it can never have any. The message says why. */
    int (*reserve)(void *state, const struct kv_need *need, struct kv_extent *out);
    /* Let *e hold want_tok tokens; used_tok of them are there. On error *e and *m are as
     * before. ERR_NOMEM, ERR_LIMIT: as above. */
    int (*grow)(void *state, struct kv_extent *e, int64_t used_tok, int64_t want_tok,
                struct kv_move *m);
    /* Give back what the sequence has beyond n_tok > 0 tokens. NULL: memory never shrinks. */
    void (*trim)(void *state, struct kv_extent *e, int64_t n_tok);
    /* Release the block that a sequence left. NULL: sequences never move. */
    void (*moved)(void *state, int64_t old_id);
    void (*release)(void *state, int64_t id);
    void (*stat)(const void *state, struct kv_alloc_stat *out);
    /* The bounds of its buckets now, lent while it is open; NULL: it has none. The function is
     * NULL where the allocator never has any. */
    const struct kv_bounds *(*bounds)(const void *state);
};

extern const struct kv_alloc *const kv_allocs[]; /* NULL-terminated, written by make */
/* ERR_NOTFOUND names the nearest. */
MUST int kv_alloc_find(const char *name, const struct kv_alloc **out);

/* The plug-in's open(), after the checks that all have in common. *state is the caller's, to
 * be closed by a->close(); NULL on error. */
MUST int kv_alloc_open(const struct kv_alloc *a, void **state,
                       const struct kv_arena *arena);
/* ERR_ARG: not a power of two from 16 to 512. */
MUST int kv_block_tok_check(int64_t block_tok);
/* The check that every plug-in makes first. ERR_LIMIT: it can never have that much memory. */
MUST int kv_need_check(const struct kv_need *need, int64_t max_tok);
MUST int kv_want_check(int64_t want_tok, int64_t max_tok);
/* Tokens that a sequence counts as when it gets memory: with a table of blocks, which grows as
 * the sequence does, those that it has and the next. */
int64_t kv_alloc_need_tok(const struct kv_alloc *a, const struct kv_need *need);
/* The bounds of an allocator's buckets; NULL: it has none, so that all sequences get the same. */
const struct kv_bounds *kv_alloc_bounds(const struct kv_alloc *a, const void *state);
/* For plug-ins: the sequence at *e, of which used_tok tokens are there, goes to *to. */
void kv_alloc_move(struct kv_extent *e, const struct kv_extent *to, int64_t used_tok,
                   struct kv_move *m);
/* The copy of *m is done: release the block that it leaves. */
void kv_alloc_moved(const struct kv_alloc *a, void *state, struct kv_move *m);

#endif
