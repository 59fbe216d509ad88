/* experiments/study/support/kernel_machine.h - a random machine on which the time of every schedule
 * of a product is known: what tuners that see only noisy times are judged by.
 *
 * A thread takes as long as the slowest of its multiply-adds and of its bytes from the second
 * level, the last level and memory, a share of the others, and a little for each call and slice. It
 * shows caches and units as processors do (cpu/cpu.h). What it hides is of one kind:
 *   plain         what it shows is about what there is
 *   small_caches  others use most of the second and the last level
 *   odd_tiles     micro-kernels have speeds of their own, whatever sums they hold
 *   rugged        so has every schedule: neighbours say little of one another
 *   noisy         plain; one run varies by 0.5 to 6 %, with larger spikes
 * Threads: any; no state. */
#ifndef STUDY_KERNEL_MACHINE_H
#define STUDY_KERNEL_MACHINE_H

#include "base/rng.h"
#include "cpu/cpu.h"
#include "tune/measure.h"

#define STUDY_KERNEL_MACHINES "plain|small_caches|odd_tiles|rugged|noisy"

struct study_kernel_machine {
    uint64_t seed;
    int n_threads;
    struct cpu_info shown;
    double cache_bytes[3]; /* what a product has of them; the last: of all threads */
    double ghz, fma_per_cycle;
    double bytes_per_cycle[2]; /* of a core, from the second level and from the last */
    double core_gbps, memory_gbps;
    double restart_bytes; /* of memory, that beginning at another place costs */
    double call_cycles, slice_cycles, barrier_s;
    double overlap_loss;         /* share of all but the slowest that adds to it */
    double tile_sd, schedule_sd; /* of the logarithm of what is particular */
    double noise_frac, spike_frac, spike_chance; /* of a run */
};

/* kind: the index of a word of STUDY_KERNEL_MACHINES; n_threads 0: 2 to 16, drawn. */
void study_kernel_machine_draw(struct study_kernel_machine *out, int kind, int n_threads,
                               uint64_t seed);
/* Seconds of a product under a legal schedule, without noise. shape->v: any for f32. */
double study_kernel_machine_s(const struct study_kernel_machine *m,
                              const struct tune_shape *shape,
                              const struct kern_schedule *s, int n_threads);
/* A factor of a run. */
double study_kernel_machine_noise(const struct study_kernel_machine *m, struct rng *r);
/* Seconds of the fastest schedule known on all threads: from every micro-kernel, scheme and loop
 * order the sizes of the slice are improved one by one. */
double study_kernel_machine_best(const struct study_kernel_machine *m,
                                 const struct tune_shape *shape);

#endif
