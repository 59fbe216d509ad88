#!/bin/sh
# What slices, memory and policies promise, each broken on purpose.
set -u
. tests/support/tap.sh
. tests/support/broken.sh
need_tests hetero/test_slices hetero/test_layer hetero/test_offload

rule() { # rule, file, sed script, test
    breaks "$1" "engine/hetero/$2" "$3" hetero/test_slices "$4"
}

rule "a product waits for the one before" times.c 's/(n_gemms - 1) \* slowest/(n_gemms - 1) * t->accel_s/' \
    closed_form_is_the_recurrence
rule "CPU and accelerator work at once" times.c 's/return fmax(f.accel_s, f.cpu_s);/return f.accel_s;/' \
    closed_form_is_the_recurrence
rule "an empty slice is not launched" times.c 's/(2 \* n_sent + has_gg)/(2 + has_gg)/' printed_numbers
rule "what is sent is launched twice" times.c 's/(2 \* n_sent + has_gg)/(n_sent + has_gg)/' printed_numbers
rule "the slips stay apart" times.c 's/if (as_printed \&\& takes_over)/if (takes_over)/' slips_as_printed
rule "the last unit counts" times.c 's/candidate > most/candidate >= most/' the_best_of_all_slices_is_found
rule "both sides of the meeting count" times.c 's/{1, at - 1, at, most}/{1, at, at, most}/' the_best_of_all_slices_is_found
rule "a jump at the first unit counts" times.c 's/best_s = finish_at(o, 0)/best_s = finish_at(o, 1)/' \
    the_best_of_all_slices_is_found
rule "a slower CPU sends more" times.c 's/>=$/<=/' a_slower_cpu_sends_more
rule "the CPU is slower while the link copies" times.c 's/both_s \* added(t->cpu_contention)/0/' \
    contention_is_of_the_time_together
rule "the link is slower while the CPU computes" times.c 's/added(t->link_contention)/0/' contention_is_of_the_time_together
rule "what was alone does not count as slowed" times.c 's/fmin(s, other_s)/s/' contention_is_found_from_pairs
rule "with contention all shares are tried" times.c 's/(all ? most : 4)/4/; s/all ? i + 1 : //' the_best_of_all_slices_is_found
rule "greedy stays within memory" memory.c 's/if (bytes <= left) {/if (bytes <= left + 1) {/; s/l->unit_bytes <= left; u++/l->unit_bytes <= left + 1; u++/' \
    memory_is_never_exceeded
rule "exact is exact" memory.c 's/u <= n_units \&\& u \* cells_per_unit/u < n_units \&\& u * cells_per_unit/' memory_is_never_exceeded
rule "the policy takes the best share" policy/scheinfer.c 's/return hetero_best_cg(&p->layer, gg, cg);/return *cg = 0, hetero_layer_s(\&p->layer, 0, gg, 0);/' \
    slices_beat_whole_layers_and_experts

# Ten races and more, planted in the schedule of a layer.
planted() { # what is missing, sed script
    breaks "$1" engine/hetero/layer.c "$2" hetero/test_layer values_and_times
}

planted "a kernel does not wait for its weights" '/w->data, w->bytes));/{n;s/d->k->wait(d->a, ACCEL_COMPUTE, d->k->record(d->a, ACCEL_COPY));/;/}'
planted "a kernel waits for kernels" 's/ACCEL_COMPUTE, d->k->record(d->a, ACCEL_COPY)/ACCEL_COMPUTE, d->k->record(d->a, ACCEL_COMPUTE)/'
planted "a copy waits for copies" 's/= d->k->record(d->a, ACCEL_COMPUTE);/= d->k->record(d->a, ACCEL_COPY);/'
planted "a copy does not wait for the buffer" 's/if (d->used\[at\] >= 0)/if (false)/'
planted "one staging buffer for two" 's/\*buffer = d->staging\[at\]/*buffer = d->staging[0]/'
planted "the event of the other buffer" 's/d->k->wait(d->a, ACCEL_COPY, d->used\[at\])/d->k->wait(d->a, ACCEL_COPY, d->used[1 - at])/'
planted "an event before the kernel" 's/(d->n_sent - 1) % 2\] = d->k->record/d->n_sent % 2] = d->k->record/'
breaks "the result is fetched too early" engine/hetero/layer.c \
    's/d->k->wait(d->a, ACCEL_COPY, d->k->record(d->a, ACCEL_COMPUTE));/;/' hetero/test_offload steps_of_every_model
planted "two slices in one buffer" 's/&d->gate_up\[i\]));/\&d->gate_up[0]));/'
planted "CG is computed from CC" 's/{{cc, cc + u.cg}/{{0, u.cg}/'
planted "tokens of CC are computed twice" 's/n_tok - n_accel_tok;$/n_tok;/'
planted "the second half is the first" 's/i == 0 ? 0 : half,/0,/'
planted "a slice of D begins elsewhere" 's/(size_t)lo \* d->unit_bytes/(size_t)0/'
breaks "tokens are read too early" engine/hetero/layer.c 's/TRY(hetero_device_wait(d, &before_s));/before_s = 0;/; /^int hetero_device_send/,/^}/s/d->k->wait(d->a, ACCEL_COMPUTE.*/;/' \
    hetero/test_layer values_and_times
breaks "what is sent takes the link's time" engine/hetero/accel/paced.c 's/(double)(at + n) \* p->machine.link_s_per_byte/0/' \
    hetero/test_layer real_time_has_the_same_values
breaks "a kernel's time is waited for" engine/hetero/accel/paced.c 's/\*stream_s = start_s + compute_s(p, &o->gemm);/*stream_s = start_s;/' \
    hetero/test_layer real_time_has_the_same_values
breaks "a launch is waited for" engine/hetero/accel/paced.c 's/+ n \* p->machine.launch_s/;/' \
    hetero/test_layer real_time_has_the_same_values
# Experts.
expert() { # what is missing, file, sed script
    breaks "$1" "$2" "$3" hetero/test_offload steps_of_experts
}

expert "an expert's rows begin where the last one's end" engine/hetero/layer.c 's/g.y = row_at(d->y, r.first,/g.y = row_at(d->y, 0,/'
expert "rows are gathered by expert" engine/hetero/offload.c 's/e->x + e->row\[i\] \* ld/e->x/'
expert "a shared expert has all rows" engine/hetero/offload.c 's/memcpy(o->hook.x + n \* ld, e->x, .*/;/'
expert "rows that were taken over are not the CPU's" engine/hetero/offload.c 's/group->n_cpu = r.n - r.n_accel;/group->n_cpu = r.n;/'
expert "rows without a part are not read" engine/hetero/offload.c 's/group->from = hetero_device_from(o->device, first + g, r);/group->from = 0;/'
expert "the accelerator's rows are weighted" engine/step/experts.c 's/y + s->at\[i\] \* ld, s->weight\[i\], ld, true/y + s->at[i] * ld, 1, ld, true/'
expert "what is nowhere on the CPU is not added" engine/step/experts.c 's/return !model_view_empty(&mats\[model_expert_mat(e) + 1\]) \&\&/return/'
finish_broken
