#!/bin/sh
# Install what the project needs from Debian packages. Root or passwordless sudo installs;
# otherwise the one line to run is printed and the exit status is 2.
set -eu
PACKAGES="gcc make pkg-config git libhwloc-dev libjansson-dev libhdf5-dev hdf5-tools
libcmocka-dev libpcre2-dev libutf8proc-dev python3-matplotlib python3-h5py clang-format
gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
missing=""
for p in $PACKAGES; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ]; then
    sudo=""
elif sudo -n true 2>/dev/null; then
    sudo="sudo -n"
else
    echo "missing packages; run:  apt-get install --no-install-recommends -y$missing" >&2
    exit 2
fi
echo "installing:$missing"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
