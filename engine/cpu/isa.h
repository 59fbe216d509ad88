/* cpu/isa.h - maps CPUID registers to instruction sets. Reading the registers is separate,
 * so that tests can present other processors and operating systems. Private to the
 * module. Threads: any. */
#ifndef CPU_ISA_H
#define CPU_ISA_H

#include <stdint.h>

struct cpu_x86_regs {
    uint32_t leaf1_ecx;
    uint32_t leaf7_ebx, leaf7_ecx, leaf7_edx;
    uint32_t leaf7_1_eax;
    uint64_t xcr0; /* the register state the operating system saves; 0 without OSXSAVE */
};
uint64_t cpu_isa_from_x86(const struct cpu_x86_regs *r);

/* The sets that a level of isa.def keeps, on any processor. ERR_ARG without a message. */
int cpu_isa_level(const char *level, uint64_t *mask);

#endif
