#!/bin/sh
# Rules of prompt and token machines, each broken on purpose: a test says so.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests roles/test_roles roles/test_machines_end roles/test_spec roles/test_peers \
    roles/test_join roles/test_machine

t=roles/test_roles
m=engine/roles/machine.c
f=engine/roles/requests.c
breaks "a machine crashes when it is closed" $m 's/else if (sender)/else/' $t closed_with_requests
breaks "a machine may have another's request" $f 's/x.peer = q->prompt;/x.peer = 0;/' $t same_ids_as_one_engine
breaks "requests that move close a circle" engine/roles/requests.c 's/return seen\[a\];/return false;/' $t kinds_of_their_own
breaks "a machine that has moved does not return" engine/roles/requests.c 's/        pool = home;/;/' $t machines_return
breaks "an option is that of all kinds" engine/roles/spec.c 's/s->engine\[kind\], word/s->engine[0], word/' roles/test_spec options_of_a_kind
breaks "a prompt machine keeps its memory" $m 's/serve_release(x->m->s, e->engine_id) != OK)$/true)/' $t same_ids_as_one_engine
breaks "a client gets a token twice" $f 's/q->r.n_prompt + q->n_new,/q->r.n_prompt,/' roles/test_machines_end machines_end_and_are_started_again
breaks "tokens are drawn again" $f 's/n_drawn = q->n_new/n_drawn = 0/' roles/test_machines_end machines_end_and_are_started_again
p=engine/roles/answers.c
w="roles/test_peers what_breaks_the_protocol_is_named"
breaks "a machine may send any token" $p 's/head->token >= f->api.config.vocab ||/false ||/' $w
breaks "a machine may end an answer early" $p 's/head->finish != (int)finish/false/' $w
breaks "a machine may leave tokens out" $p 's/head->token >= 0 \&\& head->at != q->n_new/false/' $w
breaks "a message may change on its way" engine/roles/control.c 's/if (m->hash != .*/if (false)/' $w
breaks "the first token is not compared" $p 's/q->arrived == first/true/' roles/test_peers first_tokens_are_compared
breaks "an answer that is lost is waited for" $p 's/st->n_open == 0 ? f->requests : NULL/NULL/' \
    roles/test_peers a_lost_answer_is_computed_again
breaks "a hand-off that fails keeps its memory" $m \
    '/serve_arrived/,/else/s/release(e, err_msg());/e->transfer = NO_TRANSFER;/' \
    roles/test_machine whatever_goes_wrong_the_next_request_goes_on
breaks "a machine whose front is not one ends as if all were well" $m 's/return m->rc == OK ||.*/return OK;/' \
    roles/test_machine a_front_that_breaks_the_protocol_is_named
j=engine/roles/join.c
breaks "any key will do" $j 's/return CRYPTO_memcmp.*/return true;/' roles/test_join only_machines_with_the_key_join
breaks "any model of the shape will do" $j 's/t->hello.model != u->model_id/false/' roles/test_join another_model_is_refused
finish_broken
