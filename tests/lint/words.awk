# The words of words.txt, and functions that a comment or a document names and that do not exist.
# Arguments: words.txt, then sources, documents and scripts. Prints "file:line: word: what".
FILENAME == WORDS {
    if ($0 ~ /^#/ || NF == 0)
        next
    kind = substr($0, 1, index($0, "|") - 1)
    gsub(/[ \t]/, "", kind)
    rest = substr($0, index($0, "|") + 1)
    at = match(rest, /\|[^|]*$/)
    pattern = substr(rest, 1, at - 1)
    better = substr(rest, at + 1)
    gsub(/^[ \t]+|[ \t]+$/, "", pattern)
    gsub(/^[ \t]+|[ \t]+$/, "", better)
    if (kind == "struct") {
        tag = "^(" pattern ")$"
        tag_better = better
    } else if (kind == "prose") {
        prose[++n_prose] = "(^|[^a-z0-9_])(" pattern ")([^a-z0-9_]|$)"
        prose_better[n_prose] = better
        proses = proses (proses == "" ? "" : "|") pattern
    } else {
        print FILENAME ":" FNR ": word: unknown kind of line \"" kind "\""
    }
    next
}

FNR == 1 {
    c_source = FILENAME ~ /\.[ch]$/
    names_functions = c_source || FILENAME ~ /\.md$/
    in_comment = 0
    if (any_prose == "") {
        any_prose = "(^|[^a-z0-9_])(" proses ")([^a-z0-9_]|$)"
    }
}

# Split a line of C into `code`, without strings and comments, and `text`, which are those.
function split_line(line,    at) {
    code = text = ""
    while (line != "") {
        if (in_comment) {
            at = index(line, "*/")
            text = text " " (at ? substr(line, 1, at - 1) : line)
            line = at ? substr(line, at + 2) : ""
            in_comment = !at
        } else if (match(line, /"([^"\\]|\\.)*"|'([^'\\]|\\.)'|\/\*|\/\/.*/)) {
            code = code " " substr(line, 1, RSTART - 1)
            at = RSTART + RLENGTH
            if (substr(line, RSTART, 2) == "/*")
                in_comment = 1
            else
                text = text " " substr(line, RSTART, RLENGTH)
            line = substr(line, at)
        } else {
            code = code " " line
            line = ""
        }
    }
}

{
    code = ""
    text = $0
    if (c_source)
        split_line($0)
    n = split(code, token, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= n; i++)
        exists[token[i]] = 1
    if (tag != "" && FILENAME !~ /^tests\// && match(code, /struct [a-z_]+ *\{/)) {
        split(substr(code, RSTART, RLENGTH), token, /[ {]+/)
        if (token[2] ~ tag)
            print FILENAME ":" FNR ": word: struct " token[2] ", expected " tag_better
    }
    rest = names_functions ? text : ""
    while (match(rest, /[A-Za-z_][A-Za-z0-9_]*\(\)/)) {
        function_name = substr(rest, RSTART, RLENGTH - 2)
        if (!(function_name in named))
            named[function_name] = FILENAME ":" FNR
        rest = substr(rest, RSTART + RLENGTH)
    }
    text = tolower(text)
    if (text ~ any_prose)
        for (k = 1; k <= n_prose; k++)
            if (match(text, prose[k])) {
                found = substr(text, RSTART, RLENGTH)
                gsub(/^[^a-z]+|[^a-z]+$/, "", found)
                print FILENAME ":" FNR ": word: \"" found "\", expected " prose_better[k]
            }
}

END {
    for (function_name in named)
        if (!(function_name in exists))
            print named[function_name] ": word: " function_name "(), which does not exist"
}
