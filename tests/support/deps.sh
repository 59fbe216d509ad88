#!/bin/sh
# Install what the project needs from Debian packages; with the argument `tests` also what its tests and
# `make lint` need. Root or passwordless sudo installs; otherwise the one line to run is printed and the
# exit status is 2.
# The GEMM libraries, valgrind, help2man, jinja2, jsonschema and the compiler for Arm are wanted, not needed: without
# them tests, series of experiments and man pages are left out, and the exit status stays 0.
# OpenSSL's libcrypto has the HMAC by which prompt and token machines of several hosts know each other.
# PoCL makes an OpenCL device of the CPU, for the tests of the accelerator `opencl`; 250 MB with its compiler.
set -eu
NEEDED="gcc make pkg-config git libhwloc-dev libjansson-dev libhdf5-dev hdf5-tools
libpcre2-dev libutf8proc-dev libmicrohttpd-dev libpapi-dev libcurl4-openssl-dev
libssl-dev zlib1g-dev liblzma-dev xz-utils libcmark-gfm-dev libcmark-gfm-extensions-dev
python3-matplotlib python3-h5py"
WANTED="help2man libdnnl-dev libopenblas-openmp-dev libblis-openmp-dev libxsmm-dev valgrind"
if [ "${1:-}" = tests ]; then
    NEEDED="$NEEDED libcmocka-dev clang-format"
    WANTED="$WANTED python3-jinja2 python3-jsonschema ocl-icd-libopencl1 pocl-opencl-icd gcc-aarch64-linux-gnu
        libc6-dev-arm64-cross qemu-user-static"
fi
# MPI, 155 MB: only where it is asked for (make deps MPI=1).
[ -z "${MPI:-}" ] || WANTED="$WANTED openmpi-bin libopenmpi-dev mpich libmpich-dev"
missing() {
    for p in "$@"; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || printf ' %s' "$p"
    done
}
install() {
    echo "installing:$*"
    # shellcheck disable=SC2048,SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $* >/dev/null
}
# shellcheck disable=SC2086
needed=$(missing $NEEDED) wanted=$(missing $WANTED)
[ -z "$needed$wanted" ] && exit 0
if [ "$(id -u)" = 0 ]; then
    sudo=""
elif sudo -n true 2>/dev/null; then
    sudo="sudo -n"
else
    echo "missing packages; run:  apt-get install --no-install-recommends -y$needed$wanted" >&2
    [ -z "$needed" ] && exit 0
    exit 2
fi
$sudo apt-get update -qq || [ -z "$needed" ]
[ -z "$needed" ] || install "$needed"
for p in $wanted; do # one by one: not every processor has every library
    install "$p" || echo "not installed: $p; what needs it is left out or skipped" >&2
done
