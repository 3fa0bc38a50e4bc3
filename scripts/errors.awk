# errors.awk - the texts of all errors of the files, as rows of tools/info_errors.c:
#   {"code", "function", "file:line", "text"},
# They are the calls of SYMM_ERR; of symm_cuda_error and symm_vmm_error, which say what a driver
# refused and add its code; and of SYMM_SAY, whose texts become errors elsewhere. The build runs it
# over src/, so that `symm-info errors` misses none. A code or a text that is computed is "varies".
# Field widths and macros of formats are those of the source.

# What stands in the string literals of an expression, one after the other.
function literals(expr,    out, prefix) {
    out = ""
    gsub(/PRI[ud]64/, "\"llu\"", expr)
    gsub(/SYMM_DOING_DIFFERENT/, "\"the ranks are in different calls\"", expr)
    gsub(/SYMM_NO_SIZE/, "\"without its size\"", expr)
    while (match(expr, /"([^"\\]|\\.)*"/)) {
        out = out substr(expr, RSTART + 1, RLENGTH - 2)
        expr = substr(expr, RSTART + RLENGTH)
    }
    return out
}

# Where in `rest` the call ends, or with `comma` its next argument, if that is sooner; 0: nowhere.
# Quotes and brackets are respected.
function finish(comma,    i, ch, depth, quoted) {
    for (i = 1; i <= length(rest); i++) {
        ch = substr(rest, i, 1)
        if (quoted && ch == "\\") { i++; continue }
        if (ch == "\"") quoted = !quoted
        if (quoted) continue
        if (ch == "(") depth++
        if (ch == ")" && depth-- == 0) return i
        if (comma && ch == "," && depth == 0) return i
    }
    return 0
}

# The first argument of `rest`, which is cut off with its comma. The call in `rest` is complete.
function argument(    end, out) {
    end = finish(1)
    out = substr(rest, 1, end - 1)
    ended = substr(rest, end, 1) == ")"
    rest = substr(rest, end + 1)
    return out
}

# The next call in s: `at`, the place of its arguments, and `call`, whose it is. 0: there is none.
function begins(s) {
    if (!match(s, /(SYMM_ERR|SYMM_SAY|symm_cuda_error|symm_vmm_error)\(/)) return 0
    at = RSTART + RLENGTH
    call = substr(s, RSTART, RLENGTH - 1)
    return 1
}

function put(    code, text) {
    code = argument()
    if (call == "symm_vmm_error" || call == "SYMM_SAY") argument()
    if (call != "SYMM_ERR") code = "varies"
    gsub(/[ \n]/, "", code)
    text = ended ? "" : argument()
    gsub(/\n/, " ", text)
    text = literals(text)
    if (code !~ /^symm[A-Z][A-Za-z]*$/) code = "varies"
    if (text == "") text = "varies"
    if (call == "symm_cuda_error") text = "CUDA: " text ": CODE"
    if (call == "symm_vmm_error") text = "memory driver: " text ": CODE"
    printf "{\"%s\", \"%s\", \"%s:%d\", \"%s\"},\n", code, place, FILENAME, line, text
}

FNR == 1 { place = "-"; inside = 0 }
/^#define SYMM_(ERR|SAY)\(/ { next }
# A function begins at the left margin.
/^[a-z].*\(/ && !inside {
    place = $0
    sub(/\(.*/, "", place)
    sub(/.*[ *]/, "", place)
}
{
    if (inside) rest = rest "\n" $0
    else if (!/^symmResult_t symm_(cuda|vmm)_error\(/ && begins($0)) {
        inside = 1
        rest = substr($0, at)
        line = FNR
    }
    while (inside && finish(0)) {
        put()
        inside = begins(rest) # a second one in the same line
        if (inside) { rest = substr(rest, at); line = FNR }
    }
}
