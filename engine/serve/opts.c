#include "serve/serve.h"

#include <string.h>

#include "base/log.h"
#include "cpu/cpu.h"
#include "kv/alloc.h"
#include "kv/predict.h"
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

static const char *alloc_name(int i)
{
    return kv_allocs[i] ? kv_allocs[i]->name : NULL;
}

static const char *predictor_name(int i)
{
    return kv_predictors[i] ? kv_predictors[i]->name : NULL;
}

#define OPT_OF struct serve_opts
const struct opt_row serve_opt_table[] = {
    OPT_ROW(STR, model, NULL,
            "Model to run: a .gguf file, a folder with config.json and safetensors, "
            "a llama2.c .bin file, or an ONNX file of a decoder.",
            .unit = "FILE", .letter = 'm'),
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
            "relaxed: what is multiplied may be rounded to bf16: activations "
            "and, in attention, queries, keys, values and weights of the softmax. "
            "a8: activations of 8 bits where the weights are quantised.",
            .values = KERN_PRECISIONS),
    OPT_ROW(BOOL, deterministic, NULL,
            "Produce the same tokens for any batch, number of threads, ranks and plan. "
            "This is slower."),
    OPT_ROW(
        STR, weight_type, "file",
        "Type in which weights are kept in memory: file (as stored), f32, f16 or bf16.",
        .unit = "TYPE"),
    OPT_ROW(ENUM, kv_type, "f32",
            "Type of the cached keys and values. f16 and bf16 take half of the memory of "
            "f32, "
            "q8 about a quarter: 8 bits, with a scale for each head and token.",
            .values = KERN_KV_TYPES),
    OPT_ROW(INT, threads, NULL,
            "Number of threads. 0: as many as the plan says, or one per available CPU "
            "core without a plan.",
            .min = 0, .max = 1024, .letter = 't'),
    OPT_ROW(INT, ranks, NULL,
            "Number of tensor-parallel ranks among which the threads are divided. 0: as "
            "many as the plan says, or 1 without a plan.",
            .min = 0, .max = 64),
    OPT_ROW(
        ENUM, rank_mode, "threads",
        "Whether a rank is a group of threads in one process or a process of its own.",
        .values = "threads|processes"),
    OPT_ROW(
        STR, team, "pthread",
        "Threads: pthread, which spin for a moment and then sleep, or openmp, those of "
        "OpenMP's runtime, which OMP_WAIT_POLICY and GOMP_SPINCOUNT control.",
        .unit = "NAME", .names = par_team_kind_name),
    OPT_ROW(
        STR, plan, NULL,
        "Phase plan to follow, a file written by `sandwich plan`. One that was searched "
        "for another model is followed with a warning.",
        .unit = "FILE"),
    OPT_ROW(STR, schedules, NULL,
            "Tuned schedules of the matrix products, a file written by `sandwich tune`. "
            "Without it those of the plan, or a cost model's.",
            .unit = "FILE"),
    OPT_ROW(STR, operators, NULL,
            "Operators that a step runs in place of the model's own: a list such as "
            "`sandwich model inspect --operators` prints.",
            .unit = "FILE"),
    OPT_ROW(STR, policy, "fcfs", "Scheduling policy.", .unit = "NAME",
            .names = policy_name),
    OPT_ROW(INT, max_tok, NULL,
            "Longest sequence, prompt and output together. 0: the model's own limit, at "
            "most 4096.",
            .unit = "tok", .min = 0, .max = 1 << 24, .letter = 'c',
            .alias = "ctx_size|max_model_len"),
    OPT_ROW(INT, max_seqs, "1",
            "Number of sequences that may hold keys and values at the same time.",
            .min = 1, .max = 1024, .alias = "np|parallel|max_num_seqs"),
    OPT_ROW(ENUM, kv_admit, "max",
            "Memory for keys and values that a request must be given before it starts. "
            "max: for its prompt and its longest output. now: for its prompt, and more "
            "with each token; where memory is short for long the latest request is "
            "preempted and computed again later.",
            .values = "max|now"),
    OPT_ROW(INT, kv_budget_tok, NULL,
            "Keep keys and values of at most N tokens, of all requests together, in the "
            "memory for them. 0: as many as it holds.",
            .unit = "tok", .min = 0, .max = INT64_C(1) << 40),
    OPT_ROW(BYTES, kv_budget, NULL,
            "Memory for keys and values, of all requests together, such as 512MiB. 0: "
            "that of max_seqs sequences of max_tok tokens.",
            .min = 0, .max = (double)(INT64_C(1) << 50)),
    OPT_ROW(STR, kv_alloc, "static",
            "How that memory is divided. static: a slot of max_tok tokens for each "
            "sequence. paged: blocks of kv_block tokens. s3: contiguous memory of fixed "
            "sizes. odma: contiguous memory of sizes that follow the requests' lengths. "
            "odma_paper: the same in blocks of three sizes.",
            .unit = "NAME", .names = alloc_name),
    OPT_ROW(INT, kv_block, "16",
            "paged: tokens of a block, a power of two from 16 to 512.", .unit = "tok",
            .min = 16, .max = 512),
    OPT_ROW(
        F64, kv_large_frac, "0",
        "odma, odma_paper: share of the memory that is kept for requests whose length "
        "is uncertain and for those that outgrow theirs. 0: they get what is free.",
        .min = 0, .max = 0.9),
    OPT_ROW(
        STR, kv_predict, NULL,
        "Length predictor. A request is then given memory for its prompt and the "
        "predicted output, whatever kv_admit says. oracle and noisy need requests whose "
        "length is known, because they ignore the end of text.",
        .unit = "NAME", .names = predictor_name),
    OPT_ROW(INT, kv_predict_tok, "128",
            "kv_predict=constant: the output that it predicts.", .unit = "tok", .min = 1,
            .max = 1 << 24),
    OPT_ROW(F64, kv_predict_sigma, "0.3",
            "kv_predict=noisy: size of its errors. The predicted length is the true one "
            "times exp(s z), z normal, s uniform in [0, 2 sigma].",
            .min = 0, .max = 10),
    OPT_ROW(STR, kv_predict_file, NULL,
            "kv_predict=learned: what was learned, a file written by `sandwich predictor "
            "train`. One of another model's answers is used with a warning.",
            .unit = "FILE"),
    OPT_ROW(INT, kv_relearn, "128",
            "odma: choose the sizes again after every N requests that ended. 0: never.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(BOOL, kv_reuse, NULL,
            "Keep the keys and values of sequences that have ended until their memory is "
            "needed: a request that begins with the same tokens, such as a system prompt "
            "or the next turn of a conversation, copies them and computes the rest. As "
            "any other way of computing a prompt in pieces it may round differently; "
            "with --deterministic tokens are the same."),
    OPT_ROW(INT, kv_patience, "8",
            "Steps for which a request waits for memory for its next token before the "
            "latest request is preempted.",
            .min = 0, .max = 1 << 20),
    OPT_ROW(
        STR, draft, NULL,
        "Guess the next tokens and compute them in one step, which decodes faster where "
        "enough guesses are right. lookup: what followed when the text last read like "
        "this. FILE: what a smaller model with the same vocabulary says. Tokens are "
        "those without a draft, but for ties that rounding decides; with "
        "--deterministic they are the same.",
        .unit = "lookup|FILE"),
    OPT_ROW(INT, draft_tok, "4",
            "Guess at most N tokens for each step. `make experiment "
            "NAME=speculation_breakeven` measures from which share of right ones on they "
            "pay.",
            .unit = "tok", .min = 1, .max = 32),
    OPT_ROW(
        BOOL, draft_adapt, "true",
        "Guess fewer tokens for a request after a wrong guess, more after right ones, "
        "and none for a while where hardly any is right. Without it, always "
        "--draft-tok, or what is left to generate."),
    OPT_ROW(INT, max_step_tok, "512",
            "Compute at most N tokens in one step. A longer prompt takes several steps.",
            .unit = "tok", .min = 1, .max = 65536),
    OPT_ROW(BOOL, pin, "true", "Pin each thread to its CPU."),
    {0},
};
