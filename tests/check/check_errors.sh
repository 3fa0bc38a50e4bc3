#!/bin/bash
# check_errors.sh - the error texts of the library, as `symm-info errors` prints them: all are
# there; each is one sentence of at most 200 characters with typical values in its fields; one of
# symmInvalidArgument names the value, and what is allowed or what is wrong with it. BUILD: where
# symm-info is.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# Rows `code|function|file:line|text` of the sources that are given.
rows() {
    awk -f scripts/errors.awk "$@" |
        sed -E 's/^\{"(.*)"\},$/\1/; s/", "/|/; s/", "/|/; s/", "/|/'
}
# Lines `faults: text` of the rows on stdin that have some, 100 characters of each. Without the
# file, for texts move: symm-info errors says where.
faults() {
    awk -F'|' '
        function filled(t) {
            gsub(/%%/, "#", t)
            gsub(/%[-0-9.]*p/, "0x7f0123456789", t)
            gsub(/%(ll|z|l)[uxd]/, "1073741824", t)
            gsub(/%[-0-9.*]*s/, "a string of them", t)
            gsub(/%m/, "Cannot allocate memory", t)
            gsub(/%[-0-9.]*[duxf]/, "12345", t)
            return t
        }
        function fault(text) { found = found (found == "" ? "" : ", ") text }
        BEGIN {
            allowed = "must|at least|at most|allowed|need|only|is NULL|start from|pass |use " \
                "|neither|%s$|takes| has | to %"
            wrong = "is not|is no |not made|does not|is in no|no block|begins at|overlap" \
                "|overflow|twice|out of|already|being|belongs to|was |memory of|beyond|more than" \
                "|too many|differs|says|there are|LOCAL|process sees|the buffer|registered" \
                "|another|no heap|not below|would"
        }
        {
            text = substr($0, length($1 $2 $3) + 4)
            found = ""
            if (text ~ /[.!?]$/ || text ~ /[.!?] +[A-Z]/) fault("more than one sentence")
            if (length(filled(text)) > 200) fault(length(filled(text)) " characters")
            if ($1 == "symmInvalidArgument" && text !~ /%|NULL/) fault("names no value")
            if ($1 == "symmInvalidArgument" && text !~ allowed && text !~ wrong)
                fault("says not what is allowed")
            line = substr(found ": " text, 1, 100)
            sub(/ +$/, "", line)
            if (found != "") print line
        }' | LC_ALL=C sort -u
}

call='SYMM_ERR(\|SYMM_SAY(\|symm_cuda_error(\|symm_vmm_error('
find src -name '*.[ch]' -o -name '*.inl' | LC_ALL=C sort | xargs grep -l "$call" >"$dir/files"
# shellcheck disable=SC2046
rows $(cat "$dir/files") >"$dir/rows"
defined='^#define SYMM_\(ERR\|SAY\)(\|^symmResult_t symm_[a-z]*_error(\| \* '
calls=$(xargs cat <"$dir/files" | grep -v "$defined" | grep -o "$call" | wc -l)
t_equal "each error has a row" "$calls" "$(wc -l <"$dir/rows")"
t_equal "symm-info errors prints them all" "$calls" \
    "$("${BUILD:-build}/bin/symm-info" errors | grep -c ' src/.*:[0-9]')"
if [ "$calls" -gt 400 ]; then t_ok "which are some"; else t_fail "which are some" "$calls"; fi
faults <"$dir/rows" >"$dir/faults"
t_empty "each text is one sentence, short, and says what is wrong" "$(cat "$dir/faults")"

# Seen: bad texts, one of each kind, and one that goes over lines, with a good one beside them.
cat >"$dir/bad.c" <<'BAD'
static symmResult_t bad(int n) {
    if (n == 1) return SYMM_ERR(symmInvalidArgument, "n=%d: must be 0", n);
    if (n == 2) return SYMM_ERR(symmInvalidArgument, "n is wrong");
    if (n == 3) return SYMM_ERR(symmInvalidArgument, "n=%d", n);
    if (n == 4)
        return SYMM_ERR(
            symmSystemError,
            "it failed (%s). "
            "Try again", n ? "a, b)" : "c");
    if (n == 5) return symm_vmm_error(v, cu, "unmapping. Once more");
    return SYMM_ERR(symmTimeout, "%p %p %p %p %p %p %p %p %p %p %p %p %p %p", a);
}
BAD
seen=$(rows "$dir/bad.c" | faults | sed -E 's/ (%p|wrong|failed).*//')
t_equal "bad texts are seen" '209 characters:
more than one sentence: it
more than one sentence: memory driver: unmapping. Once more: CODE
names no value, says not what is allowed: n is
says not what is allowed: n=%d' "$seen"
t_done
