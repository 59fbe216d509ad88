"""How each MPI library starts ranks, and where the front of ranks is."""
import os

os.environ.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
LAUNCHERS = {"openmpi": ["mpirun.openmpi", "-n", "3", "--oversubscribe", "--bind-to", "none"],
             "mpich": ["mpirun.mpich", "-n", "3"]}
RANK = {"openmpi": "OMPI_COMM_WORLD_RANK=0", "mpich": "PMI_RANK=0"}


def descendants(pid):
    found = []
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/children" % (pid, task)) as f:
            for child in map(int, f.read().split()):
                found += [child] + descendants(child)
    return found


def front_of(pid, library):
    """The process of rank 0: mpirun's own end would not wait for it."""
    for p in descendants(pid):
        with open("/proc/%d/environ" % p) as f:
            if RANK[library] in f.read().split("\0"):
                return p
    raise AssertionError("no rank 0")
