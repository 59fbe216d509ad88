# Follow the recipes of a Markdown file in the folder where awk runs. A block of code after a line that
# ends in "`FILE`:" is that file; after "`FILE`, above `TEXT`:" it comes before the first line of FILE
# with TEXT; a block of sh is run, and ends in ">FILE". Prints the title of each recipe, after "# ", and
# each file that it makes or changes.
function read_file(path,    line, text) {
    text = ""
    while ((getline line <path) > 0)
        text = text line "\n"
    close(path)
    return text
}

function insert(path, above,    text, at) {
    text = read_file(path)
    at = index(text, above)
    if (!at) {
        print "extract.awk: " path ": no line with " above >"/dev/stderr"
        exit 1
    }
    while (at > 1 && substr(text, at - 1, 1) != "\n")
        at--
    printf "%s%s%s", substr(text, 1, at - 1), block, substr(text, at) >path
    close(path)
}

function end_block() {
    if (kind == "sh") {
        if (system("set -e\n" block) != 0)
            exit 1
        sub(/\n$/, "", block)
        sub(/.*>/, "", block)
        print block
    } else if (file != "" && above != "") {
        insert(file, above)
        print file
    } else if (file != "") {
        printf "%s", block >file
        close(file)
        print file
    }
    file = above = ""
}

/^```/ {
    if (inside) {
        inside = 0
        end_block()
    } else {
        inside = 1
        kind = substr($0, 4)
        block = ""
    }
    next
}
inside { block = block $0 "\n"; next }
/^### Recipe: / { print "# " substr($0, 13) }
/`[^` ]*\/[^` ]*`:$/ { file = $0; sub(/`:$/, "", file); sub(/.*`/, "", file) }
/`[^` ]*\/[^` ]*`, above `.*`:$/ {
    above = $0
    sub(/`:$/, "", above)
    file = above
    sub(/.*, above `/, "", above)
    sub(/`, above `.*/, "", file)
    sub(/.*`/, "", file)
}
NF && !/:$/ { file = above = "" }
