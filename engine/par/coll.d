engine/par/coll: engine/par/coll.c engine/base/opt.h engine/base/err.h \
 engine/par/comm.h engine/par/coll.h engine/par/spin.h \
 engine/base/clock.h engine/cpu/cpu.h engine/cpu/isa.def
engine/base/opt.h:
engine/base/err.h:
engine/par/comm.h:
engine/par/coll.h:
engine/par/spin.h:
engine/base/clock.h:
engine/cpu/cpu.h:
engine/cpu/isa.def:
