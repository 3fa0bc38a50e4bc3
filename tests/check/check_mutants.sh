#!/bin/sh
# check_mutants.sh - whether the tests would notice: each mutant is one line of the library changed for the worse, in a copy; the test
# named beside it must fail, or not end. A mutant whose line is not found any more is stale, and a failure.
#
# Only the files that a change reaches are compiled anew; the rest comes from the archives that `make check` has built. First every
# program runs with the same files unchanged, and must pass: so it is the change that is found, and nothing else. KEEP=1 leaves the
# copies and what the tests printed in build/mutants.
#
#   tests/check/check_mutants.sh [NAME...]    T_FULL=1: all of them; else some, drawn with T_SEED, or those that are named
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
build=${BUILD:-build}
out=$build/mutants
cc=${CC:-gcc}
flags="-std=gnu11 -O1 -g -fPIC -pthread -DSYMM_TESTING"
seconds=40
export SYMM_TIMEOUT=4000 SYMM_SETUP_TIMEOUT=4000 # a mutant that hangs is found out soon
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1}"
fixed=
setarch -R true 2>/dev/null && fixed='setarch -R' # older ThreadSanitizers need their addresses where they expect them

objects() { # kind: where its objects lie
    if [ "$1" = tsan ]; then echo "$build/obj-test-tsan"; else echo "$build/obj-test"; fi
}
sanitizer() { [ "$1" != tsan ] || echo '-fsanitize=thread'; }

# The sources that must be compiled when FILE has changed, as `source` or `source:instruction set`.
reached() {
    case $1 in
    */lanes.inl | */lanes_types.inl | */types.inl | */copy.inl | */reduce_span.inl) echo src/device/host/reduce_host.c:base ;;
    src/device/host/*.inl) echo src/device/host/kernels_host.c ;;
    src/host/place/*.inl) echo src/host/place/place_narrow.c ;;
    src/device/cuda/*) echo tests/fake/emu_kernels.cc ;;
    */colls.h) echo src/host/launch/launch_host.c src/host/launch/launch_gpu.c ;;
    include/symm_types.h) echo tests/fake/emu_kernels.cc src/host/coll/plan_gpu.c ;;
    src/device/host/dev.h) echo src/device/host/kernels_host.c src/device/host/wait.c ;;
    *) echo "$1" ;;
    esac
}

compile() { # directory, kind, sources: leaves objects in the directory, prints their names
    tree=$1 kind=$2
    shift 2
    for source; do
        isa=${source#*:}
        # Every type times every reduction: optimised, that one file would take longer than all else here.
        [ "$isa" != "$source" ] && isa="-DSYMM_ISA=$isa -ffp-contract=off -Og" || isa=
        object=$tree/$(basename "${source%%:*}" .c).$kind.o
        case $source in *.cc)
            ${CXX:-g++} -std=c++17 -O1 -g -w -ffp-contract=off -fno-exceptions -fno-rtti -I"$tree/include" -I"$tree/tests/fake" -Itests/kit -c "$tree/$source" -o "$object" || return 1
            echo "$object"
            continue
            ;;
        esac
        $cc $flags $(sanitizer "$kind") $isa -I"$tree/include" -I"$tree/src" -c "$tree/${source%%:*}" -o "$object" || return 1
        echo "$object"
    done
}
link() { # program, kind, test, objects
    program=$1 at=$(objects "$2") kind=$2 test=$3
    shift 3
    if [ "$test" = unit_kernels ]; then
        case $* in *emu_kernels*) ;; *) set -- "$@" "$at/tests/emu_kernels.o" ;; esac
        set -- "$@" "$at/tests/emu_run.o" "$at/tests/emu_late.o"
    fi
    $cc $(sanitizer "$kind") "$@" "$at/tests/$test.o" "$at/tests/t.o" "$at/tests/parts.a" "$at/libsymm.a" -pthread -ldl -lrt -lm -o "$program"
}
run() { # program, tests: 0 passed, 1 failed, 2 neither
    program=$1
    shift
    case $program in *.tsan) set -- $fixed "$program" "$@" ;; *) set -- "$program" "$@" ;; esac
    timeout -k 2 $seconds "$@" >"$program.log" 2>&1
    case $? in 0) return 0 ;; 1 | 124 | 137) return 1 ;; *) return 2 ;; esac
}
have() { # kind, test
    [ -e "$(objects "$1")/libsymm.a" ] && [ -e "$(objects "$1")/tests/$2.o" ] && [ -e "$(objects "$1")/tests/t.o" ]
}
copy() { # directory
    rm -rf "${1:?}"
    mkdir -p "$1/tests/fake" && cp -R src include "$1" && cp tests/fake/emu* "$1/tests/fake"
}

# The table: name, what is changed (files by name alone, for they may move; comma-separated; a sed script), how it is built, which test must notice, its tests.
mutants() {
    cat <<'EOF'
packet-without-release|dev.h|/symm_st_release((uint64_t \*)(void \*)packet/s/symm_st_release/symm_st_relaxed/|tsan|thr_order|pushed_packets
ready-without-release|zerocopy.inl|/symm_st_release(&box->ready/s/symm_st_release/symm_st_relaxed/|tsan|thr_order|staged_chunks
arrive-without-release|zerocopy.inl|/symm_st_release(arrive, /s/symm_st_release/symm_st_relaxed/|tsan|thr_order|zero_copy
signature-without-release|barrier.inl|/symm_st_release(&box->sig/s/symm_st_release/symm_st_relaxed/|tsan|thr_order|barriers_order_memory
wait-without-acquire|dev.h|s/__atomic_load_n(p, __ATOMIC_ACQUIRE)/__atomic_load_n(p, __ATOMIC_RELAXED)/|tsan|thr_order|pushed_packets
skipped-packet-wait|dev.h|/symm_packet_wait(symm_cta/,/^}/s/!= want/!= want \&\& 0/|plain|thr_order|pushed_packets
skipped-ready-wait|zerocopy.inl|/if (peer == c->a->rank) return 0;/s/if (peer == c->a->rank) return 0;/if (k + 1) return 0;/|tsan|thr_order|zero_copy
skipped-arrive-at-end|all_reduce.inl|/^ *symm_arrive_wait(c, mine);/d|tsan|thr_order|zero_copy
skipped-arrive-of-gather|all_gather.inl|/^ *symm_arrive_wait(c, mine);/d|tsan|thr_order|gathered_loads
skipped-signature-on-exit|kernels_host.c|/check_signatures(&c);/s/c.cta == 0/c.cta == -1/|plain|thr_order|barriers_order_memory
staging-place-reused-early|zerocopy.inl|/if (k >= 2 && symm_arrive_wait/s/k >= 2/k >= 1000000/|tsan|thr_order|staged_beside_registered
packet-parity-ignored|dev.h|/(c->epoch & 1u) \* 2u/s/c->epoch & 1u/0u/|tsan|thr_order|pushed_packets two_shots gathered_packets
epoch-not-advanced|kernels_host.c|s/symm_st_relaxed4(&epoch\[c->cta\], c->epoch)/symm_st_relaxed4(\&epoch[c->cta], c->epoch - 1)/|plain|thr_order|pushed_packets
end-of-a-mapping-uncounted|vmm_host.c|/^ *symm_vmm_note_end();/d|plain|fault_window_end|other_memory_at_the_same_addresses
end-of-a-gpus-mapping-uncounted|vmm_cuda.c|/^ *symm_vmm_note_end();/d|plain|unit_gpu_window|other_memory_of_ours
mappings-alike|vmm_host.c|s/map->life = ++driver.lives;/map->life = 1;/|plain|fault_window_end|other_memory_at_the_same_addresses
remembered-though-memory-ended|coll.c|s, .. m->ends != ends , ,|plain|fault_window_end|other_memory_at_the_same_addresses
remembered-though-another-allocators|coll.c|s,return !w .. !w->foreign;,return 1;,|plain|unit_gpu_window|other_memory_of_theirs
replay-refused-by-one-rank-alone|launch_host.c|/symm_comm_break(t->comm, r, t->comm->rank, "replaying/d|plain|fault_window_end|a_replay_that_one_rank_refuses_is_everybodys_error
replayed-though-memory-ended|launch_host.c|s/t->kept && !symm_keep_lives(t->kept)/0/|plain|fault_window_end|captured_calls_do_not_outlive_their_memory
windows-linked-as-they-were|window_table.c|/^static void take_out/,/^}/s/t->linked = 0;//|plain|unit_window_table|windows_overlap_and_fall_apart
ended-memory-found-again|window.c|/ forget_ended(c, w, lo, hi);/s/forget_ended(c, w, lo, hi);/break;/|plain|fault_window_end|what_is_left_of_a_window_is_one
used-again-though-a-peer-has-it|memcut.c|s/(atomic_load(&cut->handed) .. forked)/forked/|plain|unit_memcut|what_was_handed_on_is_not_used_again
used-again-though-a-child-has-it|memcut.c|s/(atomic_load(&cut->handed) .. forked)/atomic_load(\&cut->handed)/|plain|unit_memcut|what_a_child_has_mapped_is_not_used_again
child-without-a-lock|memcut.c|s/if (n .. fcntl(fd, F_OFD_SETLK, &lock))/if (n \&\& lock.l_type == F_WRLCK)/|plain|unit_memcut|what_a_child_has_mapped_is_not_used_again
parent-keeps-the-childs-lock|memcut.c|/^static void in_parent/,/^}/s/^        munmap(.*//|plain|unit_memcut|what_a_child_has_mapped_is_not_used_again
child-keeps-its-lock|memcut.c|s/^    if (f->child) munmap.*//|plain|unit_memcut|children_let_go
file-used-though-no-lock-was-had|memcut.c|s/if (atomic_load(&f->forked) == FORKED_UNLOCKED) continue;//|plain|unit_memcut|a_fork_without_descriptors_left
child-finds-the-lock-taken|memcut.c|/^static void in_child/,/^}/s/pthread_mutex_unlock.*//|plain|unit_memcut|forks_beside_a_thread_that_makes
forks-unwatched|memcut.c|s/^    pthread_atfork(.*//|plain|unit_memcut|forks_beside_a_thread_that_makes
pages-kept-behind-a-registration|exchange.c|s/^    symm_memcut_look();.*//|plain|unit_memcut|what_all_have_dropped_goes_back_at_the_next_registration
pages-kept-behind-a-trim|heap_tidy.c|/^static symmResult_t trim(/,/^}/s/^    symm_memcut_look();//|plain|unit_memcut|what_a_heap_trims_goes_back
pages-kept-behind-a-collect|heap_tidy.c|/^static symmResult_t collect(/,/^}/s/^    symm_memcut_look();//|plain|unit_lane_alias_trim|G_6_idle_graphs_give_back_and_come_again
handed-on-without-a-mark|memcut.c|s/fcntl(fd, F_OFD_SETLK, &lock)/0 * lock.l_type/|plain|unit_memcut|what_was_handed_on_is_not_used_again
freed-memory-keeps-its-bytes|memcut.c|s/return fallocate.*/return 0 * f->fd;/|plain|unit_memcut|memory_used_again_is_zeros_and_its_pages_go_back
child-takes-out-of-the-parents-files|memcut.c|s/f->owner == me .. (.at = find_free/(*at = find_free/|plain|unit_memcut|a_forked_child_has_files_of_its_own
files-kept-that-nobody-uses|memcut.c|s/    if (last) end_file(f);/    if (last \&\& !f) end_file(f);/|plain|unit_memcut|many_take_one_descriptor
failed-registration-ends-the-communicator|window.c|/^static __attribute__((noinline)) symmResult_t take_part/,/^}/s/none.count = 0;/none.count = 0, symm_comm_break(c, status, c->rank, "a mutant");/|plain|fault_rollback|one_ranks_failure_is_everybodys
batch-of-descriptors-kept-open|handle_exchange.c|/^static void next_batch/,/^}/s/^    symm_trade_close(t);//|plain|unit_memcut|a_window_of_many_segments_under_256_descriptors
reversed-order-one-shot|all_reduce.inl|s/srcs\[p\] = p == a->rank/srcs[a->nranks - 1 - p] = p == a->rank/|plain|thr_order|sums_go_in_rank_order
reversed-order-zero-copy|all_reduce.inl|s/srcs\[p\] = symm_source/srcs[a->nranks - 1 - p] = symm_source/|plain|thr_order|sums_go_in_rank_order
gap-between-parts|split.inl|/uint64_t at = (k \* per/s/: more)/: more + 1)/|plain|thr_order|zero_copy
bf16-rounds-ties-up|types.inl,lanes_types.inl|/ rounded = /s/0x7fffu/0x8000u/|plain|unit_reduce|bfloat16_is_exact every_boundary_encodes
who-waits-takes-nothing|handle_exchange.c|s/if (poll(polls, .*/return symmSuccess;/|plain|fault_flight|many_communicators_at_once
named-though-it-only-told|handle_exchange.c|s/about(c, broken), t->stage/about(c, broken) < -1 ? 0 : c->rank, t->stage/|plain|fault_flight|a_rank_that_dies_in_the_middle
leaked-own-descriptor|handle_exchange.c|/for (int i = 0; i < t->nfds; i++) close(t->fds\[i\]);/d|plain|fault_rollback|windows_hold_no_descriptor
leaked-peers-descriptor|handle_exchange.c|/^ *close(fds\[i\]);/d|plain|fault_rollback|windows_hold_no_descriptor
leaked-handle|handle_exchange.c|/release(h); \/\* the mapping holds/d|plain|fault_rollback|windows_hold_no_descriptor
no-agreement-on-maps|exchange.c|s/return agree(x, x->trade.status);/return x->trade.status;/|plain|fault_rollback|one_ranks_failure_is_everybodys
no-rollback|exchange.c|/symm_slot_discard(c->space, x.slot);/d|plain|fault_rollback|one_ranks_failure_is_everybodys
unmapped-at-once|window.c|s/symm_slot_drop(w->comm->space/symm_slot_discard(w->comm->space/|plain|fault_drop_order|every_order
freed-while-one-has-it|space.c|s/slot->heard == s->nranks/slot->heard > 0/|plain|fault_drop_order|crosswise
offered-though-in-use|space.c|/^void symm_slots_offer/,/^}/s/if (slot->state != SYMM_SLOT_DROPPED) continue;//|plain|fault_drop_order|crosswise
found-while-offered|space.c|/^symm_slot \*symm_slot_find/,/^}/s/slot->state != SYMM_SLOT_DROPPED/slot->state == SYMM_SLOT_ENDING/|plain|unit_space|offers_free_what_all_have_named
found-after-a-broken-offer|space.c|/^void symm_slots_withdraw/,/^}/s/slot->id = 0;//|plain|fault_drop_order|an_exchange_that_breaks_off
dropped-and-never-freed|exchange.c|/if (most) symm_slots_settle(s, x);/d|plain|fault_drop_order|crosswise
growth-not-rolled-back|region.c|s/found = !keep;/found = 0;/|plain|fault_heap|errors_in_thread_ranks
growth-without-agreement|region.c|s/return symm_comm_agree(g->r->c, t->status, g->stage);/return t->status;/|plain|fault_heap|errors_in_thread_ranks
digest-not-in-the-signature|coll.c|s/return sig ^ (uint32_t)digest.*/return digest ? sig : sig;/|plain|fault_heap|divergence_is_found_among_threads
digest-noticed-by-new-calls-only|coll.c|s/if (m->digest != c->digest) {/if (0) {/|plain|fault_heap|divergence_is_found_among_threads
alignment-not-in-the-digest|heap_block.c|s/align << 32 . (uint32_t)lane/(uint32_t)lane/|plain|fault_heap|divergence_is_found_among_threads
who-is-late-is-not-asked|ledger.c|s/if (!met .. (!kept .. issued(l, a) <= e.issued)) continue;/if (1) continue;/|plain|fault_heap|divergence_is_found_among_threads
call-that-found-no-room-counts|launch_host.c|/^static symmResult_t give/,/^}/s/symm_doing_undo(c);/;/|plain|fault_astray|a_call_that_found_no_room_was_not_made
who-replays-is-astray|call_log.c|s/if (get(&x->captured) .. get(&y->captured)) return 0;/;/|plain|fault_astray|one_may_replay_what_others_call
who-has-come-is-astray|call_log.c|s/ahead > get(&x->calls) && get(&y->step) < step/ahead > get(\&x->calls)/|plain|unit_doing|who_is_ahead_or_late_does_not_differ
astray-at-once|call_log.c|s/now - c->astray_ns < ASTRAY_NS/0/|plain|unit_doing|a_peer_in_a_collective_is_given_time
abort-word-not-read-on-entry|comm.c|s/live == SYMM_ENTER_COLL .. c->cuda/0/|plain|fault_revoke|every_next_call_of_threads
abort-word-not-read-by-tasks|launch_host.c|s/symm_comm_told(t->comm)/symm_comm_async(t->comm)/|plain|fault_revoke|a_call_that_waits_in_a_stream
end-beside-visitors|comm_end.c|/^static symmResult_t end/,/^}/s/await_visitors(c);//|tsan|thr_driver|a_watchdog_beside_every_call
abort-unseen-by-who-is-left|failed.c|s/if (atomic_load(&c->aborting)) return symm_comm_async(c);//|plain|fault_left|an_abort_ends_it
aborted-ones-are-freed|comm.c|s/if (atomic_load(&c->aborting)) {/if (0) { (void)keep_aborted;/|tsan|thr_abort|an_abort_beside_the_next_call
lone-thread-not-told|wait.c|s/if (waited > LONG_NS) tell_long(c, peer);//|plain|thr_driver|a_collective_that_waits_for_its_own_thread
child-keeps-connections|lifeline.c|s/dead = replace(i \* 64 + __builtin_ctzll(left), dead);/(void)replace, (void)dead;/|plain|fault_fork|a_child_lets_go_of_the_connections a_child_in_another_pid_namespace
networks-not-compared|where.c|s/theirs->netns != root->netns/0/|plain|fault_where|two_networks_are_named
nobody-looks-where-the-others-are|comm.c|s/return symm_doing_look(c);/return symmSuccess;/|plain|fault_astray|one_is_in_a_collective
ranks-answer-by-their-own-zones|heap_grow.c|s/SYMM_ZONE_SYM ? h->local_extent/SYMM_ZONE_SYM ? h->zone[SYMM_ZONE_LOCAL].extent/|plain|unit_heap|whether_growing_helps_is_the_same_on_all_ranks
local-blocks-unaligned|heap_block.c|s/whole = symm_round_up(bytes, align)/whole = bytes/|plain|unit_heap|alignment_is_kept_and_leaks_nothing
empty-reference-to-anywhere|heap_api.c|s/if (ref->off > h->reserve .. /if (/|plain|unit_heap|a_reference_leads_peers_to_local_blocks
trim-counts-no-skipped-chunks|heap_tidy.c|s/z->skipped += chunk.bytes;//|plain|unit_heap_tidy|trim_gives_back_what_no_block_uses
free-addresses-miscounted|space.c|s,return s->stride > at.*,return most;,|plain|unit_vec|what_to_set_is_said_where_addresses_run_out
local-holes-not-walked|heap_block.c|s/z = find_end(p, bytes, align);//|plain|unit_heap|local_alignment_finds_every_hole
growing-helps-by-another-rule|heap_grow.c|s/: symm_round_up(at + bytes, align)/: symm_round_up(at, align) + bytes/|plain|unit_heap|local_alignment_finds_every_hole
captured-call-loses-the-heap|window.c|/^void symm_window_ref/,/^}/s/w->comm->source->ref(w);/;/|plain|unit_heap|a_captured_call_holds_the_memory
vector-forgets-what-graphs-know|heap.c|s/if (atomic_load_explicit(&h->refs, memory_order_acquire) == 1) drop_left/drop_left/|plain|unit_vec|a_captured_call_keeps_the_range_it_knows
vector-makes-what-it-has|region.c|s/i < g->old ? g->from : NULL/NULL/|plain|unit_vec|a_range_that_is_too_small_is_left_without_a_copy
guard-judges-what-is-being-painted|heap_guard.c|s/s->b.limbo == SYMM_LIMBO_BUSY/0/|plain|unit_heap_tidy|guard_mode_checks_beside_threads
guard-looks-once-on-gpus|heap_guard.c|s/, s->poison, at)) return 1;/, s->poison, at)) return 1; else return 0;/|plain|unit_gpu_life|guard_mode_checks_beside_threads
guard-taken-unmarked|heap_block.c|s/h->guard ? tag . TAG_BUSY : tag/tag/|plain|unit_heap_tidy|guard_mode_checks_beside_threads
guard-looks-without-the-lock|heap_guard.c|/^static int spot_intact/,/^}/s/if (h->comm->cuda) {/if (1) {/;/^static int spot_intact/,/^}/s/poison, at)) return 1;/poison, at)) return 1; else return 0;/|tsan|unit_heap_tidy|guard_mode_checks_beside_threads
arena-guard-sees-no-overrun|arena_guard.c|s/if (!symm_guard_intact(h, off + bytes, red, 0, &at))/if (0)/|plain|unit_arena_guard|an_overrun_by_one_byte_is_found
arena-guard-leaves-freed-blocks|arena_guard.c|s/if (symm_guard_paint(h, off, room, 1))/if (0)/|plain|unit_arena_guard|an_overrun_by_one_byte_is_found
arena-guard-takes-unlooked|arena_guard.c|s/if (!symm_guard_intact(h, off, room, 1, &at))/if (0)/|plain|unit_arena_guard|a_write_after_free_is_found
arena-guard-is-not-asked|heap_guard.c|s/return check_inside(h);/return symmSuccess;/|plain|unit_arena_guard|a_write_after_free_is_found
arena-guard-red-zone-is-the-block|arena_guard.c|s/return off - begin < \*bytes;/return 1;/|plain|unit_arena_guard|queries_end_where_the_program_asked
arena-guard-red-zone-is-used|arena_dump.c|/n->used -= red/d|plain|unit_arena_guard|queries_end_where_the_program_asked
arena-guard-sizes-overflow|arena_guard.c|s/bytes > a->limit ? bytes : //|plain|unit_arena_guard|alignment_is_kept
arena-guard-keeps-what-it-cannot-note|arena_guard.c|s/(void)symm_arena_give(a, s, \*off);//|plain|unit_arena_guard|a_block_that_cannot_be_noted_is_not_taken
arena-guard-frees-twice|arena_guard.c|/if (tag & TAG_BUSY) room = 0;/d|plain|unit_gpu_guard|a_block_that_is_taken_or_freed_is_passed_over
arena-guard-judges-what-is-being-painted|arena_guard.c|s/p.tag & TAG_BUSY .. is_dark/is_dark/|plain|unit_gpu_guard|a_block_that_is_taken_or_freed_is_passed_over
arena-guard-looks-without-the-lock|arena_guard.c|s/int locked = !symm_heap_comm(g->heap)->cuda/int locked = 0/|tsan|unit_arena_guard|threads_free_each_others_blocks_beside_a_check
arena-guard-looks-at-what-ends|arena_threads.c|/while (a->looks) pthread_cond_wait/d|tsan|unit_arena_guard|arenas_end_beside_a_check
arena-guard-does-not-wait|arena_guard.c|s/if (a->sym) return 1;/return 1;/|plain|unit_arena_guard|work_of_a_stream_is_waited_for
arena-guard-waits-for-captures|arena_guard.c|/if (!a->order.still(/d|plain|unit_gpu_guard|what_cannot_be_waited_for_is_left_alone
arena-guard-judges-what-is-not-over|arena_guard.c|/if (!over) darken/d|plain|unit_arena_guard|what_cannot_be_waited_for_is_left_alone
arena-guard-paints-what-is-not-over|arena_guard.c|s/if (!dark) look_and_paint/look_and_paint/|plain|unit_gpu_guard|what_cannot_be_waited_for_is_left_alone
arena-guard-shows-what-is-being-taken|arena_guard.c|s/if (!room .. tag & TAG_BUSY) return 0;/if (!room) return 0;/|plain|unit_gpu_guard|a_block_that_is_taken_or_freed_is_passed_over
arena-guard-looks-once-on-gpus|arena_guard.c|s/if (good .. locked) return good;/return good;/|plain|unit_gpu_guard|a_check_beside_other_calls_finds_nothing
guard-lane-overrun-unseen|memlane_guard.c|s/!is_red(s, r, &at)) {/0) {/|plain|unit_lane_guard|an_overrun_of_one_byte_is_told_by_the_free
guard-lane-nothing-poisoned|memlane_guard.c|s/open \&\& is_alone(s, r->zone) \&\&/0 \&\&/|plain|unit_lane_guard|a_write_after_the_free_is_found
guard-lane-poison-under-a-late-peer|memlane_guard.c|s/return zone == SYMM_MEM_LOCAL.*/return zone >= 0;/|plain|unit_lane_guard|peers_that_are_late_do_no_damage
guard-lane-poison-over-a-peers-write|memlane_guard.c|s/return symm_coll_barrier(l->set->comm, l->stream);.*/return symmSuccess;/|plain|unit_lane_guard|poison_is_there_before_a_peer_writes
guard-lane-spares-a-barrier|memlane_pool.c|s/if (l->set->guard) return; .*//|plain|unit_lane_guard|peers_that_are_late_do_no_damage
guard-lane-red-zone-comes-late|memlane_guard.c|s/SYMM_TRY(symm_memmark_follow.*/(void)painted;/|plain|unit_lane_guard|a_red_zone_never_comes_late
guard-lane-judges-what-is-not-painted|memlane_guard.c|/^static int all_good/,/^}/s/if (!symm_memmark_soon(/if (0 \&\& !symm_memmark_soon(/|plain|unit_lane_guard|poison_comes_behind_the_work
guard-lane-unpainted-bytes-judged|memlane_pool.c|s/l->set->guard->unpainted\[r->zone\] = 1;/;/|plain|unit_gpu_lane_guard|a_driver_that_fails_is_no_damage
guard-lane-query-reaches-the-red-zone|memlane.c|/in its red zone/d|plain|unit_lane_guard|questions_do_not_see_what_lies_behind
guard-lane-pool-unseen|memlane_guard.c|s/: s->guard->unpainted\[zone\])/: 1)/|plain|unit_lane_guard|a_write_after_the_free_is_found
guard-lane-leaves-unseen|memlane.c|s/if (s->guard) symm_memguard_look(s);//|plain|unit_lane_guard|what_leaves_the_lanes_is_looked_at
guard-lane-handed-out-unseen|memlane_guard.c|/^symmResult_t symm_memguard_taken/,/^}/s/symm_guard_note(s->heap, text);/;/|plain|unit_lane_guard|a_write_after_the_free_is_found
guard-graph-overrun-unseen|memplan_guard.c|s/symm_guard_note(w->heap, text);/;/|plain|unit_lane_guard|a_graph_looks_where_it_frees
guard-graph-look-behind-the-free|memplan.c|/^static symmResult_t guard_free/,/^}/s/return symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, point);/return symmSuccess;/|plain|unit_lane_guard|a_graphs_look_is_before_the_next_block
guard-graph-left-block-unseen|memplan.c|s/l->set->guard && b->live ? symm_memguard_left/0 ? symm_memguard_left/|plain|unit_lane_guard|a_block_that_a_graph_left_is_looked_at
guard-graph-launch-not-waited-for|memplan_guard.c|s/ .. !has_run(p->region)//|plain|unit_lane_guard|a_block_that_a_graph_left_is_looked_at
guard-lane-paints-on-a-shut-stream|memlane_guard.c|s/return !symm_mem_shut(l->set->comm, l->stream);/return 1;/|plain|unit_gpu_lane_guard|a_lane_on_the_legacy_stream_paints_nothing_while_others_are_captured
guard-lane-paints-what-is-gone|memlane_guard.c|s/if (is_over(s->comm, g, SYMM_MEMGUARD_WAIT_MS)) {/if (1) {/|plain|unit_lane_guard_late|a_heap_ends_before_its_streams_paint
guard-graph-waits-each-time|memplan_guard.c|/if (r->stands \&\& /d|plain|unit_lane_guard_late|a_graph_that_stands_is_waited_for_once
guard-graph-frees-beside-the-painting|memplan_guard.c|/who frees is behind/s/r = symm_memplan_point([^;]*;/r = symmSuccess;/|plain|unit_lane_guard_late|a_branch_beside_the_painting_frees_nothing
arena-guard-judges-what-is-not-painted|arena_guard.c|s/darken_now(a->guard, off, room);/(void)darken_now;/|plain|unit_gpu_guard|what_could_not_be_painted_is_no_damage
guard-graph-used-counts-red-zones|memplan_mem.c|s/b->at + b->bytes - b->red}/b->at + b->bytes}/|plain|unit_lane_guard|a_graph_looks_where_it_frees
guard-graph-nothing-painted|memplan_guard.c|s/symm_memguard_paint(l, b->off + asked, b->red, 0)/symmSuccess/|plain|unit_gpu_lane_guard|a_block_that_a_graph_left_is_looked_at
guard-lane-piece-used-under-a-peer|memlane_pool.c|s/if (s->guard \&\& zone == SYMM_MEM_SYM/if (0 \&\& zone == SYMM_MEM_SYM/|plain|unit_lane_guard|a_peer_may_have_its_block_earlier
guard-lane-trim-judges-what-a-peer-has|memlane_guard.c|s/if (!together .. !is_alone(s, zone)) return 1;//|plain|unit_lane_guard|a_peer_may_have_its_block_earlier
collect-takes-what-one-rank-has|heap_tidy.c|s/r < c->nranks \&\& in; r++) in = has/r < 1; r++) in = has/|plain|unit_heap_tidy|collect_returns_what_every_rank_has
window-grows-over-its-neighbour|space.c|s/slot->next ? slot->next->off : s->stride/s->stride/|plain|fault_window_grow|a_window_moves_where_addresses_are_taken
staging-leaves-scratch|plan_gpu.c|s/(int)(warps \* rows <= each ? warps : .*/(int)warps;/|plain|unit_plan|every_call_has_a_gpu_kernel
gpu-staging-used-again-early|symm_types.h|s/SYMM_GPU_STAGE_PLACES 4/SYMM_GPU_STAGE_PLACES 3/|plain|unit_kernels|every_kernel_in_any_order
gpu-pieces-not-waited-for|staged.cuh|s/if (!k .. posts_wait(r, w, k - 1)) continue;/if (!k) continue;/|plain|unit_kernels|every_kernel_in_any_order
gpu-posted-before-all-have-stored|staged.cuh|s/return meet(2, w.warps \* 32u, left);/return left;/|plain|unit_kernels|every_kernel_in_any_order
gpu-results-taken-early|relayed.cuh|s/k >= 3 \&\& j/k >= 2 \&\& j/;s/relay_take<N, U>(a, w, k - 3/relay_take<N, U>(a, w, k - 2/|plain|unit_kernels|every_kernel_in_any_order
gpu-relayed-pieces-not-waited-for|relayed.cuh|s/if (!k .. posts_wait(r, w, k - 1)) continue;/if (!k) continue;/|plain|unit_kernels|every_kernel_in_any_order
gpu-results-over-parts|relayed.cuh|s/, PHASE_RESULTS)/, PHASE_PARTS)/|plain|unit_kernels|every_kernel_in_any_order
gpu-lines-used-again-early|lines.cuh|s/PUSH_PLACES 4u/PUSH_PLACES 3u/|plain|unit_kernels|every_kernel_in_any_order
gpu-slices-used-again-early|lines.cuh|s/SHOT_PLACES 2u/SHOT_PLACES 1u/|plain|unit_kernels|every_kernel_in_any_order
gpu-arrivals-not-waited-for|direct.cuh|s/while (p != a->rank \&\& (uint32_t)take8/while (0 \&\& (uint32_t)take8/|plain|unit_kernels|every_kernel_in_any_order
gpu-scratch-without-parity|dev.cuh|s/(r.epoch \& 1u) \* 2u/0u/|plain|unit_kernels|every_kernel_in_any_order
gpu-flags-before-their-data|dev.cuh|/^DEV void line_put/,/^}/s/if (!flags) put16/put16/|plain|unit_kernels|every_kernel_in_any_order
gpu-lanes-leave-one-by-one|lines.cuh|s/r.left = __any_sync(0xffffffffu, scalars_wait(r))/scalars_wait(r)/|plain|unit_kernels|ranks_that_differ_all_leave an_abort_at_any_step_ends_all_kernels
scratch-cuts-direct-kernels|plan_gpu.c|s/p->stage_ctas = (int)ctas;/p->ctas = p->stage_ctas = (int)ctas;/|plain|unit_plan|large_calls_fill_the_gpu
gpu-first-bytes-left-out|staged.cuh|s/if (w.lead \&\& a->rank == 0) .*/;/|plain|unit_kernels|every_kernel_in_any_order
gpu-ends-of-parts-left-out|direct.cuh|s/^    ag_ends(a, at, n, part, lead.*/;/|plain|unit_kernels|every_kernel_in_any_order
gpu-own-first-bytes-left-out|lines.cuh|s/if (!at \&\& (unsigned)w.lane < lead) .*/;/|plain|unit_kernels|every_kernel_in_any_order
gpu-some-lie-otherwise|direct.cuh|s/((at.dst\[p\] - at0) . (at.src\[p\] - at0 - (unsigned)p \* part)) \& 15u/(at.dst[p] - at0) \& 15u/|plain|unit_kernels|every_kernel_in_any_order
gpu-all-warps-send-lines|lines.cuh|s/return threadIdx.x >> 5 < a->gpu.line_warps;/return 1;/|plain|unit_kernels|every_kernel_in_any_order
relay-need-not-agree|param.c|s/(uint64_t)p->relay, /0, /|plain|unit_param|the_hash_covers_what_ranks_must_share
gpu-halves-the-wrong-way|dev.cuh|s/return low >> 16 . high << 16/return (high >> 16) + (low << 16)/|plain|unit_kernels|every_kernel_in_any_order
plan-falls-through-to-the-barrier|plan.c|s/return SYMM_KERNEL_COUNT; .*/return SYMM_KERNEL_BARRIER;/|plain|unit_plan_none|a_collective_without_a_row_has_no_kernel
gpu-plan-falls-through-to-the-barrier|plan_gpu.c|s/const table_row \*last = NULL;/const table_row *last = \&table[ROWS - 1];/|plain|unit_plan_none|a_collective_without_a_row_has_no_kernel
gpu-wait-for-all-in-the-callers-mode|gpu.c|/^cu_result symm_gpu_reach_all/,/^}/{s/symm_gpu_push/symm_gpu_enter/;s/symm_gpu_pop(c, /symm_gpu_leave(/;}|plain|unit_gpu_unsafe|marks_of_a_stream_that_is_gone
gpu-launched-plans-unnoted|memplan_graph.c|s/if (!r .. p->ncalls) symm_gpu_replayed(c, stream);/;/|plain|unit_gpu_replay|finalize_and_destroy_wait_for_launched_plans
gpu-loose-graphs-not-waited-for|gpu.c|s/return !cu .. all ?/return !cu \&\& 0 ?/|plain|unit_gpu_replay|destroy_waits_where_graphs_hold_nothing
gpu-lines-however-large|plan_gpu.c|s/env->relay == SYMM_RELAY_AUTO \&\& bytes > LINES_UPTO/env->relay == SYMM_RELAY_AUTO \&\& 0 > LINES_UPTO/|plain|unit_plan|direct_kernels_relay_by_size
gpu-posted-without-release|staged.cuh|/^DEV void post(/,/^}/s/give8/put8/|plain|unit_kernels|every_kernel_in_any_order
gpu-arrived-without-release|direct.cuh|/^DEV void arrive_and_wait/,/^}/s/give8/put8/|plain|unit_kernels|every_kernel_in_any_order
gpu-flags-without-fence|dev.cuh|/^DEV void line_put/,/^}/s/__threadfence_system();/;/|plain|unit_kernels|every_kernel_in_any_order
gpu-fence-of-one-lane|dev.cuh|/^DEV void line_put/,/^}/{/if (!flags)/,/__syncwarp/s/__syncwarp()/(void)__any_sync(0xffffffffu, 0)/;}|plain|unit_kernels|every_kernel_in_any_order
gpu-leaves-at-the-first-look|dev.cuh|s/if ((\*since \& LEFT_SEEN) == seen) return 1;/return 1;/|plain|unit_kernels|a_rank_that_has_ended_may_leave
gpu-parts-written-without-a-look|direct.cuh|/^template <int N> DEV void ag_direct/,/^}/s/look_over(r);/;/|plain|unit_kernels|an_aborted_ranks_windows_are_left_alone
gpu-offsets-taken-without-a-look|direct.cuh|/^DEV int take_offset/,/^}/s/look_over(r), //|plain|unit_kernels|a_rank_that_has_left_is_not_begun_with
gpu-line-read-behind-a-vote-alone|dev.cuh|/^DEV int line_wait/,/^}/s/__syncwarp();/;/|plain|unit_kernels|every_kernel_in_any_order
gpu-lines-read-behind-a-vote-alone|lines.cuh|/^DEV int line_gather/,/^}/s/__syncwarp();/;/|plain|unit_kernels|every_kernel_in_any_order
gpu-posts-behind-a-vote-alone|staged.cuh|/^DEV int posts_wait/,/^}/s/__syncwarp();/;/|plain|unit_kernels|every_kernel_in_any_order
gpu-barrier-without-release|frame.cuh|/^template <int ORDERS> DEV void exchange_signatures/,/^}/s/give8/put8/|plain|unit_kernels|a_barrier_orders_what_was_stored_before_it
grid-larger-than-the-gpu|plan.c|s/if (e.ctas > e.sms)/if (0)/|plain|unit_plan|every_call_has_a_gpu_kernel
host-kernels-on-gpus|plan.c|/^int symm_plan_can/,/^}/s/env->gpu ? SYMM_K_GPU : SYMM_K_HOST/SYMM_K_GPU + SYMM_K_HOST/|plain|unit_plan|no_kernel_runs_on_the_wrong_backend
unsealed-files-are-mapped|memfd.c|s/(seals & SEALS) != SEALS/seals < 0/|plain|unit_vmm_share|import_refuses_files_that_could_change_under_us
no-room-for-what-is-found|exchange.c|s/symm_slots_dropped(c->space, have)/symm_slots_dropped(c->space, NULL)/|plain|fault_drop_order|new_memory_on_one_rank
memory-not-cleared|vmm_cuda.c|s/cu = zeros ? symm_cuda_clear(device, .raw, bytes) : 0;/cu = 0;/|plain|unit_cuda_vmm|new_memory_is_clear
reference-kept-twice|vmm_cuda.c|/if (known .. !fresh) symm_cu.cuMemRelease/d|plain|unit_cuda_vmm|threads_may_use_it_at_once
unreachable-device-included|cuda_device.c|/!symm_cuda_reaches(d, owner)) continue/d|plain|unit_cuda_vmm|a_device_that_cannot_reach_is_left_out
fabric-attribute-believed|cuda_probe.c|/cu = try_handles(device, types, SYMM_CUDA_HANDLE_FABRIC/d|plain|unit_cuda_vmm|fabric_handles_are_tried_not_believed
fill-on-the-null-stream|cuda_copy.c|/cuMemsetD32Async/s/word, stream), stream/word, NULL), NULL/|plain|unit_cuda_vmm|contents_wait_for_no_kernel
capture-mode-kept|cuda_device.c|/scope = (symm_cuda_scope)/s/MODE_RELAXED/MODE_GLOBAL/|plain|unit_cuda_vmm|a_capture_is_not_spoilt
descriptor-outlives-exec|vmm_cuda.c|/F_SETFD, FD_CLOEXEC/d|plain|unit_cuda_share|export_and_import_give_the_same_memory
memory-without-handles-taken|vmm_cuda.c|s/if (cu .. !(types & SYMM_CUDA_HANDLE_FD))/if (cu)/|plain|unit_cuda_share|memory_of_another_allocator_is_found_piece_by_piece
context-left-pushed|cuda_device.c|/if (scope->pushed) symm_cu.cuCtxPopCurrent/d|plain|unit_cuda_driver|scopes_nest_and_restore
overlap-on-a-shared-gpu|comm_make.c|s/return c->gpu_shared .. is_cut(c)/return is_cut(c)/|plain|unit_gpu|ranks_of_one_gpu_launch_without_overlap
shared-gpu-not-said|comm_make.c|s/goes_apart(c) ? SYMM_ARG_APART : 0/0/|plain|unit_gpu|ranks_of_one_gpu_launch_without_overlap
mates-not-asked|launch_gpu.c|s/c->gpu_mate ? check_mates(c, stream) : symmSuccess/symmSuccess/;s/^static symmResult_t check_mates/__attribute__((unused)) &/|plain|unit_gpu_life|thread_ranks_of_one_gpu_have_streams_of_their_own
mates-once-there-in-the-way|launch_gpu.c|/doing.calls, __ATOMIC_ACQUIRE) < calls) continue;/d|plain|unit_gpu_life|thread_ranks_of_one_gpu_have_streams_of_their_own
mates-two-ahead-not-seen|launch_gpu.c|s/__ATOMIC_ACQUIRE) < calls) continue/__ATOMIC_ACQUIRE) != calls) continue/|plain|unit_gpu_life|thread_ranks_of_one_gpu_have_streams_of_their_own
mates-per-thread-stream-is-one|launch_gpu.c|s/(uintptr_t)pthread_self() . 1/1/|plain|unit_gpu_life|thread_ranks_of_one_gpu_have_streams_of_their_own
mates-replays-not-minded|launch_gpu.c|/if (captured .. __atomic_load_n(&ctl->doing.captured/d;s/, captured = c->ctl->doing.captured//|plain|unit_gpu_life|thread_ranks_of_one_gpu_have_streams_of_their_own
mates-own-capture-not-minded|launch_gpu.c|s/if (captured .. __atomic/if (__atomic/;s/, captured = c->ctl->doing.captured//|plain|unit_gpu_life|thread_ranks_of_one_gpu_have_streams_of_their_own
change-of-stream-unordered|launch_gpu.c|s/SYMM_TRY(symm_gpu_follow(c, stream));/(void)0;/|plain|unit_gpu|streams_are_in_order
streams-of-threads-unordered|launch_gpu.c|s/g->marked = cu == 0/g->marked = 0/|plain|unit_gpu|per_thread_streams_of_two_threads_are_in_order
broken-driver-told-to-nobody|backend.c|s/symm_kernel_have_images() \&\& symm_cuda_broken()/0/|plain|fault_gpu_machine|a_driver_that_is_too_old
no-gpus-told-to-everybody|cuda_driver.c|s/o->broken = !is_without_devices(cu);/o->broken = 1;/|plain|fault_gpu_machine|a_driver_that_finds_no_gpus
call-number-zero|launch_gpu.c|s/g->serial == UINT32_MAX ? 1 : g->serial + 1/g->serial + 1/|plain|unit_gpu|calls_are_never_number_zero
refused-launch-counted|launch_gpu.c|s/symm_doing_undo(c);/;/|plain|unit_gpu_life|a_refused_launch_was_no_call
host-pointer-taken|gpu.c|s/if (cu != SYMM_CUDA_ERROR_INVALID_VALUE)/if (1)/|plain|fault_gpu_machine|a_host_pointer_is_refused_by_name
reachable-host-memory-refused|gpu.c|s/if (!cu \&\& pageable) return symmSuccess;//|plain|fault_gpu_machine|a_host_pointer_is_refused_by_name
another-gpus-stream-taken|gpu.c|s/if (home == c->gpu->context)/if (home)/|plain|unit_gpu|wrong_streams_are_refused
group-forgets-the-device|comm_init.c|s/symm_group_open() ? symm_backend_context() : NULL/NULL/|plain|unit_gpu|a_group_creates_each_rank_on_the_device_that_was_current
child-on-another-gpu|comm_child.c|s/c->gpu ? c->gpu->context : NULL/NULL/|plain|unit_gpu|children_live_on_their_parents_gpus
plan-hold-leaves-the-graph-its-objects|gpu_hold.c|s/cu_result cu = symm_cu.cuGraphReleaseUserObject(.*;/cu_result cu = 0;/|plain|unit_gpu_hold|a_plan_that_holds_makes_executables_light
plan-hold-never-let-go|memplan_graph.c|/symm_gpu_let_go(&pins);/d|plain|unit_gpu_hold|a_plan_that_holds_may_be_bound_late
plan-hold-let-go-twice|gpu_hold.c|s/if (!k->taken) k->release/k->release/|plain|unit_gpu_hold|a_plan_that_holds_may_be_bound_late
captured-calls-side-by-side|launch_gpu.c|s/SYMM_TRY(follow_captured(c, stream, in));/(void)follow_captured;/|plain|unit_gpu_graph|captured_calls_of_two_streams_keep_their_order
captures-in-turns-forgotten|captured.c|s/if (c->captured\[i\].no < at->no) at = &c->captured\[i\];/;/|plain|unit_gpu_graph|captures_in_turns_keep_an_order_each
ends-without-its-replays|comm_end.c|s/return await_replays(c);/return (void)await_replays, symmSuccess;/|plain|fault_replay|finalize_and_destroy_wait_for_launches
ends-without-replays-of-copies|graph.c|/^int symm_graph_copy_holds/,/^}/s/\*copy = \*h;/*copy = *h, copy->user.begin = NULL;/|plain|fault_replay|a_graph_in_a_graph_is_waited_for
replays-of-the-dead-begin|launch_host.c|/^static symmResult_t may_launch/,/^}/s/if (.*) return/if (1) return/|plain|fault_replay|a_graph_of_a_destroyed_communicator_is_refused
captures-in-turns-forgotten-on-the-host|captured.c|s/if (c->captured\[i\].no < at->no) at = &c->captured\[i\];/;/|plain|thr_stream|captures_in_turns_keep_an_order_each
captured-calls-side-by-side-on-the-host|launch_host.c|s/SYMM_TRY(follow_captured(l->comm, stream));/(void)follow_captured;/|plain|thr_stream|captured_calls_of_two_streams_keep_their_order
legacy-stream-marked-in-a-capture|gpu.c|s/cu == SYMM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT/0/|plain|unit_gpu_graph|a_legacy_stream_is_left_alone_while_others_are_captured
group-sorts-by-communicator|group.c|s/goes_on(j->lane)) run_job(j);/j == j->lane->first) run_lane(j->lane);/|plain|unit_gpu_graph|grouped_calls_of_two_communicators_keep_their_order
group-means-another-threads-stream|group.c|s/l->threaded \&\& j->kind == SYMM_JOB_HERE/0/|plain|unit_gpu_graph|a_group_means_the_callers_per_thread_stream
group-takes-any-stream|launch_gpu.c|/^static symmResult_t check_stream/,/^}/s/symmResult_t r = symm_gpu_look(c, stream, &in);/symmResult_t r = symmSuccess;/|plain|unit_gpu_graph|a_group_checks_streams_at_the_call
group-takes-any-host-stream|launch_host.c|s/return symm_stream_check(stream);/return stream ? symmSuccess : symmSuccess;/|plain|thr_stream|a_group_checks_streams_at_the_call
group-is-not-seen|group.c|/atomic_fetch_add_explicit(open_here/d|plain|thr_stream|a_group_checks_streams_at_the_call
scalar-of-the-host-taken|redop.c|s/if (c->cuda \&\& residence == symmScalarDevice)/if (0)/|plain|unit_gpu|a_device_scalar_in_host_memory_is_refused
lane-on-a-shut-stream-marked|memlane_stream.c|s/if (!symm_mem_shut(c, stream)) return/if (1) return/|plain|unit_gpu_lane|a_lane_on_the_legacy_stream_gives_nothing_while_others_are_captured
lane-on-a-shut-stream-inherits|memlane.c|s/ .. symm_mem_shut(s->comm, o->stream)) continue/) continue/|plain|unit_gpu_lane|a_lane_on_the_legacy_stream_gives_nothing_while_others_are_captured
lane-on-a-shut-stream-has-a-barrier|memlane_pool.c|s/SYMM_TRY(symm_mem_open(l->set->comm, l->stream));/;/|plain|unit_gpu_lane_guard|a_lane_on_a_stream_that_is_shut_spoils_no_capture
lane-on-a-shut-stream-is-passed-over|memlane_pool.c|s/zone == SYMM_MEM_LOCAL .. symm_mem_shut/symm_mem_shut/|plain|unit_gpu_lane_guard|a_lane_on_a_stream_that_is_shut_spoils_no_capture
plan-on-any-threads-stream|memplan_graph.c|s/if (!c->cuda .. !symm_gpu_is_per_thread(stream)) return/if (1) return/|plain|unit_gpu_lane|a_plan_is_not_launched_on_the_per_thread_stream
lane-on-a-shut-stream-gives|memlane_pool.c|s/if (alive .. zone == SYMM_MEM_LOCAL .. symm_mem_shut(s->comm, o->stream))/if (0)/|plain|unit_gpu_lane|a_lane_on_the_legacy_stream_gives_nothing_while_others_are_captured
overlap-of-cut-grids|comm_make.c|s/return c->gpu_shared .. is_cut(c)/(void)is_cut; return c->gpu_shared/|plain|unit_gpu|cut_communicators_launch_without_overlap
overlap-asked-for-by-the-host|comm_make.c|s/programmatic &= !goes_apart(c)/programmatic \&= 1/|plain|unit_gpu|cut_communicators_launch_without_overlap
end-waits-for-a-context-that-is-gone|gpu.c|s/\*runs = r \&\& !context_is_gone(c);/*runs = r \&\& context_is_gone(c) < 2;/|plain|fault_gpu|a_context_that_is_gone_holds_up_no_end
captured-call-holds-nothing|launch_gpu.c|/SYMM_TRY(hold_call(in, l));/s//(void)hold_call;/|plain|unit_gpu_graph|a_graph_keeps_windows_and_communicator
pins-taken-once-a-call|gpu_hold.c|s/comm \&\& is_pinned(c->gpu, obj)/0/|plain|unit_gpu_graph|the_communicator_may_keep_them_instead
ended-graphs-kept|comm_end.c|/if (gpus) symm_gpu_reap/d|plain|unit_gpu_graph|what_graphs_let_go_is_freed_soon
device-work-not-ordered|synced_move.c|s/: s->ops->follow(s, stream);/: symmSuccess;/|plain|unit_synced|a_reader_comes_after_a_push
writer-over-a-push|synced.c|/a push may still read what the caller/d|plain|unit_synced|a_writer_waits_for_a_push
destroyed-under-a-push|synced.c|/^static symmResult_t wind_up/,/^}/s/r = symm_synced_settle(s)/r = symmSuccess/|plain|unit_synced|destroy_and_set_wait_for_a_push
generation-without-release|synced_host.c|s/memory_order_release/memory_order_relaxed/|tsan|thr_synced|peers_poll_the_generation_and_read
unnamed-writer-forgotten|dirty_ranges.c|/d->whole .= d->unnamed;/d|plain|unit_synced_use|a_writer_that_names_nothing_makes_it_all_dirty
captured-push-holds-nothing|synced_move.c|/SYMM_TRY(s->ops->hold(s, stream));/d|plain|unit_gpu_synced|pushes_and_pulls_are_captured
local-pieces-unturned|heap_dump.c|/turn(pieces, n);/d|plain|unit_heap_dump|the_picture_is_that_of_the_heap
copy-that-is-lost-sight-of|synced_move.c|/if (r) s->ops->drain(s, stream);/d|plain|unit_gpu_synced|a_copy_that_cannot_be_marked_is_waited_for
registering-pages-spoils-a-capture|comm_make.c|/SYMM_TRY(symm_gpu_push(c, &scope));/,/symm_gpu_pop/{/symm_gpu_p[uo]/d}|plain|unit_gpu_graph|set_up_spoils_no_capture
lane-epoch-without-barrier|memlane_pool.c|s/SYMM_TRY(symm_coll_barrier(l->set->comm, l->stream));//|plain|thr_lane|a_late_peer_does_not_write_into_a_block_used_again
lane-follows-nobody|memlane_pool.c|/symm_memmark_follow(l->set->comm, &g->given/d|plain|unit_lane|another_lane_comes_behind_the_free
lane-spared-by-another-stream|memlane_pool.c|s/c->heard_stream != l->stream/0/|plain|thr_lane|other_streams_and_empty_calls_spare_none
lane-spared-by-an-empty-call|colls.h|s/call->count > 0)/1)/|plain|thr_lane|other_streams_and_empty_calls_spare_none
lane-heir-not-behind|memlane.c|s/r = symm_memmark_follow(c, &now, heir->stream);/r = symmSuccess;/|plain|unit_lane|a_lane_that_ends_hands_over_what_it_had
graph-block-without-barrier|memplan.c|s/SYMM_TRY(symm_coll_barrier(p->set->comm, l->stream));.*/symm_memplan_called(p->set->comm, l->stream, 1);/|plain|thr_lane|G_3_3_a_replay_waits_for_late_peers
graph-siblings-in-one-place|gplan.c|s/!symm_gplan_follows(p, point, b->to)/0/|plain|unit_gplan|random_graphs_never_put_two_lives_in_one_place
graph-ranks-not-heard|gplan.c|s/return UNHEARD;/return FREE;/|plain|unit_gplan|random_graphs_never_put_two_lives_in_one_place
graph-launches-unordered|memplan_graph.c|s/SYMM_TRY(follow_launch(p->region, stream));/(void)follow_launch;/|plain|unit_lane_graph|G_5_a_change_of_stream_keeps_the_order
graph-launch-ignores-late-frees|memplan_graph.c|s/SYMM_TRY(symm_memlate_follow(p, stream));//|plain|unit_lane_late|G_3_3_another_graph_waits_for_a_free_on_another_stream G_3_3_a_graph_captured_later_waits_too G_3_3_a_kept_block_is_waited_for_by_its_own_graph
graph-launch-ignores-late-frees-at-random|memplan_graph.c|s/SYMM_TRY(symm_memlate_follow(p, stream));//|plain|unit_lane_model|random_graphs_of_one_rank
graph-barrier-not-behind-late-frees|memplan_graph.c|s/SYMM_TRY(symm_memlate_follow(p, stream));//|plain|thr_lane|G_3_3_another_graph_waits_for_every_ranks_free
graph-launch-waits-for-all-late-frees|memplan_late.c|s/touches(p, e) ? BY_THIS_LAUNCH : NOT_YET/BY_THIS_LAUNCH/|plain|unit_lane_late|G_3_3_another_graph_waits_for_a_free_on_another_stream
graph-late-free-seen-once|memplan_late.c|s/if (e->followed == NOT_YET) r->lates++;//|plain|unit_lane_late|G_3_3_another_graph_waits_for_a_free_on_another_stream
graph-new-block-thought-clear|memplan.c|s/p->clear_of = UINT64_MAX;//|plain|unit_lane_late|G_3_3_a_plan_waits_for_the_bytes_of_its_new_block
graph-late-free-thought-behind|memplan_late.c|s/e->followed = behind.*/e->followed = FOLLOWED;/|plain|unit_lane_late|G_3_3_another_graph_waits_for_a_free_on_another_stream
graph-kept-block-thought-alone|memplan_late.c|/^static int touches/,/^}/s/b->no < 0 \&\&/0 \&\&/|plain|unit_lane_late|G_3_3_a_kept_block_is_waited_for_by_its_own_graph
graph-free-in-a-graph-holds-the-plan|memplan_graph.c|/^static void note_launch/,/^}/s/symm_memplan_settle(o);//|plain|unit_lane_late|G_6_a_free_in_a_graph_lets_go_of_an_ended_plan
graph-free-in-a-graph-unnoted|memplan_graph.c|s/symm_memlate_launched(p, here, stream);//|plain|unit_lane_late|G_3_3_a_free_in_another_lanes_graph_is_waited_for
graph-launched-by-the-program-marked-early|memplan_late.c|s/e->lazy = !here .. /e->lazy = /|plain|unit_lane_late|G_3_3_a_free_in_another_lanes_graph_is_waited_for
graph-mark-that-failed-believed|memplan_late.c|s/e->lazy = !here .. symm_memmark_set/e->lazy = !here; (void)symm_memmark_set/|plain|unit_gpu_lane|G_3_3_a_free_in_another_lanes_graph_is_marked
graph-heir-loses-late-frees|memplan_late.c|/^static symmResult_t hand_on/,/^}/s/SYMM_TRY(symm_memmark_set(s->comm, &to->mark, heir->stream));//|plain|unit_lane_late|G_3_3_lanes_that_freed_and_ended_are_waited_for
graph-notes-of-ended-lanes-pile-up|memlane.c|s/r = symm_memlate_inherit(l, heir);/r = symmSuccess;/|plain|unit_lane_late|G_3_3_lanes_that_freed_and_ended_are_waited_for
graph-stale-block-found-first|memplan.c|s/if (sure <= best) continue;/if (found) continue;/|plain|unit_lane_late|G_3_3_a_plan_waits_for_the_bytes_of_its_new_block
graph-plans-open-at-once-share|memplan.c|s/SYMM_TRY(keep_off(p));//|plain|unit_lane_late|G_4_2_plans_open_at_once_keep_apart
graph-trim-waits-for-no-late-free|memplan_mem.c|s/SYMM_TRY(symm_memlate_reach(l->set, r));//|plain|unit_lane_late|G_6_trim_waits_for_a_late_free
graph-bars-outlive-their-memory|gplan.c|s/lift_bars(p, z, off, end);//|plain|unit_gplan|G_6_what_is_withdrawn_is_barred_no_more
graph-withdraws-too-little|gplan.c|s/right = (range){end, last - end}/right = (range){end - 256, last - end + 256}/|plain|unit_gplan|G_6_what_is_withdrawn_is_not_used
graph-trim-under-an-open-plan|memplan_mem.c|s/!t .. withdraw(r, z, &e)/!t/|plain|unit_lane_late|G_6_a_trim_takes_from_plans_that_are_open
graph-kept-block-given-while-read|memplan_life.c|s/const int used = r \&\& symm_memlate_open(r);/const int used = 0;/|plain|unit_lane_late|G_6_a_kept_block_goes_when_its_readers_have_ended
graph-kept-block-swept-while-read|memplan_life.c|/^void symm_memregion_sweep/,/^}/s/symm_memlate_open(r)/0/|plain|unit_lane_late|G_6_a_kept_block_goes_when_its_readers_have_ended
graph-region-ends-while-read|memplan_life.c|/^void symm_memregion_unref/,/^}/s/symm_memlate_open(r)/0/|plain|unit_lane_late|G_6_memory_of_a_lane_that_ends_waits_for_its_readers
graph-last-lane-waits-for-itself|memlane.c|s/if (!r) r = symm_memlate_reach(s, NULL);//|plain|unit_lane_late|G_6_the_last_lane_waits_for_all_readers
graph-set-ends-unwaited|memlane.c|s/(void)symm_memlate_reach(s, NULL);/;/|plain|unit_lane_late|G_6_explicit_nodes_keep_memory_until_their_work_has_ended
graph-nodes-end-unnoted|memplan_late.c|s/if (i < 0) return p->explicit_nodes.*/if (i < 0) return NULL;/|plain|unit_lane_late|G_6_explicit_nodes_keep_memory_until_their_work_has_ended
collect-waits-for-no-late-free|heap_tidy.c|s/status = h->guest->settle(h)/status = symmSuccess/|plain|unit_lane_late|G_6_collect_waits_for_a_late_free
alias-of-live-memory-unseen|memplan_graph.c|s/b->zone, b->at, b->bytes)) continue/b->zone, b->off, b->bytes)) continue/|plain|unit_lane_alias|G_4_2_live_memory_keeps_other_addresses_out
alias-collected-under-work|memplan_late.c|s/SYMM_TRY(symm_memmark_reach(s->comm, &e->mark));/;/|plain|unit_lane_alias|a_collect_waits_for_what_was_freed_behind_work
alias-heir-knows-no-frees|memplan_late.c|/^symmResult_t symm_memlate_inherit/,/^}/s/if (e->reached)/if (1)/|plain|unit_lane_alias|a_collect_waits_for_what_was_freed_behind_work
alias-late-free-noted-by-address|memplan_late.c|s/widen(e, b->zone, b->at, b->at + b->bytes)/widen(e, b->zone, b->off, b->off + b->bytes)/|plain|unit_lane_model|random_graphs_of_one_rank
alias-live-block-barred-by-address|memplan.c|s/symm_gplan_bar(p->points, b->zone, b->at, b->bytes)/symm_gplan_bar(p->points, b->zone, b->off, b->bytes)/|plain|unit_lane_alias|G_4_2_live_memory_keeps_other_addresses_out
alias-without-peers|region.c|s/if (g->mine \&\& rank == g->r->c->rank)/if (g->mine)/|plain|unit_lane_alias|G_4_2_two_graphs_have_two_addresses_over_the_same_bytes
zones-grow-over-tracts|heap_grow.c|s/symm_part next = symm_heap_next_tract(h, zone, at);/symm_part next = {UINT64_MAX, 0};/|plain|unit_lane_alias|zones_grow_around_it
hole-joined-on-one-side|place_engine.inl|/^static inline void join(/,/^}/s/int down = (before > 0)/int down = 0/|plain|unit_place|give_tells_what_it_freed
largest-hole-not-told-upwards|place_tree.inl|/^static inline void tell/,/^}/s/len = largest(n);//|plain|unit_place|first_fit_beside_the_model
largest-hole-not-told-by-takes|place_tree.inl|s/if (len < others) len = others;//|plain|unit_place|large_trees_keep_their_order
hint-of-a-leaf-that-is-gone|place_tree.inl|s/if (__builtin_expect(!same .. !leaf->count, 0)) return 0;/if (!same) return 0;/|plain|unit_place|first_fit_beside_the_model
arena-free-without-the-exchange|arena_core.c|/^symmResult_t symm_arena_give/,/^}/{s/!atomic_compare_exchange_strong_explicit(/(sched_yield(), atomic_store_explicit(/;s/block, &is, \(.*\),$/block, \1,/;s/memory_order_acq_rel, memory_order_relaxed))/memory_order_relaxed), 0))/};s/^#include <errno.h>/&\n#include <sched.h>/|plain|unit_arena_threads|one_of_two_frees_wins
arena-blocks-unknown-to-queries|arena.c|s/symm_heap_set_inside(h, SYMM_OWNER_ARENA, inside, h);//|plain|unit_arena_query|queries_and_references_know_blocks
arena-freed-blocks-known|arena_core.c|s/return (is & SYMM_BLOCK_LIVE) != 0;/return is != 0;/|plain|unit_arena_query|queries_and_references_know_blocks
arena-whole-pieces-only|arena_more.c|s/if (size > least && size > fits)/if (0)/|plain|unit_arena_query|the_heaps_last_bytes_are_taken
arena-extends-nothing|arena_more.c|s/.. !extend(a, bytes, align)//|plain|unit_arena_limit|a_free_neighbour_is_extended
arena-returns-nothing-first|arena_more.c|s/if (symm_global_return_parts(a) &&/if (0 \&\&/|plain|unit_arena_limit|what_is_left_beside_blocks
arena-returns-whole-pieces|arena_more.c|s/if (part_with(a, i, from, to)) continue;/if (to - from < end - r.off ? 1 : part_with(a, i, from, to)) continue;/|plain|unit_arena_limit|blocks_pin_superblocks_only
arena-returns-what-is-in-use|arena_more.c|s/ .. symm_pending_busy(a, &a->pending, from, to, stands)//|plain|unit_arena_limit|before_it_refuses_it_waits
arena-refuses-at-once|arena_core.c|s/if (last) symm_arena_await(a);//|plain|unit_arena_limit|before_it_refuses_it_waits
alias-guard-nothing-on-top|memplan_alias.c|s/top = l->set->guard ? a->bytes : 0;/top = 0;/|plain|unit_lane_alias_guard|what_fits_without_guard_mode_fits_with_it
alias-guard-past-its-addresses|memplan_alias.c|/if (bytes > p->tract_bytes)/d|plain|unit_lane_alias_guard|scarce_addresses_are_enough_for_smaller_blocks
arena-guard-nothing-on-top|arena_guard.c|/if (!a->sym) a->most = /d|plain|unit_arena_guard|what_fits_without_guard_mode_fits_with_it
arena-guard-hides-too-much|arena_guard.c|/if (!a->sym) SYMM_TRY(fits(a, bytes));/d|plain|unit_arena_guard|what_fits_without_guard_mode_fits_with_it
arena-freed-from-afar-is-used|arena_dump.c|s/ - symm_sub_far_bytes(sub);/;/|plain|unit_arena_threads|a_free_on_another_stream_is_waited_for
arena-first-fit-of-threads-only|arena_sub.c|s/kind == SYMM_SUB_STREAM \&\& !a->first ?/kind == SYMM_SUB_STREAM ?/|plain|unit_arena_fit|first_fit_beside_a_model
arena-first-fit-keeps|arena_core.c|s/a->keep = o->first ? 0 :/a->keep =/|plain|unit_arena_fit|first_fit_beside_a_model
arena-first-fit-takes-its-own-again|arena_global.c|s/sub \&\& s \&\& !a->first ?/sub \&\& s ?/|plain|unit_arena_fit|streams_take_the_lowest_superblock
arena-idle-threads-keep|arena_bins.c|s/const int barred = sub != mine .. symm_bins_bar(sub);/const int barred = 0;/|plain|unit_arena_bins|idle_threads_give_back
arena-trim-leaves-the-callers-bins|arena_bins.c|s/if (barred .. sub == mine)/if (barred)/|plain|unit_arena_bins|trim_empties_the_callers_bins
arena-keeps-what-is-not-needed|arena_bins.c|s/symm_sub_flush_bin(sub, units, bin->n - bin->low);//|plain|unit_arena_bins|unused_blocks_leave_the_bins
arena-takes-from-who-is-in|arena_bins.c|s/if (!atomic_load_explicit(&sub->busy, memory_order_seq_cst)) return 1;/return 1;/|tsan|unit_arena_bins|running_threads_give_back
arena-barred-thread-goes-in|arena_bins.c|s/&sub->barred, 1, /\&sub->barred, 0, /|tsan|unit_arena_bins|running_threads_give_back
lane-freed-blocks-known|memlane.c|s/r->state != SYMM_REC_LIVE) return 0;/0) return 0;/|plain|unit_lane|small_blocks_are_whole_lines
arena-others-blocks-taken-for-own|arena_bins.c|s/memory_order_relaxed) != sub) {/memory_order_relaxed) == NULL) {/|plain|unit_arena_shared|what_is_too_much_goes_to_its_owner the_keeper_ends_first
arena-others-blocks-not-kept|arena_core.c|s/symm_sub \*mine = s ? NULL : symm_sub_mine(a);/symm_sub *mine = NULL;/|plain|unit_arena_shared|what_a_thread_frees_it_takes_again
arena-keeps-of-what-has-ended|arena_core.c|s/&owner->kind, memory_order_relaxed) == SYMM_SUB_THREAD)/\&owner->kind, memory_order_relaxed) < 9)/|plain|unit_arena_shared|the_owner_ends_first
arena-large-block-not-waited-for|arena_wait.c|/^void symm_pending_for/,/^}/s/own = e.stream == s/own = 1/|plain|unit_arena_threads|a_block_goes_from_stream_to_stream producer_and_consumer_on_two_streams
arena-far-free-not-waited-for|arena_sub.c|s/if (others) symm_pending_add(a, &sub->waits, 0, 1, s);//|plain|unit_arena_threads|a_free_on_another_stream_is_waited_for producer_and_consumer_on_two_streams
arena-superblock-without-its-point|arena_global.c|s/symm_pending_add(a, &a->pending, off, off + bytes, s);/(void)s;/|plain|unit_arena_threads|superblocks_carry_their_order
arena-ended-stream-not-waited-for|arena_sub.c|/^void symm_sub_close/,/^}/s/symm_pending_add(a, &sub->waits, 0, 1, s);//|plain|unit_arena_threads|an_ended_streams_holes_wait_for_its_work
arena-lone-stream-forgotten|arena_global.c|/^static void note_loose/,/^}/s/loose = 1/loose = 0/|plain|unit_gpu_arena|a_second_stream_comes_behind_the_first
arena-lone-stream-asked-in-its-capture|arena_gpu.c|/^static int gpu_able/,/^}/s/status == SYMM_CUDA_CAPTURE_NONE;/1;/|plain|unit_gpu_arena|the_lone_stream_is_captured
arena-lone-stream-ends-without-its-point|arena_global.c|/^void symm_global_stream_end/,/^}/s/symm_pending_settle(a, &a->pending, s);//|plain|unit_gpu_arena|the_lone_stream_ends
arena-lone-streams-memory-to-the-heap|arena_global.c|/^static void note_loose/,/^}/s/loose = 1/loose = 0/|plain|unit_gpu_arena|trim_asks_the_lone_stream
arena-wait-refused-forgets-others|arena_wait.c|/^void symm_pending_return/,/^}/s/i < from->n/i < from->n - 1/|plain|unit_gpu_arena|a_refused_second_wait_forgets_neither
arena-older-point-waited-for|arena_wait.c|/^static inline int behind/,/^}/s/e->seq >= other->seq/e->seq <= other->seq/|plain|unit_gpu_arena|the_newest_point_is_waited_for
arena-ended-thread-gets-a-sub|arena_threads.c|/^static void thread_ends/,/^}/s/ending = 1;/ending = 0;/|plain|unit_arena_threads|a_destructor_that_runs_late_has_no_sub
arena-ended-thread-keeps-its-name|arena_threads.c|/^static void thread_ends/,/^}/{/thread.self, 0,/d}|plain|unit_arena_shared|a_threads_address_is_not_its_name
arena-thread-is-not-looked-for|arena_threads.c|/^symm_sub .symm_sub_look/,/^}/s/= known(a, NULL)/= NULL/|plain|unit_arena_shared|each_of_many_threads_has_its_own
arena-streams-fit-badly|arena_sub.c|s/kind == SYMM_SUB_STREAM \&\& !a->first ?/0 ?/|plain|unit_arena_threads|small_blocks_of_64_streams
arena-fails-without-its-table|arena.c|s/if (r->dump \&\& (status == symmOutOfMemory/if (r->dump \&\& 0 \&\& (status == symmOutOfMemory/|plain|unit_arena_heap|dump_log_on_failure
arena-superblocks-change-streams|arena_global.c|s/\*off = sub \&\& s \&\& !a->first ?/*off = 0 ?/|plain|unit_arena_threads|a_stream_gets_its_own_superblocks_again
arena-begins-with-the-newest-memory|arena.c|s/r->align, *!o->sym, *heap_take/r->align, 0, heap_take/|plain|unit_arena_heap|what_is_held_is_filled
arena-does-not-turn-its-offsets|arena_global.c|s/return a->up.down ? a->up.limit - off - bytes : off;/return off + 0 * (bytes + a->super);/|plain|unit_arena|highest_first_all_sizes highest_first_holds_no_more
arena-ended-streams-handle-believed|arena_global.c|s/symm_pending_disown(&a->pending, s);//|plain|unit_gpu_arena|the_handle_of_an_ended_stream_is_another_streams
lane-large-blocks-at-lines|memlane_pool.c|s/symm_mempool_fine(symm_memlane_unit(bytes))/symm_mempool_fine(SYMM_MEMLANE_UNIT)/|plain|unit_lane|small_blocks_are_whole_lines
lane-pieces-of-a-quarter|memlane_pool.c|s,reserved / 64 &,reserved / 4 \&,|plain|unit_lane|lanes_of_small_blocks_are_tight
lane-gives-without-a-mark|memlane_pool.c|s/SYMM_TRY(symm_memmark_set(l->set->comm, &z->given, l->stream));//|plain|unit_lane|another_lane_comes_behind_the_free
arena-stripes-are-not-compared|heap_tidy.c|s/return alike ?/return alike >= 0 ?/|plain|unit_arena_heap|ranks_that_differ_on_a_stripe_are_told
arena-frees-are-not-tallied|arena_sub.c|s/tally(sub, 0, 0, off);/(void)0;/|plain|unit_arena_heap|ranks_that_differ_on_a_stripe_are_told
ledger-leaves-no-marks|ledger.c|s/leave_marks(l->mine, e->seq, e->digest);/(void)leave_marks;/|plain|fault_heap|a_call_of_long_ago_is_told_by_marks
ledger-shows-what-does-not-differ|ledger.c|s/if (!is_first(l, first, r, seq))/if (0 \&\& !is_first(l, first, r, seq))/|plain|fault_heap|a_call_of_long_ago_is_told_by_marks
graph-nodes-are-not-noted|memplan_graph.c|/^static symmResult_t add_alloc/,/^}/s/symm_memplan_note(.*);//|plain|thr_lane|ranks_whose_graphs_differ_are_told
alias-trimmed-under-live-blocks|memplan_alias.c|s/if (p->nlive .. (p->held/if ((p->held/|plain|unit_lane_alias_trim|what_is_in_use_is_not_trimmed
alias-trimmed-under-a-graph-of-its-own|memplan_alias.c|s/return !p->destroyed .. symm_memplan_is_left(p);/return p != NULL;/|plain|unit_lane_alias_trim|a_graph_that_lives_on_one_rank_keeps_it
alias-launched-after-a-trim|memplan_graph.c|s/^    SYMM_TRY(check_upload(p));/    (void)check_upload;/|plain|unit_lane_alias_trim|G_6_idle_graphs_give_back_and_come_again
alias-trim-not-undone|memplan_alias.c|s/^    if (!r .. !trimmed) return r;/    return r;/|plain|fault_lane_alias|a_failure_on_one_rank_changes_nothing
access-list-not-asked|heap_api.c|s/^    SYMM_TRY(check_access(h, ref, rank));/    (void)check_access;/|plain|unit_lane_access|a_rank_that_is_not_listed_is_refused
access-list-of-the-newest-alone|memplan_mem.c|s/some &= b->access.some;/some = b->access.some;/|plain|unit_lane_access|graphs_that_share_bytes_share_access
graph-executable-ends-under-its-replays|graph.c|s/while (g->serving < tickets .. g->copies)/while (g->copies)/|plain|unit_graph_exec|destroying_an_executable_waits_for_its_launches
graph-executable-goes-with-its-graph|graph.c|s/const int last = --g->users == 0;/const int last = (--g->users, 1);/|plain|unit_graph_exec|graph_and_executables_end_in_any_order
plan-launches-any-graph|memplan_graph.c|s/^    SYMM_TRY(check_graph(p, exec));/    (void)check_graph;/|plain|unit_lane_plan|only_the_plans_own_graph_is_launched
plan-bound-by-any-lane|memplan_graph.c|s/^    SYMM_TRY(check_lane(p, l, graph));/    (void)check_lane;/|plain|unit_gpu_plan|a_lane_without_a_call_binds_nothing
left-block-lost-by-a-late-free-node|memplan.c|s/if (p->blocks\[i\].freed .. !p->blocks\[i\].live) {/if (p->blocks[i].freed) {/|plain|unit_lane_plan|a_free_node_after_the_launch_loses_no_block
loose-graphs-held-for-ever|memplan_life.c|s/(left \&\& symm_memloose_is_own(p))/0/|plain|unit_lane_loose|memory_comes_back
loose-graphs-let-go-under-their-blocks|memplan_life.c|s/out = p->nlive .. symm_memloose_any(p);/out = p->nlive;/|plain|unit_lane_loose|what_it_leaves_is_freed_as_any_block
loose-graphs-let-go-by-one-rank|memplan_loose.c|s/(!p->sym_no .. p->set->comm->nranks == 1)/1/|plain|unit_lane_loose|ranks_agree_which_graphs_are_gone
loose-graphs-not-agreed-on|heap_tidy.c|s/if (idle >> k & 1) SYMM_TRY/if (k \&\& idle >> k \& 1) SYMM_TRY/|plain|unit_lane_loose|ranks_agree_which_graphs_are_gone
loose-frees-of-an-ended-graph-forgotten|memplan_life.c|s/^    symm_memloose_ends(p);//|plain|unit_lane_loose|another_graph_frees_what_it_leaves
region-step-by-both-zones|memplan.c|s/uint64_t step = have \/ 16/uint64_t step = r->reserved \/ 16/|plain|unit_lane_loose|local_blocks_move_no_symmetric_ones
graph-auto-free-frees-nothing|memplan_graph.c|/^static void note_launch/,/^}/s/p->nlive = 0;//|plain|unit_lane_graph|G_3_4_auto_free_on_launch
synced-pull-leaves-the-state|synced_move.c|/^symmResult_t symm_synced_pull/,/^}/s/s->head = SYMM_SYNCED_SYNCED;//|plain|unit_synced|every_state_times_every_call
survive-believes-a-death-before-the-queue|survive.c|/^static void suspect/,/^}/s/symm_mesh_mark_dead(t->m, r)/symm_ranks_add(\&t->mine.dead, r)/|plain|unit_survive|a_wrong_list_may_be_tried_again all_agree_on_who_is_gone
survive-keeps-its-outcome-to-itself|survive.c|/^static void decide/,/^}/s/    (void)tell(t, &x);.*//|plain|unit_survive|a_wrong_list_may_be_tried_again
survive-passes-no-outcome-on|survive.c|/^static void adopt/,/^}/s/    decide(t, outcome);/    t->ended = 1, t->outcome = outcome;/|plain|unit_survive|a_wrong_list_may_be_tried_again all_agree_on_who_is_gone
survive-hears-old-calls|survive.c|/^static symmResult_t hear(/,/^}/s/x->call < t->mine.call/0/|plain|unit_survive|a_wrong_list_may_be_tried_again
survive-fails-after-it-confirmed|survive.c|/^static symmResult_t lose/,/^}/s/    return propose(t);/    if (t->mine.code) decide(t, symmRemoteError);\n    return t->ended ? symmSuccess : propose(t);/|plain|unit_survive|a_wrong_list_may_be_tried_again
survive-awaits-no-confirmation|survive.c|/^static symmResult_t weigh/,/^}/s/    if (missing(t, t->yes)) return symmSuccess;//|plain|unit_survive|one_ranks_deadline_is_everybodys
survive-loses-what-came-early|survive.c|/^static void keep/,/^}/s/    k->n = n;/    k->n = 0;/|plain|unit_survive|a_wrong_list_may_be_tried_again one_ranks_error_is_everybodys
shrink-leaves-pieces-behind|survive.c|/^static int is_left_behind/,/^}/s/return session != m->session;/return 0;/|plain|fault_shrink|a_shrink_that_fails_after_they_agreed
shrink-ends-where-a-death-shows-late|comm_child.c|/^static int one_more_is_gone/,/^}/s/if (symm_now_ns() >= end) return 0;/return 0;/|plain|fault_shrink|a_death_that_another_rank_tells_first
child-is-done-before-its-parent|comm_child.c|/^static symmResult_t start_behind/,/^}/s/.*&a->made->behind, 1,.*//|plain|fault_behind|the_parent_is_free_when_the_child_is_done
child-behind-keeps-its-parent|comm_child.c|/^static void \*make_behind/,/^}/s/    symm_comm_leave(b.parent);//|plain|fault_behind|a_split_that_does_not_block
group-lets-a-destroy-come-first|comm_end.c|/^symmResult_t symmCommDestroy/,/^}/s/    SYMM_TRY(symm_group_refuse_beside(comm, "symmCommDestroy"));//|plain|fault_behind|calls_in_a_group
vector-shrinks-before-all-can|heap_tidy.c|/^static symmResult_t trim(/,/^}/s/    status = meet(h, status, keep, 0, stage, &idle);/if (s) shorten(h, s);\n&/|plain|unit_vec|a_shrinking_that_fails_on_one_rank_changes_nothing ranks_that_shrink_to_other_sizes_are_told_at_once
vector-size-not-tried-before-it-grows|vec.c|s/if (!status \&\& bytes > have) status = symm_heap_try_resize(h, bytes);//|plain|unit_vec|a_first_growth_that_fails_on_one_rank_changes_nothing
vector-that-cannot-shrink-stays-away|heap_tidy.c|/^symmResult_t symm_heap_shorten/,/^}/s/if (!status) status = symm_heap_try_resize(h, bytes);/SYMM_TRY(symm_heap_try_resize(h, bytes));/|plain|unit_vec|a_shrinking_that_fails_on_one_rank_changes_nothing
vector-tells-its-size-too-early|vec.c|/^static symmResult_t grow(/,/^}/s/SYMM_TRY(check_room(h, bytes));/& symm_ledger_publish(h->ledger, bytes);/|plain|unit_vec|peers_read_while_it_grows
first-end-of-file-believed|mesh_unix.c|s/if (ended) SYMM_TRY(receive(fd, in, &n, state));//|plain|fault_mesh|an_end_that_is_told_too_early_loses_no_message
descriptor-of-stdio|fd.c|s/fd < 0 .. fd > 2/fd < 30000/|plain|fault_stdio|stdout_is_closed
pages-left-to-senders|comm_make.c|s/, symm_comm_first_touch(c);/;/|plain|unit_first_touch|what_a_rank_polls_is_there
small-sets-of-cores-only|cores.c|s/if (bad != EINVAL) return/return/|plain|unit_cores|a_rank_each_is_enough
libc-taken-where-it-crawls|copy_choice.c|s/= symm_copy_crawls(/= 0 \& symm_copy_crawls(/|plain|unit_copy|a_libc_that_crawls_is_found_out
graph-trimmed-while-it-lives|memplan_life.c|s/p->region == r &&$/0 \&\&/|plain|unit_lane_graph|G_6_trim_gives_back_what_no_plan_uses
EOF
}

# The lines of the table that are to be run; as many as make check has the time for, others each time.
some=24
choose() { # names
    seed=${T_SEED:-$(date +%s)}
    if [ $# -gt 0 ]; then
        for name; do
            mutants | awk -F'|' -v n="$name" '$1 == n { print; found = 1 } END { exit !found }' || t_fail "$name" "no such mutant" >&2
        done
    elif [ -n "${T_FULL:-}" ]; then
        mutants
    else
        mutants | awk -v seed="$seed" 'BEGIN { srand(seed) } { print rand() "\t" $0 }' | sort -n | cut -f2- | head -n "$some"
    fi | places >"$out/table"
    [ -n "${T_FULL:-}" ] || [ $# -gt 0 ] || echo "# $some of $(mutants | wc -l) mutants, T_SEED=$seed; T_FULL=1 takes all"
}
# Names of files made paths. One that is not there stays, and is found stale.
places() {
    {
        find src include tests -type f | awk -F'|' 'FNR == NR { path = $0; sub(/.*\//, ""); at[$0] = path; next }
            { n = split($2, names, ","); $2 = ""
              for (i = 1; i <= n; i++) $2 = $2 (i > 1 ? "," : "") (names[i] in at ? at[names[i]] : names[i])
              print }' OFS='|' - /dev/fd/3
    } 3<&0
}
column() { # of the chosen mutants of a program: kind, test, number
    awk -F'|' -v k="$1" -v t="$2" -v c="$3" '$4 == k && $5 == t { gsub(",", " ", $c); print $c }' "$out/table" | tr ' ' '\n' | sort -u
}

passing= # kind/test of what passes unchanged
control() { # kind, test: runs the tests that its chosen mutants name, the files that they change compiled anew
    have "$1" "$2" || return 0
    name="unchanged: $2 ($1)"
    sources=$(for file in $(column "$1" "$2" 2); do reached "$file"; done | tr ' ' '\n' | sort -u)
    [ "$2" != unit_reduce ] || sources= # as the archive has it: that file takes long to build
    made=$(compile "$out/unchanged" "$1" $sources 2>"$out/log") && link "$out/$2.$1" "$1" "$2" $made 2>>"$out/log"
    if [ $? -ne 0 ]; then t_fail "$name" "$(cat "$out/log")"; return; fi
    if run "$out/$2.$1" $(column "$1" "$2" 6); then t_ok "$name" && passing="$passing $1/$2"; else t_fail "$name" "$(tail -n 20 "$out/$2.$1.log")"; fi
}

mutant() { # name, files, script, kind, test, tests
    name=$1 kind=$4 test=$5
    if ! have "$kind" "$test"; then
        t_skip "$name" "needs $(objects "$kind")/libsymm.a and $test.o: make check builds them"
        return
    fi
    case "$passing " in *" $kind/$test "*) ;; *) t_fail "$name" "unchanged, $test does not pass either, or is not run" && return ;; esac
    tree=$out/$name
    copy "$tree"
    changed=
    for file in $(echo "$2" | tr , ' '); do
        sed -i "$3" "$tree/$file"
        cmp -s "$file" "$tree/$file" || changed="$changed $file"
    done
    [ -n "$changed" ] || { t_fail "$name" "stale: the script changes nothing in $2: $3"; return; }
    sources=
    for file in $changed; do sources="$sources $(reached "$file")"; done
    made=$(compile "$tree" "$kind" $(echo $sources | tr ' ' '\n' | sort -u) 2>"$out/log") && link "$tree/$test.$kind" "$kind" "$test" $made 2>>"$out/log"
    if [ $? -ne 0 ]; then t_fail "$name" "does not build: $(cat "$out/log")"; return; fi
    run "$tree/$test.$kind" $6
    case $? in
    0) t_fail "$name" "survived: $test passes ($6)" ;;
    1) t_ok "$name" && [ -n "${KEEP:-}" ] || rm -rf "$tree" ;;
    *) t_fail "$name" "did not run: $(tail -n 20 "$tree/$test.$kind.log")" ;;
    esac
}

copy "$out/unchanged" || exit 2
# A | within a script would be taken for the end of a field (write . for it).
bad=$(mutants | awk -F'|' 'NF != 6 || $4 !~ /^(plain|tsan)$/ || seen[$1]++ { print $1 }')
if [ -z "$bad" ]; then t_ok "the table is well-formed"; else t_fail "the table is well-formed" "$bad"; fi
choose "$@"
awk -F'|' '{ print $4, $5 }' "$out/table" | sort -u >"$out/programs"
while read -r kind test; do
    control "$kind" "$test" </dev/null
done <"$out/programs"
while IFS='|' read -r name files script kind test tests; do
    mutant "$name" "$files" "$script" "$kind" "$test" "$tests" </dev/null
done <"$out/table"
t_done
