# Sandwich Testbed. `make help` lists the targets and variables.
CC      := gcc
AR      := ar
PYTHON  := /usr/bin/python3
ARCH    := $(shell $(CC) -dumpmachine | cut -d- -f1)
comma   := ,
BUILD   ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
Q       := $(if $(V),,@)
PREFIX  ?= /usr/local
# In parallel unless told otherwise (-j1) or order matters.
ifeq ($(filter clean,$(MAKECMDGOALS))$(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif

PKGS    := hwloc jansson hdf5-serial libpcre2-8 libutf8proc libmicrohttpd zlib liblzma libcrypto papi libcurl libcmark-gfm
# "yes" when libraries, h5dump and the plots' Python modules are there; else every verb first
# installs what is missing and then starts over.
HAVE    := $(shell pkg-config --exists $(PKGS) 2>/dev/null && command -v h5dump >/dev/null && \
           $(PYTHON) -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("matplotlib", "h5py"))))' \
           2>/dev/null && echo yes)
ifeq ($(HAVE),yes)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS))
LIB_ENGINE := $(shell pkg-config --libs hwloc jansson libpcre2-8 libutf8proc libmicrohttpd zlib liblzma libcrypto) -lm -lpthread -ldl
LIB_HDF5   := $(shell pkg-config --libs hdf5-serial)
LIB_PAPI   := $(shell pkg-config --libs papi) -lsde
LIB_CMARK  := $(shell pkg-config --libs libcmark-gfm)
LIB_CURL   := $(shell pkg-config --libs libcurl)
LIB_TEST    = $(shell pkg-config --libs cmocka)
endif

OPT     := $(if $(SAN),-O1 -fno-omit-frame-pointer -fsanitize=$(SAN),-O2)
VERSION := $(shell cat VERSION)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DIRTY   := $(shell git diff --quiet HEAD 2>/dev/null && echo 0 || echo 1)
# What an overrun of memory meets in a program that reads foreign files. Sanitizers check more.
ifeq ($(SAN),)
HARDEN  := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE
LINK_HARDEN := -pie -Wl,-z,relro,-z,now,-z,noexecstack
endif
# WERROR= : a compiler that is not Debian's may warn. clang finds members missing after designated ones, and
# inline functions that not every type of a kernel uses.
WERROR  := -Werror
CFLAGS  := -std=gnu11 -D_GNU_SOURCE $(OPT) $(HARDEN) -g -fopenmp -Wall -Wextra $(WERROR) -Wshadow \
           $(if $(findstring clang,$(CC)),-Wno-missing-field-initializers -Wno-unused-function) \
           -Wstrict-prototypes -Wmissing-prototypes -MMD -MP -I. -Iengine $(PKG_CFLAGS)
LDFLAGS := -fopenmp $(LINK_HARDEN) $(if $(SAN),-fsanitize=$(SAN))
# What a debugger reads would make all test programs together seven times as large, 8 GB. To debug
# one: make STRIP_TEST= build/tests/kv/test_pool after removing it. gold takes a third of the time.
STRIP_TEST := $(if $(SAN),,-Wl,--strip-debug $(if $(shell command -v ld.gold),-fuse-ld=gold))
FLAGS   := $(CFLAGS) $(LDFLAGS)

# A kernel's instruction set is the last word of its file name; the whole file gets its flags.
ISA_ref        := -std=c11 -ffp-contract=off
ISA_avx2       := -mavx2 -mfma -mf16c
ISA_avxvnni    := $(ISA_avx2) -mavxvnni
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_avx512bf16 := $(ISA_avx512) -mavx512bf16
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni
ISA_avx512fp16 := $(ISA_avx512) -mavx512fp16
ISA_amxbf16    := $(ISA_avx512bf16) -mamx-tile -mamx-bf16
ISA_amxint8    := $(ISA_avx512) -mamx-tile -mamx-int8
# Scheduled before registers are allocated, loads come so early that sums are spilled.
ISA_neon       := -fno-schedule-insns
ISA_neondot    := -march=armv8.2-a+dotprod $(ISA_neon)
ISA_neoni8mm   := -march=armv8.2-a+dotprod+i8mm $(ISA_neon)
# Kernels read no foreign data, and stay the code that was measured. Of these a debugger gets the lines
# only: to follow every vector of an unrolled loop takes a third of the compiler's time.
isa_of = -fno-stack-protector -g1 $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(1))))))

KERN_DIRS := engine/kernels/ref $(if $(filter x86_64,$(ARCH)),engine/kernels/x86) \
             $(if $(filter aarch64,$(ARCH)),engine/kernels/arm)
KERN_ALL  := $(foreach d,$(KERN_DIRS),$(wildcard $(d)/*.c))
# A file gemm_quant_*.c, gemm_float_*.c or attn_kv_*.c holds kernels for any of these types. It is
# compiled once for each, as if it were gemm_<type>_*.c or attn_<type>_*.c, unless there is such a file.
TYPES_quant := $(basename $(notdir $(wildcard engine/kernels/quant/*.c)))
TYPES_float := f32 f16 bf16
TYPES_kv    := f32 f16 bf16 q8
ANY       := quant float kv
any_of     = $(filter $(foreach d,$(KERN_DIRS),$(d)/gemm_$(1)_% $(d)/attn_$(1)_%),$(KERN_ALL))
KERN_OWN  := $(filter-out $(foreach a,$(ANY),$(call any_of,$(a))),$(KERN_ALL))
KERN_SRC  := $(KERN_OWN) $(filter-out $(KERN_OWN),$(foreach a,$(ANY),$(foreach t,$(TYPES_$(a)),$(subst \
             _$(a)_,_$(t)_,$(call any_of,$(a))))))
# Folders that are only code for another processor are left out; the rest is every .c below.
# Both programs read data sets.
CLI_SRC := $(wildcard engine/cli/*.c engine/cli/verb/*.c)
# Compiled for each MPI library, apart.
MPI_SRC := engine/cluster/mpi/library.c
ENGINE_SRC := $(filter-out $(CLI_SRC) $(MPI_SRC) engine/kernels/ref/% engine/kernels/x86/% \
              engine/kernels/arm/%,$(shell find engine datasets -name '*.c' | sort)) $(KERN_SRC)
PEAK_SRC := $(filter-out $(if $(filter x86_64,$(ARCH)),,characterize/peak/peak_avx%) \
            $(if $(filter aarch64,$(ARCH)),,characterize/peak/peak_neon%),$(wildcard characterize/peak/*.c))
# 4-bit products that a study compares with the engine's own.
INT4_SRC := $(filter-out $(if $(filter x86_64,$(ARCH)),,%_avx2.c %_avx512vnni.c) \
            $(if $(filter aarch64,$(ARCH)),,%_neondot.c),$(wildcard experiments/study/int4/*.c))
BED_SRC := $(filter-out experiments/cli/main.c characterize/peak/% baselines/gemm/% experiments/study/int4/%,$(shell \
           find characterize baselines experiments -name '*.c' | sort)) $(PEAK_SRC) $(INT4_SRC)
TEST_SRC := $(shell find $(or $(MODULE:%=tests/%),tests) -name 'test_*.c' | sort)
SUPPORT_SRC := $(wildcard tests/support/*.c)

# GEMM libraries: one program each, from baselines/gemm/<name>.c, left out where the library is
# not found and under ThreadSanitizer, which cannot follow OpenMP inside of them.
# BASELINE_LIB_<name>= and BASELINE_INC_<name>= name one that is elsewhere, or none.
MULTIARCH := $(shell $(CC) -dumpmachine)
BASELINE_NAMES := $(basename $(notdir $(wildcard baselines/gemm/*.c)))
BASELINE_LIB_onednn   := /usr/lib/$(MULTIARCH)/libdnnl.so
BASELINE_LIB_openblas := /usr/lib/$(MULTIARCH)/openblas-openmp/libopenblas.so
BASELINE_INC_openblas := -isystem /usr/include/$(MULTIARCH)/openblas-openmp
BASELINE_LIB_blis     := /usr/lib/$(MULTIARCH)/blis-openmp/libblis.so
BASELINE_INC_blis     := -isystem /usr/include/$(MULTIARCH)/blis-openmp
BASELINE_LIB_libxsmm  := /usr/lib/libxsmm.a
BASELINE_MORE_libxsmm := /usr/lib/libxsmmnoblas.a -ldl
BASELINE_FOUND := $(foreach r,$(BASELINE_NAMES),$(if $(wildcard $(BASELINE_LIB_$(r))),$(r)))
BASELINES := $(if $(findstring thread,$(SAN)),,$(BASELINE_FOUND:%=$(BUILD)/baseline/%))
BASELINE_SUPPORT := $(wildcard baselines/gemm/support/*.c)

# MPI libraries: a shared object each, which the programs load under mpirun; left out where the
# library's compiler is not found.
MPI_FOUND := $(foreach l,openmpi mpich,$(if $(shell command -v mpicc.$(l)),$(l)))
# The programs of `make bundle`.
BUNDLED := $(if $(SAN),,$(BUILD)/bundle/sandwich $(BUILD)/bundle/testbed)
MPIS := $(if $(SAN),,$(MPI_FOUND:%=$(BUILD)/mpi/%.so))

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))
# Programs that make test-long runs.
LONG_TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(foreach t,$(shell sed -n 's/^long //p' tests/schedule.txt),\
              $(filter tests/$(t) tests/$(t)/%,$(TEST_SRC))))

ifeq ($(HAVE),yes)
all: $(BUILD)/sandwich $(BUILD)/testbed $(BASELINES) $(MPIS)

# --- registries: a plug-in is one file in a folder; these lists are the only thing made of it,
# each time, and kept when they are as before: times of folders do not tell all that happens
# $(1) generated name  $(2) files  $(3) header  $(4) struct  $(5) array  $(6) symbol prefix
define registry
GEN_SRC += $(BUILD)/gen/$(1).c
$(BUILD)/gen/$(1).c: FORCE
	@mkdir -p $$(@D)
	$(Q){ echo '#include "$(3)"'; \
	 for s in $(basename $(notdir $(2))); do echo "extern const struct $(4) $(6)_$$$$s;"; done; \
	 echo 'extern const struct $(4) *const $(5)[];'; \
	 echo 'const struct $(4) *const $(5)[] = {'; \
	 for s in $(basename $(notdir $(2))); do echo "    &$(6)_$$$$s,"; done; \
	 echo '    0};'; } > $$@.new; cmp -s $$@.new $$@ && rm $$@.new || mv $$@.new $$@
endef
reg = $(eval $(call registry,$(1),$(2),$(3),$(4),$(5),$(6)))
GEN_SRC :=
$(call reg,kern,$(KERN_SRC),kernels/kern.h,kern_variant,kern_variants,kern)
$(call reg,kern_quant,$(wildcard engine/kernels/quant/*.c),kernels/quant.h,kern_quant,kern_quants,kern_quant)
$(call reg,kv_alloc,$(wildcard engine/kv/alloc/*.c),kv/alloc.h,kv_alloc,kv_allocs,kv_alloc)
$(call reg,kv_evict,$(wildcard engine/kv/evict/*.c),kv/evict.h,kv_evict,kv_evicts,kv_evict)
$(call reg,kv_predictor,$(wildcard engine/kv/predict/*.c),kv/predict.h,kv_predictor,kv_predictors,kv_predictor)
$(call reg,dataset_reader,$(wildcard datasets/reader/*.c),datasets/dataset.h,dataset_reader,dataset_readers,dataset_reader)
$(call reg,format_reader,$(wildcard engine/format/reader/*.c),format/format.h,format_reader,format_readers,format_reader)
$(call reg,par_coll,$(wildcard engine/par/coll/*.c),par/coll.h,par_coll,par_colls,par_coll)
$(call reg,par_team,$(wildcard engine/par/team/*.c),par/team.h,par_team_kind,par_team_kinds,par_team_kind)
$(call reg,plan_evaluator,$(wildcard engine/plan/evaluator/*.c),plan/evaluator.h,plan_evaluator,plan_evaluators,plan_evaluator)
$(call reg,plan_method,$(wildcard engine/plan/method/*.c),plan/method.h,plan_method,plan_methods,plan_method)
$(call reg,sched_policy,$(wildcard engine/sched/policy/*.c),sched/sched.h,sched_policy,sched_policies,sched_policy)
$(call reg,tune_policy,$(wildcard engine/tune/policy/*.c),tune/policy.h,tune_policy,tune_policies,tune_policy)
$(call reg,cluster_router,$(wildcard engine/cluster/router/*.c),cluster/router.h,cluster_router,cluster_routers,cluster_router)
$(call reg,cluster_transport,$(wildcard engine/cluster/transport/*.c),cluster/transport.h,cluster_transport,cluster_transports,cluster_transport)
$(call reg,cluster_perf,$(wildcard engine/cluster/perf/*.c),cluster/perf.h,cluster_perf_kind,cluster_perfs,cluster_perf)
$(call reg,hetero_policy,$(wildcard engine/hetero/policy/*.c),hetero/policy.h,hetero_policy,hetero_policies,hetero_policy)
$(call reg,accel_kind,$(wildcard engine/hetero/accel/*.c),hetero/accel.h,accel_kind,accel_kinds,accel_kind)
$(call reg,model_op,$(wildcard engine/step/op/*.c),step/op.h,model_op_kind,model_op_kinds,model_op)
$(call reg,graph_pass,$(wildcard engine/graph/pass/*.c),graph/graph.h,graph_pass,graph_passes,graph_pass)
$(call reg,http_route,$(wildcard engine/http/route/*.c),http/route.h,http_route,http_routes,http_route)
ENGINE_GEN := $(GEN_SRC)
GEN_SRC :=
$(call reg,cli_verb,$(wildcard engine/cli/verb/*.c),program/program.h,verb,cli_verbs,cli_verb)
CLI_GEN := $(GEN_SRC)
GEN_SRC :=
$(call reg,probe,$(wildcard characterize/probe/*.c),characterize/probe.h,probe,probes,probe)
$(call reg,counters,$(wildcard characterize/counters/provider/*.c),characterize/counters/counters.h,counters_provider,counters_providers,counters)
$(call reg,probe_isa,$(PEAK_SRC),characterize/peak/peak.h,probe_isa,probe_isas,probe)
$(call reg,sut_adapter,$(wildcard baselines/adapter/*.c),baselines/sut.h,sut_adapter,sut_adapters,sut_adapter)
$(call reg,load,$(wildcard experiments/load/process/*.c),experiments/load/load.h,load_process,load_processes,load_process)
# A file may hold several studies of one question.
STUDIES := $(sort $(shell sed -n 's/^STUDY[A-Z_]*.\([a-z0-9_]*\),.*/\1/p; \
                s/^const struct study study_\([a-z0-9_]*\) = {/\1/p' experiments/study/*.c))
$(call reg,study,$(STUDIES),experiments/load/study.h,study,studies,study)
$(call reg,study_int4,$(INT4_SRC),experiments/study/int4/int4.h,kern_variant,study_int4_variants,study_int4)
$(call reg,conform_relation,$(wildcard experiments/conformance/relation/*.c),experiments/conformance/relation.h,conform_relation,conform_relations,conform)
$(call reg,record_rule,$(wildcard experiments/record/rule/*.c),experiments/record/rule.h,record_rule,record_rules,record_rule)
$(call reg,predictor,$(wildcard experiments/predict/predictor/*.c),experiments/predict/predictor.h,predictor,predictors,predictor)
$(call reg,verb,$(wildcard experiments/cli/verb/*.c),program/program.h,verb,verbs,verb)
BED_GEN := $(GEN_SRC) $(BUILD)/gen/gemm_baselines.c
$(BUILD)/gen/gemm_baselines.c: FORCE
	@mkdir -p $(@D)
	$(Q){ echo '#include "baselines/gemm.h"'; echo 'const char *const gemm_baseline_names[] = {'; \
	 for r in $(BASELINE_NAMES); do echo "    \"$$r\","; done; echo '    0};'; } > $@.new; \
	 cmp -s $@.new $@ && rm $@.new || mv $@.new $@

genobj = $(patsubst $(BUILD)/gen/%.c,$(BUILD)/obj/gen/%.o,$(1))
ENGINE_OBJ := $(call obj,$(ENGINE_SRC)) $(call genobj,$(ENGINE_GEN))
BED_OBJ := $(call obj,$(BED_SRC)) $(call genobj,$(BED_GEN))

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/gen/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -c $< -o $@
$(BUILD)/obj/%.o: %.c $(BUILD)/gen/flags
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(CFLAGS) $(if $(filter $(KERN_SRC) $(INT4_SRC) characterize/peak/%,$<),$(call isa_of,$<)) \
	$(if $(filter baselines/gemm/%,$<),$(BASELINE_INC_$(notdir $*))) -c $< -o $@
# $(1): the kind of a type, as in the file's name  $(2): the type  $(3): a file for any type
define for_type
$(call obj,$(subst _$(1)_,_$(2)_,$(3))): $(3) $(BUILD)/gen/flags
	@mkdir -p $$(@D)
	@echo "  CC $(3) for $(2)"
	$(Q)$(CC) $(CFLAGS) $(call isa_of,$(3)) -D$(call upper,$(1))=$(call upper,$(2)) -DKERN_TYPE_NAME=$(2) \
	-DKERN_$(call upper,$(1))_VARIANT=kern_$$(basename $$(@F)) -c $(3) -o $$@
endef
upper = $(shell echo $(1) | tr a-z A-Z)
# A build folder of a time when each type had files of its own depends on them.
$(filter-out $(KERN_OWN),$(KERN_SRC)): ;
$(foreach a,$(ANY),$(foreach t,$(TYPES_$(a)),$(foreach f,$(filter-out $(subst _$(t)_,_$(a)_,$(KERN_OWN)),$(call \
    any_of,$(a))),$(eval $(call for_type,$(a),$(t),$(f))))))
$(BUILD)/libsandwich.a: $(ENGINE_OBJ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/libtestbed.a: $(BED_OBJ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/sandwich $(BUILD)/bundle/sandwich: $(call obj,$(CLI_SRC)) $(call genobj,$(CLI_GEN)) $(BUILD)/libsandwich.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIB_ENGINE)
$(BUILD)/testbed $(BUILD)/bundle/testbed: $(BUILD)/obj/experiments/cli/main.o $(BUILD)/libtestbed.a $(BUILD)/libsandwich.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIB_HDF5) $(LIB_PAPI) $(LIB_CMARK) $(LIB_CURL) $(LIB_ENGINE)
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(call obj,$(SUPPORT_SRC)) $(BUILD)/libtestbed.a $(BUILD)/libsandwich.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) $(STRIP_TEST) -o $@ $^ $(LIB_TEST) $(LIB_HDF5) $(LIB_PAPI) $(LIB_CMARK) $(LIB_CURL) $(LIB_ENGINE)
# Libraries next to the program come first, whatever LD_LIBRARY_PATH says: modules of clusters set it. The
# second folder is for a link to the program, where there is no /proc that says what it leads to.
$(BUILD)/bundle/%: LDFLAGS += -s -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/lib:$$ORIGIN/lib/sandwich/lib'
# A file NAME.wrap lists the functions that test NAME replaces.
$(foreach w,$(wildcard tests/*/*.wrap),$(eval $(BUILD)/$(w:.wrap=): LDFLAGS += \
    $(addprefix -Wl$(comma)--wrap=,$(shell cat $(w)))))
# Each library by its own path, at build and at run time: not by what libblas.so happens to be.
$(BUILD)/baseline/%: $(BUILD)/obj/baselines/gemm/%.o $(call obj,$(BASELINE_SUPPORT)) $(BUILD)/libsandwich.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(BASELINE_LIB_$*) $(BASELINE_MORE_$*) -Wl,-rpath,$(dir $(BASELINE_LIB_$*)) -ljansson -lm -lpthread

$(BUILD)/mpi/%.so: $(MPI_SRC) engine/cluster/mpi/library.h
	@mkdir -p $(@D)
	@echo "  MPICC $* $<"
	$(Q)mpicc.$* -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared -Iengine $< -o $@

# Rounds alike on every processor.
$(BUILD)/obj/engine/kernels/kv_type.o $(BUILD)/obj/engine/kernels/pack_i8.o: CFLAGS += -ffp-contract=off

# With other flags everything is built again.
$(BUILD)/gen/flags: FORCE
	@mkdir -p $(@D); echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
# Version and commit are inputs of one file only, so that a commit does not rebuild everything.
$(BUILD)/obj/engine/base/build.o: CFLAGS += -DBUILD_COMMIT='"$(COMMIT)"' \
    -DBUILD_DIRTY=$(DIRTY) -DBUILD_VERSION='"$(VERSION)"' -DBUILD_FLAGS='"$(OPT) $(HARDEN) -fopenmp"' -DBUILD_CC='"$(shell $(CC) --version | head -n1)"'
$(BUILD)/obj/engine/base/build.o: $(BUILD)/gen/commit
$(BUILD)/gen/commit: FORCE
	@mkdir -p $(@D); echo '$(VERSION) $(COMMIT) $(DIRTY)' | cmp -s - $@ || echo '$(VERSION) $(COMMIT) $(DIRTY)' > $@
# Tuned schedules and kept plans are keyed by the newest commit of what they were measured with.
MEASURED := engine/kernels engine/par
KERNELS  := $(shell git log -1 --format=%h --abbrev=12 -- $(MEASURED) 2>/dev/null)$(shell \
            git diff --quiet HEAD -- $(MEASURED) 2>/dev/null || echo -dirty)
$(BUILD)/obj/engine/base/build.o: CFLAGS += -DBUILD_KERNELS='"$(KERNELS)"'
$(BUILD)/obj/engine/base/build.o: $(BUILD)/gen/kernels
$(BUILD)/gen/kernels: FORCE
	@mkdir -p $(@D); echo '$(KERNELS)' | cmp -s - $@ || echo '$(KERNELS)' > $@
FORCE:

# --- verbs
test: $(filter-out $(LONG_TESTS),$(TESTS))
test-long: $(TESTS)
test test-long lint $(call obj,$(TEST_SRC) $(SUPPORT_SRC)): | test-deps
test test-long: $(BUILD)/sandwich $(BUILD)/testbed $(BASELINES) $(MPIS) $(BUNDLED)
	$(Q)BUILD=$(BUILD) SAN=$(SAN) MODULE='$(MODULE)' JOBS=$(JOBS) sh tests/support/run.sh $@
lint: all
	$(Q)BUILD=$(BUILD) sh tests/lint/lint.sh
install: all
	$(Q)BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) VERSION=$(VERSION) sh tests/support/install.sh
bundle: $(BUNDLED) $(MPIS)
	$(Q)BUILD=$(BUILD) VERSION=$(VERSION) sh tests/support/bundle.sh
experiment: all
	$(Q)test -n "$(NAME)" || { echo "usage: make experiment NAME=quickstart (make list shows all)"; exit 2; }
	$(Q)$(BUILD)/testbed run $(NAME) --draw --retries 2 $(ARGS)
report: all
	$(Q)$(BUILD)/testbed report $(ARGS)
# For maintainers: this changes files that git tracks.
docs: all
	$(Q)BUILD=$(BUILD) sh tests/support/docs.sh
	$(Q)sh tests/support/figures.sh $(BUILD)/published-figures >$(BUILD)/figures.sha256
	$(Q)mv $(BUILD)/figures.sha256 results/published/figures.sha256
	$(Q)BUILD=$(BUILD) sh tests/support/gallery.sh $(BUILD)/published-figures
artifact: all
	$(Q)$(BUILD)/testbed artifact --budget $(or $(BUDGET),120m) $(ARGS)
figures:
	$(Q)$(PYTHON) paper-figs/lib/draw.py $(NAME) $(ARGS)
list: all
	$(Q)$(BUILD)/testbed list
else
ifdef DEPS_TRIED
$(error packages are installed, yet pkg-config, h5dump or $(PYTHON)'s matplotlib and h5py are not found)
endif
all test test-long lint install bundle experiment report docs artifact figures list: deps
	$(Q)$(MAKE) --no-print-directory DEPS_TRIED=1 $@
endif
deps:
	$(Q)MPI=$(MPI) sh tests/support/deps.sh
test-deps:
	$(Q)MPI=$(MPI) sh tests/support/deps.sh tests
define HELP
make                        Build build/sandwich and build/testbed.
make deps                   Install the Debian packages that are missing. MPI=1: two MPI libraries, too.
                            What only tests and lint need comes with `make test`.
make test                   Run the tests, in minutes. MODULE=kv: those of one folder of tests/.
                            MODULE="kv sched": of two. JOBS=1: one at a time; by default one more than CPUs.
make test-long              Run the tests that take longest: rules broken on purpose, long histories,
                            emulated processors, fuzzing, recipes. Same variables.
make lint                   Check the sources against the rules of tests/lint/.
make experiment NAME=S      Run experiments/S.json and draw its figure. ARGS="--smoke": a short run.
make report                 Write results/report/index.html about all records.
make docs                   For maintainers: renew results/performance.md from your records, docs/ and
                            results/published/ (page, hashes of figures) from the published ones.
make artifact BUDGET=120m   Run what fits into the time, then check and report. ARGS=--resume: continue.
make figures                Draw all figures from the newest results. NAME=S: one of them.
                            ARGS="--formats svg": no PNG and no PDF.
make list                   List the experiments with their cost.
make install PREFIX=DIR     Install programs, their data and man pages; default /usr/local.
make bundle                 Make an archive that runs where nothing is installed (docs/on-a-cluster.md).
make clean                  Remove what was built; results stay.

SAN=address,undefined       Build with these sanitizers, in a folder of its own (or SAN=thread).
BUILD=DIR                   Build in another folder.  V=1: show the commands.
endef
export HELP
help:
	@echo "$$HELP"
clean:
	rm -rf build build-* paper-figs/out

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
ifneq ($(HAVE),yes)
.NOTPARALLEL:
endif
.PHONY: all help deps test-deps test test-long lint install bundle experiment report docs artifact figures list clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:
