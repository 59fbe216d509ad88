/* cpu/cpu.h - the instruction sets of this processor, and the CPUs and the memory that this
 * process may use.
 *
 * Three questions that many programs answer wrongly: which instruction sets may be used
 * (CPUID *and* the state that the operating system saves), how many CPUs this process has
 * (affinity, cpuset, cgroup quota, SMT), and how much memory (cgroup limits). Each answer
 * carries its reason in words.
 * Threads: any; nothing here keeps state but the mask set by cpu_isa_limit() and what is
 * found out once. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum cpu_isa_bit {
#define CPU_ISA(bit, word) CPU_BIT_##bit,
#include "cpu/isa.def"
#undef CPU_ISA
    CPU_N_ISA
};
#define CPU_MASK(bit) (UINT64_C(1) << CPU_BIT_##bit)

/* The environment variable that lowers detection for a whole process and its children:
 * SANDWICH_ISA=avx2 makes any program or test behave as on a processor without more. */
#define CPU_ISA_ENV "SANDWICH_ISA"

/* The sets this machine executes and CPU_ISA_ENV leaves, before any limit. */
uint64_t cpu_isa_detected(void);
/* The sets that this machine executes and CPU_ISA_ENV hides; 0: nothing is hidden. */
uint64_t cpu_isa_hidden(void);
/* ERR_ARG where CPU_ISA_ENV names no level. Every main() calls it first. */
MUST int cpu_isa_check_env(void);
/* The sets the engine may use: detected, lowered by cpu_isa_limit(). */
uint64_t cpu_isa_usable(void);
/* Lower to `level`: "ref" (plain C only), or a word of isa.def, which keeps that set and
 * those listed before it. "auto" removes the limit. ERR_ARG names the nearest word;
 * ERR_UNSUPPORTED when this machine lacks it. */
MUST int cpu_isa_limit(const char *level);
/* The option of programs that compute: a level, or auto (base/opt.h). */
#define CPU_ISA_ROW                                                                      \
    OPT_ROW(STR, isa, "auto",                                                            \
            "Highest instruction set to use. auto: all of this machine. ref: plain C.",  \
            .unit = "ISA", .names = cpu_isa_level_name)
/* The i-th level, "auto" first; NULL after the last. */
const char *cpu_isa_level_name(int i);
/* Resolve a level without changing anything. */
MUST int cpu_isa_parse(const char *level, uint64_t *mask);
const char *cpu_isa_word(int bit);
/* "avx2 avx512 avx512bf16" for a mask, "ref" for 0. `n` >= 128. */
void cpu_isa_words(uint64_t mask, char *out, int n);

/* Bytes of one cache of level 1 (data), 2 or 3; where the system does not report
 * it, a common minimum. Found out once. */
size_t cpu_cache_bytes(int level);

#define CPU_MAX 1024

/* The CPUs this process should compute on: one logical CPU per physical core among those
 * the affinity mask (and so the cpuset) allows, no more than the cgroup quota pays for.
 */
struct cpu_budget {
    int n;             /* CPUs to use, >= 1 */
    int cpus[CPU_MAX]; /* their operating system numbers, ascending */
    int n_online;      /* CPUs the machine has online */
    int n_allowed;     /* ... that the affinity mask allows */
    int n_cores;       /* ... that are distinct physical cores */
    double
        quota_cpus; /* cgroup v1/v2 quota in CPUs (the tightest up the tree), NaN: none */
    char reason[256]; /* one line: "2 of 8 CPUs: quota 2.0 (cgroup v2), 4 cores, ..." */
};
MUST int cpu_budget_get(struct cpu_budget *out);
/* The same over a fake /proc and /sys below `root` and a given affinity list (tests). */
MUST int cpu_budget_get_at(struct cpu_budget *out, const char *root, const int *allowed,
                           int n_allowed);

/* The memory that this process may still take before the system ends it. Memory in swap
 * does not count: reading it takes a disk access. */
struct cpu_memory {
    int64_t bytes;    /* INT64_MAX where nothing is known */
    char reason[256]; /* where the lowest limit is from, in words */
};
/* The lowest of what the machine has available and what each cgroup from our own up to the
 * mount point leaves, version 1 or 2. ERR_NOMEM. */
MUST int cpu_memory_get(struct cpu_memory *out);
/* Test hook: read the files of /proc and /sys below `root`, which must stay valid. NULL:
 * the real ones. */
void cpu_memory_set_root(const char *root);

struct cpu_info {
    char vendor[16], model_name[64], microcode[24];
    int family, model, stepping;
    int64_t l1d_bytes, l2_bytes,
        l3_bytes;   /* of CPU 0, as the kernel reports; 0 unknown */
    int line_bytes; /* 64 where unknown */
};
void cpu_info_get(struct cpu_info *out);

/* Multiply-adds of vec_bits (128 to 512) that a core starts in a cycle: 2, but 1 where
 * both of its units together compute one of 512 bits (AMD Zen 4). Found out once. */
int cpu_fma_per_cycle(int vec_bits);
int cpu_fma_per_cycle_of(const struct cpu_info *info, int vec_bits);

/* Is the BF16 dot product faster than multiply-adds of f32? On AMD (Zen 4, Zen 5) it has twice
 * their rate, on Intel up to Emerald Rapids half of it. By vendor, so that the answer, and what is
 * computed, is always the same. Found out once. */
bool cpu_bf16_dot_fast(void);
bool cpu_bf16_dot_fast_of(const struct cpu_info *info);

/* How programs should prefetch what a core reads once from memory: the better its own
 * prefetchers follow a stream, the less. By vendor and family, as measured; found out once. */
struct cpu_prefetch {
    bool sparse; /* every fourth line is enough where nothing but memory is waited for */
    int far_bytes; /* AVX2, few rows: from what is multiplied to what is asked for, at most */
    int streams;      /* panels that products of few rows best read at a time */
    int streams_rows; /* from that many rows on; with fewer, one panel */
    bool later; /* a core that multiplies can also fetch what is read after the product */
};
const struct cpu_prefetch *cpu_prefetch(void);
void cpu_prefetch_of(struct cpu_prefetch *out, const struct cpu_info *info);

/* A CPU list as "0-3,8", the form of cpusets, numactl and taskset. */
MUST int cpu_list_parse(const char *text, int *cpus, int max, int *n);
void cpu_list_print(const int *cpus, int n, char *out, int out_n);

/* Pin the calling thread. ERR_IO. cpu_current() is the CPU it runs on right now. */
MUST int cpu_pin_self(int cpu);
int cpu_current(void);
/* Pin the calling thread until cpu_pin_end(). Pairs may overlap in any order: the last end puts
 * back what was allowed before the first begin, and cpu_budget_get() counts that meanwhile.
 * ERR_IO, ERR_ARG: the thread is as before, and needs no end. */
MUST int cpu_pin_begin(int cpu);
/* Between the two: be on this CPU, if another pair's begin has moved the thread. */
void cpu_pin_again(int cpu);
void cpu_pin_end(void);

/* Tell the core that this is a spin loop: yields its pipeline to the SMT sibling. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* `yield` is a no-op on most Arm cores */
#endif
}

#endif
