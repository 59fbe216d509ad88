# The stress of the collectives and what it links, for aarch64, statically. Used by test_arm.sh:
# make -f tests/par/arm.mk CC=<cross compiler> OUT=<dir> <dir>/test_stress
MAKEFLAGS += -r
CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g -fopenmp-simd -Wall -Wextra -Werror -Wshadow -I. -Iengine -MMD -MP
COLL   := $(wildcard engine/par/coll/*.c)
SRC    := $(addprefix engine/par/,coll.c choice.c shm.c) $(COLL) \
          engine/measure/compare.c $(addprefix engine/base/,err.c utf8.c rng.c name.c mem.c clock.c stats.c stats_interval.c)
obj     = $(patsubst %.c,$(OUT)/%.o,$(1))
stems   = $(basename $(notdir $(COLL)))

$(OUT)/test_stress: $(OUT)/tests/par/test_stress.o $(call obj,$(SRC)) $(OUT)/colls.o
	$(CC) -static -o $@ $^ -lm -lpthread
$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@
$(OUT)/colls.o: $(OUT)/colls.c
	$(CC) $(CFLAGS) -c $< -o $@
$(OUT)/colls.c: $(COLL) engine/par/coll
	@mkdir -p $(@D)
	{ echo '#include "par/coll.h"'; \
	  for s in $(stems); do echo "extern const struct par_coll par_coll_$$s;"; done; \
	  echo 'const struct par_coll *const par_colls[] = {'; \
	  for s in $(stems); do echo "    &par_coll_$$s,"; done; \
	  echo '    0};'; } >$@

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
.SECONDARY:
.DELETE_ON_ERROR:
