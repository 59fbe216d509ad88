/* kv/calibrate.h - predicted lengths, corrected by how long the latest requests came to be.
 *
 * A predictor that was learned from earlier requests is wrong by a factor after their lengths
 * have changed. The median of realised / predicted of the latest requests is what later
 * predictions are multiplied by. The paper names "lightweight online calibration" without saying
 * how (3.2). The medians are those of bins of 5 %, so that adding and reading take constant
 * time.   Threads: one owner. */
#ifndef KV_CALIBRATE_H
#define KV_CALIBRATE_H

#include <stdint.h>

#include "base/err.h"

struct kv_calibration;

/* window: requests that it holds, at least 1. *out is the caller's; NULL on error. */
MUST int kv_calibration_open(struct kv_calibration **out, int64_t window);
void kv_calibration_close(struct kv_calibration **c);
/* A request ended: what was predicted, before any correction, and what it generated. */
void kv_calibration_add(struct kv_calibration *c, double predicted_tok,
                        int64_t output_tok);
/* The factor for a prediction; 1 until half of the window is filled. */
double kv_calibration_factor(const struct kv_calibration *c);

#endif
