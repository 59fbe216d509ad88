/* experiments/study/support/unfused.h - attention as a graph of separate operators computes it,
 * to measure what one fused operator is worth.
 *
 * Keys and values of earlier tokens enter the graph and leave it with the new ones: they are
 * copied as a whole in every step (Concat), then once more into the order that a product reads
 * (Transpose, packing). Each operator is computed for all heads before the next one begins, and
 * its results are written to memory: Transpose of queries, MatMul, Mul by the scale, Add of the
 * mask, Softmax, MatMul, Transpose. A score is computed also where the mask removes it. The
 * products themselves are the engine's own for f32.
 * Paper: MNN-LLM IV-F, V-C.   Threads: those of the phase, together. */
#ifndef STUDY_UNFUSED_H
#define STUDY_UNFUSED_H

#include "ranks/phase.h"

struct study_unfused;
/* Buffers for steps of up to rows_max tokens of sequences of up to max_tok tokens, by up to
 * n_threads threads. Keys and values are f32. study_unfused_close(). */
struct study_unfused *study_unfused_open(const struct model *m, int64_t rows_max,
                                         int64_t max_tok, int n_threads);
void study_unfused_close(struct study_unfused **u); /* twice is fine */
/* Steps of p attend by u, a rewrite of the phase's list of operators; NULL: by the engine. */
MUST int study_unfused_set(struct model_phase *p, struct study_unfused *u);

#endif
