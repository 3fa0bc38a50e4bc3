# errors.awk - the texts of all SYMM_ERR calls of the files, as rows of tools/info_errors.c:
#   {"code", "function", "file:line", "text"},
# The build runs it over src/, so that `symm-info errors` misses none. A code or a text that is
# computed is "varies". Field widths and macros of formats are those of the source.

# What stands in the string literals of an expression, one after the other.
function literals(expr,    out, prefix) {
    out = ""
    gsub(/PRI[ud]64/, "\"llu\"", expr)
    gsub(/SYMM_NO_SIZE/, "\"without its size\"", expr)
    while (match(expr, /"([^"\\]|\\.)*"/)) {
        out = out substr(expr, RSTART + 1, RLENGTH - 2)
        expr = substr(expr, RSTART + RLENGTH)
    }
    return out
}

# The first argument of `rest`, which is cut off with its comma; quotes and brackets are respected.
function argument(    i, ch, depth, quoted, out) {
    depth = quoted = 0
    for (i = 1; i <= length(rest); i++) {
        ch = substr(rest, i, 1)
        if (quoted && ch == "\\") { i++; continue }
        if (ch == "\"") quoted = !quoted
        if (quoted) continue
        if (ch == "(") depth++
        if (ch == ")" && depth-- == 0) break
        if (ch == "," && depth == 0) break
    }
    out = substr(rest, 1, i - 1)
    rest = substr(rest, i + 1)
    ended = ch == ")"
    return out
}

# Whether the call in `rest` is complete.
function complete(    keep, i, ch, depth, quoted) {
    depth = quoted = 0
    for (i = 1; i <= length(rest); i++) {
        ch = substr(rest, i, 1)
        if (quoted && ch == "\\") { i++; continue }
        if (ch == "\"") quoted = !quoted
        if (quoted) continue
        if (ch == "(") depth++
        if (ch == ")" && depth-- == 0) return 1
    }
    return 0
}

function put(    code, text) {
    code = argument()
    gsub(/[ \n]/, "", code)
    text = ended ? "" : argument()
    gsub(/\n/, " ", text)
    text = literals(text)
    if (code !~ /^symm[A-Z][A-Za-z]*$/) code = "varies"
    if (text == "") text = "varies"
    printf "{\"%s\", \"%s\", \"%s:%d\", \"%s\"},\n", code, place, FILENAME, line, text
}

FNR == 1 { place = "-"; inside = 0 }
/^#define SYMM_ERR\(/ { next }
# A function begins at the left margin.
/^[a-z].*\(/ && !inside {
    place = $0
    sub(/\(.*/, "", place)
    sub(/.*[ *]/, "", place)
}
{
    if (inside) rest = rest "\n" $0
    else if ((at = index($0, "SYMM_ERR("))) { inside = 1; rest = substr($0, at + 9); line = FNR }
    while (inside && complete()) {
        put()
        inside = index(rest, "SYMM_ERR(") # a second one in the same line
        if (inside) { rest = substr(rest, inside + 9); line = FNR }
    }
}
