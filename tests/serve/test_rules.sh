#!/bin/sh
# Rules of the serving loop, each broken on purpose: every one is found within 1000 histories.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests serve/test_histories serve/test_handoff serve/test_reuse serve/test_draft
export HISTORIES=1000

rule() { # rule, file, sed script
    breaks "$1" "$2" "$3" serve/test_histories histories
}

rule "a request that comes while another waits is lost" engine/serve/requests.c \
    's/s->queue_tail = &q->next/s->queue_tail = \&s->queue_head/'
rule "a canceled request goes on" engine/serve/serve.c 's/if (!q->canceled)/if (!q->canceled || q->r.n_new > 3)/'
rule "memory of a request that ended is not given back" engine/serve/memory.c 's/kv_release(s->pool, &q.*/(void)s;/'
rule "a preempted request counts as computed" engine/sched/loop.c 's/r->n_ctx = r->step_tok = r->n_waited/r->step_tok = r->n_waited/'
rule "a token is skipped" engine/sched/loop.c 's/r->n_ctx += r->step_tok/& + (r->n_new == 5)/'
rule "the oldest is preempted" engine/sched/loop.c 's/youngest = l->live\[i\];/youngest = youngest ? youngest : l->live[i];/'
rule "one token more than asked for" engine/serve/serve.c 's/if (q->r.n_new == q->r.max_new)/if (q->r.n_new > q->r.max_new)/'
rule "a request gets the token of another" engine/serve/serve.c 's/s->new_ids\[i\],/s->new_ids[0],/'
rule "keys and values lose a vector when they move" engine/kv/pool.c 's/- used, 2 \* used);/- used, 2 * used - 8);/'
rule "two tables have a block in common" engine/kv/alloc/paged.c 's/p->free\[--p->n_free\]/p->free[p->n_free > 3 ? --p->n_free : 3]/'
rule "a step's time is counted twice" engine/serve/serve.c 's/ - (computed_ns(t) - before);/ - before;/'
h=engine/serve/requests.c
breaks "the first token is another" $h 's/= first_id;/= 0;/' serve/test_handoff same_bits_f32
breaks "the first token is drawn again" $h '/^    sampler_skip(q->sampler, q->ids/d' serve/test_handoff same_bits_f32
breaks "memory that a transport writes is given to another" $h 's/(arrived || released || !q->has_memory)/true/' \
    serve/test_handoff canceled_memory_stays
breaks "memory that a transport reads is given to another" engine/serve/requests.c 's/q->kv.base \&\& !q->released/false/' \
    serve/test_handoff canceled_memory_stays
breaks "memory is taken from those that wait for it" $h 's/r->n_waited > 0 ||.*/false;/' serve/test_handoff waiting_requests_go_first
breaks "an engine that waits for a release keeps stepping" engine/serve/serve.c 's/s->waits = n == 0/s->waits = n < 0/' \
    serve/test_handoff waits_for_a_release
u=engine/serve/memory.c
breaks "the last token of a prompt is not computed" $u 's/n_known - 1)/n_known)/' serve/test_reuse what_is_taken_is_counted
breaks "tokens that differ are taken" $u 's/a\[i\] == b\[i\]/(a[i] == b[i] || i > 17)/' serve/test_reuse turns_of_chats_get_the_same_tokens
breaks "keys and values of one layer are not copied" $u 's/i < c->shape.n_layers/i < c->shape.n_layers - 1/' \
    serve/test_reuse turns_of_chats_get_the_same_tokens
breaks "more is kept than is there" $u 's/.n_tok = q->r.n_ctx,/.n_tok = q->r.n_ctx + 1,/' serve/test_reuse turns_of_chats_get_the_same_tokens
breaks "what is kept is not given up" $u 's/if (u->n_kept <= n_left)/if (u->n_kept <= n_left + 1)/' serve/test_reuse random_histories
breaks "a wrong guess is taken" engine/serve/serve.c 's/id != guesses\[i\]/id + guesses[i] < 0/' \
    serve/test_draft same_tokens_whoever_guesses
breaks "a guess more than there is room for" engine/serve/draft.c 's/- q->r.n_new - 1;/- q->r.n_new;/' \
    serve/test_draft no_guess_beyond_the_end
breaks "a draft model goes on behind a wrong guess" engine/serve/draft_model.c \
    's/if (q->draft_ctx > q->r.n_ctx)/if (q->draft_ctx < 0)/' serve/test_draft wrong_guesses_are_forgotten
breaks "a wrong guess is followed by as many" engine/serve/draft.c 's/? q->draft_most - 1 :/? q->draft_most :/' \
    serve/test_draft guesses_follow_what_became_of_earlier_ones
breaks "what was said last is not looked up" engine/serve/draft_lookup.c 's/i = n - 1;/i = n - 2;/' \
    serve/test_draft what_lookup_finds
finish_broken
