#include "cpu/isa.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static const char *const words[CPU_N_ISA] = {
#define CPU_ISA(bit, word) [CPU_BIT_##bit] = word,
#include "cpu/isa.def"
#undef CPU_ISA
};

/* Removed sets rather than kept ones, so that zero means "no limit yet". */
static _Atomic uint64_t removed;

#define BIT(reg, n) ((reg) >> (n)&1)

uint64_t cpu_isa_from_x86(const struct cpu_x86_regs *r)
{
    /* XCR0: SSE, AVX; and opmask, ZMM_Hi256, Hi16_ZMM; XTILECFG, XTILEDATA */
    const uint64_t ymm = 0x6, zmm = 0xe6, tiles = 0x60000;
    uint64_t mask = 0;

    if (!BIT(r->leaf1_ecx, 27) || (r->xcr0 & ymm) != ymm)
        return 0;
    if (BIT(r->leaf1_ecx, 28) && BIT(r->leaf1_ecx, 12) && BIT(r->leaf1_ecx, 29) &&
        BIT(r->leaf7_ebx, 5))
        mask |= CPU_MASK(AVX2);
    if (mask && BIT(r->leaf7_1_eax, 4))
        mask |= CPU_MASK(AVXVNNI);
    if (!mask || (r->xcr0 & zmm) != zmm || !BIT(r->leaf7_ebx, 16) ||
        !BIT(r->leaf7_ebx, 17) || !BIT(r->leaf7_ebx, 30) || !BIT(r->leaf7_ebx, 31))
        return mask;
    mask |= CPU_MASK(AVX512);
    if (BIT(r->leaf7_1_eax, 5))
        mask |= CPU_MASK(AVX512BF16);
    if (BIT(r->leaf7_ecx, 11))
        mask |= CPU_MASK(AVX512VNNI);
    if (BIT(r->leaf7_edx, 23))
        mask |= CPU_MASK(AVX512FP16);
    if ((r->xcr0 & tiles) == tiles && BIT(r->leaf7_edx, 24) && BIT(r->leaf7_edx, 22))
        mask |= CPU_MASK(AMXBF16);
    if ((mask & CPU_MASK(AMXBF16)) && BIT(r->leaf7_edx, 25))
        mask |= CPU_MASK(AMXINT8);
    return mask;
}

#if defined(__x86_64__)
/* Linux gives a process tile registers when it asks for them, with all its threads and those it
 * forks. */
static bool tiles_granted(void)
{
    const long tile_data = 18; /* the bit of XCR0 */

    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, tile_data) == 0;
}

static uint64_t detect(void)
{
    struct cpu_x86_regs r = {0};
    uint32_t a, b, c, d, max_sub = 0;
    uint64_t mask;

    if (__get_cpuid_count(1, 0, &a, &b, &c, &d))
        r.leaf1_ecx = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        max_sub = a;
        r.leaf7_ebx = b;
        r.leaf7_ecx = c;
        r.leaf7_edx = d;
    }
    if (max_sub >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
        r.leaf7_1_eax = a;
    if (BIT(r.leaf1_ecx, 27)) {
        uint32_t lo, hi;

        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        r.xcr0 = (uint64_t)hi << 32 | lo;
    }
    mask = cpu_isa_from_x86(&r);
    if ((mask & CPU_MASK(AMXBF16)) && !tiles_granted())
        mask &= ~(CPU_MASK(AMXBF16) | CPU_MASK(AMXINT8));
    return mask;
}
#elif defined(__aarch64__)
static uint64_t detect(void)
{
    unsigned long have = getauxval(AT_HWCAP);
    uint64_t mask = 0;

    if (have & HWCAP_ASIMD)
        mask |= CPU_MASK(NEON);
    if (mask && (have & HWCAP_ASIMDDP))
        mask |= CPU_MASK(NEONDOT);
    if (mask & CPU_MASK(NEONDOT) && (getauxval(AT_HWCAP2) & HWCAP2_I8MM))
        mask |= CPU_MASK(NEONI8MM);
    return mask;
}
#else
static uint64_t detect(void)
{
    return 0;
}
#endif

static int unknown_level(const char *what, const char *level)
{
    const char *known[CPU_N_ISA + 3];
    char have[128];
    int n = 0;

    known[n++] = "auto";
    known[n++] = "ref";
    for (int i = 0; i < CPU_N_ISA; i++)
        known[n++] = words[i];
    known[n] = NULL;
    if (name_nearest(level, known))
        return name_unknown(ERR_ARG, level, known, "%s: unknown level \"%.40s\"", what,
                            level);
    cpu_isa_words(cpu_isa_detected(), have, sizeof(have));
    return err_set(ERR_ARG,
                   "%s: unknown level \"%.40s\"; this machine knows: auto ref %s", what,
                   level, have);
}

int cpu_isa_level(const char *level, uint64_t *mask)
{
    *mask = ~UINT64_C(0);
    if (strcmp(level, "auto") == 0)
        return OK;
    *mask = 0;
    if (strcmp(level, "ref") == 0)
        return OK;
    for (int i = 0; i < CPU_N_ISA; i++) {
        if (strcmp(level, words[i]) == 0) {
            *mask = (UINT64_C(2) << i) - 1;
            return OK;
        }
    }
    return ERR_ARG;
}

/* Nothing above what the environment names is ever seen, as on a smaller processor. A word
 * that is not a level hides nothing; cpu_isa_check_env() reports it. */
static uint64_t env_mask(void)
{
    const char *level = getenv(CPU_ISA_ENV);
    uint64_t mask;

    if (!level || cpu_isa_level(level, &mask) != OK)
        return ~UINT64_C(0);
    return mask;
}

int cpu_isa_check_env(void)
{
    const char *level = getenv(CPU_ISA_ENV);
    uint64_t mask;

    if (!level || cpu_isa_level(level, &mask) == OK)
        return OK;
    return unknown_level(CPU_ISA_ENV, level);
}

uint64_t cpu_isa_detected(void)
{
    static _Atomic uint64_t known; /* bit 63: filled in */
    uint64_t v = atomic_load_explicit(&known, memory_order_relaxed);

    if (!v) {
        v = (detect() & env_mask()) | UINT64_C(1)
                                          << 63; /* the same answer for everyone */
        atomic_store_explicit(&known, v, memory_order_relaxed);
    }
    return v & ~(UINT64_C(1) << 63);
}

uint64_t cpu_isa_hidden(void)
{
    return detect() & ~env_mask();
}

uint64_t cpu_isa_usable(void)
{
    return cpu_isa_detected() & ~atomic_load_explicit(&removed, memory_order_relaxed);
}

int cpu_isa_parse(const char *level, uint64_t *mask)
{
    uint64_t detected = cpu_isa_detected(), known;
    char have[128];

    if (cpu_isa_level(level, &known) != OK)
        return unknown_level("isa", level);
    for (int i = 0; i < CPU_N_ISA; i++) {
        if (strcmp(level, words[i]) == 0 && !(detected >> i & 1)) {
            cpu_isa_words(detected, have, sizeof(have));
            return err_set(ERR_UNSUPPORTED, "isa: this machine has no %s, only: %s",
                           level, have);
        }
    }
    *mask = detected & known;
    return OK;
}

int cpu_isa_limit(const char *level)
{
    uint64_t mask;
    int rc = cpu_isa_parse(level, &mask);

    if (rc == OK)
        atomic_store_explicit(&removed, ~mask, memory_order_relaxed);
    return rc;
}

const char *cpu_isa_word(int bit)
{
    return bit >= 0 && bit < CPU_N_ISA ? words[bit] : "?";
}

const char *cpu_isa_level_name(int i)
{
    return i == 0 ? "auto" : i == 1 ? "ref" : i - 2 < CPU_N_ISA ? words[i - 2] : NULL;
}

void cpu_isa_words(uint64_t mask, char *out, int n)
{
    int at = 0;

    snprintf(out, (size_t)n, "ref");
    for (int i = 0; i < CPU_N_ISA && at < n; i++) {
        if (mask >> i & 1)
            at += snprintf(out + at, (size_t)(n - at), "%s%s", at ? " " : "", words[i]);
    }
}
