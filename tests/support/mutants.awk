# Lists the changes of one operator or constant that C source FILE could have: a line each,
# "line<TAB>column<TAB>length<TAB>new<TAB>old line". Comments, texts and directives are left alone.
# Binary operators have blanks around them in this project, which tells them from stars of pointers.
# What would be the same by its form is left out.
BEGIN {
    n = split("< <= > >= == != + - * / % && || += -= ++ --", op, " ")
    split("<= < >= > != == - + / * / || && -= += -- ++", to, " ")
    for (i = 1; i <= n; i++)
        swap[op[i]] = to[i]
    swap["true"] = "false"
    swap["false"] = "true"
}

function ends_in(s, end) {
    return end != "" && length(s) >= length(end) && substr(s, length(s) - length(end) + 1) == end
}

# Is the comparison at `at` that of a minimum or maximum, x < y ? x : y or x < y ? y : x? There <= does as
# well as <, and what is wrong is to take the other one.
function of_extreme(at,    x, rest, y, a, b) {
    x = substr($0, 1, at - 2)
    rest = substr($0, at + 2)
    if (!index(rest, " ? ") || !index(rest, " : "))
        return 0
    y = substr(rest, 1, index(rest, " ? ") - 1)
    rest = substr(rest, length(y) + 4)
    a = substr(rest, 1, index(rest, " : ") - 1)
    b = substr(rest, length(a) + 4)
    sub(/[;,].*/, "", b)
    return (ends_in(x, a) && index(b, y) == 1) || (a == y && ends_in(x, b))
}

# Is the number at `at` the size of a text, or that of an allocation of one? More does as well.
function of_room(at,    before) {
    before = substr($0, 1, at - 1)
    return before ~ /char (\*|const )*[a-z_]+\[$/ ||
           (before ~ /mem_new\([A-Z_]+, $/ && substr($0, at) ~ /^1, /)
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
        if (t ~ /^[0-9]+$/) {
            if (!of_room(at))
                offer(at, length(t), t + 1)
        }
        else if ((t == "<" || t == ">") && of_extreme(at))
            offer(at, 1, t == "<" ? ">" : "<")
        else if (t == "!")
            offer(at, 1, "nothing")
        else if (t in swap && (t ~ /^(\+\+|--|true|false)$/ || substr($0, at - 1, length(t) + 2) ~ /^ .* $/ ||
                               at + length(t) > length($0)))
            offer(at, length(t), swap[t])
    }
}
