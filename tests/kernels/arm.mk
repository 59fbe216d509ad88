# The kernel tests, and greedy.c of tests/model, for aarch64 with what they link, statically. Used by
# the test_arm.sh of both folders:
# make -f tests/kernels/arm.mk CC=<cross compiler> OUT=<dir> <dir>/test_gemm
MAKEFLAGS += -r
CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g -ffunction-sections -fdata-sections -fopenmp-simd -Wall -Wextra -Werror \
          -Wshadow -I. -Iengine -MMD -MP
ALL    := $(wildcard engine/kernels/ref/*.c engine/kernels/arm/*.c)
QUANT  := $(wildcard engine/kernels/quant/*.c)
# A file gemm_quant_*.c is compiled once for each type, as in the Makefile.
QUANTS := $(basename $(notdir $(QUANT)))
ANY    := $(filter engine/kernels/ref/gemm_quant_% engine/kernels/arm/gemm_quant_%,$(ALL))
OWN    := $(filter-out $(ANY),$(ALL))
KERN   := $(OWN) $(filter-out $(OWN),$(foreach q,$(QUANTS),$(subst /gemm_quant_,/gemm_$(q)_,$(ANY))))
SRC    := $(wildcard engine/kernels/*.c) $(KERN) $(QUANT) $(filter-out %/program.c,$(wildcard engine/cpu/*.c)) \
          $(addprefix engine/base/,clock.c err.c file.c file_tmp.c log.c mem.c name.c process.c rng.c utf8.c)
PEAK   := $(wildcard characterize/peak/peak_neon*.c) characterize/peak/peak_ref.c
# What a model in a GGUF file needs. Functions that nobody calls, and so libraries that are not there
# for this processor, are left out by the linker.
COLL   := $(wildcard engine/par/coll/*.c)
TEAM   := engine/par/team/pthread.c
ALLOC  := $(wildcard engine/kv/alloc/*.c)
OPS    := $(wildcard engine/step/op/*.c)
MODEL  := $(filter-out %/inspect.c,$(wildcard $(addsuffix /*.c,$(addprefix engine/,model placement ranks step)))) $(filter-out %/learn_file.c,$(wildcard engine/kv/*.c)) \
          $(wildcard engine/par/*.c) $(COLL) $(TEAM) $(ALLOC) $(OPS) engine/measure/compare.c engine/format/reader/gguf.c \
          $(addprefix engine/format/,open.c config.c family.c support.c fill.c role.c keys.c gguf.c gguf_get.c gguf_split.c gguf_type.c) \
          $(addprefix engine/base/,file_map.c pages.c stats.c stats_interval.c text.c hash.c thread.c)
# Flags by the last word of a kernel's file name, as in the Makefile.
ISA_ref      := -std=c11 -ffp-contract=off
ISA_neon     := -fno-schedule-insns
ISA_neondot  := -march=armv8.2-a+dotprod $(ISA_neon)
ISA_neoni8mm := -march=armv8.2-a+dotprod+i8mm $(ISA_neon)
# The products that a study compares with Q4_0's, and the test of their bits.
INT4    := $(wildcard experiments/study/int4/*_ref.c experiments/study/int4/*_neondot.c)
LINK    = $(CC) -static -Wl,--gc-sections -o $@ $^ -lm -lpthread
obj     = $(patsubst %.c,$(OUT)/%.o,$(1))
# The files of a registry: $(call list,struct,array,files,prefix)
list    = for s in $(basename $(notdir $(3))); do echo "extern const struct $(1) $(4)_$$s;"; done; \
          echo 'const struct $(1) *const $(2)[] = {'; \
          for s in $(basename $(notdir $(3))); do echo "    &$(4)_$$s,"; done; echo '    0};'

$(OUT)/test_int4: $(OUT)/tests/study/test_int4.o $(call obj,$(INT4) experiments/study/support/int4.c $(SRC)) \
                  $(OUT)/variants.o $(OUT)/int4.o
	$(LINK)
$(OUT)/test_%: $(OUT)/tests/kernels/test_%.o $(call obj,$(SRC)) $(OUT)/variants.o
	$(LINK)
$(OUT)/test_peak: $(OUT)/tests/characterize/test_peak.o $(call obj,$(SRC) $(PEAK)) $(OUT)/variants.o
	$(LINK)
$(OUT)/greedy: $(OUT)/tests/model/greedy.o $(call obj,$(SRC) $(MODEL)) $(OUT)/variants.o
	$(LINK)
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
$(OUT)/engine/kernels/kv_type.o $(OUT)/engine/kernels/pack_i8.o: CFLAGS += -ffp-contract=off
# GCC 12 for aarch64 crashes when it vectorises a reduction of test_gemm.c.
$(OUT)/tests/%.o: CFLAGS += -fno-tree-loop-vectorize
$(OUT)/variants.o $(OUT)/int4.o: %.o: %.c
	$(CC) $(CFLAGS) -c $< -o $@
$(OUT)/int4.c: $(INT4)
	{ echo '#include "kernels/kern.h"'; $(call list,kern_variant,study_int4_variants,$(INT4),study_int4); } >$@
$(OUT)/variants.c: $(ALL) $(QUANT) engine/kernels/ref engine/kernels/arm tests/kernels/arm.mk
	{ printf '#include "%s"\n' kernels/quant.h characterize/peak/peak.h par/coll.h par/team.h kv/alloc.h step/op.h format/format.h; \
	  $(call list,kern_variant,kern_variants,$(KERN),kern); \
	  $(call list,kern_quant,kern_quants,$(QUANT),kern_quant); \
	  $(call list,probe_isa,probe_isas,$(PEAK),probe); \
	  $(call list,par_coll,par_colls,$(COLL),par_coll); \
	  $(call list,par_team_kind,par_team_kinds,$(TEAM),par_team_kind); \
	  $(call list,kv_alloc,kv_allocs,$(ALLOC),kv_alloc); \
	  $(call list,model_op_kind,model_op_kinds,$(OPS),model_op); \
	  $(call list,format_reader,format_readers,gguf.c,format_reader); } >$@

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
.SECONDARY:
.DELETE_ON_ERROR:
