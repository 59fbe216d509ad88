#!/bin/sh
# Each rule of the memory for keys and values, broken on purpose in a copy of the code: the test that
# stands for the rule must fail. A rule is broken by a change of one line, which must exist.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests kv/test_buckets kv/test_evict kv/test_alloc kv/test_alloc_large kv/test_pool kv/test_predict kv/test_slot_runs sched/test_loop \
    serve/test_kv_alloc study/test_odma_replay

# 1. Bounds are quantiles of the window, aligned up, strictly increasing, at most the longest.
b=engine/kv/buckets.c
breaks "a quantile too low" $b 's/rank = ceil(/rank = floor(/' kv/test_buckets bounds_are_quantiles
breaks "bounds not aligned" $b 's/bound = (bin + 1) \* b->o.align_tok/bound = bin * b->o.align_tok + 1/' \
    kv/test_buckets bounds_are_quantiles
breaks "equal bounds" $b 's/bound > out->tok/bound >= out->tok/' kv/test_buckets bounds_are_quantiles
breaks "a bound beyond the longest" $b '/bound = bound < b->o.max_tok/d' kv/test_buckets bounds_are_quantiles
# 2. Bounds change in epochs, which leave sequences with memory alone.
breaks "bounds that change at once" $b 's/^    b->n_added++;/&\n    kv_buckets_learn(b);/' \
    kv/test_buckets bounds_are_quantiles
o=engine/kv/alloc/odma.c
breaks "a sequence gets the new bounds" $o \
    's/if (want_tok <= e->cap_tok/if (o->bounds->n > 0 \&\& o->bounds->tok[0] >= want_tok)\n e->cap_tok = o->bounds->tok[0];\n&/' \
    kv/test_alloc histories_of_odma
# 3. The smallest bucket that holds the prediction; the large one where that is uncertain.
breaks "a larger bucket" $b 's/b->tok\[i\] < n))/b->tok[i] <= n))/' kv/test_buckets the_smallest_bucket_is_chosen
breaks "no large bucket" $b 's/need->large || //' kv/test_buckets the_smallest_bucket_is_chosen
breaks "uncertain predictions are trusted" engine/kv/predict.c 's/p->uncertainty > c->tau/false/' \
    kv/test_predict needs_follow_from_predictions
# 4. What moves keeps all of its bytes, the old block is released once, and the tokens are the same.
p=engine/kv/pool.c
breaks "a token is not copied" $p 's/size_t used = (size_t)used_tok/size_t used = (size_t)(used_tok - 1)/' \
    kv/test_pool test_grow
breaks "a copy overwrites another" $p 's/int layer = p->shape.n_layers - 1; layer >= 0; layer--/int layer = 0; layer < p->shape.n_layers; layer++/' \
    kv/test_pool test_grow
breaks "a head outside of its part of the pool" $p 's/(size_t)arena_tok(p) \* token/(size_t)e->cap_tok * token/' \
    kv/test_pool test_heads_have_parts
breaks "other tokens after a move" $p 's/size_t used = (size_t)used_tok/size_t used = (size_t)(used_tok \/ 2)/' \
    serve/test_kv_alloc test_same_tokens
breaks "the block that is left is not released" engine/kv/alloc.c 's/if (m->old_id >= 0)/if (m->old_id == 0)/' \
    kv/test_alloc histories_of_odma
breaks "the block that is left is released twice" engine/kv/alloc.c \
    's/a->moved(state, m->old_id);/a->moved(state, m->old_id), &/' kv/test_alloc histories_of_odma
# 5. Blocks do not overlap, are contiguous and aligned, and all memory comes back.
r=engine/kv/runs.c
breaks "blocks overlap" $r 's/add_free(r, at + n, n_free - n)/add_free(r, at + n - 1, n_free - n + 1)/' \
    kv/test_alloc histories_of_odma
breaks "a neighbour in use is taken" $r 's/? r->units\[right\].n_free : 0;/? more : 0;/' kv/test_alloc histories_of_odma
breaks "blocks not aligned" $r 's/.first_tok = at \* r->align_tok/&+ 1/' kv/test_alloc histories_of_odma
breaks "free neighbours are not joined" $r 's/left = r->units\[at - 1\].n_free_end;/left = 0;/' kv/test_alloc histories_of_odma
breaks "a block is lost" engine/kv/alloc/paged.c \
    's/n_in_row\[id\] > 0; p->n_visited++)/n_in_row[id] > 1; p->n_visited++)/' kv/test_alloc histories_of_paged
breaks "a slot is lost" engine/kv/alloc/static.c 's/s->free\[s->n_free++\] = id/s->free[s->n_free] = id/' \
    kv/test_alloc histories_of_each
# Blocks of three sizes, and large ones in reserve.
t=engine/kv/alloc/odma_paper.c
g=engine/kv/large.c
breaks "halves overlap" $t 's|q / 2 \* o->tok\[MID\]|q / 2 * o->tok[MIN]|' kv/test_alloc histories_of_odma_paper
breaks "a part of a block is lost" $t 's/~quarters(size, q)/~quarters(MIN, q)/' kv/test_alloc histories_of_odma_paper
breaks "free parts are not one superblock again" $t 's/if (used == 0)/if (false)/' \
    kv/test_alloc histories_of_odma_paper
breaks "a superblock is divided too early" $t 's/{QUARTER, HALF_AND_QUARTER, HALF, WHOLE}/{WHOLE, HALF, HALF_AND_QUARTER, QUARTER}/' \
    kv/test_alloc_large blocks_of_three_sizes
breaks "a larger size" $t 's/int size = MIN;/int size = MID;/' kv/test_alloc_large blocks_of_three_sizes
breaks "a sequence outgrows its second block" $t 's/TRY(take_large(o, &to))/TRY(take(o, MID, \&to))/' \
    kv/test_alloc_large large_blocks_are_kept_in_reserve
breaks "others take the reserve" $t 's/return take(o, size, out);/return take_large(o, out);/' \
    kv/test_alloc histories_of_odma_paper
breaks "uncertain sequences do not get the reserve" $g 's/kv_bounds_bucket(b, need) == b->n/false/' \
    kv/test_alloc_large large_blocks_are_kept_in_reserve
breaks "large blocks overlap" $g 's|first_tok + i \* l->max_tok|first_tok + i * l->max_tok / 2|' \
    kv/test_alloc histories_of_odma_with_a_reserve
breaks "a large block is lost" $g 's/l->free\[l->n_free++\] = id/l->free[l->n_free] = id/' \
    kv/test_alloc histories_of_odma_with_a_reserve
breaks "the reserve is all of the arena" $g 's/n < all ? n : all - 1/n/' kv/test_alloc_large the_size_of_the_reserve
breaks "outgrown sequences leave the reserve alone" $o 's/if (o->to_large \&\& move_to_large(o, e, used_tok, m))/if (false)/' \
    kv/test_alloc_large large_blocks_are_kept_in_reserve
breaks "a pool keeps no reserve" $p '/.large_frac = o->large_frac,/d' kv/test_alloc_large slots_are_kept_in_reserve
# 6. Without buckets it is static, with the smallest blocks paged.
breaks "no buckets, other sizes" $o 's/int64_t n = o->max_tok;/int64_t n = o->max_tok \/ 2;/' \
    kv/test_alloc no_buckets_are_static
breaks "no buckets, a smaller block" $t 's/return kv_large_take(o->large, out) ? OK : take(o, MAX, out)/return take(o, MID, out)/' \
    kv/test_alloc no_buckets_are_static
breaks "a block too many" engine/kv/alloc/paged.c 's/(n_tok + p->block_tok - 1) \/ p->block_tok/n_tok \/ p->block_tok + 1/' \
    kv/test_alloc blocks_of_the_longest_are_static
breaks "blocks ahead of the sequence" engine/kv/alloc/paged.c 's/(need->gen_tok > 0),/need->gen_tok,/' \
    kv/test_alloc histories_of_paged
# 7. Bounds follow a change of the lengths.
breaks "bounds are learned once" $b 's/if (n == 0)/if (n == 0 || out->epoch > 0)/' \
    study/test_odma_replay bounds_follow_a_change
breaks "no change is noticed" $b 's/forget_before(b, b->n_since);/;/' kv/test_buckets a_change_is_detected
breaks "a change is seen everywhere" $b 's/#define KS_1_PERCENT 1.63/#define KS_1_PERCENT -1/' \
    kv/test_buckets a_change_is_detected
breaks "the window forgets nothing" $b 's/b->count\[\*slot\]--;/;/' kv/test_buckets bounds_are_quantiles
# 8. A request is passed by others for a bounded number of steps, and the oldest is not preempted.
l=engine/sched/loop.c
breaks "nobody is too old" $l 's/is_first \&\& r->age > l->o.max_age/false/' sched/test_loop nobody_starves
breaks "the oldest is preempted" $l 's/youngest = l->live\[i\];/youngest = youngest ? youngest : l->live[i];/' \
    sched/test_loop the_youngest_is_preempted
breaks "others are admitted while one waits" $l 's/anyone_waits_to_grow(l) || !admit/!admit/; s/ask_policy(l, !anyone_waits_to_grow(l))/ask_policy(l, true)/' \
    sched/test_loop random_histories
# 9. An operation takes constant time.
breaks "free runs are searched" $r \
    's/list = next_bit(r, n), at;/list = -1, at;\n    for (int i = 0; i < r->n_units \&\& list < 0; i++, r->stat.n_visited++)\n        list = r->units[i].n_free >= n ? list_of(r, r->units[i].n_free) : -1;/' \
    kv/test_alloc histories_of_odma
# 10. Whatever is predicted, every request gets its memory and its tokens.
breaks "a prediction of nothing" engine/kv/predict.c 's/gen_tok > 1 ? (int64_t)gen_tok : 1/(int64_t)gen_tok/' \
    kv/test_predict needs_follow_from_predictions
breaks "a prediction beyond the longest" engine/kv/predict.c '/gen_tok = gen_tok < most/d' \
    kv/test_predict needs_follow_from_predictions
breaks "what was predicted too short does not grow" $p 's/rc == OK && n_tok > r->cap_tok/rc == OK \&\& false/' \
    serve/test_kv_alloc test_same_tokens
# 11. What is sent of a slot is what is filled, in the same order in every layout.
s=engine/kv/slot_runs.c
breaks "a key before the first token is sent" $s 's/first > r->lo ? first : r->lo/first/' \
    kv/test_slot_runs runs_are_in_canonical_order
breaks "a value beyond the last token is sent" $s 's/return left < each/return left < 0/' \
    kv/test_slot_runs runs_are_in_canonical_order
breaks "adjacent runs are not merged" $s 's/at == out->at + out->bytes/out->bytes == 0/' \
    kv/test_slot_runs runs_are_in_canonical_order
breaks "one head is copied" $s 's/head < shape->n_kv_heads; head++/head < 1; head++/' \
    kv/test_slot_runs copies_between_layouts
# 12. What is idle gives memory back from its end, those first that are wanted last and cost least.
breaks "a block too many is given back" engine/kv/alloc/paged.c 's/n_in_row\[e->id\] > n; p->n_v/n_in_row[e->id] >= n; p->n_v/' \
    kv/test_evict memory_is_given_back_from_the_end
w=engine/kv/evict/expected_return.c
breaks "what has ended is expected back" $w 's/k->ended ? -k->idle_s : //' kv/test_evict every_policy_has_an_order
breaks "the cost does not count" $w 's/k->token_s \/ fmax/1 \/ fmax/' kv/test_evict expected_return_weighs_time_and_cost
breaks "a request that waits does not count" $w 's/k->queued ? 0 : //' kv/test_evict expected_return_weighs_time_and_cost
breaks "a pause is not longer for having been long" engine/kv/evict.c 's/above(x - log_std) \/ above(x) - t/1/' \
    kv/test_evict what_is_left_of_a_pause
breaks "a session's own pauses do not count" engine/kv/evict.c 's/(mean + own->sum) \/ (1 + own->n)/mean/' \
    kv/test_evict pauses_are_learned
# And none is taken while sequences run.
breaks "a sequence takes memory of the system" engine/kv/alloc/paged.c \
    's/^    (void)used_tok, (void)m;/    mem_free(mem_new(MEM_KV, 1, 1));\n&/' kv/test_alloc histories_of_paged
breaks "no blocks are kept for those that grow" engine/kv/alloc/paged.c 's/!alone ? p->n_keep : 0/false/' \
    kv/test_alloc blocks_are_kept_for_growth
finish_broken
