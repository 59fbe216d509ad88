# Lists the changes of one operator or constant that C source FILE could have: a line each,
# "line<TAB>column<TAB>length<TAB>new<TAB>old line". Comments, texts and directives are left alone.
# Binary operators have blanks around them in this project, which tells them from stars of pointers.
BEGIN {
    n = split("< <= > >= == != + - * / % && || += -= ++ --", op, " ")
    split("<= < >= > != == - + / * / || && -= += -- ++", to, " ")
    for (i = 1; i <= n; i++)
        swap[op[i]] = to[i]
    swap["true"] = "false"
    swap["false"] = "true"
}

function offer(at, len, new) {
    printf "%d\t%d\t%d\t%s\t%s\n", NR, at, len, new, $0
}

# The token at the start of s.
function token(s) {
    if (match(s, /^[A-Za-z_][A-Za-z_0-9]*/) || match(s, /^"([^"\\]|\\.)*"/) || match(s, /^'([^'\\]|\\.)+'/) ||
        match(s, /^(0[xX][0-9a-fA-F]+|[0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?)[uUlLfF]*/) || match(s, /^(<<=|>>=)/) ||
        match(s, /^(->|\+\+|--|<<|>>|[<>=!+*\/%&|^-]=|&&|\|\|)/))
        return substr(s, 1, RLENGTH)
    return substr(s, 1, 1)
}

/^[ \t]*#/ { in_directive = 1 }
in_directive { in_directive = /\\$/; next }
{
    for (at = 1; at <= length($0); at += length(t)) {
        rest = substr($0, at)
        if (in_comment) {
            t = (end = index(rest, "*/")) ? substr(rest, 1, end + 1) : rest
            in_comment = !end
            continue
        }
        if (substr(rest, 1, 2) == "/*") {
            in_comment = 1
            t = "/*"
            continue
        }
        if (substr(rest, 1, 2) == "//")
            break
        t = token(rest)
        if (t ~ /^[0-9]+$/)
            offer(at, length(t), t + 1)
        else if (t == "!")
            offer(at, 1, "nothing")
        else if (t in swap && (t ~ /^(\+\+|--|true|false)$/ || substr($0, at - 1, length(t) + 2) ~ /^ .* $/ ||
                               at + length(t) > length($0)))
            offer(at, length(t), swap[t])
    }
}
