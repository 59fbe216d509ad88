#!/bin/sh
# What slices, memory and policies promise, each broken on purpose.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests hetero/test_slices hetero/test_layer

rule() { # rule, file, sed script, test
    breaks "$1" "engine/hetero/$2" "$3" hetero/test_slices "$4"
}

rule "a product waits for the one before" times.c 's/(n_gemms - 1) \* slowest/(n_gemms - 1) * t->accel_s/' \
    closed_form_is_the_recurrence
rule "CPU and accelerator work at once" times.c 's/return fmax(hetero_accel_finish_s(t, n_gemms),/return 0 * (/' \
    closed_form_is_the_recurrence
rule "an empty slice is not launched" times.c 's/(2 \* n_sent + has_gg)/(2 + has_gg)/' printed_numbers
rule "what is sent is launched twice" times.c 's/(2 \* n_sent + has_gg)/(n_sent + has_gg)/' printed_numbers
rule "the slips stay apart" times.c 's/if (as_printed \&\& takes_over)/if (takes_over)/' slips_as_printed
rule "the last unit counts" slices.c 's/candidates\[i\] > most/candidates[i] >= most/' the_best_of_all_slices_is_found
rule "both sides of the meeting count" slices.c 's/{1, at - 1, at, most}/{1, at, at, most}/' the_best_of_all_slices_is_found
rule "a jump at the first unit counts" slices.c 's/best_s = finish_at(o, 0)/best_s = finish_at(o, 1)/' \
    the_best_of_all_slices_is_found
rule "a slower CPU sends more" slices.c 's/>=$/<=/' a_slower_cpu_sends_more
rule "greedy stays within memory" memory.c 's/if (bytes <= left) {/if (bytes <= left + 1) {/; s/l->unit_bytes <= left; u++/l->unit_bytes <= left + 1; u++/' \
    memory_is_never_exceeded
rule "exact is exact" memory.c 's/u <= n_units \&\& u \* cells_per_unit/u < n_units \&\& u * cells_per_unit/' memory_is_never_exceeded
rule "the policy takes the best share" policy/scheinfer.c 's/s = hetero_best_cg(&p->layer, u, &out->cg_units\[u\]);/s = hetero_layer_s(\&p->layer, 0, u, 0);/' \
    slices_beat_whole_layers_and_experts

# Ten races and more, planted in the schedule of a layer.
planted() { # what is missing, sed script
    breaks "$1" engine/hetero/layer.c "$2" hetero/test_layer values_and_times
}

planted "a kernel does not wait for its weights" '/bytes_of(w, s->n)));/{n;s/w->k->wait(w->a, ACCEL_COMPUTE, w->k->record(w->a, ACCEL_COPY));/;/}'
planted "a kernel waits for kernels" 's/ACCEL_COMPUTE, w->k->record(w->a, ACCEL_COPY)/ACCEL_COMPUTE, w->k->record(w->a, ACCEL_COMPUTE)/'
planted "a copy waits for copies" 's/= w->k->record(w->a, ACCEL_COMPUTE);/= w->k->record(w->a, ACCEL_COPY);/'
planted "a copy does not wait for the buffer" 's/if (w->used\[at\] >= 0)/if (false)/'
planted "one staging buffer for two" 's/\*buffer = w->staging\[at\]/*buffer = w->staging[0]/'
planted "the event of the other buffer" 's/w->k->wait(w->a, ACCEL_COPY, w->used\[at\])/w->k->wait(w->a, ACCEL_COPY, w->used[1 - at])/'
planted "an event before the kernel" 's/(w->n_sent - 1) % 2\] = w->k->record/w->n_sent % 2] = w->k->record/'
planted "the result is fetched too early" 's/w->k->wait(w->a, ACCEL_COPY, w->k->record(w->a, ACCEL_COMPUTE));/;/'
planted "tokens are read too early" '/TRY(w->k->copy(w->a, w->x, 0, x, bytes));/{n;s/.*//}'
planted "two slices in one buffer" 's/TRY(w->k->alloc(w->a, bytes, &s->up));/s->up = s->gate;/'
planted "CG is computed from CC" 's/first = cc, .n = cg/first = 0, .n = cg/'
planted "tokens of CC are computed twice" 's/rc = run_cpu(y, mlp, x, cpu_tok, cc)/rc = run_cpu(y, mlp, x, n_tok, cc)/'
finish_broken
