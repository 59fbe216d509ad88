/* cli/offload.h - `sandwich run` and `sandwich serve` with an accelerator: its options, its plan
 * before anything is loaded, and the engine's steps by that plan. */
#ifndef CLI_OFFLOAD_H
#define CLI_OFFLOAD_H

#include <jansson.h>

#include "base/opt.h"
#include "serve/serve.h"

struct cli_offload_flags {
    char *accel, *profile;
    int64_t gpu_budget;
    int64_t n_gpu_layers;
    double cg, gg;
    bool explain, dry_run;
};
const char *cli_accel_name(int i); /* "none" first */
/* Commands written for other engines have it. */
#define CLI_NGL_ROW(member)                                                              \
    OPT_ROW_AS("n_gpu_layers", INT, member, "0",                                         \
               "Accepted for the sake of commands of llama.cpp, and without effect: "    \
               "layers are not moved as a whole. --accel of `run` and `serve` moves "    \
               "slices of them.",                                                        \
               .min = -1, .max = 1 << 20, .alias = "ngl|gpu_layers")
/* Warn of a number that has no effect. */
void cli_ngl_warn(int64_t n_gpu_layers);
/* Rows of a table whose struct has a member `offload`. */
#define CLI_OFFLOAD_ROWS                                                                 \
    OPT_ROW_AS(                                                                          \
        "accel", STR, offload.accel, "none",                                             \
        "Accelerator that computes a part of each MLP or expert. sim and paced "         \
        "are not there: their values are computed here and their times are those "       \
        "of the profile. opencl: the first device of libOpenCL.so.1, a GPU if "          \
        "there is one; PoCL's is the CPU itself, for tests. cuda: the first GPU of "     \
        "libcuda.so.1.",                                                                 \
        .names = cli_accel_name),                                                        \
        OPT_ROW_AS("accel_profile", STR, offload.profile, NULL,                          \
                   "What CPU and accelerator take, by `sandwich profile --out FILE`.",   \
                   .unit = "FILE"),                                                      \
        OPT_ROW_AS("gpu_budget", BYTES, offload.gpu_budget, "1GiB",                      \
                   "Memory of the accelerator for slices of weights and buffers. "       \
                   "Example: 12GB",                                                      \
                   .min = 1, .max = 1e15),                                               \
        CLI_NGL_ROW(offload.n_gpu_layers),                                               \
        OPT_ROW_AS("accel_cg", F64, offload.cg, "-1",                                    \
                   "Share of what is not on the accelerator that is sent to it in each " \
                   "step. -1: the best by the profile.",                                 \
                   .min = -1, .max = 1),                                                 \
        OPT_ROW_AS("accel_gg", F64, offload.gg, "-1",                                    \
                   "Share of each MLP that stays on the accelerator. -1: the best by "   \
                   "the profile, within --gpu-budget.",                                  \
                   .min = -1, .max = 1),                                                 \
        OPT_ROW_AS("explain", BOOL, offload.explain, NULL,                               \
                   "With --accel: print which slices are where, why, and the speed "     \
                   "that this predicts, on standard error."),                            \
        OPT_ROW_AS("dry_run", BOOL, offload.dry_run, NULL,                               \
                   "With --accel: print the plan and the predicted speed as JSON, and "  \
                   "load nothing.")

struct cli_offload;
/* Plan for a prompt of n_prompt and n_new more tokens; --explain is printed. *out NULL: no
 * accelerator is wanted. */
MUST int cli_offload_open(struct cli_offload **out, const struct cli_offload_flags *f,
                          const struct serve_opts *o, int64_t n_prompt, int64_t n_new);
void cli_offload_close(struct cli_offload **o);
/* For struct serve_opts; lent. */
const struct serve_offload *cli_offload_hook(struct cli_offload *o);
/* Print the plan as JSON. */
MUST int cli_offload_print(const struct cli_offload *o);
/* The plan, with the speed that was reached; a new reference. */
MUST int cli_offload_json(const struct cli_offload *o, double tokens_per_s, json_t **out);
/* The time now, without that which is not of a run with a real accelerator. */
uint64_t cli_offload_now_ns(const struct cli_offload *o);

#endif
