# shellcheck shell=sh
# tap.sh - sourced by check_*.sh: prints TAP lines and keeps the verdict.
#   t_ok NAME | t_fail NAME TEXT | t_skip NAME WHY | t_done
#   t_empty NAME TEXT       passes if TEXT is empty, else shows it
#   t_equal NAME WANT GOT   passes if both are the same text
#   t_expect NAME WANT GOT...   the same of all GOT; a failure shows what `shown` prints
#   t_of LABEL LOG RC       the results of a program whose output is in LOG, one here for each, and
#                           one more if it ended with another status than 0 or said none
t_count=0
t_failed=0
t_line() {
    t_count=$((t_count + 1))
    echo "$1 $t_count - $2"
}
t_ok() { t_line ok "$1"; }
t_skip() { t_line ok "$1 # SKIP $2"; }
t_fail() {
    t_failed=1
    t_line 'not ok' "$1 # $(printf '%s' "$2" | head -n 1)"
    printf '%s\n' "$2" | head -n 40 | sed 's/^/#   /'
}
t_empty() { if [ -z "$2" ]; then t_ok "$1"; else t_fail "$1" "$2"; fi; }
t_equal() { if [ "$2" = "$3" ]; then t_ok "$1"; else t_fail "$1" "not '$2' but '$3'"; fi; }
t_expect() {
    t_expecting=$1 t_expected=$2
    shift 2
    if [ "$*" = "$t_expected" ]; then
        t_ok "$t_expecting"
    else
        t_fail "$t_expecting" "wanted '$t_expected', got '$*'
$(shown)"
    fi
}
t_of() {
    grep -E '^(ok|not ok) ' "$2" | sed -E 's/^(ok|not ok) [0-9]+ - /\1:/' >"$2.lines"
    while read -r t_said; do
        t_name="$1: $(printf '%s' "${t_said#*:}" | sed 's/ #.*//')"
        case $t_said in
        'not ok:'*) t_fail "$t_name" "${t_said#*# }" ;;
        *'# SKIP '*) t_skip "$t_name" "${t_said#*# SKIP }" ;;
        *) t_ok "$t_name" ;;
        esac
    done <"$2.lines"
    [ "$3" -eq 0 ] && [ -s "$2.lines" ] || t_fail "$1" "$(tail -n 20 "$2")"
}
t_done() {
    echo "1..$t_count"
    exit $t_failed
}
