# The rules that one line, or one file of C, shows. Arguments: modules.txt, then the sources.
# Prints "file:line: rule: what".
function fail(rule, what) { print FILENAME ":" FNR ": " rule ": " what }
function starts(s, prefix) { return substr(s, 1, length(prefix)) == prefix }
# Is `path` the entry itself, below it, or (main -> main_run.c) a file named after it?
function within(path, entry) { return starts(path, entry) }

FILENAME == MODULES {
    if ($0 ~ /^#/ || NF == 0)
        next
    n = split($0, part, /[ \t]*\|[ \t]*/)
    if (part[1] == "module")
        may[part[2]] = part[4]
    else if (part[1] == "system")
        places[part[2]] = part[3]
    else if (part[1] == "print")
        printer[part[2]] = 1
    else if (part[1] == "condition")
        chooser[part[2]] = 1
    else if (part[1] != "template" && part[1] != "isa")
        fail("modules", "unknown kind of line \"" part[1] "\"")
    next
}

FNR == 1 {
    end_file()
    path = FILENAME
    module = ""
    for (r in may)
        if (within(path, r) && length(r) > length(module))
            module = r
    if (module == "")
        fail("module", "the file is in no module of modules.txt")
    self = module
    sub(/^engine\//, "", self)
    test = starts(path, "tests/")
    may_print = test
    for (p in printer)
        if (within(path, p))
            may_print = 1
    may_if = 0
    for (p in chooser)
        if (within(path, p))
            may_if = 1
    limit = starts(path, "engine/kernels/") ? 150 : 90
    guard = ""
    n_directives = 0
    in_function = 0
    last = path
    lines = 0
}

{ lines = FNR }

# --- size
/^{$/ { in_function = FNR }
/^}/ {
    if (in_function && FNR - in_function + 1 > limit)
        print FILENAME ":" in_function ": size: function of " (FNR - in_function + 1) \
            " lines, at most " limit
    in_function = 0
}
function end_file() {
    if (last != "" && lines > 900)
        print last ":901: size: file of " lines " lines, at most 900"
}
END { end_file() }

# --- includes
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, q, "\"")
    check_include(q[2])
}
/^[ \t]*#[ \t]*include[ \t]*</ {
    header = $0
    sub(/^[^<]*</, "", header)
    sub(/>.*/, "", header)
    if (!test && header in places && !one_of(path, places[header]))
        fail("include", "<" header "> belongs to " places[header])
}
function one_of(file, list,    i, n, w) {
    n = split(list, w, " ")
    for (i = 1; i <= n; i++)
        if (within(file, w[i]))
            return 1
    return 0
}
function check_include(inc,    i, n, w) {
    if (inc !~ /\//) {
        fail("include", "\"" inc "\", expected \"module/file.h\"")
        return
    }
    if (starts(inc, "tests/") && !test) {
        fail("include", "\"" inc "\": nobody includes tests")
        return
    }
    if (starts(inc, self "/") || may[module] == "*")
        return
    n = split(may[module], w, " ")
    for (i = 1; i <= n; i++)
        if (inc == w[i] || starts(inc, w[i] "/"))
            return
    fail("include", "\"" inc "\" from " module ", which may include " may[module])
}

# --- conditions: one guard a header, the rest only where machines are told apart
/^[ \t]*#/ { n_directives++ }
/^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else)/ && !may_if {
    name = $0
    sub(/^[ \t]*#[ \t]*[a-z]+[ \t]*/, "", name)
    if (path ~ /\.h$/ && n_directives == 1 && $0 ~ /ifndef/ && name ~ /_H$/)
        guard = name
    else
        fail("condition", "machines are told apart elsewhere (modules.txt)")
}

# --- only main may print or exit
!may_print && /(^|[^A-Za-z0-9_>.])(printf|puts|putchar|perror|exit|_exit|abort|quick_exit)\(/ {
    fail("print", "only a main may print or exit")
}
!may_print && /(^|[^A-Za-z0-9_>.])(fprintf|vfprintf|fputs|fputc|fwrite)\(.*(stderr|stdout)/ {
    fail("print", "only a main may write to the standard streams")
}
