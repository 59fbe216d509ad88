# The kernel tests and what they link, for aarch64, statically. Used by test_arm.sh:
# make -f tests/kernels/arm.mk CC=<cross compiler> OUT=<dir> <dir>/test_gemm
CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wshadow -I. -Iengine -MMD -MP
ALL    := $(wildcard engine/kernels/ref/*.c engine/kernels/arm/*.c)
QUANT  := $(wildcard engine/kernels/quant/*.c)
# A file gemm_quant_*.c is compiled once for each type, as in the Makefile.
QUANTS := $(basename $(notdir $(QUANT)))
ANY    := $(filter engine/kernels/ref/gemm_quant_% engine/kernels/arm/gemm_quant_%,$(ALL))
OWN    := $(filter-out $(ANY),$(ALL))
KERN   := $(OWN) $(filter-out $(OWN),$(foreach q,$(QUANTS),$(subst /gemm_quant_,/gemm_$(q)_,$(ANY))))
SRC    := $(wildcard engine/kernels/*.c) $(KERN) $(QUANT) $(filter-out %/program.c,$(wildcard engine/cpu/*.c)) \
          $(addprefix engine/base/,clock.c err.c file.c file_tmp.c log.c mem.c name.c process.c rng.c utf8.c)
# Flags by the last word of a kernel's file name, as in the Makefile.
ISA_ref      := -std=c11 -ffp-contract=off
ISA_neon     := -fno-schedule-insns
ISA_neondot  := -march=armv8.2-a+dotprod $(ISA_neon)
ISA_neoni8mm := -march=armv8.2-a+dotprod+i8mm $(ISA_neon)
obj     = $(patsubst %.c,$(OUT)/%.o,$(1))
# The files of a registry: $(call list,struct,array,files,prefix)
list    = for s in $(basename $(notdir $(3))); do echo "extern const struct $(1) $(4)_$$s;"; done; \
          echo 'const struct $(1) *const $(2)[] = {'; \
          for s in $(basename $(notdir $(3))); do echo "    &$(4)_$$s,"; done; echo '    0};'

$(OUT)/test_%: $(OUT)/tests/kernels/test_%.o $(call obj,$(SRC)) $(OUT)/variants.o
	$(CC) -static -o $@ $^ -lm
$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ISA_$(lastword $(subst _, ,$(basename $(notdir $<))))) -c $< -o $@
# $(1): the name of a type in lower case  $(2): in upper case  $(3): a file for any type
define for_type
$(call obj,$(subst /gemm_quant_,/gemm_$(1)_,$(3))): $(3)
	@mkdir -p $$(@D)
	$(CC) $(CFLAGS) $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(3)))))) -DQUANT=$(2) -DKERN_QUANT_VARIANT=kern_$$(basename $$(@F)) -c $(3) -o $$@
endef
upper = $(shell echo $(1) | tr a-z A-Z)
$(filter-out $(OWN),$(KERN)): ;
$(foreach q,$(QUANTS),$(foreach u,$(call upper,$(q)),$(foreach f,$(filter-out \
    $(subst /gemm_$(q)_,/gemm_quant_,$(OWN)),$(ANY)),$(eval $(call for_type,$(q),$(u),$(f))))))
$(OUT)/engine/kernels/pack_i8.o: CFLAGS += -ffp-contract=off
# GCC 12 for aarch64 crashes when it vectorises a reduction of test_gemm.c.
$(OUT)/tests/%.o: CFLAGS += -fno-tree-loop-vectorize
$(OUT)/variants.o: $(OUT)/variants.c
	$(CC) $(CFLAGS) -c $< -o $@
$(OUT)/variants.c: $(ALL) $(QUANT) engine/kernels/ref engine/kernels/arm
	{ echo '#include "kernels/quant.h"'; \
	  $(call list,kern_variant,kern_variants,$(KERN),kern); \
	  $(call list,kern_quant,kern_quants,$(QUANT),kern_quant); } >$@

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
.SECONDARY:
.DELETE_ON_ERROR:
