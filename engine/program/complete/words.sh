#!/bin/sh
# Print the words that may follow on a command line, one a line: verbs, commands, options, and names of
# experiments. They come from the programs' own --help. usage: words.sh PROGRAM [WORD...]
program=$1
shift
verbs() { sed -n '/^\(Verbs\|Commands\):/,/^$/ s/^  \([a-z][a-z-]*\) .*/\1/p'; }
help=$("$program" --help 2>/dev/null)
for word; do
    printf '%s\n' "$help" | verbs | grep -qxF -e "$word" || break
    path="${path-} $word"
    # shellcheck disable=SC2086
    help=$("$program" $path --help 2>/dev/null)
done
printf '%s\n' "$help" | verbs
printf '%s\n' "$help" | sed -n 's/^  \(-[A-Za-z], \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p'
case "${program##*/}${path-}" in
'testbed run' | 'testbed describe' | 'testbed draw') "$program" list | sed -n 's/^\([a-z0-9_]*\)  *[0-9].*/\1/p' ;;
esac
