# mutants.awk - prints the rows of tests/check/mutants/*.txt, one line each:
#   name|files|sed script|kind|test|its tests
#
# A row is
#   name: kind test its_tests...    what must notice it; kind: plain, tsan, or mpi3
#                                   (under mpirun with 3 ranks)
#     file,file                     what is changed, by name alone, for files may move (those of
#                                   nccl-tests-plugin, mpi-plugin and examples with their folder)
#     script                        for sed
# A line that begins with two spaces and a backslash goes on with the line before it.
function put() {
    if (head == "") return
    split(head, part, /: /)
    tests = substr(head, length(part[1]) + 3)
    split(tests, word, " ")
    sub(/^[^ ]+ [^ ]+ /, "", tests)
    print part[1] "|" files "|" script "|" word[1] "|" word[2] "|" tests
    head = files = script = ""
}
FNR == 1 { put() }
/^  \\/ {
    more = substr($0, 4)
    if (script != "") script = script more
    else if (files != "") files = files more
    else head = head more
    next
}
/^  / {
    if (files == "") files = substr($0, 3)
    else script = substr($0, 3)
    next
}
/^#/ { next }
{ put(); head = $0 }
END { put() }
