#!/bin/sh
# The invariants of a cluster, each broken on purpose: a test says so.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests cluster/test_invariants cluster/test_queueing cluster/test_provision cluster/test_transport \
    cluster/test_wire cluster/test_contention cluster/test_fleet

c=engine/cluster
history() { # rule, file, sed script, what the checks say
    breaks "$1" "$2" "$3" cluster/test_invariants random_histories "$4"
}

history "1: not the shortest queue" $c/router/jsq.c 's/loads\[i\] < c->loads\[best\]/loads[i] > c->loads[best]/' jsq
history "2: the opposite pool before the own one" $c/pools.c 's/if (!has_room(&own, task))/if (own.load >= 0)/' opposite
history "3: a machine stays in the mixed pool" $c/pools.c 's/n_tasks\[cluster_pools_opposite(home)\] == 0/false/' return
history "3: a machine returns to the other pool" $c/assign.c 's/move(m, m->home)/move(m, cluster_pools_opposite(m->home))/' identity
history "4: a machine that moves is in no pool" $c/assign.c 's/m->pool = pool/m->pool = CLUSTER_N_POOLS/' partition
history "5: a token too many" $c/machine.c 's/d->n_tokens >= d->n_output/d->n_tokens > d->n_output/' conservation
history "5: keys and values count as sent twice" $c/handover.c 's/q->d.n_transfers++/q->d.n_transfers += 2/' conservation
history "6: memory that there is not" $c/machine.c 's/if (n_tok > free_tok)/if (n_tok > 2 * free_tok)/' memory
history "6: memory that is not given back" $c/machine.c 's/m->kv_used_tok -= n_tok/& - 1/' memory
history "7: too many prompt tokens share a step" engine/sched/policy/mixed.c 's/sum + s->n_prompt_left > share_tok/sum > share_tok/' batch
history "8: those that were passed over often do not go first" engine/sched/policy/mixed.c \
    's/(s->n_paused >= MAX_PAUSED) != often/often/' paused
history "9: bytes of keys and values are lost" $c/handover.c 's/q->bytes_sent += .*kv_bytes_per_tok/& \/ 2/' bytes
history "12: above all thresholds the longer queue" $c/pools.c 's/own.load < mixed.load/own.load > mixed.load/' overload
q=cluster/test_queueing
breaks "10: an event comes before an earlier one" $c/event.c 's/child + 1 < q->n && before(/child + 1 < q->n \&\& !before(/' \
    $q events_come_in_order
breaks "10: of events at one time the later one comes first" $c/event.c 's/a->order < b->order/a->order > b->order/' \
    $q events_come_in_order
breaks "11: a layer's transfer does not wait for the one before" $c/transfer.c 's/fmax(0, (n - 1) \* (x - c))/(n - 1) * (x - c)/' \
    $q transfer_is_the_closed_form
p=cluster/test_provision
breaks "13: more machines are not used" $c/router/jsq.c 's/i < c->n/i < 1/' $p more_machines_never_hurt
breaks "14: the search stops before the best size" $c/provision.c 's/hi.n_token - lo > 1/hi.n_token - lo > 2/' $p search_is_brute_force
k=cluster/test_contention
breaks "15: a neighbour's step is not slowed" $c/contention.c 's/return 1 \/ slow;/return 1;/' $k two_prompts_by_closed_form
breaks "15: a step is not faster again" $c/contention.c '/busy = false;/,$s/update_neighbours(s, .*);/OK;/' $k two_prompts_by_closed_form
breaks "15: machines on other controllers are slowed" $c/contention.c 's/k->controller == m->controller/true/' $k two_prompts_by_closed_form
breaks "15: a transfer is there before its prompt" $c/handover.c 's/if (q->prompting) {/if (false) {/' $k histories_with_contention
f=cluster/test_fleet
breaks "16: a step that is run ahead is lost" $c/machine.c 's/d->n_tokens += n;/d->n_tokens += n - 1;/' $f steps_run_ahead_change_nothing
breaks "16: who comes meanwhile waits for all steps" $c/machine.c 's/end_ns + step_ns < t_ns/true/' $f steps_run_ahead_change_nothing
breaks "17: a request that starts again forgets its tokens" $c/assign.c 's/q->n_before = d->n_tokens/q->n_before = 0/' $f failures_lose_no_token
breaks "17: memory of a request that starts again stays" $c/outage.c 's/q->t->kv_used_tok -= q->reserved_tok//' $f failures_keep_the_invariants
breaks "18: a drained machine gets tasks" $c/assign.c 's/m->n_out > 0/false/' $f a_drained_machine_gets_no_task
breaks "19: pools take the requests of one another" $c/day.c 's/o->seed + (uint64_t)o->number, "day arrival"/o->seed + (uint64_t)rand(), "day arrival"/' $f threads_change_nothing
# Transports.
t=cluster/test_transport
s=$c/transport_send.c
r=$c/transport_receive.c
breaks "layers are put before the prompt is computed" $s 's/if (o->computed || s->o.mode == CLUSTER_LAYER_WISE)/if (true)/' $t modes
breaks "short prompts are sent layer by layer" $s 's/o->n_tok >= s->o.serial_below_tok/true/' $t modes
breaks "a checksum is not compared" $r 's/if (hash == m->hash)/if (hash || true)/' cluster/test_wire what_is_wrong_is_named
breaks "a layer may be missing" $r 's/in->filled\[l\] != in->n_tok/false/' cluster/test_wire what_is_wrong_is_named
breaks "a piece may come twice" $r 's/m->lo != in->filled\[m->layer\]/m->lo > in->filled[m->layer]/' cluster/test_wire what_is_wrong_is_named
breaks "a transfer that was dropped arrives" $r 's/ \&\& !ended.dropped//' \
    cluster/test_wire dropped_and_all_comes
breaks "a sender that drops a transfer says that it is whole" $s 's/o.dropped ? CLUSTER_DROPPED : CLUSTER_END/CLUSTER_END/' \
    $t dropped_at_the_end
breaks "memory of the sender stays with a failed transport" $s 's/^    end_all(s);//' $t the_other_end_goes_away
breaks "an offer may be of any memory" $c/wire.c 's/pool_bytes > 0 \&\& !is_inside/false \&\& !is_inside/' cluster/test_wire wrong_offers
breaks "a link takes two pieces at once" $c/transport.c 's/l->free_ns = start_ns;//' $t limiter_by_closed_form
breaks "a copy goes on beyond its tokens" $c/transport/shm.c 's/p->lo, p->hi/p->lo, p->hi + (p->hi < to->cap_tok)/' $t same_bytes
finish_broken
