#include "serve/serve.h"

#include <string.h>

#include "base/log.h"
#include "cpu/cpu.h"
#include "model/model.h"
#include "sched/sched.h"
#include "tokenizer/tokenizer.h"

void serve_warn_one_seq(const struct serve_opts *o, const char *option)
{
    if (o->max_seqs == 1 && o->policy && strcmp(o->policy, "fcfs") != 0)
        log_warning("one_sequence", 1, 2,
                    "policy %s serves requests one at a time, because %s is 1", o->policy,
                    option);
}

static const char *policy_name(int i)
{
    return sched_policies[i] ? sched_policies[i]->name : NULL;
}

#define OPT_OF struct serve_opts
const struct opt_row serve_opt_table[] = {
    OPT_ROW(STR, model, NULL,
            "Model to run: a .gguf file, a folder with config.json and safetensors, or "
            "a llama2.c .bin file.",
            .unit = "FILE"),
    OPT_ROW(STR, tokenizer, NULL,
            "Tokenizer file to use in place of the model's own, such as tokenizer.json, "
            "a .gguf file or tokenizer.bin.",
            .unit = "FILE"),
    OPT_ROW(STR, pre_tokenizer, NULL,
            "How a byte-level vocabulary divides text into words before "
            "merging: " TOK_PRE_NAMES
            ". Needed where a .gguf file does not name its own.",
            .unit = "NAME"),
    CPU_ISA_ROW,
    OPT_ROW(ENUM, precision, "exact",
            "Arithmetic of the matrix products. exact: activations and sums in f32. "
            "relaxed: an error no larger than bf16 activations would make. "
            "a8: activations of 8 bits where the weights are quantised.",
            .values = KERN_PRECISIONS),
    OPT_ROW(BOOL, deterministic, NULL,
            "Produce the same tokens for any batch, number of threads, ranks and plan. "
            "This is slower."),
    OPT_ROW(
        STR, weight_type, "file",
        "Type in which weights are kept in memory: file (as stored), f32, f16 or bf16.",
        .unit = "TYPE"),
    OPT_ROW(STR, kv_type, "f32", "Type of the cached keys and values: f32 or bf16.",
            .unit = "TYPE"),
    OPT_ROW(INT, threads, NULL,
            "Number of threads. 0: as many as the plan says, or one per available CPU "
            "core without a plan.",
            .min = 0, .max = 1024),
    OPT_ROW(INT, ranks, NULL,
            "Number of tensor-parallel ranks among which the threads are divided. 0: as "
            "many as the plan says, or 1 without a plan.",
            .min = 0, .max = 64),
    OPT_ROW(
        ENUM, rank_mode, "threads",
        "Whether a rank is a group of threads in one process or a process of its own.",
        .values = "threads|processes"),
    OPT_ROW(STR, plan, NULL, "Phase plan to follow, a file written by `sandwich plan`.",
            .unit = "FILE"),
    OPT_ROW(STR, schedules, NULL,
            "Tuned schedules of the matrix products, a file written by `sandwich tune`. "
            "Without it those of the plan, or a cost model's.",
            .unit = "FILE"),
    OPT_ROW(STR, policy, "fcfs", "Scheduling policy.", .unit = "NAME",
            .names = policy_name),
    OPT_ROW(INT, max_tok, NULL,
            "Longest sequence, prompt and output together. 0: the model's own limit, at "
            "most 4096.",
            .unit = "tok", .min = 0, .max = 1 << 24),
    OPT_ROW(INT, max_seqs, "1",
            "Number of sequences that may hold keys and values at the same time.",
            .min = 1, .max = 1024),
    OPT_ROW(ENUM, kv_admit, "max",
            "Memory for keys and values that a request must be given before it starts. "
            "max: for its prompt and its longest output. now: for its prompt, and more "
            "with each token; where memory is short the latest request is preempted and "
            "computed again later.",
            .values = "max|now"),
    OPT_ROW(INT, kv_budget_tok, NULL,
            "Keep keys and values of at most N tokens, of all requests together, in the "
            "memory of max_seqs sequences of max_tok tokens. 0: as many as it holds.",
            .unit = "tok", .min = 0, .max = INT64_C(1) << 40),
    OPT_ROW(INT, max_step_tok, "512",
            "Compute at most N tokens in one step. A longer prompt takes several steps.",
            .unit = "tok", .min = 1, .max = 65536),
    OPT_ROW(BOOL, pin, "true", "Pin each thread to its CPU."),
    {0},
};
