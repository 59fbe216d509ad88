# The kernel tests and what they link, for aarch64, statically. Used by test_arm.sh:
# make -f tests/kernels/arm.mk CC=<cross compiler> OUT=<dir> <dir>/test_gemm
CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Wshadow -I. -Iengine -MMD -MP
KERN   := $(wildcard engine/kernels/ref/*.c engine/kernels/arm/*.c)
QUANT  := $(wildcard engine/kernels/quant/*.c)
SRC    := $(wildcard engine/kernels/*.c) $(KERN) $(QUANT) $(filter-out %/program.c,$(wildcard engine/cpu/*.c)) \
          $(addprefix engine/base/,clock.c err.c file.c file_tmp.c log.c mem.c name.c process.c rng.c utf8.c)
obj     = $(patsubst %.c,$(OUT)/%.o,$(1))
stems   = $(basename $(notdir $(KERN)))

$(OUT)/test_%: $(OUT)/tests/kernels/test_%.o $(call obj,$(SRC)) $(OUT)/variants.o $(OUT)/quants.o
	$(CC) -static -o $@ $^ -lm
$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(if $(filter engine/kernels/ref/%,$<),-std=c11 -ffp-contract=off) -c $< -o $@
$(OUT)/variants.o $(OUT)/quants.o: %.o: %.c
	$(CC) $(CFLAGS) -c $< -o $@
$(OUT)/engine/kernels/pack_i8.o: CFLAGS += -ffp-contract=off
$(OUT)/quants.c: $(QUANT) engine/kernels/quant
	{ echo '#include "kernels/quant.h"'; \
	  for s in $(basename $(notdir $(QUANT))); do echo "extern const struct kern_quant kern_quant_$$s;"; done; \
	  echo 'const struct kern_quant *const kern_quants[] = {'; \
	  for s in $(basename $(notdir $(QUANT))); do echo "    &kern_quant_$$s,"; done; \
	  echo '    0};'; } >$@
$(OUT)/variants.c: $(KERN) engine/kernels/ref engine/kernels/arm
	{ echo '#include "kernels/kern.h"'; \
	  for s in $(stems); do echo "extern const struct kern_variant kern_$$s;"; done; \
	  echo 'const struct kern_variant *const kern_variants[] = {'; \
	  for s in $(stems); do echo "    &kern_$$s,"; done; \
	  echo '    0};'; } >$@

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
.SECONDARY:
.DELETE_ON_ERROR:
