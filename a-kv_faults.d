kv_faults.o: experiments/study/support/kv_faults.c \
 experiments/study/support/kv_fault_world.h engine/cluster/wire.h \
 engine/cluster/transport.h engine/kv/kv.h engine/base/err.h \
 engine/kv/alloc.h experiments/study/support/kv_faults.h \
 engine/base/rng.h engine/base/clock.h engine/base/mem.h \
 engine/base/thread.h engine/kv/slot_runs.h
experiments/study/support/kv_fault_world.h:
engine/cluster/wire.h:
engine/cluster/transport.h:
engine/kv/kv.h:
engine/base/err.h:
engine/kv/alloc.h:
experiments/study/support/kv_faults.h:
engine/base/rng.h:
engine/base/clock.h:
engine/base/mem.h:
engine/base/thread.h:
engine/kv/slot_runs.h:
