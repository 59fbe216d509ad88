#include "tests/support/test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "cpu/isa.h"

#define PRINT_DETECTED "--print-detected"

#define ALL_X86                                                                          \
    {                                                                                    \
        .leaf1_ecx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29,                          \
        .leaf7_ebx = 1u << 5 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31,                \
        .leaf7_ecx = 1u << 11, .leaf7_edx = 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25,   \
        .leaf7_1_eax = 3u << 4, .xcr0 = 0x600e7                                          \
    }
#define TILES (CPU_MASK(AMXBF16) | CPU_MASK(AMXINT8))
static const uint64_t ALL = CPU_MASK(AVX2) | CPU_MASK(AVXVNNI) | CPU_MASK(AVX512) |
                            CPU_MASK(AVX512BF16) | CPU_MASK(AVX512VNNI) |
                            CPU_MASK(AVX512FP16) | TILES;

TEST(registers_to_sets)
{
    const struct cpu_x86_regs all = ALL_X86;
    struct cpu_x86_regs r = all;

    assert_int_equal(cpu_isa_from_x86(&r), ALL);
    r.leaf7_1_eax = 1u << 4;
    assert_int_equal(cpu_isa_from_x86(&r), ALL & ~CPU_MASK(AVX512BF16));
    r.leaf7_1_eax = 1u << 5;
    assert_int_equal(cpu_isa_from_x86(&r), ALL & ~CPU_MASK(AVXVNNI));
    r = all, r.leaf7_ecx = 0;
    assert_int_equal(cpu_isa_from_x86(&r), ALL & ~CPU_MASK(AVX512VNNI));
    r = all, r.leaf7_edx &= ~(1u << 23);
    assert_int_equal(cpu_isa_from_x86(&r), ALL & ~CPU_MASK(AVX512FP16));
    r = all, r.leaf7_edx &= ~(1u << 22);
    assert_int_equal(cpu_isa_from_x86(&r), ALL & ~TILES);
    r = all, r.leaf7_edx &= ~(1u << 24);
    assert_int_equal(cpu_isa_from_x86(&r), ALL & ~TILES);
    r = all, r.leaf7_edx &= ~(1u << 25);
    assert_int_equal(cpu_isa_from_x86(&r), ALL & ~CPU_MASK(AMXINT8));
    r = all, r.leaf7_ebx &= ~(1u << 17); /* Knights Landing: AVX-512 without DQ */
    r.leaf7_1_eax = 0;
    assert_int_equal(cpu_isa_from_x86(&r), CPU_MASK(AVX2));
    r = all, r.leaf1_ecx &= ~(1u << 12); /* no FMA */
    assert_int_equal(cpu_isa_from_x86(&r), 0);
    memset(&r, 0, sizeof(r));
    assert_int_equal(cpu_isa_from_x86(&r), 0);
}

/* The processor has it all, the operating system or hypervisor does not save the
 * registers. */
TEST(the_operating_system_has_a_say)
{
    struct cpu_x86_regs r = ALL_X86;

    r.xcr0 = 0xe7; /* no tiles */
    assert_int_equal(cpu_isa_from_x86(&r), ALL & ~TILES);
    r.xcr0 = 0x7;
    assert_int_equal(cpu_isa_from_x86(&r), CPU_MASK(AVX2) | CPU_MASK(AVXVNNI));
    r.xcr0 = 0x67; /* Hi16_ZMM missing */
    assert_int_equal(cpu_isa_from_x86(&r), CPU_MASK(AVX2) | CPU_MASK(AVXVNNI));
    r.xcr0 = 0x3;
    assert_int_equal(cpu_isa_from_x86(&r), 0);
    r.xcr0 = 0xe7, r.leaf1_ecx &= ~(1u << 27);
    assert_int_equal(cpu_isa_from_x86(&r), 0);
}

/* What we detect is among what the kernel lists; and AVX-512 is not missed. */
TEST(agrees_with_the_kernel)
{
    static const struct {
        uint64_t bit;
        const char *flag;
    } x86[] = {
        {CPU_MASK(AVX2), " avx2 "},
        {CPU_MASK(AVXVNNI), " avx_vnni "},
        {CPU_MASK(AVX512), " avx512vl "},
        {CPU_MASK(AVX512BF16), " avx512_bf16 "},
        {CPU_MASK(AVX512VNNI), " avx512_vnni "},
        {CPU_MASK(AVX512FP16), " avx512_fp16 "},
        {CPU_MASK(AMXBF16), " amx_bf16 "},
        {CPU_MASK(AMXINT8), " amx_int8 "},
    };
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[8192] = "";
    uint64_t seen = ~UINT64_C(0);

    if (getenv(CPU_ISA_ENV))
        assert_ok(cpu_isa_level(getenv(CPU_ISA_ENV), &seen));
    while (f && fgets(line, sizeof(line), f) && strncmp(line, "flags", 5) != 0)
        line[0] = '\0';
    if (f)
        fclose(f);
    if (!line[0])
        test_skip("/proc/cpuinfo lists no x86 flags");
    line[strcspn(line, "\n")] = ' ';
    for (size_t i = 0; i < sizeof(x86) / sizeof(x86[0]); i++)
        assert_int_equal((cpu_isa_detected() & x86[i].bit) != 0,
                         (x86[i].bit & seen) && strstr(line, x86[i].flag));
}

TEST(words_of_masks)
{
    char words[128];

    cpu_isa_words(0, words, sizeof(words));
    assert_string_equal(words, "ref");
    cpu_isa_words(CPU_MASK(AVX2) | CPU_MASK(AVX512BF16), words, sizeof(words));
    assert_string_equal(words, "avx2 avx512bf16");
    assert_string_equal(cpu_isa_word(CPU_BIT_NEON), "neon");
    assert_string_equal(cpu_isa_word(-1), "?");
    assert_string_equal(cpu_isa_word(CPU_N_ISA), "?");
}

TEST(limits)
{
    uint64_t detected = cpu_isa_detected(), mask;

    assert_int_equal(cpu_isa_usable(), detected);
    assert_ok(cpu_isa_limit("ref"));
    assert_int_equal(cpu_isa_usable(), 0);
    assert_int_equal(cpu_isa_detected(), detected);
    for (int i = 0; i < CPU_N_ISA; i++) {
        if (!(detected >> i & 1)) {
            assert_err(cpu_isa_parse(cpu_isa_word(i), &mask), ERR_UNSUPPORTED,
                       cpu_isa_word(i));
            continue;
        }
        assert_ok(cpu_isa_limit(cpu_isa_word(i)));
        mask = cpu_isa_usable();
        assert_true(mask >> i & 1);
        assert_int_equal(mask >> i >> 1, 0);
        assert_int_equal(mask, detected & ((UINT64_C(2) << i) - 1));
    }
    assert_ok(cpu_isa_limit("ref"));
    assert_err(cpu_isa_limit("avx521"), ERR_ARG, "did you mean \"avx512\"");
    assert_err(cpu_isa_limit("quantum"), ERR_ARG, "auto ref");
    assert_int_equal(cpu_isa_usable(), 0); /* a refused level changes nothing */
    assert_ok(cpu_isa_limit("auto"));
    assert_int_equal(cpu_isa_usable(), detected);
}

/* Detection happens once in a process, so each level is looked at by a child of its own. */
static uint64_t detected_under(const char *level)
{
    int fds[2], status;
    uint64_t mask = 0;
    char exe[] = "/proc/self/exe";
    pid_t child;

    assert_int_equal(pipe(fds), 0);
    child = fork();
    if (child == 0) {
        dup2(fds[1], STDOUT_FILENO);
        setenv(CPU_ISA_ENV, level, 1);
        execl(exe, exe, PRINT_DETECTED, NULL);
        _exit(127);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(fds[0], &mask, sizeof(mask)), sizeof(mask));
    close(fds[0]);
    close(fds[1]);
    return mask;
}

TEST(the_environment_lowers_detection)
{
    const char *before = getenv(CPU_ISA_ENV);
    char kept[64];
    uint64_t keeps;

    snprintf(kept, sizeof(kept), "%s", before ? before : "");
    for (int i = 0; i < CPU_N_ISA; i++) {
        assert_ok(cpu_isa_level(cpu_isa_word(i), &keeps));
        assert_int_equal(detected_under(cpu_isa_word(i)), detected_under("auto") & keeps);
    }
    assert_int_equal(detected_under("ref"), 0);
    assert_int_equal(detected_under("avx521"), detected_under("auto"));
    setenv(CPU_ISA_ENV, "avx521", 1);
    assert_err(cpu_isa_check_env(), ERR_ARG, "SANDWICH_ISA: unknown level \"avx521\"");
    if (before)
        setenv(CPU_ISA_ENV, kept, 1);
    else
        unsetenv(CPU_ISA_ENV);
    assert_ok(cpu_isa_check_env());
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], PRINT_DETECTED) == 0) {
        uint64_t mask = cpu_isa_detected();

        return write(STDOUT_FILENO, &mask, sizeof(mask)) == sizeof(mask) ? 0 : 1;
    }

    return test_main();
}
