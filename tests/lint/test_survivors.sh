#!/bin/sh
# tests/support/survivors.txt tells of code that there is: each change in it is one that mutate.sh can still
# make, in a module of mutants.txt, and has a reason. Whether it survives only mutate.sh finds out.
set -u
. tests/support/tap.sh
tab=$(printf '\t')

# shellcheck disable=SC2046
for f in $(awk -F'|' '!/^#/ { print $2 }' tests/support/mutants.txt); do
    awk -f tests/support/mutants.awk "$f" | sed "s,^,$f$tab,"
done >"$dir/list"
can_be_made() {
    awk -F"$tab" '
        NR == FNR { text = $6; indent = match(text, /[^ \t]/) - 1; sub(/^[ \t]+/, "", text)
                    can[$1 FS $3 - indent FS $5 FS text]; next }
        /^#/ || !NF { next }
        NF != 5 || !(($1 FS $2 FS $3 FS $4) in can) { print FILENAME ":" FNR ": " $0; bad = 1 }
        { n++ }
        END { exit bad || !n }' "$dir/list" "$1"
}
check "each change can still be made, and has a reason" can_be_made tests/support/survivors.txt
sed "s/$tab[^$tab]*$tab\([^$tab]*\)$/${tab}a line that is gone$tab\1/" tests/support/survivors.txt >"$dir/old"
refuses_old() { ! can_be_made "$dir/old"; }
check "one of a line that is gone is reported" refuses_old
programs_exist() {
    awk -F'|' '!/^#/ { print $3 }' tests/support/mutants.txt | tr ' ' '\n' | grep . | while read -r t; do
        [ -e "tests/$t.c" ] || { echo "there is no tests/$t.c"; return 1; }
    done
}
check "the programs of mutants.txt are there" programs_exist
finish
