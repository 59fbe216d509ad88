# A host whose /sys names no memory nodes ended every program in hwloc, by abort.
. tests/support/tap.sh

model=$dir/tiny.gguf
"$sandwich" model make --arch tiny --out "$model" >/dev/null || exit 1
ids() { "$sandwich" run --model "$model" --prompt-ids 1,2,3 -n 4 --ids --no-pin; }

without_nodes() { # its own mounts; the folder is there and empty
    unshare -rm sh -c 'mount -t tmpfs none /sys/devices/system/node && exec "$@"' sh "$@"
}

same_ids() {
    ids >"$dir/want" || return 1
    without_nodes "$sandwich" run --model "$model" --prompt-ids 1,2,3 -n 4 --ids --no-pin \
        >"$dir/got" && cmp "$dir/want" "$dir/got"
}

if [ -d /sys/devices/system/node ] && without_nodes true 2>/dev/null; then
    check "runs without memory nodes in /sys" same_ids
else
    skip "runs without memory nodes in /sys" "cannot mount over it here"
fi
finish
